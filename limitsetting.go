package holdfast

import (
	"bytes"
	"strconv"
)

// LimitSetting is a limit as an operator wrote it on a team or organisation:
// absent inherits the platform's default, null is unlimited, a number is the limit
// and 0 lets nothing launch. The zero value inherits. Encode it with `omitzero`.
type LimitSetting struct {
	state limitState
	n     int64 // micro-dollars, slots, runs, or launches per minute
}

type limitState uint8

const (
	limitInherit limitState = iota
	limitNone
	limitSet
)

// LimitTo is a written limit of n in the grain of the field's unit.
func LimitTo(n int64) LimitSetting { return LimitSetting{limitSet, n} }

// Unlimited is a written absence of a limit.
var Unlimited = LimitSetting{state: limitNone}

// Inherits says whether nothing was written.
func (s LimitSetting) Inherits() bool { return s.state == limitInherit }

// Or is the setting, or the fallback where it inherits.
func (s LimitSetting) Or(fallback LimitSetting) LimitSetting {
	if s.Inherits() {
		return fallback
	}
	return s
}

// Limit is the setting as a limit in a unit. What still inherits here has no limit:
// the defaults of the platform end every chain.
func (s LimitSetting) Limit(unit Unit) Limit {
	if s.state != limitSet {
		return NoLimit
	}
	return AtMost(AmountOf(unit, s.n))
}

// Value is the number, and whether there is one.
func (s LimitSetting) Value() (int64, bool) { return s.n, s.state == limitSet }

// IsZero says whether the setting inherits; encoding/json leaves it out then.
func (s LimitSetting) IsZero() bool { return s.Inherits() }

// CountLimit is a [LimitSetting] of slots, runs or launches, a JSON integer or null.
type CountLimit struct{ LimitSetting }

// USDLimit is a [LimitSetting] of dollars, a JSON number, decimal string or null.
type USDLimit struct{ LimitSetting }

var jsonNull = []byte("null")

// MarshalJSON writes null or the number.
func (s CountLimit) MarshalJSON() ([]byte, error) {
	if s.state != limitSet {
		return jsonNull, nil
	}
	return strconv.AppendInt(nil, s.n, 10), nil
}

// UnmarshalJSON reads null or a number from 0 to [MaxSlots].
func (s *CountLimit) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, jsonNull) {
		s.LimitSetting = Unlimited
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 || n > int64(MaxSlots) {
		return &InvalidError{Problem: Clip(string(text), 40) + " is not a limit", Allowed: "a whole number from 0 to 1000000000, or null for unlimited; leave it out to inherit the default"}
	}
	s.LimitSetting = LimitTo(n)
	return nil
}

// MarshalJSON writes null or the dollars.
func (s USDLimit) MarshalJSON() ([]byte, error) {
	if s.state != limitSet {
		return jsonNull, nil
	}
	return MicroUSD(s.n).MarshalJSON()
}

// UnmarshalJSON reads null or dollars.
func (s *USDLimit) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, jsonNull) {
		s.LimitSetting = Unlimited
		return nil
	}
	var m MicroUSD
	if err := m.UnmarshalJSON(text); err != nil {
		return err
	}
	s.LimitSetting = LimitTo(int64(m))
	return nil
}
