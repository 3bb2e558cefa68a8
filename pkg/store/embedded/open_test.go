package embedded_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

func TestOnlyTheOwnerCanReadTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	store := openStore(t, dir, embedded.Options{})
	if _, _, err := ledgerOver(store).Reserve(t.Context(), slotAsk(1, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Records().Collection(t.Context(), crashThings); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %o: %v", info.Mode().Perm(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 6 {
		t.Errorf("%d files, want two with a log and an index each", len(entries))
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o: %v", entry.Name(), info.Mode().Perm(), err)
		}
	}
}

func TestAnExistingFileThatOthersCouldReadIsClosedToThem(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, embedded.LedgerFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir, embedded.Options{})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o: %v", info.Mode().Perm(), err)
	}
}

func TestAnyFolderNameWillDo(t *testing.T) {
	for _, name := range []string{"a b", "a?b=c&d", "a#b", "100%41", "ä😀", "a;b'c\"d", "file:x"} {
		dir := filepath.Join(t.TempDir(), name)
		store := openStore(t, dir, embedded.Options{})
		if _, denial, err := ledgerOver(store).Reserve(t.Context(), slotAsk(1, 3)); err != nil || denial.Denied() {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, embedded.LedgerFile)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestARelativeFolderIsTheOneOfTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	openStore(t, "data", embedded.Options{})
	if _, err := os.Stat(filepath.Join("data", embedded.RecordsFile)); err != nil {
		t.Error(err)
	}
}

func TestAFileOfANewerBuildIsRefused(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, embedded.Options{})
	if err := embedded.OnWriter(store, "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if err == nil || !strings.Contains(err.Error(), "format 99") || !strings.Contains(err.Error(), dir) {
		t.Errorf("a file of a newer build: %v", err)
	}
}

func TestAFolderThatIsNoneAndAFileThatIsNoneAreErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(t.Context(), filepath.Join(plain, "x"), embedded.Options{}); err == nil {
		t.Error("a folder under a file was opened")
	}
	if err := os.WriteFile(filepath.Join(dir, embedded.RecordsFile), []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(t.Context(), dir, embedded.Options{}); err == nil || !strings.Contains(err.Error(), embedded.RecordsFile) {
		t.Errorf("a file that is no database: %v", err)
	}
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{})
	ledger := ledgerOver(store)
	if _, _, err := ledger.Reserve(t.Context(), slotAsk(1, 3)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	_, denial, reserved := ledger.Reserve(t.Context(), slotAsk(2, 3))
	_, _, renewed := ledger.Renew(t.Context(), slotAsk(1, 3).ID, capacityledger.Renewal{Expires: clocktest.T0})
	_, settled := ledger.Settle(t.Context(), slotAsk(1, 3).ID, capacityledger.Report{})
	_, read := ledger.Get(t.Context(), slotAsk(1, 3).ID)
	_, outstanding := ledger.Outstanding(t.Context(), acmeSlots)
	_, subjects := ledger.Subjects(t.Context(), "", 10)
	_, expired := ledger.Expire(t.Context(), clocktest.T0, 10)
	_, repaired := store.Ledger().Repair(t.Context(), clocktest.T0, 10)
	for what, err := range map[string]error{
		"reserve": reserved, "renew": renewed, "settle": settled, "get": read, "outstanding": outstanding, "subjects": subjects, "expire": expired, "repair": repaired,
	} {
		if !errors.Is(err, capacityledger.ErrUnavailable) || denial.Denied() {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAnOperatorReadsTheLedgerWhileItIsInUse does as the sqlite3 tool does: it opens
// the file beside the running store, in another connection, and asks who holds it.
func TestAnOperatorReadsTheLedgerWhileItIsInUse(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, embedded.Options{})
	ledger := ledgerOver(store)
	for n := range 3 {
		if _, denial, err := ledger.Reserve(t.Context(), slotAsk(n, 3)); err != nil || denial.Denied() {
			t.Fatal(denial, err)
		}
	}
	if _, err := ledger.Release(t.Context(), slotAsk(0, 3).ID); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, embedded.LedgerFile))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() // read only
	var holder, expires string
	var held, closed int
	if err := db.QueryRowContext(t.Context(), "SELECT holder, sum(amount), min(expires) FROM open_allocations WHERE subject = 'team/acme/slots' GROUP BY holder").Scan(&holder, &held, &expires); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM all_allocations WHERE outcome = 'released' AND closed = '2026-03-10 12:00:00'").Scan(&closed); err != nil {
		t.Fatal(err)
	}
	if holder != crashBot.String() || held != 2 || expires != "2026-03-10 12:01:00" || closed != 1 {
		t.Errorf("the tool sees %d held by %s until %s and %d released", held, holder, expires, closed)
	}
	if _, denial, err := ledger.Reserve(t.Context(), slotAsk(9, 3)); err != nil || denial.Denied() {
		t.Errorf("the reader is in the way: %v", err)
	}
}

func TestTheLogOfAFileDoesNotGrowWithoutBound(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, embedded.Options{})
	things, err := store.Records().Collection(t.Context(), crashThings)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	r, err := things.Insert(t.Context(), records.Record{ID: "a", Body: body})
	for range 40 {
		if err != nil {
			t.Fatal(err)
		}
		r.Body = body
		r, err = things.Replace(t.Context(), r)
	}
	info, err := os.Stat(filepath.Join(dir, embedded.RecordsFile+"-wal"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 24<<20 {
		t.Errorf("the log has %d MB after 40 MB of writes", info.Size()>>20)
	}
}

func TestSubjectsWithoutOpenAllocationsLeaveTheMemoryAndComeBackTheSame(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{IdleSubjects: 5})
	ledger := ledgerOver(store)
	ask := func(n int) capacityledger.Ask {
		subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("team-%d", n)), holdfast.AxisUSD, "2026-03")
		run := holdfast.RunID(fmt.Sprintf("01ID%06d", n))
		return capacityledger.Ask{ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: crashBot, Terms: capacityledger.Terms{Cap: holdfast.NoLimit}, Requested: holdfast.USDAmount(100), Expires: clocktest.T0.Add(time.Minute)}
	}
	for n := range 40 {
		if _, _, err := ledger.Reserve(t.Context(), ask(n)); err != nil {
			t.Fatal(err)
		}
		if n < 3 {
			continue // these stay open
		}
		if _, err := ledger.Settle(t.Context(), ask(n).ID, capacityledger.Report{Attempt: 1, Sequence: 1, Spent: holdfast.USDAmount(holdfast.MicroUSD(n))}); err != nil {
			t.Fatal(err)
		}
	}
	if n := embedded.Residents(store); n != 8 {
		t.Errorf("%d subjects are in memory, want 3 open and 5 idle ones", n)
	}
	for n := range 40 {
		subject, err := ask(n).ID.Subject()
		if err != nil {
			t.Fatal(err)
		}
		balance, err := ledger.Outstanding(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		settled, outstanding := int64(n), int64(0)
		if n < 3 {
			settled, outstanding = 0, 100
		}
		if balance.Settled != settled || balance.Outstanding != outstanding || len(balance.Holders) != 1 {
			t.Errorf("%s came back as %+v", subject, balance)
		}
	}
}

// TestHousekeepingDropsWhatWasClosedLongAgoAndNothingElse lets 100 days pass over
// closed, open and younger allocations, in passes smaller than what there is.
func TestHousekeepingDropsWhatWasClosedLongAgoAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, embedded.Options{})
	clock := clocktest.New()
	ledger := capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clock})
	for n := range 60 {
		if _, denial, err := ledger.Reserve(t.Context(), slotAsk(n, 100)); err != nil || denial.Denied() {
			t.Fatal(denial, err)
		}
	}
	closeFrom := func(from, to int) {
		for n := from; n < to; n++ {
			if _, err := ledger.Release(t.Context(), slotAsk(n, 100).ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeFrom(0, 30)
	clock.Advance(50 * 24 * time.Hour)
	closeFrom(30, 50)
	clock.Advance(50 * 24 * time.Hour)
	var done capacityledger.Repaired
	for range 20 {
		pass, err := store.Ledger().Repair(t.Context(), clock.Now(), 10)
		if err != nil {
			t.Fatal(err)
		}
		if pass.Dropped > 20 {
			t.Errorf("a pass of 10 dropped %d rows", pass.Dropped)
		}
		done.Dropped += pass.Dropped
		done.Archived += pass.Archived
		done.Subjects += pass.Subjects
	}
	if done.Dropped != 30 || done.Archived != 50 || done.Subjects != 0 {
		t.Errorf("housekeeping did %+v", done)
	}
	for n := range 60 {
		_, err := ledger.Get(t.Context(), slotAsk(n, 100).ID)
		if gone := errors.Is(err, capacityledger.ErrNotFound); gone != (n < 30) || (err != nil && !gone) {
			t.Errorf("allocation %d: %v", n, err)
		}
	}
	closeFrom(50, 60)
	clock.Advance(100 * 24 * time.Hour)
	for range 20 {
		if _, err := store.Ledger().Repair(t.Context(), clock.Now(), 10); err != nil {
			t.Fatal(err)
		}
	}
	if subjects, err := ledger.Subjects(t.Context(), "", 10); err != nil || len(subjects) != 0 {
		t.Errorf("the empty subject is still there: %v, %v", subjects, err)
	}
	if _, denial, err := ledger.Reserve(t.Context(), slotAsk(99, 1)); err != nil || denial.Denied() {
		t.Errorf("a subject that was dropped does not begin anew: %v", err)
	}
	if subjects, err := ledger.Subjects(t.Context(), "", 10); err != nil || len(subjects) != 1 {
		t.Errorf("a subject that began anew is not listed: %v, %v", subjects, err)
	}
}

func TestEveryWalkAndCountIsAnsweredFromItsIndex(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{})
	_, err := store.Records().Collection(t.Context(), records.Schema{Name: "things", Indexes: []records.Index{{Name: "colour"}, {Name: "serial", Unique: true}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		"SELECT id FROM r_things WHERE k_colour IS NOT NULL AND k_colour = 'a' ORDER BY k_colour, id LIMIT 9",
		"SELECT id FROM r_things WHERE k_colour IS NOT NULL AND k_colour = 'a' AND id > 'b' ORDER BY k_colour DESC, id DESC LIMIT 9",
		"SELECT id FROM r_things WHERE k_colour IS NOT NULL AND k_colour >= 'a' AND k_colour < 'b' AND (k_colour, id) > ('a', 'b') ORDER BY k_colour, id LIMIT 9",
		"SELECT id FROM r_things WHERE k_colour IS NOT NULL ORDER BY k_colour DESC, id DESC LIMIT 9",
		"SELECT id FROM r_things WHERE k_serial IS NOT NULL AND k_serial = 'a' ORDER BY k_serial LIMIT 9",
		"SELECT id FROM r_things WHERE k_serial IS NOT NULL ORDER BY k_serial LIMIT 9",
		"SELECT count(*) FROM r_things WHERE k_colour = 'a'",
		"SELECT id FROM r_things WHERE id >= 'a' ORDER BY id DESC LIMIT 9",
	} {
		plan, err := embedded.Plan(store, query)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, "INDEX") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\nis answered by\n%s", query, plan)
		}
	}
}
