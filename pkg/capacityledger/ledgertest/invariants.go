package ledgertest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// far is after every expiry of the suite.
var far = time.Date(8000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Invariants says what of the ledger's standing promises does not hold in the store:
// what is outstanding is the sum of the open entries, in total and per holder; no
// counter is negative; the holders' parts make the totals; the index of what
// expires has exactly the open entries. It may be called at any quiet moment.
func Invariants(ctx context.Context, store capacityledger.Store) error {
	open := map[holdfast.AllocationID]time.Time{}
	after := ""
	for {
		subjects, err := store.Subjects(ctx, after, 100)
		if err != nil {
			return err
		}
		for _, subject := range subjects {
			if subject.String() <= after {
				return fmt.Errorf("subjects after %q hold %q", after, subject)
			}
			after = subject.String()
			balance, err := store.Balance(ctx, subject)
			if err != nil {
				return err
			}
			if err := sound(balance, open); err != nil {
				return fmt.Errorf("%s: %w", subject, err)
			}
		}
		if len(subjects) < 100 {
			break
		}
	}
	return indexed(ctx, store, open)
}

// sound checks one subject and adds its open entries to those seen.
func sound(b capacityledger.Balance, open map[holdfast.AllocationID]time.Time) error {
	held := map[holdfast.Identity]int64{}
	var sum int64
	var next time.Time
	for _, a := range b.Open {
		if a.Outcome != capacityledger.Open {
			return fmt.Errorf("%s is listed as open and is %s", a.ID, a.Outcome)
		}
		if _, twice := open[a.ID]; twice {
			return fmt.Errorf("%s is listed twice", a.ID)
		}
		if a.Outstanding().Int() < 0 || a.Spent.Int() < 0 {
			return fmt.Errorf("%s: %d outstanding, %d spent", a.ID, a.Outstanding().Int(), a.Spent.Int())
		}
		open[a.ID] = a.ExpiresAt
		held[a.Holder] += a.Outstanding().Int()
		sum += a.Outstanding().Int()
		if next.IsZero() || a.ExpiresAt.Before(next) {
			next = a.ExpiresAt
		}
	}
	if sum != b.Outstanding || b.Settled < 0 {
		return fmt.Errorf("%d outstanding and the open entries have %d; %d settled", b.Outstanding, sum, b.Settled)
	}
	if !next.Equal(b.NextExpiry) {
		return fmt.Errorf("the next expiry is said to be %s and is %s", b.NextExpiry, next)
	}
	var settled int64
	for _, h := range b.Holders {
		if h.Settled < 0 || h.Outstanding < 0 {
			return fmt.Errorf("%s: %d settled, %d outstanding", h.Holder, h.Settled, h.Outstanding)
		}
		if h.Outstanding != held[h.Holder] {
			return fmt.Errorf("%s: %d outstanding and its open entries have %d", h.Holder, h.Outstanding, held[h.Holder])
		}
		delete(held, h.Holder)
		settled += h.Settled
	}
	for holder, amount := range held {
		if amount != 0 {
			return fmt.Errorf("%s holds %d and is not listed", holder, amount)
		}
	}
	if settled != b.Settled {
		return fmt.Errorf("%d settled and the holders have %d", b.Settled, settled)
	}
	return nil
}

// indexed checks that the walk over what expires finds each open entry once, in order.
func indexed(ctx context.Context, store capacityledger.Store, open map[holdfast.AllocationID]time.Time) error {
	cursor := capacityledger.Cursor{}
	for {
		due, err := store.Due(ctx, far, cursor, 200)
		if err != nil {
			return err
		}
		for _, a := range due {
			if a.ExpiresAt.Before(cursor.Expires) || a.ExpiresAt.Equal(cursor.Expires) && a.ID <= cursor.ID {
				return fmt.Errorf("%s comes out of its order", a.ID)
			}
			cursor = capacityledger.Cursor{Expires: a.ExpiresAt, ID: a.ID}
			expires, ok := open[a.ID]
			if !ok || !expires.Equal(a.ExpiresAt) {
				return fmt.Errorf("%s is due at %s and not so in its record", a.ID, a.ExpiresAt)
			}
			delete(open, a.ID)
		}
		if len(due) < 200 {
			break
		}
	}
	for id := range open {
		return fmt.Errorf("%s is open and never due (and %d more)", id, len(open)-1)
	}
	return nil
}
