package recordstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// singleRows are about one record at a time.
func singleRows() []Row {
	return []Row{
		over("a record that was inserted is read as it was", insertedIsRead),
		over("an id is inserted once", insertedOnce),
		over("a replace counts the revision and keeps nothing of before", replaced),
		over("a replace over another revision changes nothing", replacedLate),
		over("a delete removes the record from everywhere", deleted),
		over("the value of a unique index exists once", unique),
		over("what is returned or given belongs to the caller", belongsToCaller),
		over("hostile ids, keys and bodies are refused or kept exactly", hostile),
		over("a context that has ended is answered with its own error", endedContext),
		{"a store that was closed is unavailable", closed},
	}
}

func insertedIsRead(ctx context.Context, c records.Collection) error {
	r := records.Record{ID: "a", Revision: 77, Body: []byte(`{"n": 1}`), Keys: map[string]string{"colour": "red", "serial": "1"}}
	stored, err := c.Insert(ctx, r)
	if err != nil {
		return err
	}
	if err := same(stored, "a", 1, `{"n": 1}`, r.Keys); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	got, err := c.Get(ctx, "a")
	if err != nil {
		return err
	}
	if err := same(got, "a", 1, `{"n": 1}`, r.Keys); err != nil {
		return err
	}
	_, err = c.Get(ctx, "b")
	return wants("get what is not there", err, records.ErrNotFound)
}

func insertedOnce(ctx context.Context, c records.Collection) error {
	if err := insert(ctx, c, thing("a", "red")); err != nil {
		return err
	}
	_, err := c.Insert(ctx, thing("a", "blue"))
	if err := wants("insert again", err, records.ErrExists); err != nil {
		return err
	}
	got, err := c.Get(ctx, "a")
	if err != nil {
		return err
	}
	return same(got, "a", 1, `{"id":"a"}`, map[string]string{"colour": "red"})
}

func replaced(ctx context.Context, c records.Collection) error {
	if err := insert(ctx, c, thing("a", "red")); err != nil {
		return err
	}
	for revision := int64(1); revision <= 3; revision++ {
		body := fmt.Sprintf(`{"n":%d}`, revision)
		stored, err := c.Replace(ctx, records.Record{ID: "a", Revision: revision, Body: []byte(body), Keys: map[string]string{"serial": body}})
		if err != nil {
			return err
		}
		if err := same(stored, "a", revision+1, body, map[string]string{"serial": body}); err != nil {
			return fmt.Errorf("the answer: %w", err)
		}
		got, err := c.Get(ctx, "a")
		if err != nil {
			return err
		}
		if err := same(got, "a", revision+1, body, map[string]string{"serial": body}); err != nil {
			return err
		}
	}
	return walks(ctx, c, records.Query{Index: "colour"})
}

func replacedLate(ctx context.Context, c records.Collection) error {
	_, err := c.Replace(ctx, records.Record{ID: "a", Revision: 1, Body: []byte(`{}`)})
	if err := wants("replace what is not there", err, records.ErrNotFound); err != nil {
		return err
	}
	if err := insert(ctx, c, thing("a", "red")); err != nil {
		return err
	}
	for _, revision := range []int64{0, 2, -1} {
		_, err := c.Replace(ctx, records.Record{ID: "a", Revision: revision, Body: []byte(`{}`)})
		if err := wants("replace another revision", err, records.ErrRevision); err != nil {
			return err
		}
	}
	got, err := c.Get(ctx, "a")
	if err != nil {
		return err
	}
	return same(got, "a", 1, `{"id":"a"}`, map[string]string{"colour": "red"})
}

func deleted(ctx context.Context, c records.Collection) error {
	if err := wants("delete what is not there", c.Delete(ctx, "a", 0), records.ErrNotFound); err != nil {
		return err
	}
	if err := insert(ctx, c, thing("a", "red"), thing("b", "red")); err != nil {
		return err
	}
	if err := wants("delete another revision", c.Delete(ctx, "a", 2), records.ErrRevision); err != nil {
		return err
	}
	if err := errors.Join(c.Delete(ctx, "a", 1), c.Delete(ctx, "b", 0)); err != nil {
		return err
	}
	_, err := c.Get(ctx, "a")
	if err := wants("get what was deleted", err, records.ErrNotFound); err != nil {
		return err
	}
	n, err := c.Count(ctx, "colour", "red")
	if err != nil || n != 0 {
		return fmt.Errorf("%d red things are counted after the delete: %w", n, orNone(err))
	}
	if err := walks(ctx, c, records.Query{}); err != nil {
		return err
	}
	// The id lives again, from its first revision on.
	stored, err := c.Insert(ctx, thing("a", ""))
	if err != nil {
		return err
	}
	return same(stored, "a", 1, `{"id":"a"}`, nil)
}

func unique(ctx context.Context, c records.Collection) error {
	serial := func(id, value string, revision int64) records.Record {
		return records.Record{ID: id, Revision: revision, Body: []byte(`{}`), Keys: map[string]string{"serial": value}}
	}
	if err := insert(ctx, c, serial("a", "1", 0), serial("b", "2", 0), thing("c", ""), thing("d", "")); err != nil {
		return err
	}
	_, err := c.Insert(ctx, serial("e", "1", 0))
	if err := wants("insert a taken value", err, records.ErrExists); err != nil {
		return err
	}
	_, err = c.Replace(ctx, serial("b", "1", 1))
	if err := wants("replace with a taken value", err, records.ErrExists); err != nil {
		return err
	}
	if err := walks(ctx, c, records.Query{Index: "serial"}, "a", "b"); err != nil {
		return err
	}
	// A value moves on when its record lets go of it; a record keeps its own.
	if _, err := c.Replace(ctx, serial("a", "3", 1)); err != nil {
		return err
	}
	if _, err := c.Replace(ctx, serial("b", "1", 1)); err != nil {
		return err
	}
	if _, err := c.Replace(ctx, serial("b", "1", 2)); err != nil {
		return err
	}
	if err := c.Delete(ctx, "b", 0); err != nil {
		return err
	}
	return insert(ctx, c, serial("e", "1", 0))
}

func belongsToCaller(ctx context.Context, c records.Collection) error {
	given := records.Record{ID: "a", Body: []byte(`{"n":1}`), Keys: map[string]string{"colour": "red"}}
	stored, err := c.Insert(ctx, given)
	if err != nil {
		return err
	}
	got, err := c.Get(ctx, "a")
	if err != nil {
		return err
	}
	page, err := c.List(ctx, records.Query{Limit: 1})
	if err != nil {
		return err
	}
	for _, r := range []records.Record{given, stored, got, page.Records[0]} {
		r.Body[5] = '9'
		r.Keys["colour"] = "blue"
	}
	got, err = c.Get(ctx, "a")
	if err != nil {
		return err
	}
	return same(got, "a", 1, `{"n":1}`, map[string]string{"colour": "red"})
}

func hostile(ctx context.Context, c records.Collection) error {
	for _, id := range []string{"", strings.Repeat("x", records.MaxID+1), "a\nb", "a\x00b", "\x7f", "\xff\xfe"} {
		_, err := c.Insert(ctx, records.Record{ID: id, Body: []byte(`{}`)})
		if err := invalid("insert", err, "id"); err != nil {
			return err
		}
		_, err = c.Get(ctx, id)
		if err := wants("get", err, records.ErrNotFound); err != nil {
			return err
		}
		if err := wants("delete", c.Delete(ctx, id, 0), records.ErrNotFound); err != nil {
			return err
		}
	}
	for _, body := range [][]byte{nil, []byte(""), []byte("{"), []byte(`{} {}`), []byte("\x00"), bytes.Repeat([]byte("1"), records.MaxBody+1)} {
		_, err := c.Insert(ctx, records.Record{ID: "a", Body: body})
		if err := invalid("insert", err, "body"); err != nil {
			return err
		}
	}
	for field, keys := range map[string]map[string]string{
		"keys":        {"unknown": "x"},
		"keys.colour": {"colour": strings.Repeat("x", records.MaxKey+1)},
		"keys.serial": {"serial": "\xff"},
	} {
		_, err := c.Insert(ctx, records.Record{ID: "a", Body: []byte(`{}`), Keys: keys})
		if err := invalid("insert", err, field); err != nil {
			return err
		}
	}
	if err := walks(ctx, c, records.Query{}); err != nil {
		return err
	}
	names := []string{`'; DROP TABLE r_things; --`, `"`, `%`, `_`, `ä/Ö 😀`, "A", "a", " a", "a ", "null", "0", strings.Repeat("y", records.MaxID)}
	for _, name := range names {
		r := records.Record{ID: name, Body: []byte(`{"a":` + quote(name) + `,"b":"\u0000 \n"}`), Keys: map[string]string{"colour": name, "serial": name + "\x00\x1f\n"}}
		if err := insert(ctx, c, r); err != nil {
			return err
		}
		got, err := c.Get(ctx, name)
		if err != nil {
			return err
		}
		if err := same(got, name, 1, string(r.Body), r.Keys); err != nil {
			return err
		}
		for index, value := range r.Keys {
			if err := walks(ctx, c, records.Query{Index: index, Equal: value}, name); err != nil {
				return err
			}
		}
	}
	large := records.Record{ID: "large", Body: []byte(`"` + strings.Repeat("x", records.MaxBody-2) + `"`)}
	if err := insert(ctx, c, large); err != nil {
		return err
	}
	got, err := c.Get(ctx, "large")
	if err != nil {
		return err
	}
	if !bytes.Equal(got.Body, large.Body) {
		return errors.New("the largest body is read otherwise than it was stored")
	}
	return nil
}

func endedContext(ctx context.Context, c records.Collection) error {
	if err := insert(ctx, c, thing("a", "red")); err != nil {
		return err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, inserted := c.Insert(ended, thing("b", "red"))
	_, replaced := c.Replace(ended, records.Record{ID: "a", Revision: 1, Body: []byte(`{}`)})
	_, got := c.Get(ended, "a")
	_, listed := c.List(ended, records.Query{Limit: 1})
	_, counted := c.Count(ended, "", "")
	for what, err := range map[string]error{"insert": inserted, "replace": replaced, "delete": c.Delete(ended, "a", 0), "get": got, "list": listed, "count": counted} {
		if err := wants(what, err, context.Canceled); err != nil {
			return err
		}
		if errors.Is(err, records.ErrUnavailable) {
			return fmt.Errorf("%s says that the store is unavailable, and the caller went away: %w", what, err)
		}
	}
	return walks(ctx, c, records.Query{}, "a")
}

func closed(ctx context.Context, h Harness) error {
	db, err := h.Open()
	if err != nil {
		return err
	}
	c, err := db.Collection(ctx, things)
	if err != nil {
		return err
	}
	if err := insert(ctx, c, thing("a", "red")); err != nil {
		return err
	}
	if h.Close == nil {
		return walks(ctx, c, records.Query{}, "a")
	}
	if err := errors.Join(h.Close(db), h.Close(db)); err != nil {
		return err
	}
	_, opened := db.Collection(ctx, things)
	_, inserted := c.Insert(ctx, thing("b", "red"))
	_, replaced := c.Replace(ctx, records.Record{ID: "a", Revision: 1, Body: []byte(`{}`)})
	_, got := c.Get(ctx, "a")
	_, listed := c.List(ctx, records.Query{Limit: 1})
	_, counted := c.Count(ctx, "", "")
	for what, err := range map[string]error{"open": opened, "insert": inserted, "replace": replaced, "delete": c.Delete(ctx, "a", 0), "get": got, "list": listed, "count": counted} {
		if err := wants(what, err, records.ErrUnavailable); err != nil {
			return err
		}
	}
	return nil
}
