package platformcfg_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// cut is a store that keeps times in milliseconds, as a document database does: what
// is read back has lost the rest.
type cut struct{ records.DB }

func (c cut) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	inner, err := c.DB.Collection(ctx, schema)
	return cutCollection{inner}, err
}

type cutCollection struct{ records.Collection }

func (c cutCollection) Get(ctx context.Context, id string) (records.Record, error) {
	r, err := c.Collection.Get(ctx, id)
	if err != nil {
		return r, err
	}
	var row map[string]any
	if err := json.Unmarshal(r.Body, &row); err != nil {
		return r, err
	}
	if text, ok := row["updated_at"].(string); ok {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return r, err
		}
		row["updated_at"] = at.Truncate(time.Millisecond)
	}
	r.Body, err = json.Marshal(row)
	return r, err
}

// 306: the compare token is whole milliseconds from the start, so it survives a store
// that keeps no more, in every twin: what a write answers is what the next one is
// compared with, with a clock that has nanoseconds.
func TestTheCompareTokenSurvivesAStoreOfMilliseconds(t *testing.T) {
	for name, open := range map[string]func(*testing.T) records.DB{
		"memory":       func(*testing.T) records.DB { return memory.NewRecords() },
		"milliseconds": func(*testing.T) records.DB { return cut{memory.NewRecords()} },
		"embedded": func(t *testing.T) records.DB {
			store, err := embedded.Open(t.Context(), t.TempDir(), embedded.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
			return store.Records()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clocktest.New()
			c.Set(c.Now().Add(123456789 * time.Nanosecond))
			settings, err := platformcfg.New(t.Context(), open(t), c, platformcfg.Options{})
			if err != nil {
				t.Fatal(err)
			}
			floor := settings.BudgetFloor
			written, err := floor.Write(t.Context(), reserve("a", 1), "op")
			if err != nil {
				t.Fatal(err)
			}
			token := written.Value.UpdatedAt
			if token.Nanosecond()%int(time.Millisecond) != 0 {
				t.Errorf("the token is %s; it has more than milliseconds", token.Format(time.RFC3339Nano))
			}
			read, err := floor.Read(t.Context())
			if err != nil || !read.Value.UpdatedAt.Equal(token) {
				t.Errorf("read back as %s, %v; want %s", read.Value.UpdatedAt, err, token)
			}
			c.Advance(300 * time.Microsecond) // within the same millisecond
			next := reserve("a", 2)
			next.UpdatedAt = token
			if _, err := floor.Write(t.Context(), next, "op"); err != nil {
				t.Errorf("the next write with the answered token: %v", err)
			}
			if _, err := floor.Write(t.Context(), next, "op"); !errors.Is(err, platformcfg.ErrConflict) {
				t.Errorf("the same token again: %v, want a conflict", err)
			}
		})
	}
}
