package capacityledger

import (
	"fmt"
	"math"

	"github.com/holdfast-io/holdfast"
)

// Checked is the ask as a store takes it, with its subject and its expiry in the
// grain of the stores. An ask that cannot be meant is an *holdfast.InvalidError. The
// ledger checks what it is given; only who calls a store directly needs this.
func (a Ask) Checked() (Ask, error) {
	subject, err := check(&a)
	if err != nil {
		return Ask{}, err
	}
	a.subject, a.Expires = subject, grain(a.Expires)
	return a, nil
}

// check refuses an ask that cannot be meant.
func check(ask *Ask) (holdfast.Subject, error) {
	run, subject, _, err := ask.ID.Parts()
	if err != nil {
		return subject, err
	}
	unit := subject.Axis.Unit()
	switch {
	case unit == holdfast.UnitNone:
		return subject, &holdfast.InvalidError{Field: "subject", Problem: fmt.Sprintf("this build does not know the axis %q", subject.Axis)}
	case ask.Run != run:
		return subject, &holdfast.InvalidError{Field: "allocation", Problem: "the id belongs to another run", Allowed: "an id made from the asking run"}
	case ask.Holder.IsZero():
		return subject, &holdfast.InvalidError{Field: "holder", Problem: "the ask names no holder"}
	case ask.Requested.Unit() != unit || ask.Requested.Int() <= 0 || ask.Requested.Int() > int64(holdfast.MaxUSD):
		return subject, &holdfast.InvalidError{Field: "requested", Problem: fmt.Sprintf("%d %s cannot be asked of %s", ask.Requested.Int(), ask.Requested.Unit(), subject), Allowed: "a positive amount in " + unit.String()}
	case ask.Minimum.Int() < 0 || ask.Minimum.Int() > ask.Requested.Int() || ask.Minimum.Unit() != unit && !ask.Minimum.IsZero():
		return subject, &holdfast.InvalidError{Field: "minimum", Problem: "the minimum is not between zero and what is asked", Allowed: "zero to " + ask.Requested.String()}
	case ask.Expires.IsZero():
		return subject, &holdfast.InvalidError{Field: "expires", Problem: "an allocation must expire"}
	case !ask.Terms.Cap.None() && ask.Terms.Cap.Max().Int() < 0:
		return subject, &holdfast.InvalidError{Field: "cap", Problem: "the cap is below zero", Allowed: "zero and more, or no limit"}
	case !ask.Terms.Cap.None() && ask.Terms.Cap.Max().Unit() != unit && !ask.Terms.Cap.Max().IsZero():
		return subject, &holdfast.InvalidError{Field: "cap", Problem: "the cap is in another unit than the axis"}
	}
	for _, r := range ask.Terms.Reserved {
		if r.Amount.Unit() != unit && !r.Amount.IsZero() {
			return subject, &holdfast.InvalidError{Field: "reserved", Problem: "a reservation is in another unit than the axis"}
		}
	}
	return subject, nil
}

func checkReport(id holdfast.AllocationID, attempt int, sequence int64, spent holdfast.Amount) (holdfast.Subject, error) {
	subject, err := id.Subject()
	switch {
	case err != nil:
		return subject, err
	case attempt < 0 || attempt > math.MaxInt32 || sequence < 0:
		return subject, &holdfast.InvalidError{Field: "attempt", Problem: "attempt and sequence count from zero"}
	case spent.Int() < 0 || spent.Int() > int64(holdfast.MaxUSD):
		return subject, &holdfast.InvalidError{Field: "spent", Problem: "the spend is not an amount that a run can have used", Allowed: "zero to a billion dollars"}
	case !spent.IsZero() && subject.Axis.Unit() == holdfast.UnitSlots:
		return subject, &holdfast.InvalidError{Field: "spent", Problem: "slots come back whole: nothing of them is ever used up", Allowed: "zero"}
	case spent.Unit() != subject.Axis.Unit() && !spent.IsZero():
		return subject, &holdfast.InvalidError{Field: "spent", Problem: "the spend is in another unit than the axis"}
	}
	return subject, nil
}
