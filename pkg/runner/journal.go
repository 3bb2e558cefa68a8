package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Leftover is a child that a former process started and whose end it did not live
// to report.
type Leftover struct {
	Run     holdfast.RunID
	Attempt int
	// Killed is how many processes of it still lived and were killed; 0 when it had
	// ended by itself or never ran.
	Killed int
	// Spent is what its report file says in all, and never less than what was sent with
	// its heartbeats; SpentKnown is false when there is no report file any more.
	Spent      holdfast.MicroUSD
	SpentKnown bool
	Skipped    int
}

// journalEntry is written before any code of a child runs and removed when its end
// is durably reported.
type journalEntry struct {
	Run     holdfast.RunID `json:"run"`
	Attempt int            `json:"attempt"`
	Process Process        `json:"process"`
}

const (
	childrenFolder = "children"
	workFolder     = "work"
	reportFile     = "report.jsonl"
	reportVariable = "HOLDFAST_REPORT"
)

func attemptName(run holdfast.RunID, attempt int) string { return fmt.Sprintf("%s-%d", run, attempt) }

func journalPath(dir string, run holdfast.RunID, attempt int) string {
	return filepath.Join(dir, childrenFolder, attemptName(run, attempt)+".json")
}

// writeJournal makes an entry durable under its name, whole or not at all.
func writeJournal(dir string, e journalEntry) error {
	path := journalPath(dir, e.Run, e.Attempt)
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("child journal: %w", err)
	}
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("child journal: %w", err)
	}
	_, err = file.Write(body)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("child journal: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("child journal: %w", err)
	}
	return nil
}

// KillLeftovers kills what the children of a former runner on this data folder left
// alive, waits until it is gone, removes their workspaces and journal, and says what
// there was. It may be called only while no runner uses the folder. A process is
// killed only when it is known to be one of them: it belongs to a recorded group
// whose leader still has the recorded start time, or whose leader is gone and whose
// session is the recorded one; or its environment names a report file in this
// folder, which also finds those that left their group. A repetition finds nothing.
// An error leaves the journal, and the call can be repeated.
func KillLeftovers(ctx context.Context, dir string) ([]Leftover, error) {
	dir, err := resolve(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := readJournal(dir)
	if err != nil {
		return nil, err
	}
	killed, err := killAll(ctx, entries, []byte("\x00"+reportVariable+"="+filepath.Join(dir, workFolder)+string(filepath.Separator)))
	if err != nil {
		return nil, err
	}
	var found []Leftover
	for i, e := range entries {
		l := Leftover{Run: e.Run, Attempt: e.Attempt, Killed: killed[i]}
		report := filepath.Join(workspaceRoot(dir, e.Run, e.Attempt), reportFile)
		if _, err := os.Lstat(report); err == nil {
			m := newMeter(report)
			m.read(true)
			l.Spent, l.Skipped = m.total()
			l.SpentKnown = true
		}
		found = append(found, l)
	}
	for _, folder := range []string{workFolder, childrenFolder} {
		if err := removeAll(filepath.Join(dir, folder)); err != nil {
			return found, fmt.Errorf("remove what former children left: %w", err)
		}
	}
	return found, nil
}

// readJournal reads the entries; what is no entry was never a child: entries appear
// whole.
func readJournal(dir string) ([]journalEntry, error) {
	folder := filepath.Join(dir, childrenFolder)
	names, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("child journal: %w", err)
	}
	var entries []journalEntry
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".json") {
			continue
		}
		body, err := os.ReadFile(filepath.Join(folder, n.Name()))
		if err != nil {
			return nil, fmt.Errorf("child journal: %w", err)
		}
		var e journalEntry
		if json.Unmarshal(body, &e) == nil && e.Run != "" && e.Process.PID > 1 {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

const (
	killPoll   = 10 * time.Millisecond
	killWithin = 10 * time.Second
)

// killAll kills until nothing that matches lives, and says how many processes it
// killed for each entry.
func killAll(ctx context.Context, entries []journalEntry, marker []byte) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, killWithin)
	defer cancel()
	tick := time.NewTicker(killPoll)
	defer tick.Stop()
	counted := map[int]bool{}
	killed := make([]int, len(entries))
	for {
		found, err := match(entries, marker)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return killed, nil
		}
		for pid, entry := range found {
			if !counted[pid] && entry >= 0 {
				killed[entry]++
			}
			counted[pid] = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already, or seen again in the next pass
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("kill former children: %d processes are still alive: %w", len(found), ctx.Err())
		case <-tick.C:
		}
	}
}

// match finds the living processes that belong to an entry or carry the marker, each
// with the index of its entry, -1 when none is known.
func match(entries []journalEntry, marker []byte) (map[int]int, error) {
	pids, err := livePIDs()
	if err != nil {
		return nil, err
	}
	groups, err := ourGroups(entries)
	if err != nil {
		return nil, err
	}
	found := map[int]int{}
	for _, pid := range pids {
		if pid == os.Getpid() || pid <= 1 {
			continue
		}
		p, alive, err := processOf(pid)
		if err != nil || !alive {
			continue // gone between the listing and the look
		}
		entry, ours := groups[p.Group]
		if ours && p.Session == entries[entry].Process.Session {
			found[pid] = entry
			continue
		}
		if text := environment(pid); bytes.Contains(text, marker) {
			found[pid] = entryOf(entries, text)
		}
	}
	return found, nil
}

// ourGroups are the recorded groups whose number still means the recorded one.
func ourGroups(entries []journalEntry) (map[int]int, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	groups := map[int]int{}
	for i, e := range entries {
		if e.Process.Boot != boot {
			continue // the machine was started anew; nothing of it lives
		}
		leader, _, err := processOf(e.Process.PID)
		if err != nil {
			return nil, err
		}
		// A leader that is gone keeps its number from being used again while its group
		// has members. Another start time is another process, and the group was empty.
		if leader.PID == 0 || leader.Start == e.Process.Start {
			groups[e.Process.Group] = i
		}
	}
	return groups, nil
}

func entryOf(entries []journalEntry, environment []byte) int {
	for i, e := range entries {
		if bytes.Contains(environment, []byte(string(filepath.Separator)+attemptName(e.Run, e.Attempt)+string(filepath.Separator)+reportFile)) {
			return i
		}
	}
	return -1
}

// killStrays kills what a child left behind outside of its group. It tries once: what
// cannot be listed now is killed when the data folder is used next.
func killStrays(report string) {
	found, err := match(nil, []byte("\x00"+reportVariable+"="+report+"\x00"))
	if err != nil {
		return
	}
	for pid := range found {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone already
	}
}

// resolve is the one spelling of a folder's path.
func resolve(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	real, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return real, nil
}
