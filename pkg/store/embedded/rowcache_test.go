package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// hot is a store all of whose collections may be kept in memory.
type hot struct{ records.DB }

func (h hot) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	schema.Hot = true
	return h.DB.Collection(ctx, schema)
}

// A collection that is kept in memory answers as one that is not, row for row.
func TestHotRecordsConform(t *testing.T) {
	recordstest.Run(t, func(t *testing.T) recordstest.Harness {
		f := newFolders(t)
		return recordstest.Harness{
			Open: func() (records.DB, error) {
				store, err := f.open(t.TempDir())
				if err != nil {
					return nil, err
				}
				return hot{store.Records()}, nil
			},
			Reopen: func(part records.DB) (records.DB, error) {
				store, err := f.crash(part.(hot).DB)
				if err != nil {
					return nil, err
				}
				return hot{store.Records()}, nil
			},
			Close: func(part records.DB) error { return f.store[part.(hot).DB].Close() },
		}
	})
}

// Whoever reads after a write was answered sees that write or a later one, however
// many read and write the same rows, and rows come and go.
func TestAHotRowIsNeverOlderThanAnAnsweredWrite(t *testing.T) {
	const seed, ids, steps = 7, 3, 300
	t.Logf("seed %d", seed)
	store, err := embedded.Open(t.Context(), t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows, err := store.Records().Collection(t.Context(), records.Schema{Name: "hot", Hot: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range ids {
		if _, err := rows.Insert(t.Context(), records.Record{ID: fmt.Sprint(i), Body: []byte("0")}); err != nil {
			t.Fatal(err)
		}
	}
	var answered [ids]struct {
		sync.Mutex
		revision int64
	}
	floor := func(id int) int64 { answered[id].Lock(); defer answered[id].Unlock(); return answered[id].revision }
	var wait sync.WaitGroup
	for writer := range ids {
		wait.Go(func() {
			for i := range steps / 10 {
				r, err := rows.Get(t.Context(), fmt.Sprint(writer))
				if err != nil {
					t.Error(err)
					return
				}
				r.Body = []byte(fmt.Sprint(i))
				if r, err = rows.Replace(t.Context(), r); err != nil {
					t.Error(err)
					return
				}
				answered[writer].Lock()
				answered[writer].revision = r.Revision
				answered[writer].Unlock()
			}
		})
	}
	for reader := range 4 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(reader)))
			for range steps {
				id := random.IntN(ids)
				least := floor(id)
				r, err := rows.Get(t.Context(), fmt.Sprint(id))
				if err != nil || r.Revision < least {
					t.Errorf("row %d is read at revision %d after %d was answered, error %v", id, r.Revision, least, err)
				}
			}
		})
	}
	wait.Wait()
	if err := rows.Delete(t.Context(), "0", 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := rows.Get(t.Context(), "0"); err != records.ErrNotFound { //nolint:errorlint // the twin's own
			t.Errorf("a row that was removed: %v", err)
		}
	}
	if _, err := rows.Insert(t.Context(), records.Record{ID: "0", Body: []byte("7")}); err != nil {
		t.Fatal(err)
	}
	if r, err := rows.Get(t.Context(), "0"); err != nil || string(r.Body) != "7" {
		t.Errorf("a row that came back: %s, %v", r.Body, err)
	}
	// What is served is the reader's own.
	r, err := rows.Get(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	r.Body[0] = 'x'
	if again, err := rows.Get(t.Context(), "0"); err != nil || string(again.Body) != "7" {
		t.Errorf("what a reader changed is served as %s, %v", again.Body, err)
	}
}
