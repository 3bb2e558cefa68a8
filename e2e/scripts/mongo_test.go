package scripts_test

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// errNotAsked says that these tests were not asked to run.
var errNotAsked = errors.New("NOT TESTED: faults and crashes over MongoDB. Set HOLDFAST_TEST_MONGO_URI to a server, or HOLDFAST_REQUIRE_MONGO=1 to let scripts/mongo-up start one (make test-mongo)")

// mongoURI is the address of the MongoDB of these tests: the one that is named, else
// one of our own where the tests were asked to run.
var mongoURI = sync.OnceValues(func() (string, error) {
	if uri := os.Getenv("HOLDFAST_TEST_MONGO_URI"); uri != "" {
		return uri, nil
	}
	if os.Getenv("HOLDFAST_REQUIRE_MONGO") != "1" {
		return "", errNotAsked
	}
	up := exec.Command("../../scripts/mongo-up")
	up.Env = append(os.Environ(), "HOLDFAST_MONGO_INSTANCE="+cmp.Or(os.Getenv("HOLDFAST_MONGO_INSTANCE"), "test"))
	var log strings.Builder
	up.Stderr = &log
	out, err := up.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, log.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// mongoStores opens a database of the test's own. Opening it again is another process.
func mongoStores(t *testing.T) (open func() *mongo.Store) {
	t.Helper()
	uri, err := mongoURI()
	switch {
	case errors.Is(err, errNotAsked):
		fmt.Fprintln(os.Stderr, err)
		t.Skip(err)
	case err != nil:
		t.Fatalf("no MongoDB: %v", err)
	}
	database := "scripts_" + strings.ToLower(crand.Text()[:12])
	// The server removes what is past its keeping by its own clock, and the tests' clock
	// stands in the past.
	const keep = 100 * 365 * 24 * time.Hour
	return func() *mongo.Store {
		store := must(mongo.Open(context.WithoutCancel(t.Context()), uri, mongo.Options{Database: database, KeepClosed: keep, KeepRecords: keep}))(t)
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return store
	}
}

// The same as over the other stores: in the short form each kind of call fails once,
// in the long one each kind and a quarter of the others in all three ways.
func TestAFaultAtEveryCallLeaksNothingOverMongoDB(t *testing.T) {
	store := mongoStores(t)()
	share := 0
	if long() {
		share = 4
	}
	everyFault(t, func() stores { return stores{store.Ledger(), store.Records()} }, share, false)
}

// A server that dies at any call, before or after the call took effect, is followed by
// another one over the same database, which knows nothing of it. What was acknowledged
// holds there, and nothing stays held. In a third of the cases the queue's messages are
// lost as well.
func TestAServerThatDiesAtAnyCallOverMongoDBLosesNothingThatWasAcknowledged(t *testing.T) {
	open := mongoStores(t)
	first := seed(t)
	t.Logf("seed %d", first)
	points := 10
	if long() {
		points = 200
	}
	kinds := map[string]int{}
	for i := range points {
		dice := rand.New(rand.NewPCG(first, uint64(i)))
		died, err := dieOnce(t, open, holdfast.TeamID(fmt.Sprintf("d%05d", i)), dice)
		kinds[died]++
		if err != nil {
			t.Fatalf("seed %d, death %d, at %s: %v", first, i, died, err)
		}
	}
	t.Logf("%d crashes at %d kinds of call: %v", points, len(kinds), slices.Sorted(maps.Keys(kinds)))
}

// scriptCalls is about how many calls the random part of a script makes.
const scriptCalls = 250

// dieOnce plays a random script until its server dies, and looks at what another one
// finds. It says at which call that was.
func dieOnce(t *testing.T, open func() *mongo.Store, team holdfast.TeamID, dice *rand.Rand) (died string, err error) {
	store := open()
	clock := clocktest.New()
	if err := policy(t.Context(), store.Records(), clock); err != nil {
		return "", err
	}
	w, err := newWorld(t.Context(), stores{store.Ledger(), store.Records()}, team, clock)
	if err != nil {
		return "", err
	}
	// From one call on every one fails: nobody hears what a dead process is answered.
	at := fault{first: 1 + dice.IntN(scriptCalls), lasts: 1 << 40, after: dice.IntN(2) == 0}
	s, lost := newScript(w), dice.IntN(3) == 0
	if at.after { // the one call took effect; the dead make no others
		w.board.fault = fault{first: at.first, lasts: 1, after: true}
		w.board.then = fault{first: at.first + 1, lasts: at.lasts}
	} else {
		w.board.fault = at
	}
	told := s.told.copy()
	for len(w.board.fired) == 0 {
		told = s.told.copy()
		s.random(dice)
		if s.err != nil {
			return "", fmt.Errorf("the script without a crash: %w", s.err)
		}
	}
	died = w.board.fired[0]
	next := open()
	after, err := newWorld(t.Context(), stores{next.Ledger(), next.Records()}, team, clock)
	if err != nil {
		return died, err
	}
	after.seen = w.seen
	if after.Service, err = after.server(); err != nil {
		return died, err
	}
	if !lost {
		maps.Copy(after.queue.all, w.queue.snapshot())
	}
	if err := after.inOrder(); err != nil {
		return died, err
	}
	if err := told.kept(after); err != nil {
		return died, err
	}
	if err := after.settleDown(); err != nil {
		return died, fmt.Errorf("afterwards: %w", err)
	}
	return died, errors.Join(told.kept(after), after.kept())
}
