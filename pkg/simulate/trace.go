package simulate

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/pricing"
)

// Row is one run of a trace: who asked when, how long it took and what it cost.
type Row struct {
	At       time.Time         // when it was asked for, UTC, to the millisecond
	Team     holdfast.TeamID   // its tenant
	Identity holdfast.Identity // its bot; a row without one is the bot "default" of its team
	Repo     string
	Run      string // the trace's own id of it, for people
	Duration time.Duration
	Cost     holdfast.MicroUSD
	Ask      holdfast.MicroUSD // what it asks for; what it cost where the trace does not say
}

// DefaultBot is the bot of rows that name none. It is a bot of the row's team.
const DefaultBot holdfast.BotID = "default"

// Origin is when a trace begins that has no times of its own, or only times
// relative to its start: a Monday, so that weeks look like weeks.
var Origin = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// The defaults of [ReadOptions].
const (
	DefaultSpan  = 24 * time.Hour
	DefaultModel = "claude-sonnet-5"
)

// tokensPerSecond is the stated rate that turns output tokens into a duration.
const tokensPerSecond = 50

// How long a pause inside a run still counts as the run's work; what is longer is a
// person who was away. Between replies of a transcript lie the model's own time and
// that of the tools; between requests whose durations are known only the latter.
const (
	replyGap   = 5 * time.Minute
	requestGap = time.Minute
)

// Trace is what was read: rows by time, and what had to be assumed or left out.
type Trace struct {
	Rows        []Row
	Files       []string
	Skipped     int      // rows that could not be read
	SkipReasons []string // of the first few of them
	Assumptions []string
}

// ReadOptions say how to read a trace; the zero value is the documented default.
type ReadOptions struct {
	Span   time.Duration     // over how long rows without a time are spread; zero is a day
	Model  string            // prices rows that name no model, or one without a price; empty is [DefaultModel]
	Map    map[string]string // our column → the file's column, before any alias
	Assign []Assignment      // who is which bot, the first that fits
}

// Assignment says which bot the rows of a tenant, repository or model are. An empty
// condition fits every row.
type Assignment struct {
	Tenant, Repo, Model string
	Bot                 holdfast.Identity
}

// ParseAssignment reads "tenant=c91,bot=review-pr": any of tenant, repo and model,
// and one bot, a bare name being the platform's.
func ParseAssignment(text string) (Assignment, error) {
	const allowed = "tenant=NAME, repo=NAME and model=NAME as conditions and one bot=BOT, separated by commas"
	var a Assignment
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || value == "" {
			return a, &holdfast.InvalidError{Field: "assign", Problem: fmt.Sprintf("%q is not a key and a value", holdfast.Clip(part, 60)), Allowed: allowed}
		}
		switch key {
		case "tenant":
			a.Tenant = string(teamOf(value))
		case "repo":
			a.Repo = value
		case "model":
			a.Model = value
		case "bot":
			bot, err := holdfast.ParseIdentity(value)
			if err != nil {
				return a, holdfast.InField("assign.bot", err)
			}
			a.Bot = bot
		default:
			return a, &holdfast.InvalidError{Field: "assign", Problem: fmt.Sprintf("%q is nothing to assign by", holdfast.Clip(key, 40)), Allowed: allowed}
		}
	}
	if a.Bot.IsZero() {
		return a, &holdfast.InvalidError{Field: "assign", Problem: "it names no bot", Allowed: allowed}
	}
	return a, nil
}

// ParseMap reads "bot=COLUMN" and adds it to the map.
func ParseMap(into map[string]string, text string) error {
	ours, theirs, ok := strings.Cut(text, "=")
	if !ok || theirs == "" {
		return &holdfast.InvalidError{Field: "map", Problem: fmt.Sprintf("%q is not OURS=COLUMN", holdfast.Clip(text, 60)), Allowed: "such as bot=workload"}
	}
	if _, known := columnNamed(ours); !known {
		return &holdfast.InvalidError{Field: "map", Problem: fmt.Sprintf("a trace has no column %q", holdfast.Clip(ours, 40)), Allowed: strings.Join(columnNames(), ", ")}
	}
	into[ours] = theirs
	return nil
}

// Read reads trace files and folders of transcripts into one trace. A file's format
// is told by its content: JSON objects by lines, else CSV with a header. What a
// person can mend is an *holdfast.InvalidError that names the file and line; a row
// that cannot be used is skipped and counted; no usable row at all is an error.
func Read(paths []string, o ReadOptions) (Trace, error) {
	if len(paths) == 0 {
		return Trace{}, &holdfast.InvalidError{Field: "trace", Problem: "no trace was named", Allowed: "CSV or JSONL files, or a folder of transcripts"}
	}
	c := newCollector(o)
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return Trace{}, &holdfast.InvalidError{Field: path, Problem: "cannot be read: " + reason(err), Allowed: "an existing file or folder"}
		}
		if info.IsDir() {
			err = c.folder(path)
		} else {
			err = c.openFile(path)
		}
		if err != nil {
			return Trace{}, err
		}
	}
	return c.finish()
}

// ReadFrom reads one trace from a reader; name stands for the file's name.
func ReadFrom(name string, r io.Reader, o ReadOptions) (Trace, error) {
	c := newCollector(o)
	if err := c.file(name, r); err != nil {
		return Trace{}, err
	}
	return c.finish()
}

func (c *collector) openFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return &holdfast.InvalidError{Field: path, Problem: "cannot be read: " + reason(err), Allowed: "a readable file"}
	}
	defer f.Close()
	return c.file(path, f)
}

// reason is an error of the file system without the path, which is named anyway.
func reason(err error) string {
	if pathErr, ok := err.(*os.PathError); ok { //nolint:errorlint // as os returns it
		return pathErr.Err.Error()
	}
	return err.Error()
}

// stem is a file's name without folder and extension: the tenant of its rows when
// no column names one.
func stem(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// From and To are the trace's first launch and last end; zero when it is empty.
func (t Trace) From() time.Time {
	if len(t.Rows) == 0 {
		return time.Time{}
	}
	return t.Rows[0].At
}

// To is the latest end of a run, or its start.
func (t Trace) To() time.Time {
	var to time.Time
	for _, r := range t.Rows {
		if end := r.At.Add(r.Duration); end.After(to) {
			to = end
		}
	}
	return to
}

// Teams lists the trace's teams by name.
func (t Trace) Teams() []holdfast.TeamID {
	seen := map[holdfast.TeamID]bool{}
	var teams []holdfast.TeamID
	for _, r := range t.Rows {
		if !seen[r.Team] {
			seen[r.Team] = true
			teams = append(teams, r.Team)
		}
	}
	slices.Sort(teams)
	return teams
}

// price is what a usage cost: by its own model, else by the stated one.
func (c *collector) price(model string, at time.Time, u pricing.Usage) (holdfast.MicroUSD, error) {
	if model != "" {
		cost, err := pricing.Price(model, at, u)
		if err == nil {
			c.pricedRows++
			return cost, nil
		}
		if _, unpriced := err.(*pricing.UnpricedError); !unpriced { //nolint:errorlint // as Price returns it
			return 0, err
		}
		c.unpriced[model]++
	} else {
		c.unnamedModel++
	}
	return pricing.Price(c.options.Model, at, u)
}
