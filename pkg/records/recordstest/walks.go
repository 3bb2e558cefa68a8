package recordstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// walkRows are about lists and counts.
func walkRows() []Row {
	return []Row{
		over("a walk keeps what its query says, in its order and in both directions", walkOrder),
		over("an empty value is a value", emptyValue),
		over("a count is of one value, or of all", counts),
		over("a bad query or another query's cursor is refused", badQueries),
		over("a walk in either direction sees each record once while others come and go", walkMoving),
	}
}

func walkOrder(ctx context.Context, c records.Collection) error {
	err := insert(ctx, c,
		thing("e", "red"), thing("a", "red"), thing("c", "rose"), thing("b", "blue"), thing("d", ""), thing("f", "redder"), thing("g", "r"), thing("h", "s"))
	if err != nil {
		return err
	}
	for _, row := range []struct {
		q    records.Query
		want string
	}{
		{records.Query{}, "a b c d e f g h"},
		{records.Query{IDFrom: "c"}, "c d e f g h"},
		{records.Query{IDFrom: "cc"}, "d e f g h"},
		{records.Query{IDFrom: "x"}, ""},
		{records.Query{Index: "colour"}, "b g a e f c h"},
		{records.Query{Index: "colour", Equal: "red"}, "a e"},
		{records.Query{Index: "colour", Equal: "red", IDFrom: "b"}, "e"},
		{records.Query{Index: "colour", Equal: "green"}, ""},
		{records.Query{Index: "colour", Prefix: "r"}, "g a e f c"},
		{records.Query{Index: "colour", Prefix: "red"}, "a e f"},
		{records.Query{Index: "colour", Prefix: "red", IDFrom: "b"}, "e f"},
		{records.Query{Index: "colour", AtMost: "red"}, "b g a e"},
		{records.Query{Index: "colour", AtMost: "rea"}, "b g"},
		{records.Query{Index: "colour", AtMost: "red", IDFrom: "b"}, "b g e"},
		{records.Query{Index: "serial"}, ""},
	} {
		want := strings.Fields(row.want)
		if err := walks(ctx, c, row.q, want...); err != nil {
			return err
		}
		slices.Reverse(want)
		row.q.Descending = true
		if err := walks(ctx, c, row.q, want...); err != nil {
			return err
		}
	}
	return nil
}

func emptyValue(ctx context.Context, c records.Collection) error {
	empty := records.Record{ID: "a", Body: []byte(`{}`), Keys: map[string]string{"colour": ""}}
	if err := insert(ctx, c, empty, thing("b", "red"), thing("c", "")); err != nil {
		return err
	}
	got, err := c.Get(ctx, "a")
	if err != nil {
		return err
	}
	if err := same(got, "a", 1, `{}`, empty.Keys); err != nil {
		return err
	}
	n, err := c.Count(ctx, "colour", "")
	if err != nil || n != 1 {
		return fmt.Errorf("%d records of the empty value: %w, want 1", n, orNone(err))
	}
	return walks(ctx, c, records.Query{Index: "colour"}, "a", "b")
}

func counts(ctx context.Context, c records.Collection) error {
	for i := range 7 {
		if err := insert(ctx, c, thing(fmt.Sprintf("r%d", i), "red"), thing(fmt.Sprintf("n%d", i), "")); err != nil {
			return err
		}
	}
	if err := insert(ctx, c, thing("x", "redder")); err != nil {
		return err
	}
	for _, row := range []struct {
		index, value string
		want         int64
	}{{"", "", 15}, {"", "red", 15}, {"colour", "red", 7}, {"colour", "re", 0}, {"colour", "redder", 1}, {"serial", "", 0}} {
		n, err := c.Count(ctx, row.index, row.value)
		if err != nil || n != row.want {
			return fmt.Errorf("count %q %q: %d and %w, want %d", row.index, row.value, n, orNone(err), row.want)
		}
	}
	_, err := c.Count(ctx, "shape", "round")
	return invalid("count an unknown index", err, "index")
}

func badQueries(ctx context.Context, c records.Collection) error {
	if err := insert(ctx, c, thing("a", "red"), thing("b", "red"), thing("c", "red")); err != nil {
		return err
	}
	for field, queries := range map[string][]records.Query{
		"limit": {{}, {Limit: -1}, {Limit: records.MaxLimit + 1}},
		"index": {{Limit: 1, Index: "shape"}, {Limit: 1, Equal: "red"}, {Limit: 1, Prefix: "a"}, {Limit: 1, Index: "colour", Equal: "a", Prefix: "a"}},
	} {
		for _, q := range queries {
			_, err := c.List(ctx, q)
			if err := invalid(fmt.Sprintf("list %+v", q), err, field); err != nil {
				return err
			}
		}
	}
	base := records.Query{Index: "colour", Equal: "red", Limit: 1}
	page, err := c.List(ctx, base)
	if err != nil {
		return err
	}
	others := []records.Query{
		{Index: "colour", Equal: "red", Limit: 1, Descending: true}, {Index: "colour", Prefix: "red", Limit: 1}, {Index: "colour", Equal: "re", Limit: 1},
		{Index: "serial", Equal: "red", Limit: 1}, {Limit: 1}, {Index: "colour", Equal: "red", IDFrom: "a", Limit: 1},
	}
	for i := range others {
		others[i].After = page.Next
	}
	for _, text := range []string{"x", "!", "bnVsbA", page.Next + "x", page.Next[1:]} {
		bad := base
		bad.After = text
		others = append(others, bad)
	}
	for _, q := range others {
		_, err := c.List(ctx, q)
		if err := invalid(fmt.Sprintf("list %+v", q), err, "cursor"); err != nil {
			return err
		}
	}
	base.After, base.Limit = page.Next, 2
	got, err := ids(ctx, c, base)
	if err != nil || !slices.Equal(got, []string{"b", "c"}) {
		return fmt.Errorf("the walk goes on, in a larger page, with %q: %w", got, orNone(err))
	}
	return nil
}

// walkMoving walks in small pages while one goroutine inserts and deletes records
// around those that stay. Each one that stays must come exactly once.
func walkMoving(ctx context.Context, c records.Collection) error {
	const stay = 60
	var want []string
	for i := range stay {
		id := fmt.Sprintf("k%04d", 10*i)
		want = append(want, id)
		if err := insert(ctx, c, thing(id, "red")); err != nil {
			return err
		}
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	var moved error
	group.Go(func() {
		for i := 0; moved == nil; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id := fmt.Sprintf("k%04d", (7919*i)%(10*stay)/10*10+1+i%9)
			if moved = insert(ctx, c, thing(id, "red")); moved == nil {
				moved = c.Delete(ctx, id, 0)
			}
		}
	})
	err := func() error {
		for range 10 {
			for _, q := range []records.Query{{Limit: 7}, {Limit: 7, Index: "colour", Equal: "red"}, {Limit: 7, Index: "colour", Prefix: "r"}} {
				for _, q.Descending = range []bool{false, true} {
					got, err := ids(ctx, c, q)
					if err != nil {
						return err
					}
					got = slices.DeleteFunc(got, func(id string) bool { return !strings.HasSuffix(id, "0") })
					if q.Descending {
						slices.Reverse(got)
					}
					if !slices.Equal(got, want) {
						return fmt.Errorf("walk %+v: %q, want %q", q, got, want)
					}
				}
			}
		}
		return nil
	}()
	close(stop)
	group.Wait()
	if moved != nil {
		return moved
	}
	return err
}
