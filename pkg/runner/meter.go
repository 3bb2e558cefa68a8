package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-io/holdfast"
)

const (
	// maxLine is how long a report line may be.
	maxLine = 64 << 10
	// maxRead bounds one reading of the report file, so that a child that writes
	// without end cannot keep its supervisor busy; the rest comes with the next.
	maxRead = 4 << 20
	// lastRounds bounds the reading after the child's end, at a gibibyte.
	lastRounds = 256
)

// meter sums the lines {"cost_usd": 0.12} that a child appends to its report file.
// Each line is an increment. A line that is no such object, is negative, absurd or
// longer than maxLine is skipped and counted. The file is the child's to do with as
// it likes: missing, replaced, cut or no file at all, nothing of it is an error.
type meter struct {
	path string // empty: nothing is ever spent

	// Of the reader.
	offset  int64
	partial []byte // of a line without its end
	long    bool   // the line was too long; skip to its end

	mu      sync.Mutex
	spent   holdfast.MicroUSD // whole micro-dollars
	rest    int64             // and what is below one, in picodollars, less than a micro-dollar
	skipped int
}

func newMeter(path string) *meter { return &meter{path: path} }

// total is the sum so far, rounded up to the next micro-dollar, and the number of
// lines that were skipped.
func (m *meter) total() (holdfast.MicroUSD, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rest > 0 {
		return m.spent + 1, m.skipped
	}
	return m.spent, m.skipped
}

// read takes the lines that were completed since the last call and says whether the
// sum rose. After the child's end, last takes an unfinished line as well: it counts
// when it is complete but for the newline, and else is a bad line.
func (m *meter) read(last bool) (rose bool) {
	if m.path == "" {
		return false
	}
	before, _ := m.total()
	for range m.rounds(last) {
		if !m.readFile() {
			break
		}
	}
	if last && (len(bytes.TrimSpace(m.partial)) > 0 || m.long) {
		m.line(m.partial, m.long)
		m.partial, m.long = nil, false
	}
	after, _ := m.total()
	return after > before
}

// rounds is how many readings there may be at once; after the end there is no next
// time.
func (m *meter) rounds(last bool) int {
	if last {
		return lastRounds
	}
	return 1
}

// readFile takes what was appended and says whether there may be more.
func (m *meter) readFile() bool {
	// A child may put a link, a pipe or a device where its file was.
	file, err := os.OpenFile(m.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil || !about.Mode().IsRegular() {
		return false
	}
	if about.Size() < m.offset { // written anew
		m.offset, m.partial, m.long = 0, nil, false
	}
	if _, err := file.Seek(m.offset, io.SeekStart); err != nil {
		return false
	}
	buffer := make([]byte, 32<<10)
	for total := 0; total < maxRead; {
		n, err := file.Read(buffer)
		m.offset += int64(n)
		total += n
		m.take(buffer[:n])
		if err != nil || n == 0 {
			return false
		}
	}
	return true
}

// take splits what was read into lines.
func (m *meter) take(text []byte) {
	for {
		end := bytes.IndexByte(text, '\n')
		part := text
		if end >= 0 {
			part = text[:end]
		}
		if !m.long {
			m.partial = append(m.partial, part...)
			m.long = len(m.partial) > maxLine
		}
		if m.long {
			m.partial = nil
		}
		if end < 0 {
			return
		}
		m.line(m.partial, m.long)
		m.partial, m.long, text = nil, false, text[end+1:]
	}
}

// line takes one line; an empty one says nothing.
func (m *meter) line(text []byte, long bool) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 && !long {
		return
	}
	var report struct {
		Cost json.RawMessage `json:"cost_usd"`
	}
	ok := !long && json.Unmarshal(text, &report) == nil
	var micro holdfast.MicroUSD
	var rest int64
	if ok {
		micro, rest, ok = cost(string(report.Cost))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok || m.spent+micro >= holdfast.MaxUSD {
		m.skipped++
		return
	}
	m.spent += micro
	m.rest += rest
	if m.rest >= picoInMicro {
		m.spent, m.rest = m.spent+1, m.rest-picoInMicro
	}
}

const (
	picoDigits  = 12 // of one dollar
	picoInMicro = 1_000_000
	maxDigits   = 60
)

var errNoCost = errors.New("not a cost")

// cost reads a JSON number, or one in a string, exactly: whole micro-dollars and the
// picodollars below. What is finer than a picodollar counts as one.
func cost(text string) (micro holdfast.MicroUSD, rest int64, ok bool) {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	pico, err := decimal(text, picoDigits)
	if err != nil || pico.Sign() < 0 {
		return 0, 0, false
	}
	whole, below := new(big.Int).QuoRem(pico, big.NewInt(picoInMicro), new(big.Int))
	if !whole.IsInt64() || whole.Int64() > int64(holdfast.MaxUSD) {
		return 0, 0, false
	}
	return holdfast.MicroUSD(whole.Int64()), below.Int64(), true
}

// decimal is text times ten to the power of shift, rounded up. The text is a plain
// decimal number, with an exponent as other languages print small numbers (1e-05).
func decimal(text string, shift int) (*big.Int, error) {
	mantissa, exponentText, scientific := strings.Cut(strings.ToLower(text), "e")
	if scientific {
		exponent, err := strconv.Atoi(exponentText)
		if err != nil || exponent < -maxDigits || exponent > maxDigits {
			return nil, errNoCost
		}
		shift += exponent
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	if whole == "" || len(digits) > maxDigits || strings.Trim(digits, "0123456789") != "" {
		return nil, errNoCost
	}
	n, _ := new(big.Int).SetString(digits, 10)
	shift -= len(fraction)
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil)
	if shift >= 0 {
		return n.Mul(n, power), nil
	}
	n, left := n.QuoRem(n, power, new(big.Int))
	if left.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	return n, nil
}
