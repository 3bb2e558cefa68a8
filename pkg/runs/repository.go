package runs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Repository keeps the run documents.
type Repository struct {
	table *records.Table[Run]
	ids   records.IDs
}

// The indexes of the collection. "active" has the team of every run that holds a
// slot and nothing else, so that counting them never reads the others.
const (
	indexTeam       = "team"
	indexStatus     = "status"
	indexTeamStatus = "team_status"
	indexBot        = "bot"
	indexActive     = "active"
	indexRepo       = "repo"
	indexUnsettled  = "unsettled" // ended, and its allocations are not all closed yet
	indexRetry      = "retry"     // when it is to be resumed by itself
)

// New opens the collection "runs".
func New(ctx context.Context, db records.DB) (*Repository, error) {
	schema := records.Schema{Name: "runs", Indexes: []records.Index{
		{Name: indexTeam}, {Name: indexStatus}, {Name: indexTeamStatus}, {Name: indexBot}, {Name: indexActive}, {Name: indexRepo}, {Name: indexUnsettled}, {Name: indexRetry},
	}}
	table, err := records.NewTable(ctx, db, schema, func(r Run) string { return string(r.ID) }, keys)
	if err != nil {
		return nil, err
	}
	return &Repository{table: table}, nil
}

func keys(r Run) map[string]string {
	k := map[string]string{
		indexTeam:       string(r.Team),
		indexStatus:     string(r.Status),
		indexTeamStatus: teamStatus(r.Team, r.Status),
		indexBot:        string(r.Identity.Bot()),
	}
	if r.Status.Active() {
		k[indexActive] = string(r.Team)
	}
	if r.Repo != "" {
		k[indexRepo] = r.Repo
	}
	if r.Unsettled() {
		k[indexUnsettled] = "yes"
	}
	if r.RetryOpen() {
		k[indexRetry] = stamp(r.retryDue())
	}
	return k
}

func teamStatus(team holdfast.TeamID, status Status) string {
	return string(team) + "|" + string(status)
}

// NewID makes the id of a run that begins now. Ids rise strictly, so runs sort by
// the time that their launch began.
func (r *Repository) NewID(now time.Time) holdfast.RunID { return holdfast.RunID(r.ids.Next(now)) }

// Insert stores a new run; the error matches [records.ErrExists] when its id is taken.
func (r *Repository) Insert(ctx context.Context, run Run) (Run, error) {
	if err := check(run); err != nil {
		return Run{}, err
	}
	v, err := r.table.Insert(ctx, run)
	return v.Value, err
}

// check refuses a document that no reader could make sense of: it is a bug of the
// writer, told before it is stored.
func check(run Run) error {
	switch {
	case run.ID == "" || run.Team == "" || run.Identity.IsZero():
		return fmt.Errorf("run %q of team %q as %q: a run has an id, a team and an identity", run.ID, run.Team, run.Identity)
	case !run.Status.Known():
		return fmt.Errorf("run %q: %q is not a status", run.ID, run.Status)
	}
	return nil
}

// Known says whether it is one of [Statuses].
func (s Status) Known() bool {
	switch s {
	case Queued, Running, Paused, Parked, Finished, Failed, FailedResumable, Cancelled:
		return true
	}
	return false
}

// Get reads one run; the error matches [records.ErrNotFound] when there is none.
func (r *Repository) Get(ctx context.Context, id holdfast.RunID) (Run, error) {
	if !validID(id) {
		return Run{}, fmt.Errorf("get run %q: %w", holdfast.Clip(string(id), 80), records.ErrNotFound)
	}
	v, err := r.table.Get(ctx, string(id))
	return v.Value, err
}

// validID says whether an id from outside can name a run at all.
func validID(id holdfast.RunID) bool {
	return id != "" && len(id) <= 64 && holdfast.Clip(string(id), 64) == string(id)
}

// Update edits a run; a lost race begins again with what is then stored, so change
// may run more than once. An error of change ends it, writes nothing, and is
// returned as it is, with the run as it was read (edits of change included). Id,
// team and identity stay: a run never changes whose it is.
func (r *Repository) Update(ctx context.Context, id holdfast.RunID, change func(*Run) error) (Run, error) {
	if !validID(id) {
		return Run{}, fmt.Errorf("update run %q: %w", holdfast.Clip(string(id), 80), records.ErrNotFound)
	}
	v, err := r.table.Update(ctx, string(id), func(run *Run) error {
		team, identity := run.Team, run.Identity
		if err := change(run); err != nil {
			return err
		}
		run.ID, run.Team, run.Identity = id, team, identity
		return check(*run)
	})
	return v.Value, err
}

// Filter selects runs; what is empty selects all.
type Filter struct {
	Team holdfast.TeamID
	// Bot is a bot's name, folded here, or an identity's text ("team:acme/probe").
	Bot    string
	Status Status
	Since  time.Time // launched then or later
	Limit  int       // 1 to [records.MaxPage]; 0 is [records.DefaultPage]
	Cursor string
}

// List lists runs, the newest first. next is the cursor of the following page,
// empty at the end; a page may be short before it.
func (r *Repository) List(ctx context.Context, f Filter) (list []Run, next string, err error) {
	q := records.Query{Descending: true, After: f.Cursor}
	if q.Limit, err = records.PageSize(f.Limit); err != nil {
		return nil, "", err
	}
	if f.Status != "" && !f.Status.Known() {
		return nil, "", &holdfast.InvalidError{Field: "status", Problem: fmt.Sprintf("%q is not a status", holdfast.Clip(string(f.Status), 40)), Allowed: statusList()}
	}
	if !f.Since.IsZero() {
		q.IDFrom = records.FirstID(f.Since)
	}
	bot, identity, err := f.bot()
	if err != nil {
		return nil, "", err
	}
	switch {
	case f.Team != "" && f.Status != "":
		q.Index, q.Equal = indexTeamStatus, teamStatus(f.Team, f.Status)
	case bot != "":
		q.Index, q.Equal = indexBot, string(bot)
	case f.Team != "":
		q.Index, q.Equal = indexTeam, string(f.Team)
	case f.Status != "":
		q.Index, q.Equal = indexStatus, string(f.Status)
	}
	return r.table.Filter(ctx, q, func(run Run) bool {
		return (f.Team == "" || run.Team == f.Team) && (f.Status == "" || run.Status == f.Status) &&
			(bot == "" || run.Identity.Bot() == bot) && (identity.IsZero() || run.Identity == identity)
	})
}

// bot reads the filter's bot: a name, and the identity where one was written.
func (f Filter) bot() (holdfast.BotID, holdfast.Identity, error) {
	switch {
	case f.Bot == "":
		return "", holdfast.Identity{}, nil
	case strings.Contains(f.Bot, "/"):
		identity, err := holdfast.ParseIdentity(f.Bot)
		return identity.Bot(), identity, holdfast.InField("bot", err)
	}
	name, err := holdfast.FoldName(f.Bot)
	return holdfast.BotID(name), holdfast.Identity{}, holdfast.InField("bot", err)
}

func statusList() string {
	var words []string
	for _, s := range Statuses() {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// Active counts the runs of a team that hold a slot (queued and running); of all
// teams when team is empty.
func (r *Repository) Active(ctx context.Context, team holdfast.TeamID) (int64, error) {
	if team != "" {
		return r.table.Count(ctx, indexActive, string(team))
	}
	queued, err := r.table.Count(ctx, indexStatus, string(Queued))
	if err != nil {
		return 0, err
	}
	running, err := r.table.Count(ctx, indexStatus, string(Running))
	return queued + running, err
}

// Count counts the runs of a status, of all teams.
func (r *Repository) Count(ctx context.Context, status Status) (int64, error) {
	return r.table.Count(ctx, indexStatus, string(status))
}

// Walk visits every run of a status, the oldest first. A visit may update the run,
// also to another status; its error ends the walk and is returned as it is.
func (r *Repository) Walk(ctx context.Context, status Status, visit func(Run) error) error {
	q := records.Query{Index: indexStatus, Equal: string(status), Limit: scan}
	return r.table.Walk(ctx, q, func(v records.Versioned[Run]) error { return visit(v.Value) })
}

// WalkSince visits every run of a team that was launched at an instant or later, the
// oldest first; of all teams when team is empty, from the first on when since is zero.
// The error of a visit ends the walk and is returned as it is. It reads every one.
func (r *Repository) WalkSince(ctx context.Context, team holdfast.TeamID, since time.Time, visit func(Run) error) error {
	q := records.Query{Limit: records.MaxPage}
	if team != "" {
		q.Index, q.Equal = indexTeam, string(team)
	}
	if !since.IsZero() {
		q.IDFrom = records.FirstID(since)
	}
	return r.table.Walk(ctx, q, func(v records.Versioned[Run]) error { return visit(v.Value) })
}

// scan is how many runs a walk reads at a time.
const scan = 200

// WalkActive visits every run that holds a slot: the queued ones, then the running.
func (r *Repository) WalkActive(ctx context.Context, visit func(Run) error) error {
	for _, status := range []Status{Queued, Running} {
		if err := r.Walk(ctx, status, visit); err != nil {
			return err
		}
	}
	return nil
}
