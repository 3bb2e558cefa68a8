package e2e_test

import (
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// engine is a MongoDB-API engine of one test's own, which the test may kill.
//
// It is --killable: PostgreSQL hands a commit to the kernel before it acknowledges it.
// That is enough for a process that is killed, because the kernel keeps what it has; it
// is not synced to the disk, so nothing is shown here of a machine that fails. Without
// --killable an acknowledged commit may be in the dead process's memory only, and these
// tests fail.
type engine struct {
	t    *testing.T
	name string
	uri  string
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	if os.Getenv("HOLDFAST_REQUIRE_MONGO") != "1" || os.Getenv("HOLDFAST_TEST_MONGO_URI") != "" {
		const notTested = "NOT TESTED: the MongoDB engine killed. It is killed where scripts/mongo-up may start one: HOLDFAST_REQUIRE_MONGO=1 without HOLDFAST_TEST_MONGO_URI (make test-mongo)"
		fmt.Fprintln(os.Stderr, notTested)
		t.Skip(notTested)
	}
	e := &engine{t: t, name: "killed-" + strings.ToLower(crand.Text()[:12])}
	t.Cleanup(func() { e.script("mongo-down", "--purge", e.name) })
	e.uri = e.script("mongo-up", "--fresh", "--killable", e.name)
	return e
}

// script runs one of the scripts that know the engine, and gives what it prints.
func (e *engine) script(name string, args ...string) string {
	e.t.Helper()
	cmd := exec.Command("../scripts/"+name, args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_MONGO_PORT=") // that one is the shared engine's
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, log.String())
	}
	return strings.TrimSpace(string(out))
}

// kill ends "ferretdb", "postgres" or "both" with kill -9.
func (e *engine) kill(which string) {
	e.t.Helper()
	e.script("mongo-kill", which, e.name)
}

// back starts what was killed, at the same address and on the data it had.
func (e *engine) back() {
	e.t.Helper()
	if uri := e.script("mongo-up", "--keep", e.name); uri != e.uri {
		e.t.Fatalf("the engine was at %s and came back at %s", e.uri, uri)
	}
}

// The engine itself is killed with -9 under load: FerretDB, PostgreSQL with all its
// processes, and both; and comes back on the data it had. Meanwhile servers are not ready
// and answer 503, and never that there is no room, of which there is plenty. They are
// ready again by themselves. Every launch that was answered ends in an honest status, no
// command begins twice, whoever could not renew goes on, what is spent is what the month
// has, and in the end nothing is outstanding anywhere.
func TestTheEngineKilledUnderLoadLosesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	k := &engineKills{t: t, engine: newEngine(t), dice: rand.New(rand.NewPCG(seed, 2)), killed: map[string]int{}}
	k.cluster = newClusterOver(t, k.engine.uri)
	k.servers = []*clusterServer{k.cluster.server("a"), k.cluster.server("b")}
	k.cluster.stage(k.servers[0], 100_000)
	k.runners = []*proc{k.cluster.runner("x"), k.cluster.runner("y")}
	k.load = loadServers(t, k.servers...)
	eventually(t, 30*time.Second, "launches are answered", func() bool { n, _ := k.load.counts(); return n > 5 })
	for round := range rounds(t, "HOLDFAST_TEST_ENGINE_KILLS", 3) {
		k.round(round)
		if t.Failed() {
			t.FailNow()
		}
	}
	k.load.stop()
	k.explained()
	answered, refused := k.load.counts()
	k.cluster.accounts(t, k.servers[1], append(k.held, k.load.answered...))
	k.nothingOutstanding()
	t.Logf("%d launches were answered, %d were 503; killed: %v, %d of them back at once", answered, refused, k.killed, k.brief)
}

// engineKills is a cluster under load whose engine is killed again and again.
type engineKills struct {
	t       *testing.T
	engine  *engine
	cluster *cluster
	servers []*clusterServer
	runners []*proc
	load    *outages
	dice    *rand.Rand
	kinds   []string
	killed  map[string]int
	brief   int
	held    []string // runs of the test's own
}

// kind is what is killed next: each of the three once, in any order, and then again.
func (k *engineKills) kind() string {
	if len(k.kinds) == 0 {
		k.kinds = []string{"ferretdb", "postgres", "both"}
		k.dice.Shuffle(3, func(i, j int) { k.kinds[i], k.kinds[j] = k.kinds[j], k.kinds[i] })
	}
	next := k.kinds[0]
	k.kinds = k.kinds[1:]
	k.killed[next]++
	return next
}

// round kills once. The first three are away until everybody has noticed and for up to
// another lease; of the later ones every third is back at once.
func (k *engineKills) round(round int) {
	t, kind := k.t, k.kind()
	request := worker("0.05")
	request.External = true
	held, err := k.servers[0].Launch(t.Context(), request, "")
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	k.held = append(k.held, held.ID)
	k.held = append(k.held, k.servers[1].mustLaunch(t, "2").ID) // its runner's heartbeats meet the outage
	time.Sleep(time.Duration(k.dice.IntN(400)) * time.Millisecond)
	_, before := k.load.counts()
	k.engine.kill(kind)
	began := time.Now()
	if round < 3 || k.dice.IntN(3) > 0 {
		k.notReady()
		eventually(t, 30*time.Second, "a launch is answered 503", func() bool { _, n := k.load.counts(); return n > before })
		time.Sleep(time.Duration(k.dice.Int64N(int64(clusterLease))))
	} else {
		k.brief++
	}
	k.engine.back()
	away := time.Since(began)
	for _, s := range k.servers {
		eventually(t, 30*time.Second, "the server is ready again by itself", func() bool {
			health, err := s.Ready(t.Context())
			return err == nil && health.Status == "ok"
		})
	}
	t.Logf("round %d: %s was away for %.1f s, and the servers were ready %.1f s later", round, kind, away.Seconds(), time.Since(began).Seconds()-away.Seconds())
	time.Sleep(400 * time.Millisecond) // two sweeps: they come before the holder
	k.goesOn(round, held.ID)
	answered, _ := k.load.counts()
	eventually(t, 30*time.Second, "launches are answered again", func() bool { n, _ := k.load.counts(); return n > answered+10 })
	k.explained()
	k.sound()
}

func (k *engineKills) notReady() {
	k.t.Helper()
	for _, s := range k.servers {
		eventually(k.t, 30*time.Second, "the server says that it is not ready", func() bool {
			health, err := s.Ready(k.t.Context())
			return err == nil && health.Status == "not_ready" && health.Checks["records"] != ""
		})
	}
}

// goesOn: who could not renew while the engine was away was not expired for it, and
// settles.
func (k *engineKills) goesOn(round int, id string) {
	k.t.Helper()
	k.insist("renew", func() error {
		beat, err := k.servers[1].Heartbeat(k.t.Context(), id, api.Heartbeat{SpentUSD: 1000})
		if err == nil && beat.Stop {
			k.t.Errorf("round %d: who could not renew while the engine was away was expired for it: %+v", round, beat)
		}
		return err
	})
	k.insist("settle", func() error {
		_, err := k.servers[0].Settle(k.t.Context(), id, api.Settle{SpentUSD: 2000, Outcome: "finished"})
		return err
	})
}

// insist repeats a call for as long as the answer is 503: a connection of the engine's
// own pool may still be a dead one.
func (k *engineKills) insist(what string, call func() error) {
	k.t.Helper()
	eventually(k.t, 20*time.Second, what, func() bool {
		err := call()
		var failed *client.Failed
		if errors.As(err, &failed) && failed.Problem.Status == http.StatusServiceUnavailable {
			return false
		}
		if err != nil {
			k.t.Errorf("%s: %v", what, err)
		}
		return true
	})
}

// explained: nobody was told anything but a run or 503, and every process lives.
func (k *engineKills) explained() {
	k.t.Helper()
	k.load.mu.Lock()
	defer k.load.mu.Unlock()
	for _, err := range k.load.surprise {
		k.t.Errorf("an answer that no outage explains: %v", err)
	}
	for _, err := range k.load.denied {
		k.t.Errorf("an outage became a denial: %v", err)
	}
	for _, p := range append([]*proc{k.servers[0].proc, k.servers[1].proc}, k.runners...) {
		select {
		case <-p.exited:
			k.t.Errorf("%s ended by itself", strings.Join(p.cmd.Args[1:4], " "))
		default:
		}
	}
}

// ledger opens the ledger's store as one more server does.
func (k *engineKills) ledger() (store capacityledger.Store, done func()) {
	k.t.Helper()
	opened, err := mongo.Open(k.t.Context(), k.engine.uri, mongo.Options{Database: k.cluster.database, Pool: 4})
	if err != nil {
		k.t.Fatal(err)
	}
	return opened.Ledger(), func() {
		if err := opened.Close(); err != nil {
			k.t.Error(err)
		}
	}
}

// balances reads every subject of the ledger.
func (k *engineKills) balances(store capacityledger.Store) []capacityledger.Balance {
	k.t.Helper()
	subjects, err := store.Subjects(k.t.Context(), "", 1000)
	if err != nil {
		k.t.Fatal(err)
	}
	if len(subjects) < 3 {
		k.t.Errorf("the ledger has the subjects %v only", subjects)
	}
	var out []capacityledger.Balance
	for _, subject := range subjects {
		balance, err := store.Balance(k.t.Context(), subject)
		if err != nil {
			k.t.Fatal(err)
		}
		out = append(out, balance)
	}
	return out
}

// sound: under load, what is outstanding is the sum of what is open, in every subject.
func (k *engineKills) sound() {
	k.t.Helper()
	store, done := k.ledger()
	defer done()
	for _, b := range k.balances(store) {
		var sum int64
		for _, a := range b.Open {
			sum += a.Outstanding().Int()
		}
		if sum != b.Outstanding || b.Settled < 0 {
			k.t.Errorf("%s: %d outstanding, and the open entries have %d; %d settled", b.Subject, b.Outstanding, sum, b.Settled)
		}
	}
}

// nothingOutstanding: at rest, the invariants of the ledger hold and no subject has
// anything outstanding, a lease, skew and a sweep after the last one ended.
func (k *engineKills) nothingOutstanding() {
	k.t.Helper()
	store, done := k.ledger()
	defer done()
	eventually(k.t, clusterReturn+machineSlack, "nothing is outstanding in any subject", func() bool {
		for _, b := range k.balances(store) {
			if b.Outstanding != 0 || len(b.Open) > 0 {
				return false
			}
		}
		return true
	})
	if err := ledgertest.Invariants(k.t.Context(), store); err != nil {
		k.t.Error(err)
	}
	for _, b := range k.balances(store) {
		if b.Subject.Axis == holdfast.AxisSlots && b.Settled != 0 {
			k.t.Errorf("%s: %d slots are settled", b.Subject, b.Settled)
		}
	}
}
