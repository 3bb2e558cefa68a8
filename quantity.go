package holdfast

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MicroUSD is money in millionths of a US dollar.
type MicroUSD int64

// Slots counts concurrent runs.
type Slots int64

// BasisPoints is a share in hundredths of a percent.
type BasisPoints int64

const (
	// OneUSD is one US dollar.
	OneUSD MicroUSD = 1_000_000
	// MaxUSD is the largest single amount of money that an edge accepts: a
	// billion dollars. With at most [MaxOpenPerSubject] open entries a sum of
	// such amounts cannot overflow.
	MaxUSD MicroUSD = 1_000_000_000 * OneUSD
	// MaxSlots is the largest number of slots or runs that an edge accepts.
	MaxSlots Slots = 1_000_000_000
	// Whole is one hundred percent.
	Whole BasisPoints = 10_000
	// MaxOpenPerSubject is how many open entries one subject may have.
	MaxOpenPerSubject = 5_000
)

// OfUSD is the share of an amount of money, rounded down.
func (b BasisPoints) OfUSD(m MicroUSD) MicroUSD {
	whole, rest := int64(m)/int64(Whole), int64(m)%int64(Whole)
	return MicroUSD(whole*int64(b) + rest*int64(b)/int64(Whole))
}

// String prints dollars with six decimals, as the API does: "2.500000".
func (m MicroUSD) String() string {
	sign, n := "", uint64(m)
	if m < 0 {
		sign, n = "-", uint64(-m)
	}
	return fmt.Sprintf("%s%d.%06d", sign, n/1_000_000, n%1_000_000)
}

// Dollars prints dollars for people: "$2.50", with more decimals only when
// they say something.
func (m MicroUSD) Dollars() string {
	s := m.String()
	for strings.HasSuffix(s, "0") && len(s)-strings.IndexByte(s, '.') > 3 {
		s = s[:len(s)-1]
	}
	if strings.HasPrefix(s, "-") {
		return "-$" + s[1:]
	}
	return "$" + s
}

// ParseUSD reads dollars from a decimal string with at most six decimals, no
// exponent and no sign: "2.5", "300". It is exact; there is no rounding.
func ParseUSD(s string) (MicroUSD, error) {
	whole, frac, _ := strings.Cut(s, ".")
	if whole == "" || len(frac) > 6 || (frac == "" && strings.HasSuffix(s, ".")) || !digits(whole) || !digits(frac) {
		return 0, &InvalidError{Problem: fmt.Sprintf("%q is not an amount of dollars", Clip(s, 40)), Allowed: "a decimal number from 0 to 1000000000 with at most 6 decimals"}
	}
	w, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || w > int64(MaxUSD/OneUSD) {
		return 0, &InvalidError{Problem: "the amount is too large", Allowed: "at most 1000000000 dollars"}
	}
	f, _ := strconv.ParseInt((frac + "000000")[:6], 10, 64)
	m := MicroUSD(w)*OneUSD + MicroUSD(f)
	if m > MaxUSD {
		return 0, &InvalidError{Problem: "the amount is too large", Allowed: "at most 1000000000 dollars"}
	}
	return m, nil
}

func digits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}

// Unit is what an [Amount] counts. The zero value is no unit.
type Unit uint8

// The units of the axes.
const (
	UnitNone Unit = iota
	UnitSlots
	UnitRuns
	UnitUSD
	UnitPercent
)

// String is the unit's word in the API.
func (u Unit) String() string {
	switch u {
	case UnitSlots:
		return "slots"
	case UnitRuns:
		return "runs"
	case UnitUSD:
		return "usd"
	case UnitPercent:
		return "percent"
	case UnitNone:
	}
	return "none"
}

// Amount is a number with its unit: micro-dollars, slots, runs or basis points.
// Amounts of different units never mix: arithmetic that mixes them, or that
// overflows, panics, because edges bound what they decode and reaching it is
// our bug. The zero Amount has no unit and is the zero of every unit.
type Amount struct {
	unit Unit
	n    int64
}

// AmountOf is n in the unit's own grain (micro-dollars for dollars, basis points
// for percents).
func AmountOf(u Unit, n int64) Amount { return Amount{unit: u, n: n} }

// USDAmount is an amount of money.
func USDAmount(m MicroUSD) Amount { return Amount{UnitUSD, int64(m)} }

// SlotAmount is a number of slots.
func SlotAmount(s Slots) Amount { return Amount{UnitSlots, int64(s)} }

// RunAmount is a number of runs of a month.
func RunAmount(n int64) Amount { return Amount{UnitRuns, n} }

// ShareAmount is a share of a window.
func ShareAmount(b BasisPoints) Amount { return Amount{UnitPercent, int64(b)} }

// Unit is what the amount counts.
func (a Amount) Unit() Unit { return a.unit }

// Int is the number in the unit's grain.
func (a Amount) Int() int64 { return a.n }

// IsZero says whether the number is zero, whatever the unit.
func (a Amount) IsZero() bool { return a.n == 0 }

// Plus is the sum of two amounts of one unit.
func (a Amount) Plus(b Amount) Amount {
	u := a.with(b)
	if (b.n > 0 && a.n > math.MaxInt64-b.n) || (b.n < 0 && a.n < math.MinInt64-b.n) {
		panic(fmt.Sprintf("holdfast: %v + %v overflows", a, b))
	}
	return Amount{u, a.n + b.n}
}

// Minus is the difference of two amounts of one unit; it may be negative.
func (a Amount) Minus(b Amount) Amount {
	u := a.with(b)
	if (b.n < 0 && a.n > math.MaxInt64+b.n) || (b.n > 0 && a.n < math.MinInt64+b.n) {
		panic(fmt.Sprintf("holdfast: %v - %v overflows", a, b))
	}
	return Amount{u, a.n - b.n}
}

// Less says whether a is smaller than b.
func (a Amount) Less(b Amount) bool { a.with(b); return a.n < b.n }

// Positive is the amount, or the zero of its unit when it is negative.
func (a Amount) Positive() Amount { return Amount{a.unit, max(0, a.n)} }

// MinAmount is the smaller of two amounts of one unit.
func MinAmount(a, b Amount) Amount {
	if b.Less(a) {
		return b
	}
	return a
}

func (a Amount) with(b Amount) Unit {
	switch {
	case a.unit == b.unit, b.unit == UnitNone && b.n == 0:
		return a.unit
	case a.unit == UnitNone && a.n == 0:
		return b.unit
	}
	panic(fmt.Sprintf("holdfast: amounts of two units: %s and %s", a.unit, b.unit))
}

// Value is the number as the API prints it, without its unit: dollars with six
// decimals, percents with two, the others plain.
func (a Amount) Value() string {
	switch a.unit {
	case UnitUSD:
		return MicroUSD(a.n).String()
	case UnitPercent:
		sign, n := "", uint64(a.n)
		if a.n < 0 {
			sign, n = "-", uint64(-a.n)
		}
		return fmt.Sprintf("%s%d.%02d", sign, n/100, n%100)
	case UnitNone, UnitSlots, UnitRuns:
	}
	return strconv.FormatInt(a.n, 10)
}

// String prints the amount for people: "$2.50", "2 slots", "1 run", "20%".
func (a Amount) String() string {
	switch a.unit {
	case UnitUSD:
		return MicroUSD(a.n).Dollars()
	case UnitPercent:
		return strings.TrimSuffix(strings.TrimRight(a.Value(), "0"), ".") + "%"
	case UnitSlots, UnitRuns:
		word := a.unit.String()
		if a.n == 1 {
			word = word[:len(word)-1]
		}
		return strconv.FormatInt(a.n, 10) + " " + word
	case UnitNone:
	}
	return strconv.FormatInt(a.n, 10)
}

// Limit is what a subject's total is judged against. Absence of a limit is
// [NoLimit] and nothing else; the zero Limit allows nothing. Where the wire says
// "absent inherits, null is unlimited, 0 allows nothing", one function at the
// edge decodes it.
type Limit struct {
	most Amount
	none bool
}

// AtMost is a limit of a.
func AtMost(a Amount) Limit { return Limit{most: a} }

// NoLimit is the absence of a limit: asks are granted as asked, and recorded.
var NoLimit = Limit{none: true}

// None says whether there is no limit.
func (l Limit) None() bool { return l.none }

// Max is the limit's amount; the zero Amount when there is none.
func (l Limit) Max() Amount { return l.most }

// String prints the limit for people.
func (l Limit) String() string {
	if l.none {
		return "no limit"
	}
	return l.most.String()
}

// MarshalJSON writes dollars as a JSON number with the decimals that it needs, so
// that a field named …_usd reads the same in the API, in files and in stores: 2.5.
func (m MicroUSD) MarshalJSON() ([]byte, error) {
	s := m.String()
	return []byte(strings.TrimSuffix(strings.TrimRight(s, "0"), ".")), nil
}

// UnmarshalJSON reads dollars from a JSON number or a decimal string, exactly. A
// number may have an exponent, as other languages print small ones (5e-05).
func (m *MicroUSD) UnmarshalJSON(text []byte) error {
	s := string(text)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	} else {
		s = withoutExponent(s)
	}
	parsed, err := ParseUSD(s)
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}

// withoutExponent writes a number with its point in its place, and without zeros
// that say nothing. What it cannot read, or is far from an amount of dollars, it
// leaves as it is.
func withoutExponent(s string) string {
	mantissa, exponent, found := strings.Cut(strings.ToLower(s), "e")
	shift, err := strconv.Atoi(exponent)
	whole, frac, _ := strings.Cut(mantissa, ".")
	if !found || err != nil || shift < -20 || shift > 20 || whole == "" || !digits(whole) || !digits(frac) {
		return s
	}
	point := len(whole) + shift
	all := whole + frac
	if point <= 0 {
		all, point = strings.Repeat("0", 1-point)+all, 1
	}
	if point > len(all) {
		all += strings.Repeat("0", point-len(all))
	}
	frac = strings.TrimRight(all[point:], "0")
	whole = strings.TrimLeft(all[:point-1], "0") + all[point-1:point]
	if frac == "" {
		return whole
	}
	return whole + "." + frac
}
