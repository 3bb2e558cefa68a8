package mongo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// reader reads the documents of one subject.
type reader struct {
	key     holdfast.Subject
	middle  string
	unit    holdfast.Unit
	holders map[string]holdfast.Identity // names that were parsed before
}

func newReader(key holdfast.Subject) *reader {
	return &reader{key: key, middle: middle(key), unit: key.Axis.Unit(), holders: map[string]holdfast.Identity{}}
}

func (r *reader) holder(name string) (holdfast.Identity, error) {
	if known, ok := r.holders[name]; ok {
		return known, nil
	}
	holder, err := holdfast.ParseIdentity(name)
	if err != nil {
		return holder, err
	}
	r.holders[name] = holder
	return holder, nil
}

// damaged says that a document is not what this package writes.
func (r *reader) damaged(what string, err error) error {
	return fmt.Errorf("the record of %s is damaged: %s: %w", r.key, what, err)
}

// image reads a subject's document, as far as it was asked for.
func (r *reader) image(raw bson.Raw) (*image, error) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, r.damaged("document", err)
	}
	i := &image{}
	for _, element := range elements {
		key, value := element.Key(), element.Value()
		switch key {
		case fieldSettled:
			i.settled, _ = value.AsInt64OK()
		case fieldOutstanding:
			i.outstanding, _ = value.AsInt64OK()
		case fieldHolders:
			i.holders, err = r.tallies(value)
		case fieldOpen:
			i.open, err = r.entries(value)
		case fieldClosed:
			i.closed, err = r.entries(value)
		case fieldCloses:
			i.closes, _ = value.AsInt64OK()
		case fieldTop:
			i.top, _ = value.StringValueOK()
		case fieldTerms:
			i.terms, _ = value.StringValueOK()
		case fieldGeneration:
			i.generation, _ = value.AsInt64OK()
		case fieldNext:
			i.next = instant(value)
		case fieldShaken:
			i.shaken = instant(value)
		}
		if err != nil {
			return nil, r.damaged(key, err)
		}
	}
	return i, nil
}

func instant(value bson.RawValue) time.Time {
	ms, ok := value.DateTimeOK()
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// tallies reads the counters of the holders; those at zero are left out.
func (r *reader) tallies(value bson.RawValue) ([]capacityledger.Holding, error) {
	doc, _ := value.DocumentOK()
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	out := make([]capacityledger.Holding, 0, len(elements))
	for _, element := range elements {
		name := element.Key()
		if strings.Contains(name, "%") {
			name = unescapes.Replace(name)
		}
		holding := capacityledger.Holding{}
		if holding.Holder, err = r.holder(name); err != nil {
			return nil, err
		}
		counters, _ := element.Value().DocumentOK()
		if settled, err := counters.LookupErr(fieldSettled); err == nil {
			holding.Settled, _ = settled.AsInt64OK()
		}
		if outstanding, err := counters.LookupErr(fieldOutstanding); err == nil {
			holding.Outstanding, _ = outstanding.AsInt64OK()
		}
		if holding.Settled != 0 || holding.Outstanding != 0 {
			out = append(out, holding)
		}
	}
	return out, nil
}

func (r *reader) entries(value bson.RawValue) ([]entry, error) {
	array, ok := value.ArrayOK()
	if !ok {
		return nil, nil
	}
	values, err := array.Values()
	if err != nil {
		return nil, err
	}
	out := make([]entry, len(values))
	for n, v := range values {
		doc, _ := v.DocumentOK()
		if err := r.entry(doc, &out[n]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// entry reads one entry.
func (r *reader) entry(doc bson.Raw, e *entry) error {
	elements, err := doc.Elements()
	if err != nil {
		return err
	}
	zero := holdfast.AmountOf(r.unit, 0)
	e.Subject, e.Spent, e.Cap = r.key, zero, holdfast.NoLimit
	allowance := int64(-1)
	for _, element := range elements {
		value := element.Value()
		switch element.Key() {
		case "k":
			e.stamp, _ = value.StringValueOK()
		case "n":
			e.Nonce, _ = value.StringValueOK()
		case "id":
			id, _ := value.StringValueOK()
			run, _, _ := strings.Cut(id, "~")
			e.ID, e.Run = holdfast.AllocationID(id), holdfast.RunID(run)
		case "r":
			id, _ := value.StringValueOK()
			run, _, _ := strings.Cut(id, "~")
			e.ID, e.Run = holdfast.AllocationID(run+r.middle+id[len(run):]), holdfast.RunID(run)
		case "h":
			name, _ := value.StringValueOK()
			if e.Holder, err = r.holder(name); err != nil {
				return err
			}
		case "q":
			e.Requested = r.amount(value)
		case "m":
			e.Minimum = r.amount(value)
		case "a":
			allowance, _ = value.AsInt64OK()
		case "t":
			e.AcquiredAt = instant(value)
		case "x":
			e.ExpiresAt = instant(value)
		case "l":
			e.Cap = holdfast.AtMost(r.amount(value))
		default:
			if err := r.rest(e, element.Key(), value); err != nil {
				return err
			}
		}
	}
	e.Amount = e.Requested
	if allowance >= 0 {
		e.Amount = holdfast.AmountOf(r.unit, allowance)
	}
	if e.Nonce == "" {
		e.Nonce = e.stamp
	}
	return nil
}

// rest reads the fields that most entries lack.
func (r *reader) rest(e *entry, key string, value bson.RawValue) error {
	switch key {
	case "u":
		e.unjudged, _ = value.BooleanOK()
	case "c":
		e.Confirmed, _ = value.BooleanOK()
	case "at":
		attempt, _ := value.AsInt64OK()
		e.Attempt = int(attempt)
	case "sq":
		e.Sequence, _ = value.AsInt64OK()
	case "z":
		outcome, _ := value.StringValueOK()
		e.Outcome = capacityledger.Outcome(outcome)
	case "ct":
		e.ClosedAt = instant(value)
	case "sp":
		return r.pairs(value, func(attempt, spent bson.RawValue) error {
			number, _ := attempt.AsInt64OK()
			said := capacityledger.AttemptSpend{Attempt: int(number), Spent: r.amount(spent)}
			e.SpentBy = append(e.SpentBy, said)
			e.Spent = e.Spent.Plus(said.Spent)
			return nil
		})
	case "rs":
		return r.pairs(value, func(name, amount bson.RawValue) error {
			text, _ := name.StringValueOK()
			holder, err := r.holder(text)
			e.reserved = append(e.reserved, capacityledger.Reserved{Holder: holder, Amount: r.amount(amount)})
			return err
		})
	}
	return nil
}

func (r *reader) amount(value bson.RawValue) holdfast.Amount {
	n, _ := value.AsInt64OK()
	return holdfast.AmountOf(r.unit, n)
}

// pairs reads an array of pairs.
func (r *reader) pairs(value bson.RawValue, each func(a, b bson.RawValue) error) error {
	array, _ := value.ArrayOK()
	values, err := array.Values()
	if err != nil {
		return err
	}
	for pair := range slices.Chunk(values, 2) {
		if len(pair) == 2 {
			if err := each(pair[0], pair[1]); err != nil {
				return err
			}
		}
	}
	return nil
}
