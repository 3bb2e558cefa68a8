package mongo

import (
	"encoding/binary"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Entries are written by hand, because every reserve and every close does it, many in
// one write. A writer appends the elements of a BSON document to its bytes.
type writer struct{ bytes []byte }

func (w *writer) element(kind bson.Type, key string) {
	w.bytes = append(append(append(w.bytes, byte(kind)), key...), 0)
}

func (w *writer) text(key, value string) {
	w.element(bson.TypeString, key)
	w.bytes = binary.LittleEndian.AppendUint32(w.bytes, uint32(len(value)+1))
	w.bytes = append(append(w.bytes, value...), 0)
}

func (w *writer) number(key string, value int64) {
	w.element(bson.TypeInt64, key)
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(value))
}

func (w *writer) instant(key string, value time.Time) {
	w.element(bson.TypeDateTime, key)
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(value.UnixMilli()))
}

func (w *writer) yes(key string) {
	w.element(bson.TypeBoolean, key)
	w.bytes = append(w.bytes, 1)
}

// begin begins a document, the outermost one or a part; end ends it.
func (w *writer) begin() (at int) {
	at = len(w.bytes)
	w.bytes = append(w.bytes, 0, 0, 0, 0)
	return at
}

func (w *writer) end(at int) {
	w.bytes = append(w.bytes, 0)
	binary.LittleEndian.PutUint32(w.bytes[at:], uint32(len(w.bytes)-at))
}

// list writes an array of n elements.
func (w *writer) list(key string, n int, each func(index string, at int)) {
	w.element(bson.TypeArray, key)
	at := w.begin()
	for i := range n {
		each(strconv.Itoa(i), i)
	}
	w.end(at)
}

// documents is an array of entries as it stands in an update.
func documents(n int, entry func(int) *entry) bson.RawValue {
	w := writer{make([]byte, 0, 16+n*256)}
	at := w.begin()
	for i := range n {
		w.element(bson.TypeEmbeddedDocument, strconv.Itoa(i))
		w.entry(entry(i))
	}
	w.end(at)
	return bson.RawValue{Type: bson.TypeArray, Value: w.bytes}
}

// document is one entry.
func (e *entry) document() bson.Raw {
	w := writer{make([]byte, 0, 256)}
	w.entry(e)
	return w.bytes
}

// entry writes an entry.
func (w *writer) entry(e *entry) {
	at := w.begin()
	w.text("k", e.stamp)
	if e.touched() {
		w.text("n", e.Nonce)
	}
	if e.Outcome == capacityledger.Open {
		w.text("id", string(e.ID))
	} else {
		w.text("r", shortened(e.ID, e.Subject))
	}
	w.text("h", e.Holder.String())
	w.number("q", e.Requested.Int())
	if e.Minimum.Unit() != holdfast.UnitNone {
		w.number("m", e.Minimum.Int())
	}
	if e.Amount.Int() != e.Requested.Int() {
		w.number("a", e.Amount.Int())
	}
	w.instant("t", e.AcquiredAt)
	w.instant("x", e.ExpiresAt)
	if !e.Cap.None() {
		w.number("l", e.Cap.Max().Int())
	}
	w.state(e)
	w.end(at)
}

// state writes what most entries lack.
func (w *writer) state(e *entry) {
	if reserved := e.reserved; len(reserved) > 0 && !e.touched() {
		w.list("rs", 2*len(reserved), func(index string, at int) {
			if r := reserved[at/2]; at%2 == 0 {
				w.text(index, r.Holder.String())
			} else {
				w.number(index, r.Amount.Int())
			}
		})
	}
	if e.unjudged {
		w.yes("u")
	}
	if e.Confirmed {
		w.yes("c")
	}
	if e.Attempt != 0 {
		w.number("at", int64(e.Attempt))
	}
	if e.Sequence != 0 {
		w.number("sq", e.Sequence)
	}
	if by := e.SpentBy; len(by) > 0 {
		w.list("sp", 2*len(by), func(index string, at int) {
			if s := by[at/2]; at%2 == 0 {
				w.number(index, int64(s.Attempt))
			} else {
				w.number(index, s.Spent.Int())
			}
		})
	}
	if e.Outcome != capacityledger.Open {
		w.text("z", string(e.Outcome))
		w.instant("ct", e.ClosedAt)
	}
}

// historyPage is a page of closes of one subject. It goes when the last of them may.
func historyPage(name string, list []*entry, keep time.Duration) bson.Raw {
	var last time.Time
	for _, e := range list {
		if e.ClosedAt.After(last) {
			last = e.ClosedAt
		}
	}
	w := writer{make([]byte, 0, 256+len(list)*320)}
	at := w.begin()
	w.text("_id", name)
	w.text(fieldOf, list[0].Subject.String())
	w.instant(fieldGone, last.Add(keep))
	w.list(fieldIDs, len(list), func(index string, at int) { w.text(index, shortened(list[at].ID, list[at].Subject)) })
	w.list(fieldPage, len(list), func(index string, at int) {
		w.element(bson.TypeEmbeddedDocument, index)
		w.entry(list[at])
	})
	w.end(at)
	return w.bytes
}
