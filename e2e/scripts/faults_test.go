package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// notByLaunch are the methods that no step of a run's life calls.
var notByLaunch = []string{"ledger.Subjects", "records.Delete"}

// methods are a seam's methods, as the board names them.
func methods[Seam any](prefix string) (names []string) {
	seam := reflect.TypeFor[Seam]()
	for i := range seam.NumMethod() {
		names = append(names, prefix+seam.Method(i).Name)
	}
	return names
}

// long says that the campaign is asked for, and not its short form.
func long() bool { return os.Getenv("HOLDFAST_TEST_LONG") != "" }

// seed is that of the moment, or the one that a person wants again.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("HOLDFAST_TEST_SEED")
	if text == "" {
		return rand.Uint64() >> 1
	}
	return must(strconv.ParseUint(text, 10, 64))(t)
}

// Each call of a whole script fails once, before and after it took effect and as the
// first of an outage, over stores in memory. After that nothing is wrong and nothing
// is held. The short form takes each kind of call, and a sixth of the others.
func TestAFaultAtEveryCallLeaksNothingInMemory(t *testing.T) {
	everyFault(t, func() stores { return stores{memory.NewLedger(), memory.NewRecords()} }, 6, long())
}

// The same over the embedded store. The short form takes each kind of call once.
func TestAFaultAtEveryCallLeaksNothingEmbedded(t *testing.T) {
	store := must(embedded.Open(t.Context(), t.TempDir(), embedded.Options{}))(t)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	everyFault(t, func() stores { return stores{store.Ledger(), store.Records()} }, 0, long())
}

// outage is how many calls fail in a row when a store is away for a while.
const outage = 8

// everyFault plays the script with a fault at each kind of call and at one of share
// of the others; a share of zero is one fault for each kind. The whole is a fault at
// every call, in all ways.
func everyFault(t *testing.T, open func() stores, share int, whole bool) {
	t.Helper()
	names, _ := faulted(t, open(), fault{})
	seed := seed(t)
	t.Logf("seed %d, %d calls", seed, len(names))
	dice, met, failed, played := rand.New(rand.NewPCG(seed, 1)), map[string]bool{}, map[string]int{}, 0
	for i, name := range names {
		if !whole && met[name] && (share == 0 || dice.IntN(share) != 0) {
			continue
		}
		met[name] = true
		faults := []fault{{i + 1, 1, false}, {i + 1, 1, true}, {i + 1, outage, false}}
		if !whole && share == 0 {
			faults = faults[len(met)%3:][:1]
		}
		for _, f := range faults {
			_, fired := faulted(t, open(), f)
			played++
			for _, name := range fired {
				failed[name]++
			}
			if t.Failed() {
				t.Fatalf("with a fault at %s: %s", name, f)
			}
		}
	}
	if whole || share > 0 {
		unvisited(t, failed)
	}
	t.Logf("%d faults at %d kinds of call", played, len(failed))
}

var worlds int

// faulted plays the script with a fault and checks what is left; it returns the calls
// that were made and those that failed.
func faulted(t *testing.T, under stores, f fault) (names, fired []string) {
	t.Helper()
	if err := policy(t.Context(), under.records, clocktest.New()); err != nil {
		t.Fatal(err)
	}
	worlds++
	w := must(newWorld(t.Context(), under, holdfast.TeamID(fmt.Sprintf("w%05d", worlds)), clocktest.New()))(t)
	w.board.fault = f
	if err := newScript(w).whole(); err != nil {
		t.Errorf("the script: %v", err)
	}
	names, fired = slices.Clone(w.board.names), w.board.fired
	if f.first > 0 && len(fired) == 0 && !(f.after && strings.HasSuffix(names[f.first-1], ".get")) {
		t.Error("the fault never came") // the answer "there is none" cannot be lost after it took effect
	}
	if err := w.settleDown(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := w.kept(); err != nil {
		t.Errorf("in the end: %v", err)
	}
	return names, fired
}

// unvisited fails when a method of a seam never failed: the script leaves it out, and
// what a fault there does is not known.
func unvisited(t *testing.T, failed map[string]int) {
	t.Helper()
	visited := map[string]bool{}
	for name := range failed {
		visited[name] = true
		if collection, verb, ok := strings.Cut(name, "."); ok && collection != "ledger" && collection != "queue" {
			visited["records."+strings.ToUpper(verb[:1])+verb[1:]] = true
		}
	}
	for _, name := range slices.Concat(methods[capacityledger.Store]("ledger."), methods[records.Collection]("records."), methods[launch.Publisher]("queue.")) {
		if left := slices.Contains(notByLaunch, name); visited[name] == left {
			t.Errorf("%s failed: %t; said to be no part of a run's life: %t", name, visited[name], left)
		}
	}
}
