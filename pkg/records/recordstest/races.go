package recordstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// schemaRows are about opening collections, and what is left after the process died.
func schemaRows() []Row {
	return []Row{
		{"collections of one store are apart, and opened twice they are one", apart},
		{"a collection with records gains plain indexes and loses or changes none", schemaChange},
		{"a schema that cannot be kept is refused", badSchemas},
		{"everything acknowledged is there when the process died", reopened},
	}
}

func apart(ctx context.Context, h Harness) error {
	db, err := h.Open()
	if err != nil {
		return err
	}
	var all []records.Collection
	for _, name := range []string{"things", "others", "things"} {
		c, err := db.Collection(ctx, records.Schema{Name: name, Indexes: things.Indexes})
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if err := insert(ctx, all[0], thing("a", "red")); err != nil {
		return err
	}
	return errors.Join(walks(ctx, all[1], records.Query{}), walks(ctx, all[2], records.Query{}, "a"))
}

func schemaChange(ctx context.Context, h Harness) error {
	db, err := h.Open()
	if err != nil {
		return err
	}
	schema := func(indexes ...records.Index) records.Schema { return records.Schema{Name: "things", Indexes: indexes} }
	colour, serial, shape := records.Index{Name: "colour"}, records.Index{Name: "serial", Unique: true}, records.Index{Name: "shape"}
	// While it is empty, anything goes.
	for _, s := range []records.Schema{schema(shape), schema(), schema(colour, serial)} {
		if _, err := db.Collection(ctx, s); err != nil {
			return fmt.Errorf("open the empty collection as %+v: %w", s, err)
		}
	}
	c, err := db.Collection(ctx, schema(colour, serial))
	if err != nil {
		return err
	}
	if err := insert(ctx, c, thing("a", "red")); err != nil {
		return err
	}
	for _, s := range []records.Schema{
		schema(colour), schema(serial), schema(colour, records.Index{Name: "serial"}), schema(records.Index{Name: "colour", Unique: true}, serial),
		schema(colour, serial, records.Index{Name: "shape", Unique: true}),
	} {
		_, err := db.Collection(ctx, s)
		if err := invalid(fmt.Sprintf("open as %+v", s), err, "index"); err != nil {
			return err
		}
	}
	c, err = db.Collection(ctx, schema(shape, colour, serial))
	if err != nil {
		return err
	}
	round := records.Record{ID: "b", Body: []byte(`{}`), Keys: map[string]string{"shape": "round", "colour": "red"}}
	if err := insert(ctx, c, round); err != nil {
		return err
	}
	return errors.Join(
		walks(ctx, c, records.Query{Index: "shape"}, "b"),
		walks(ctx, c, records.Query{Index: "colour", Equal: "red"}, "a", "b"))
}

func badSchemas(ctx context.Context, h Harness) error {
	db, err := h.Open()
	if err != nil {
		return err
	}
	for _, name := range []string{"", "Things", "a b", "a;drop", "1", "_"} {
		_, err := db.Collection(ctx, records.Schema{Name: name})
		if err := invalid("open "+name, err, "collection"); err != nil {
			return err
		}
		_, err = db.Collection(ctx, records.Schema{Name: "things", Indexes: []records.Index{{Name: name}}})
		if err := invalid("index "+name, err, "index"); err != nil {
			return err
		}
	}
	_, err = db.Collection(ctx, records.Schema{Name: "things", Indexes: []records.Index{{Name: "a"}, {Name: "a"}}})
	return invalid("an index twice", err, "index")
}

func reopened(ctx context.Context, h Harness) error {
	db, err := h.Open()
	if err != nil {
		return err
	}
	c, err := db.Collection(ctx, things)
	if err != nil {
		return err
	}
	r := records.Record{ID: "a", Body: []byte(`{"n":1}`), Keys: map[string]string{"colour": "red", "serial": "7"}}
	if err := insert(ctx, c, r, thing("b", "red"), thing("c", "")); err != nil {
		return err
	}
	r.Revision, r.Body = 1, []byte(`{"n":2}`)
	if _, err := c.Replace(ctx, r); err != nil {
		return err
	}
	if err := c.Delete(ctx, "b", 1); err != nil {
		return err
	}
	if h.Reopen != nil {
		if db, err = h.Reopen(db); err != nil {
			return err
		}
	}
	if c, err = db.Collection(ctx, things); err != nil {
		return err
	}
	got, err := c.Get(ctx, "a")
	if err != nil {
		return err
	}
	_, taken := c.Insert(ctx, records.Record{ID: "d", Body: []byte(`{}`), Keys: map[string]string{"serial": "7"}})
	return errors.Join(
		same(got, "a", 2, `{"n":2}`, r.Keys),
		wants("insert a value that was taken before", taken, records.ErrExists),
		walks(ctx, c, records.Query{}, "a", "c"),
		walks(ctx, c, records.Query{Index: "colour"}, "a"))
}

// raceRows are about many callers at once.
func raceRows() []Row {
	return []Row{
		over("of 16 inserts of one id one wins", raceInsert),
		over("of 16 owners of one unique value one wins", raceUnique),
		over("16 callers count one record up and lose no step", raceReplace),
		over("of 16 deletes one wins", raceDelete),
	}
}

const racers = 16

// race runs f once for each racer and counts those without error; each error must
// be the one that loses.
func race(losing error, f func(i int) error) (won int, err error) {
	errs := make([]error, racers)
	var group sync.WaitGroup
	for i := range racers {
		group.Go(func() { errs[i] = f(i) })
	}
	group.Wait()
	for _, e := range errs {
		switch {
		case e == nil:
			won++
		case !errors.Is(e, losing):
			err = errors.Join(err, e)
		}
	}
	return won, err
}

func oneWins(won int, err error) error {
	if err != nil || won != 1 {
		return fmt.Errorf("%d won: %w, want 1", won, orNone(err))
	}
	return nil
}

func raceInsert(ctx context.Context, c records.Collection) error {
	for n := range 20 {
		err := oneWins(race(records.ErrExists, func(int) error {
			_, err := c.Insert(ctx, thing(fmt.Sprint(n), "red"))
			return err
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

func raceUnique(ctx context.Context, c records.Collection) error {
	for n := range 20 {
		err := oneWins(race(records.ErrExists, func(i int) error {
			_, err := c.Insert(ctx, records.Record{ID: fmt.Sprintf("%d-%d", n, i), Body: []byte(`{}`), Keys: map[string]string{"serial": fmt.Sprint(n)}})
			return err
		}))
		if err != nil {
			return err
		}
	}
	n, err := c.Count(ctx, "", "")
	if err != nil || n != 20 {
		return fmt.Errorf("%d records are stored: %w, want 20", n, orNone(err))
	}
	return nil
}

// raceReplace also sees that each revision was given out once.
func raceReplace(ctx context.Context, c records.Collection) error {
	const steps = 20
	if err := insert(ctx, c, records.Record{ID: "a", Body: []byte(`0`)}); err != nil {
		return err
	}
	var mu sync.Mutex
	given := map[int64]bool{1: true}
	_, err := race(nil, func(int) error {
		for step := 0; step < steps; {
			r, err := c.Get(ctx, "a")
			if err != nil {
				return err
			}
			var n int
			if err := json.Unmarshal(r.Body, &n); err != nil {
				return err
			}
			r.Body = []byte(fmt.Sprint(n + 1))
			stored, err := c.Replace(ctx, r)
			if errors.Is(err, records.ErrRevision) {
				continue
			}
			if err != nil {
				return err
			}
			step++
			mu.Lock()
			twice := given[stored.Revision]
			given[stored.Revision] = true
			mu.Unlock()
			if twice {
				return fmt.Errorf("revision %d was given out twice", stored.Revision)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r, err := c.Get(ctx, "a")
	if err != nil {
		return err
	}
	return same(r, "a", racers*steps+1, fmt.Sprint(racers*steps), nil)
}

func raceDelete(ctx context.Context, c records.Collection) error {
	for n := range 20 {
		if err := insert(ctx, c, thing(fmt.Sprint(n), "red")); err != nil {
			return err
		}
		err := oneWins(race(records.ErrNotFound, func(int) error { return c.Delete(ctx, fmt.Sprint(n), 1) }))
		if err != nil {
			return err
		}
	}
	return nil
}
