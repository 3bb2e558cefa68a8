package simulate

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast"
)

// maxLine is the longest line of JSON that is read.
const maxLine = 64 << 20

const formats = "CSV with a header line, or one JSON object a line"

// file reads one file into the collector.
func (c *collector) file(name string, r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<16)
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(3) // a byte order mark that was just seen
	}
	head, err := in.Peek(4096)
	if len(head) == 0 {
		if err != nil && !errors.Is(err, io.EOF) {
			return &holdfast.InvalidError{Field: name, Problem: "cannot be read: " + reason(err), Allowed: "a readable file"}
		}
		return &holdfast.InvalidError{Field: name, Problem: "the file is empty", Allowed: formats}
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return &holdfast.InvalidError{Field: name, Problem: "the file is not text", Allowed: formats}
	}
	c.begin(name)
	switch first := bytes.TrimLeft(head, " \t\r\n"); {
	case len(first) > 0 && first[0] == '{':
		return c.jsonl(name, in)
	case len(first) > 0 && first[0] == '[':
		return &holdfast.InvalidError{Field: name, Problem: "the file is one JSON list", Allowed: formats}
	}
	return c.csv(name, in, delimiter(head))
}

// delimiter is what separates the names in the header.
func delimiter(head []byte) rune {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	best, most := ',', bytes.Count(line, []byte(","))
	for _, d := range []rune{';', '\t'} {
		if n := bytes.Count(line, []byte(string(d))); n > most {
			best, most = d, n
		}
	}
	return best
}

func (c *collector) csv(name string, in io.Reader, comma rune) error {
	reader := csv.NewReader(in)
	reader.Comma, reader.FieldsPerRecord, reader.ReuseRecord = comma, -1, true
	header, err := reader.Read()
	if err != nil {
		return broken(name, err)
	}
	width := len(header)
	at, err := c.header(name, header)
	if err != nil {
		return err
	}
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(name, err)
		}
		line, _ := reader.FieldPos(0)
		if len(fields) != width {
			c.skip(where(name, line), fmt.Sprintf("it has %d fields, the header %d", len(fields), width))
			continue
		}
		var rec record
		for column, place := range at {
			if place.field >= 0 {
				rec.text[column], rec.ms[column] = strings.TrimSpace(fields[place.field]), place.ms
			}
		}
		c.add(line, rec)
	}
}

// broken is a file that breaks the rules of CSV: there is no telling what its
// fields are, so nothing of it is used.
func broken(name string, err error) error {
	if parse, ok := err.(*csv.ParseError); ok { //nolint:errorlint // as encoding/csv returns it
		place := fmt.Sprintf("%s column %d", where(name, parse.Line), parse.Column)
		if parse.StartLine != parse.Line {
			place = where(name, parse.StartLine) // the row whose quotes run on
		}
		return &holdfast.InvalidError{Field: place, Problem: "broken CSV: " + parse.Err.Error(), Allowed: `a field with quotes inside is quoted, and its quotes are doubled`}
	}
	if errors.Is(err, io.EOF) {
		return &holdfast.InvalidError{Field: name, Problem: "the file has no header", Allowed: formats}
	}
	return &holdfast.InvalidError{Field: name, Problem: "cannot be read: " + reason(err), Allowed: "a readable file"}
}

// place is where a column is in a file of CSV; field -1 is nowhere.
type place struct {
	field int
	ms    bool
}

// header finds the columns. The first of a column's names that is there counts.
func (c *collector) header(name string, header []string) ([columnCount]place, error) {
	var at [columnCount]place
	byName := map[string]int{}
	for i, h := range header {
		if _, twice := byName[plain(h)]; !twice {
			byName[plain(h)] = i
		}
	}
	used := map[int]bool{}
	for column := range at {
		at[column].field = -1
		for _, s := range c.spellings[column] {
			if i, ok := byName[s.plain]; ok {
				at[column] = place{i, s.ms}
				used[i] = true
				c.uses(columnIndex(column), header[i])
				break
			}
		}
	}
	for _, ours := range slices.Sorted(maps.Keys(c.options.Map)) {
		theirs := c.options.Map[ours]
		if _, ok := byName[plain(theirs)]; !ok {
			return at, &holdfast.InvalidError{Field: name, Problem: fmt.Sprintf("it has no column %q to take as %s", holdfast.Clip(theirs, 60), ours), Allowed: clipNames(header)}
		}
	}
	if len(used) == 0 {
		return at, &holdfast.InvalidError{Field: name, Problem: "no column of it is one that a trace can have; it has " + clipNames(header), Allowed: "one or more of " + strings.Join(columnNames(), ", ") + ", their aliases, or --map OURS=COLUMN"}
	}
	var ignored []string
	for i, h := range header {
		if !used[i] && h != "" {
			ignored = append(ignored, holdfast.Clip(h, 40))
		}
	}
	c.ignores(ignored)
	return at, nil
}

func clipNames(names []string) string {
	const most = 30
	var out []string
	for i, n := range names {
		if i == most {
			out = append(out, "…")
			break
		}
		out = append(out, holdfast.Clip(n, 40))
	}
	return strings.Join(out, ", ")
}

// lines hands out the lines of a file one by one; torn says that the last one has no
// end, as when its writer was killed.
func lines(name string, in *bufio.Reader, each func(number int, line []byte, torn bool) error) error {
	var long []byte
	for number := 1; ; {
		part, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, part...); len(long) > maxLine {
				return &holdfast.InvalidError{Field: where(name, number), Problem: "the line is too long", Allowed: "lines of at most 64 MiB"}
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return &holdfast.InvalidError{Field: where(name, number), Problem: "cannot be read: " + reason(err), Allowed: "a readable file"}
		}
		line := part
		if len(long) > 0 {
			long = append(long, part...)
			line = long
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if failed := each(number, line, err != nil); failed != nil {
				return failed
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the file
		}
		long = long[:0]
		number++
	}
}

// jsonl reads one JSON object a line. When the first one is a line of a transcript
// the whole file is read as one.
func (c *collector) jsonl(name string, in *bufio.Reader) error {
	first, transcript := true, false
	project := nameOf(filepath.Base(filepath.Dir(name)))
	if filepath.Dir(name) == "." {
		project = nameOf(stem(name))
	}
	seen := map[string]bool{}
	rows := 0
	err := lines(name, in, func(number int, line []byte, torn bool) error {
		if first {
			first, transcript = false, isTranscript(line)
		}
		if transcript {
			c.transcriptLine(name, project, number, line, torn)
			return nil
		}
		object := map[string]any{}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		err := decoder.Decode(&object)
		if err == nil && decoder.More() {
			err = errors.New("there is more behind the object")
		}
		if err != nil {
			if torn {
				c.skip(where(name, number), "the last line is torn")
				return nil
			}
			return &holdfast.InvalidError{Field: where(name, number), Problem: "broken JSON: " + holdfast.Clip(err.Error(), 120), Allowed: "one JSON object a line"}
		}
		flat := map[string]string{}
		flatten(flat, "", object)
		rows++
		c.object(number, flat, seen)
		return nil
	})
	if err == nil && rows > 0 && !c.usedAny() {
		return &holdfast.InvalidError{Field: name, Problem: "no field of it is one that a trace can have", Allowed: "one or more of " + strings.Join(columnNames(), ", ") + ", their aliases, or --map OURS=FIELD"}
	}
	return err
}

// object is one row of JSON.
func (c *collector) object(line int, flat map[string]string, seen map[string]bool) {
	var rec record
	for column := range rec.text {
		for _, s := range c.spellings[column] {
			if text, ok := flat[s.plain]; ok {
				rec.text[column], rec.ms[column] = strings.TrimSpace(text), s.ms
				if !seen[s.plain] {
					seen[s.plain] = true
					c.uses(columnIndex(column), s.plain)
				}
				break
			}
		}
	}
	c.add(line, rec)
}

// flatten writes an object's plain values under their dotted names, without case
// and punctuation; of a list of objects the first and the last one.
func flatten(into map[string]string, prefix string, object map[string]any) {
	for key, value := range object {
		name := prefix + plain(key)
		switch v := value.(type) {
		case string:
			into[name] = v
		case json.Number:
			into[name] = v.String()
		case bool:
			into[name] = strconv.FormatBool(v)
		case map[string]any:
			flatten(into, name, v)
		case []any:
			if len(v) == 0 {
				continue
			}
			if o, ok := v[0].(map[string]any); ok {
				flatten(into, name+"first", o)
			}
			if o, ok := v[len(v)-1].(map[string]any); ok {
				flatten(into, name+"last", o)
			}
		}
	}
}
