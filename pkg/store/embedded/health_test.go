package embedded_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// broken is a store and the two ways to make a part of it refuse every write.
type broken struct {
	*testing.T
	store *embedded.Store
	now   time.Time
}

func newBroken(t *testing.T) *broken {
	t.Helper()
	return &broken{t, openStore(t, t.TempDir(), embedded.Options{}), clocktest.T0}
}

func (b *broken) refuse(on func(*embedded.Store, string) error, refuse bool) {
	b.Helper()
	statement := "PRAGMA query_only = 0"
	if refuse {
		statement = "PRAGMA query_only = 1"
	}
	if err := on(b.store, statement); err != nil {
		b.Fatal(err)
	}
}

// names are the parts that are broken, each with a reason.
func (b *broken) want(what string, names ...string) {
	b.Helper()
	health := b.store.Health(b.Context(), b.now)
	want := map[string]string{}
	for _, name := range names {
		want[name] = health[name]
		if reason := health[name]; !strings.HasPrefix(reason, "the last write failed: ") || strings.Contains(reason, "INSERT") {
			b.Errorf("%s: the reason of %s is %q", what, name, reason)
		}
	}
	if diff := cmp.Diff(want, health); diff != "" {
		b.Fatalf("%s:\n%s", what, diff)
	}
}

func TestALedgerThatCannotWriteIsBrokenUntilItsNextCommit(t *testing.T) {
	b := newBroken(t)
	ledger := ledgerOver(b.store)
	b.want("at the start")
	b.refuse(embedded.OnWriter, true)
	b.want("before anybody wrote")
	if _, _, err := ledger.Reserve(t.Context(), slotAsk(1, 9)); err == nil {
		t.Fatal("a file that cannot be written acknowledged a write")
	}
	b.want("after a failed write", "ledger")
	b.refuse(embedded.OnWriter, false)
	if _, err := ledger.Outstanding(t.Context(), acmeSlots); err != nil {
		t.Fatal(err)
	}
	b.want("reads show nothing of writes", "ledger")
	if _, _, err := ledger.Reserve(t.Context(), slotAsk(1, 9)); err != nil {
		t.Fatal(err)
	}
	b.want("after a commit")
}

func TestRecordsThatCannotWriteAreBroken(t *testing.T) {
	b := newBroken(t)
	things, err := b.store.Records().Collection(t.Context(), crashThings)
	if err != nil {
		t.Fatal(err)
	}
	insert := func() error {
		_, err := things.Insert(context.Background(), records.Record{ID: "a", Body: []byte(`{}`)})
		return err
	}
	b.refuse(embedded.OnRecordsWriter, true)
	if err := insert(); err == nil {
		t.Fatal("a file that cannot be written acknowledged a write")
	}
	b.want("after a failed write", "records")
	b.refuse(embedded.OnRecordsWriter, false)
	if err := insert(); err != nil {
		t.Fatal(err)
	}
	b.want("after a commit")
}

// Nobody writes here but the question itself.
func TestAskingForTheHealthBringsItBackAtMostOnceASecond(t *testing.T) {
	b := newBroken(t)
	b.refuse(embedded.OnWriter, true)
	if _, _, err := ledgerOver(b.store).Reserve(t.Context(), slotAsk(1, 9)); err == nil {
		t.Fatal("a file that cannot be written acknowledged a write")
	}
	b.want("the first question tries and fails", "ledger")
	b.refuse(embedded.OnWriter, false)
	b.now = b.now.Add(999 * time.Millisecond)
	b.want("within the second nothing is tried", "ledger")
	b.now = b.now.Add(time.Millisecond)
	b.want("after it the file takes the write")
}
