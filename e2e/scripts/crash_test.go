package scripts_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

const (
	crashTeam = "acme"
	// shortPoints is about how many of a script's writes the short form crashes after,
	// beside the first of each kind.
	shortPoints = 8
)

// crash is the state of the disk and of the callers right after one write: what a
// process that died there leaves. What was acknowledged later is not in it.
type crash struct {
	name  string // of the write
	dir   string
	sizes map[string]int64 // of the logs before the write
	queue map[holdfast.RunID]queue.RunMessage
	told  acknowledged
	now   time.Time
}

// logs are the files that a write appends to.
var logs = []string{embedded.LedgerFile + "-wal", embedded.RecordsFile + "-wal"}

// A process that dies right after any write, or in the middle of one, leaves what it
// acknowledged and nothing that stays held: the ledger first, then the document, then
// the message.
func TestACrashAtEveryWriteLosesNothingThatWasAcknowledged(t *testing.T) {
	scripts := uint64(1)
	if long() {
		scripts = 10
	}
	first := seed(t)
	for i := range scripts {
		t.Run(fmt.Sprintf("seed %d", first+i), func(t *testing.T) { crashScript(t, first+i) })
	}
}

// What the check looks for must be found: a log that lost an acknowledged write, which
// a store that does not sync can lose, is noticed.
func TestTheCrashCheckNoticesAWriteThatWasLost(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 1))
	points := played(t, dice)
	last := points[len(points)-1]
	for _, name := range logs {
		lost := *last
		lost.dir = t.TempDir()
		if err := copyFiles(last.dir, lost.dir); err != nil {
			t.Fatal(err)
		}
		// The tables and the first team are kept, what the script did is not.
		if err := os.Truncate(filepath.Join(lost.dir, name), points[0].sizes[name]); err != nil {
			t.Fatal(err)
		}
		err := lost.verify(t, false, false, dice)
		t.Logf("%s: %v", name, err)
		if err == nil {
			t.Errorf("%s lost everything that was acknowledged, and nobody noticed", name)
		}
	}
}

func crashScript(t *testing.T, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	points := played(t, dice)
	if len(points) < 30 {
		t.Fatalf("the script has only %d writes", len(points))
	}
	share := 1
	if !long() {
		share = max(1, len(points)/shortPoints)
	}
	tried, torn, kinds := 0, 0, map[string]bool{}
	for i, point := range points {
		first := !kinds[point.name]
		kinds[point.name] = true
		if i%share != 0 && !first {
			continue
		}
		tear := dice.IntN(2) == 0 && point.grown() != ""
		lose := dice.IntN(3) == 0 && !first
		if err := point.verify(t, tear, lose, dice); err != nil {
			t.Errorf("after write %d of %d, %s (torn %t, the queue lost %t): %v", i+1, len(points), point.name, tear, lose, err)
		}
		tried++
		if tear {
			torn++
		}
	}
	if torn == 0 {
		t.Error("no crash tore a write")
	}
	t.Logf("%d crashes at %d writes, %d of them in the middle of one", tried, len(points), torn)
}

// played plays a random script over a store of its own and keeps what is on the disk
// after every write.
func played(t *testing.T, dice *rand.Rand) (points []*crash) {
	dir := t.TempDir()
	store := must(embedded.Open(t.Context(), dir, embedded.Options{}))(t)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	clock := clocktest.New()
	if err := policy(t.Context(), store.Records(), clock); err != nil {
		t.Fatal(err)
	}
	w := must(newWorld(t.Context(), stores{store.Ledger(), store.Records()}, crashTeam, clock))(t)
	s := newScript(w)
	sizes := sizesOf(dir)
	w.board.written = func(name string) {
		if !writes(name) {
			return
		}
		point := &crash{name: name, dir: t.TempDir(), sizes: sizes, queue: w.queue.snapshot(), told: s.told.copy(), now: clock.Now()}
		if err := copyFiles(dir, point.dir); err != nil {
			t.Error(err)
		}
		sizes = sizesOf(dir)
		points = append(points, point)
	}
	for i := 0; i < 10 || len(points) < 40; i++ {
		s.random(dice)
	}
	w.board.written = nil
	if s.err != nil {
		t.Fatalf("the script without a crash: %v", s.err)
	}
	if err := errors.Join(w.settleDown(), w.kept()); err != nil {
		t.Fatalf("the script without a crash: %v", err)
	}
	return points
}

// writes says whether a call of that name changes anything that is kept.
func writes(name string) bool {
	_, verb, _ := strings.Cut(name, ".")
	return slices.Contains([]string{"Admit", "Move", "Close", "insert", "replace", "delete", "Publish", "Cancel"}, verb)
}

// random is one thing that somebody does.
func (s *script) random(dice *rand.Rand) {
	bot := []string{"probe", "feature-dev", "review-pr"}[dice.IntN(3)]
	spent := holdfast.MicroUSD(10_000 * (1 + dice.IntN(9)))
	some := func(ids []holdfast.RunID) holdfast.RunID {
		if len(ids) == 0 {
			return ""
		}
		return ids[dice.IntN(len(ids))]
	}
	switch dice.IntN(10) {
	case 0, 1:
		s.launch(bot, false)
	case 2:
		s.launch(bot, false)
		s.work(spent, []queue.Ending{queue.EndFinished, queue.EndFailed, queue.EndBudget}[dice.IntN(3)])
	case 3, 4:
		s.drive(s.launch(bot, true), spent, dice.IntN(3) > 0)
	case 5:
		s.launch(bot, false)
		s.begin()
	case 6:
		s.cancel(some(s.told.launched))
	case 7:
		id := s.launch(bot, false)
		for range 5 { // whatever waits before it
			s.work(spent, queue.EndInterrupted)
		}
		if run, err := s.runs.Get(s.ctx, id); err == nil && run.Status == runs.FailedResumable {
			s.resume(id)
		}
	case 8:
		s.clock.Advance(time.Duration(20+dice.IntN(130)) * time.Second)
		s.sweep()
	case 9:
		s.refused()
	}
}

func (a acknowledged) copy() acknowledged {
	return acknowledged{launched: slices.Clone(a.launched), settled: maps.Clone(a.settled), beats: maps.Clone(a.beats), cancelled: slices.Clone(a.cancelled)}
}

func sizesOf(dir string) map[string]int64 {
	sizes := map[string]int64{}
	for _, name := range logs {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			sizes[name] = info.Size()
		}
	}
	return sizes
}

// copyFiles copies what survives a process: not the index of the log, which belongs
// to the living.
func copyFiles(from, to string) error {
	for _, name := range append([]string{embedded.LedgerFile, embedded.RecordsFile}, logs...) {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// grown is the log that the write appended to; empty when it went elsewhere.
func (c *crash) grown() string {
	now := sizesOf(c.dir)
	for _, name := range logs {
		if now[name] > c.sizes[name] {
			return name
		}
	}
	return ""
}

// tear cuts the write's own part of the log short, or turns a byte of it over: the
// write never happened then, and everything before it did.
func (c *crash) tear(dir string, dice *rand.Rand) error {
	name := c.grown()
	path := filepath.Join(dir, name)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	at := c.sizes[name] + dice.Int64N(int64(len(content))-c.sizes[name])
	if dice.IntN(2) == 0 {
		return os.Truncate(path, at)
	}
	content[at] ^= 0xff
	return os.WriteFile(path, content, 0o600)
}

// verify starts a new process on what the crash left, and looks.
func (c *crash) verify(t *testing.T, tear, lose bool, dice *rand.Rand) error {
	dir := t.TempDir()
	if err := copyFiles(c.dir, dir); err != nil {
		return err
	}
	if tear {
		if err := c.tear(dir, dice); err != nil {
			return err
		}
	}
	store, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if err != nil {
		return err
	}
	defer store.Close() // its folder goes away
	w, err := newWorld(t.Context(), stores{store.Ledger(), store.Records()}, crashTeam, clocktest.At(c.now))
	if err != nil {
		return err
	}
	if !lose {
		maps.Copy(w.queue.all, c.queue)
	}
	if err := w.inOrder(); err != nil {
		return err
	}
	if err := w.Recover(w.ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if err := c.told.kept(w); err != nil {
		return err
	}
	if err := w.settleDown(); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	return errors.Join(c.told.kept(w), w.kept())
}

// inOrder checks that no message is without its document, and no document of an
// active run without the allocations that it names.
func (w *world) inOrder() error {
	for id := range w.queue.all {
		if _, err := w.runs.Get(w.ctx, id); err != nil {
			return fmt.Errorf("the message of %s has no document: %w", id, err)
		}
	}
	list, _, err := w.runs.List(w.ctx, runs.Filter{Limit: records.MaxPage})
	if err != nil {
		return err
	}
	for _, run := range list {
		for _, hold := range run.Holds {
			if _, err := w.under.ledger.Get(w.ctx, hold.ID); err != nil {
				return fmt.Errorf("run %s (%s) names %s: %w", run.ID, run.Status, hold.ID, err)
			}
		}
	}
	return nil
}

// kept checks that everything that callers were told is still so.
func (a acknowledged) kept(w *world) error {
	for _, id := range a.launched {
		if _, err := w.runs.Get(w.ctx, id); err != nil {
			return fmt.Errorf("the acknowledged launch %s: %w", id, err)
		}
	}
	for id, spent := range a.settled {
		if run, err := w.runs.Get(w.ctx, id); err != nil || run.Status != runs.Finished || run.Spent != spent {
			return fmt.Errorf("the acknowledged settle of %s at %s: it is %s with %s, %w", id, spent.Dollars(), run.Status, run.Spent.Dollars(), err)
		}
	}
	for id, spent := range a.beats {
		if run, err := w.runs.Get(w.ctx, id); err != nil || run.Spent < spent {
			return fmt.Errorf("the acknowledged heartbeat of %s at %s: it has %s, %w", id, spent.Dollars(), run.Spent.Dollars(), err)
		}
	}
	for _, id := range a.cancelled {
		if run, err := w.runs.Get(w.ctx, id); err != nil || run.Status != runs.Cancelled && !run.CancelAsked && run.Status != runs.Finished {
			return fmt.Errorf("the acknowledged cancel of %s: it is %s, %w", id, run.Status, err)
		}
	}
	return nil
}
