package capacityledger

import (
	"context"
	"time"
)

// Two calls may ask under one id: the first is granted the allocation, the other
// finds it ([Verdict.Replayed]). Only one of them will rely on it, and neither knows
// which. So who was granted it withdraws it only while nobody has taken it over, and
// who found it takes it over before relying on it, and never gives it back: where both
// fail its lease ends it. What decides between the two is the expiry, which a take-over
// changes in every case and a withdrawal demands unchanged, each in one write.

// Withdraw gives back an allocation as its grant answered it, unless somebody took it
// over or renewed it since. It says whether this call closed it. What was closed
// meanwhile, or is not recorded any more, is no error.
func (l *Ledger) Withdraw(ctx context.Context, granted Allocation) (bool, error) {
	return l.close(ctx, Closing{ID: granted.ID, Outcome: Released, IfExpires: granted.ExpiresAt})
}

// TakeOver makes an allocation that an ask found the asker's to rely on, until expires
// or a moment after its present expiry, whichever is later. The error matches
// [ErrClosed] when it was given back meanwhile; then it never grants again.
func (l *Ledger) TakeOver(ctx context.Context, found Allocation, expires time.Time) error {
	expires = grain(expires)
	if !expires.After(found.ExpiresAt) {
		expires = found.ExpiresAt.Add(time.Millisecond) // the same expiry would not tell it from the grant
	}
	_, _, err := l.Renew(ctx, found.ID, Renewal{Attempt: found.Attempt, Sequence: found.Sequence, Expires: expires}) // without terms it is never denied
	return err
}
