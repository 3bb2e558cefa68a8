package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// The test binary is also the child that gets killed.
const crashDir, crashRound = "HOLDFAST_TEST_CRASH_DIR", "HOLDFAST_TEST_CRASH_ROUND"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Println("failed", workUntilKilled(dir, os.Getenv(crashRound)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const crashCap = 6

var (
	crashBot    = holdfast.PlatformBot("review-pr")
	crashThings = records.Schema{Name: "things", Indexes: []records.Index{{Name: "colour"}}}
)

func crashSubjects() []holdfast.Subject {
	return []holdfast.Subject{
		holdfast.TeamSubject("acme", holdfast.AxisSlots, ""), holdfast.TeamSubject("beta", holdfast.AxisSlots, ""),
		holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-11"), holdfast.PlatformSubject(holdfast.AxisUSD, "2026-11"),
	}
}

// workUntilKilled reserves, reports, settles and stores records from several
// goroutines and says on standard output what was acknowledged, after it was.
func workUntilKilled(dir, round string) error {
	ctx := context.Background()
	store, err := embedded.Open(ctx, dir, embedded.Options{})
	if err != nil {
		return err
	}
	ledger := capacityledger.New(store.Ledger(), capacityledger.Options{})
	things, err := store.Records().Collection(ctx, crashThings)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	for worker := range 12 {
		go func() {
			for n := 0; ; n++ {
				if err := oneRun(ctx, ledger, things, worker, holdfast.RunID(fmt.Sprintf("01R%s-%02d-%08d", round, worker, n)), say); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// oneRun is the life of one allocation, with a record beside it.
func oneRun(ctx context.Context, ledger *capacityledger.Ledger, things records.Collection, worker int, run holdfast.RunID, say func(string, ...any)) error {
	subject := crashSubjects()[worker%4]
	unit := subject.Axis.Unit()
	ask := capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: crashBot, Requested: holdfast.AmountOf(unit, 1), Expires: time.Now().Add(time.Hour),
	}
	ask.Terms.Cap = holdfast.AtMost(holdfast.AmountOf(unit, crashCap))
	spent := holdfast.AmountOf(unit, 0)
	if unit == holdfast.UnitUSD {
		ask.Terms.Cap = holdfast.NoLimit
		ask.Requested, spent = holdfast.AmountOf(unit, 1000), holdfast.AmountOf(unit, 300)
	}
	a, denial, err := ledger.Reserve(ctx, ask)
	switch {
	case err != nil:
		return err
	case denial.Denied():
		return nil
	}
	say("reserved %s", a.ID)
	if _, err := things.Insert(ctx, records.Record{ID: string(run), Body: []byte(`{}`), Keys: map[string]string{"colour": "red"}}); err != nil {
		return err
	}
	say("inserted %s", run)
	if _, _, err := ledger.Renew(ctx, a.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Spent: spent, Expires: time.Now().Add(2 * time.Hour)}); err != nil {
		return err
	}
	say("renewed %s", a.ID)
	if _, err := ledger.Settle(ctx, a.ID, capacityledger.Report{Attempt: 1, Sequence: 2, Spent: spent.Plus(spent)}); err != nil {
		return err
	}
	say("settled %s", a.ID)
	if err := things.Delete(ctx, string(run), 1); err != nil {
		return err
	}
	say("deleted %s", run)
	return nil
}

// TestNothingAcknowledgedIsLostWhenTheProcessIsKilled kills a process that reserves
// and settles, at a random moment, and looks at what it left: everything that it
// acknowledged is there, and what it had not is there whole or not at all.
func TestNothingAcknowledgedIsLostWhenTheProcessIsKilled(t *testing.T) {
	roundsWanted := 20
	if text := os.Getenv("HOLDFAST_TEST_CRASH_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("HOLDFAST_TEST_CRASH_ROUNDS: %v", err)
		}
		roundsWanted = n
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acknowledged := 0
	for round := range roundsWanted {
		said := killedAfter(t, dir, round, time.Duration(random.IntN(60_000))*time.Microsecond)
		acknowledged += len(said)
		verifyAfterKill(t, dir, said)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	if acknowledged == 0 {
		t.Fatal("nothing was acknowledged in any round")
	}
	t.Logf("%d rounds, %d acknowledged writes", roundsWanted, acknowledged)
}

// killedAfter runs the child, kills it so long after its first word, and returns
// what it said.
func killedAfter(t *testing.T, dir string, round int, after time.Duration) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), crashDir+"="+dir, fmt.Sprintf("%s=%06d", crashRound, round))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	reader := bufio.NewReader(out)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			break // the last line may be half of one
		}
		if len(said) == 0 {
			time.AfterFunc(after, func() { _ = child.Process.Kill() })
		}
		said = append(said, strings.TrimSpace(line))
	}
	err = child.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the child ended with %v: %q", err, said)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended by itself, %v: %q", err, said[max(0, len(said)-1):])
	}
	return said
}

// step says how far a run got; each step is acknowledged after the one before.
var steps = map[string]int{"reserved": 1, "inserted": 2, "renewed": 3, "settled": 4, "deleted": 5}

func verifyAfterKill(t *testing.T, dir string, said []string) {
	t.Helper()
	store, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := ledgertest.Invariants(t.Context(), store.Ledger()); err != nil {
		t.Errorf("after the kill: %v", err)
	}
	things, err := store.Records().Collection(t.Context(), crashThings)
	if err != nil {
		t.Fatal(err)
	}
	reached, ids := map[holdfast.RunID]int{}, map[holdfast.RunID]holdfast.AllocationID{}
	for _, line := range said {
		verb, what, _ := strings.Cut(line, " ")
		run := holdfast.RunID(what)
		if id := holdfast.AllocationID(what); strings.Contains(what, "~") {
			run, _, _, _ = id.Parts()
			ids[run] = id
		}
		reached[run] = steps[verb]
	}
	for run, step := range reached {
		verifyRun(t, store, things, run, ids[run], step)
	}
	slotsHold(t, store)
	giveBackAll(t, store)
}

// verifyRun looks for every step that was acknowledged; the one after it may or may
// not have happened.
func verifyRun(t *testing.T, store *embedded.Store, things records.Collection, run holdfast.RunID, id holdfast.AllocationID, step int) {
	t.Helper()
	a, err := store.Ledger().Get(t.Context(), id)
	if err != nil {
		t.Errorf("%s was acknowledged up to step %d: %v", id, step, err)
		return
	}
	closed := a.Outcome == capacityledger.Settled
	if (step >= steps["renewed"] && !a.Confirmed) || (step >= steps["settled"] && !closed) || (step < steps["renewed"] && closed) {
		t.Errorf("%s was acknowledged up to step %d and is %+v", id, step, a)
	}
	if per := int64(300); a.Spent.Unit() == holdfast.UnitUSD {
		want := int64(0)
		if a.Confirmed {
			want = per
		}
		if closed {
			want = 2 * per
		}
		if a.Spent.Int() != want {
			t.Errorf("%s has spent %d, want %d: half a report", id, a.Spent.Int(), want)
		}
	}
	_, err = things.Get(t.Context(), string(run))
	gone := errors.Is(err, records.ErrNotFound)
	if err != nil && !gone {
		t.Error(err)
	}
	if (step >= steps["inserted"] && step < steps["settled"] && gone) || (step == steps["deleted"] && !gone) {
		t.Errorf("the record %s was acknowledged up to step %d; gone: %t", run, step, gone)
	}
}

// slotsHold checks that no subject has more slots out than its cap.
func slotsHold(t *testing.T, store *embedded.Store) {
	t.Helper()
	for _, subject := range crashSubjects() {
		balance, err := store.Ledger().Balance(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		if subject.Axis == holdfast.AxisSlots && balance.Total() > crashCap {
			t.Errorf("%s: %d of %d slots", subject, balance.Total(), crashCap)
		}
	}
}

// giveBackAll releases what the killed process held, so that the next has room.
func giveBackAll(t *testing.T, store *embedded.Store) {
	t.Helper()
	due, err := store.Ledger().Due(t.Context(), time.Now().Add(100*time.Hour), capacityledger.Cursor{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var closings []capacityledger.Closing
	for _, a := range due {
		closings = append(closings, capacityledger.Closing{ID: a.ID, Outcome: capacityledger.Expired})
	}
	if _, err := store.Ledger().Close(t.Context(), time.Now(), closings); err != nil {
		t.Fatal(err)
	}
}
