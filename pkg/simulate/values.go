package simulate

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// decimal reads a number that is not negative, as text and exactly, times ten to
// the scale; what is finer is rounded to the nearest. It knows exponents, because
// tables that were floats once are full of them.
func decimal(text string, scale int) (int64, error) {
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(text[i+1:])
		if err != nil || e < -60 || e > 60 {
			return 0, notNumber(text)
		}
		mantissa, exponent = text[:i], e
	}
	whole, frac, _ := strings.Cut(strings.TrimPrefix(mantissa, "+"), ".")
	digits := whole + frac
	if digits == "" || len(digits) > 60 || strings.Trim(digits, "0123456789") != "" {
		return 0, notNumber(text)
	}
	shift := exponent - len(frac) + scale
	roundUp := false
	switch {
	case shift >= 0:
		digits += strings.Repeat("0", shift)
	case -shift > len(digits):
		digits = ""
	default:
		cut := len(digits) + shift
		roundUp = digits[cut] >= '5'
		digits = digits[:cut]
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		digits = "0"
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n == math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", holdfast.Clip(text, 40))
	}
	if roundUp {
		n++
	}
	return n, nil
}

func notNumber(text string) error {
	if strings.HasPrefix(text, "-") {
		return fmt.Errorf("%q is negative", holdfast.Clip(text, 40))
	}
	return fmt.Errorf("%q is not a number", holdfast.Clip(text, 40))
}

// dollars reads an amount of money, to the nearest micro-dollar.
func dollars(text string) (holdfast.MicroUSD, error) {
	n, err := decimal(strings.TrimPrefix(text, "$"), 6)
	if err != nil {
		return 0, err
	}
	if n > int64(holdfast.MaxUSD) {
		return 0, fmt.Errorf("%q is more than a run can cost", holdfast.Clip(text, 40))
	}
	return holdfast.MicroUSD(n), nil
}

// maxTokens is the largest count of tokens that one row may have.
const maxTokens = 10_000_000_000

func tokens(text string) (int64, error) {
	n, err := decimal(text, 0)
	if err != nil {
		return 0, err
	}
	if n > maxTokens {
		return 0, fmt.Errorf("%q is more tokens than a run can use", holdfast.Clip(text, 40))
	}
	return n, nil
}

// maxDuration is the longest run that a trace may have.
const maxDuration = 90 * 24 * time.Hour

// duration reads seconds or milliseconds, or a text such as 1m30s.
func duration(text string, ms bool) (time.Duration, error) {
	scale := 9
	if ms {
		scale = 6
	}
	n, err := decimal(text, scale)
	d := time.Duration(n)
	if err != nil {
		parsed, asText := time.ParseDuration(text)
		if asText != nil || parsed < 0 {
			return 0, err
		}
		d = parsed
	}
	if d > maxDuration {
		return 0, fmt.Errorf("%q is longer than a run can be", holdfast.Clip(text, 40))
	}
	return d.Truncate(time.Millisecond), nil
}

// moment is when something was: at an instant, or so long after the trace's start.
type moment struct {
	at       time.Time
	after    time.Duration
	relative bool
}

// layouts are the ways to write a time; without a zone it is UTC.
var layouts = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04", time.DateOnly, "2006/01/02 15:04:05", "2006/01/02",
}

var errTime = errors.New("is not a time")

// when reads a time. A number is an epoch when it is as large as one (of seconds,
// milliseconds, microseconds or nanoseconds, by its digits), else it counts from
// the trace's start.
func when(text string, ms bool) (moment, error) {
	if text != "" && text[0] >= '0' && text[0] <= '9' && strings.Trim(text, "0123456789.eE+") == "" {
		return count(text, ms)
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return instant(t, text)
		}
	}
	return moment{}, fmt.Errorf("%q %w", holdfast.Clip(text, 40), errTime)
}

func count(text string, ms bool) (moment, error) {
	whole, err := decimal(text, 0)
	if err != nil {
		return moment{}, err
	}
	scale := 3 // to milliseconds
	switch digits := len(strconv.FormatInt(whole, 10)); {
	case digits >= 18:
		scale = -6
	case digits >= 15:
		scale = -3
	case digits >= 12, ms:
		scale = 0
	case digits >= 9:
	default:
		n, err := decimal(text, 3)
		return moment{after: time.Duration(n) * time.Millisecond, relative: true}, err
	}
	n, err := decimal(text, scale)
	if err != nil {
		return moment{}, err
	}
	if ms && n < 100_000_000_000 {
		return moment{after: time.Duration(n) * time.Millisecond, relative: true}, nil
	}
	return instant(time.UnixMilli(n), text)
}

func instant(t time.Time, text string) (moment, error) {
	if t.Year() < 1971 || t.Year() > 2200 {
		return moment{}, fmt.Errorf("%q is in the year %d", holdfast.Clip(text, 40), t.Year())
	}
	return moment{at: t.UTC().Truncate(time.Millisecond)}, nil
}

// teamOf makes a team's name of what a trace calls a tenant. A text that is not a
// name keeps what can be kept of it, its end before its beginning, and gets a mark
// of the whole text, so that two tenants never become one.
func teamOf(text string) holdfast.TeamID {
	return holdfast.TeamID(nameOf(text))
}

func nameOf(text string) string {
	if name, err := holdfast.FoldName(text); err == nil {
		return name
	}
	kept := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToValidUTF8(text, "-"))
	h := fnv.New32a()
	h.Write([]byte(text))
	mark := fmt.Sprintf("%08x", h.Sum32())
	if len(kept) > 50 {
		kept = kept[len(kept)-50:]
	}
	name, err := holdfast.FoldName(kept + "-" + mark)
	if err != nil {
		return mark
	}
	return name
}
