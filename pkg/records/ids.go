package records

import (
	"crypto/rand"
	"math/bits"
	"sync"
	"time"
)

// IDs makes time-ordered record ids in the form of a ULID: 48 bits of milliseconds
// and 80 of randomness in 26 letters and digits that sort like the number. The ids
// of one IDs rise strictly, also within a millisecond and when the clock steps
// back. Its zero value is ready; it must not be copied after the first use. (It is
// written out here because this package imports the standard library only.)
type IDs struct {
	mu   sync.Mutex
	last id
}

// id is 128 bits.
type id struct{ high, low uint64 }

// Next is a new id of the instant. Instants before 1970 are 1970.
func (g *IDs) Next(now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := at(now)
	if next.high>>16 > g.last.high>>16 {
		var random [10]byte
		_, _ = rand.Read(random[:]) // never fails, see its documentation
		next.high |= uint64(random[0])<<8 | uint64(random[1])
		for _, b := range random[2:] {
			next.low = next.low<<8 | uint64(b)
		}
	} else {
		var carry uint64
		next.low, carry = bits.Add64(g.last.low, 1+uint64(random32()), 0)
		next.high = g.last.high + carry
	}
	g.last = next
	return next.String()
}

// random32 steps ids of one millisecond apart, so that one does not give away the
// next.
func random32() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// at is the lowest id of an instant.
func at(t time.Time) id {
	const most = 1<<48 - 1
	return id{high: uint64(min(max(0, t.UnixMilli()), most)) << 16}
}

// FirstID is not above any id that [IDs] makes from the instant on: the lower bound
// of a list "since".
func FirstID(since time.Time) string { return at(since).String() }

// String writes the id in Crockford's base 32.
func (i id) String() string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var text [26]byte
	for k := len(text) - 1; k >= 0; k-- {
		text[k] = alphabet[i.low&31]
		i.low = i.low>>5 | i.high<<59
		i.high >>= 5
	}
	return string(text[:])
}
