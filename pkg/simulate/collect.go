package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/pricing"
)

// maxReasons is how many reasons of skipped rows are shown.
const maxReasons = 5

// collector gathers the rows of all files, and with them everything that will have
// to be said about how they were read.
type collector struct {
	options   ReadOptions
	spellings [columnCount][]spelling

	files   []string
	rows    []raw
	skipped int
	reasons []string
	used    [columnCount][]string // the names under which a column was found
	ignored []string

	transcripts bool
	sessions    map[string]*session
	replies     map[string]*message
	repeats     int

	pricedRows, unnamedModel int
	unpriced                 map[string]int
	renamed                  map[string]bool
}

// raw is one row before it is completed.
type raw struct {
	file, line int
	tenant     string // folded; empty: none was named
	bot        holdfast.Identity
	botless    bool
	repo, run  string
	model      string
	at, end    moment
	timed      bool // at is set
	ended      bool
	offset     time.Duration
	offsetSet  bool
	duration   time.Duration
	lasted     bool
	usage      pricing.Usage
	cost       holdfast.MicroUSD
	costed     bool
	ask        holdfast.MicroUSD
}

// span is a stretch of time.
type span struct{ from, to time.Time }

func newCollector(o ReadOptions) *collector {
	if o.Span <= 0 {
		o.Span = DefaultSpan
	}
	if o.Model == "" {
		o.Model = DefaultModel
	}
	return &collector{
		options: o, spellings: spellings(o.Map), sessions: map[string]*session{}, replies: map[string]*message{},
		unpriced: map[string]int{}, renamed: map[string]bool{},
	}
}

func newLineReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 1<<16) }

func (c *collector) begin(name string) { c.files = append(c.files, name) }

func (c *collector) skip(where, why string) {
	c.skipped++
	if len(c.reasons) < maxReasons {
		c.reasons = append(c.reasons, where+": "+why)
	}
}

func (c *collector) uses(column columnIndex, name string) {
	if !slices.Contains(c.used[column], name) {
		c.used[column] = append(c.used[column], name)
	}
}

func (c *collector) usedAny() bool {
	return slices.ContainsFunc(c.used[:], func(names []string) bool { return len(names) > 0 })
}

func (c *collector) ignores(names []string) {
	for _, n := range names {
		if !slices.Contains(c.ignored, n) {
			c.ignored = append(c.ignored, n)
		}
	}
}

// add takes one row of a file, or skips it when it cannot be read.
func (c *collector) add(line int, rec record) {
	row, column, err := c.parse(rec)
	if err != nil {
		c.skip(where(c.files[len(c.files)-1], line), fmt.Sprintf("%s: %s", Columns()[column].Name, err))
		return
	}
	row.file, row.line = len(c.files)-1, line
	c.rows = append(c.rows, row)
}

// parse reads a row's texts; an error comes with the column that has it.
func (c *collector) parse(rec record) (raw, columnIndex, error) {
	row := raw{repo: rec.text[colRepo], run: rec.text[colRun], model: rec.text[colModel]}
	var err error
	if text := rec.text[colAt]; text != "" {
		if row.at, err = when(text, rec.ms[colAt]); err != nil {
			return row, colAt, err
		}
		row.timed = true
	}
	if text := rec.text[colEnd]; text != "" {
		if row.end, err = when(text, rec.ms[colEnd]); err != nil {
			return row, colEnd, err
		}
		row.ended = true
	}
	if text := rec.text[colOffset]; text != "" {
		if row.offset, err = duration(text, rec.ms[colOffset]); err != nil {
			return row, colOffset, err
		}
		row.offsetSet = true
	}
	if text := rec.text[colDuration]; text != "" {
		if row.duration, err = duration(text, rec.ms[colDuration]); err != nil {
			return row, colDuration, err
		}
		row.lasted = true
	}
	if column, err := c.parseWho(&row, rec); err != nil {
		return row, column, err
	}
	column, err := parseUse(&row, rec)
	return row, column, err
}

// parseWho reads whose row it is.
func (c *collector) parseWho(row *raw, rec record) (columnIndex, error) {
	if text := rec.text[colTenant]; text != "" {
		row.tenant = nameOf(text)
		if row.tenant != text {
			c.renamed[text] = true
		}
	}
	text := rec.text[colBot]
	if text == "" {
		row.botless = true
		return 0, nil
	}
	if strings.Contains(text, "/") {
		identity, err := holdfast.ParseIdentity(text)
		row.bot = identity
		return colBot, err
	}
	name := nameOf(text)
	switch tier := holdfast.Tier(strings.ToLower(rec.text[colTier])); tier {
	case "", holdfast.TierPlatform:
		row.bot = holdfast.PlatformBot(holdfast.BotID(name))
	case holdfast.TierTeam:
		team := row.tenant
		if team == "" {
			team = c.tenantOf(len(c.files) - 1)
		}
		row.bot = holdfast.TeamBot(holdfast.TeamID(team), holdfast.BotID(name))
	default:
		return colTier, fmt.Errorf("%q is not a tier", holdfast.Clip(string(tier), 40))
	}
	return 0, nil
}

// parseUse reads what a row used and what it cost.
func parseUse(row *raw, rec record) (columnIndex, error) {
	var counts [6]int64
	for i, column := range []columnIndex{colInput, colCached, colWrite5m, colWrite1h, colOutput, colRequests} {
		text := rec.text[column]
		if text == "" {
			continue
		}
		n, err := tokens(text)
		if err != nil {
			return column, err
		}
		counts[i] = n
	}
	row.usage = pricing.Inclusive(counts[0], counts[1], counts[2], counts[3], counts[4])
	row.usage.Requests = counts[5]
	var err error
	if text := rec.text[colCost]; text != "" {
		if row.cost, err = dollars(text); err != nil {
			return colCost, err
		}
		row.costed = true
	}
	if text := rec.text[colAsk]; text != "" {
		if row.ask, err = dollars(text); err != nil {
			return colAsk, err
		}
	}
	return 0, nil
}

// tenantOf is the tenant of a file's rows when no column names one.
func (c *collector) tenantOf(file int) string { return nameOf(stem(c.files[file])) }

// finish completes the rows and says what was assumed for it.
func (c *collector) finish() (Trace, error) {
	if err := c.priceSessions(); err != nil {
		return Trace{}, err
	}
	facts := &facts{}
	for i := range c.rows {
		if err := c.complete(&c.rows[i], facts); err != nil {
			return Trace{}, err
		}
	}
	c.fold(facts)
	if len(c.rows) == 0 {
		problem := "it has no row that can be used"
		if c.skipped > 0 {
			problem = fmt.Sprintf("none of its %d rows can be used: %s", c.skipped, strings.Join(c.reasons, "; "))
		}
		return Trace{}, &holdfast.InvalidError{Field: strings.Join(c.files, ", "), Problem: problem, Allowed: formats + "; holdfast simulate --help lists the columns"}
	}
	c.spread(facts)
	trace := Trace{Files: c.files, Skipped: c.skipped, SkipReasons: c.reasons}
	for _, r := range c.rows {
		row := Row{At: r.at.at, Team: holdfast.TeamID(r.tenant), Identity: r.bot, Repo: r.repo, Run: r.run, Duration: r.duration, Cost: r.cost, Ask: r.ask}
		if row.Ask == 0 {
			row.Ask = max(1, row.Cost)
		} else {
			facts.asked++
		}
		c.assign(&row, r, facts)
		trace.Rows = append(trace.Rows, row)
	}
	ownBots(trace.Rows, facts)
	slices.SortStableFunc(trace.Rows, func(a, b Row) int { return a.At.Compare(b.At) })
	trace.Assumptions = c.assumptions(facts, trace)
	return trace, nil
}

// assign names the bot of a row: an assignment, else its own, else the default bot.
func (c *collector) assign(row *Row, r raw, f *facts) {
	for _, a := range c.options.Assign {
		if (a.Tenant == "" || a.Tenant == r.tenant) && (a.Repo == "" || a.Repo == r.repo) && (a.Model == "" || a.Model == r.model) {
			row.Identity = a.Bot
			f.assigned++
			break
		}
	}
	if row.Identity.IsZero() {
		row.Identity = holdfast.TeamBot(row.Team, DefaultBot)
		f.botless++
	}
	// A team's own bot serves that team alone.
	if row.Identity.Tier() == holdfast.TierTeam && row.Identity.Team() != row.Team {
		row.Identity = holdfast.TeamBot(row.Team, row.Identity.Bot())
		f.retold++
	}
}

// ownBots follows the resolution of names: where a team has a bot of its own, the
// name is that bot in the team's launches, and never the platform's.
func ownBots(rows []Row, f *facts) {
	own := map[holdfast.Identity]bool{}
	for _, r := range rows {
		if r.Identity.Tier() == holdfast.TierTeam {
			own[r.Identity] = true
		}
	}
	for i, r := range rows {
		if twin := holdfast.TeamBot(r.Team, r.Identity.Bot()); r.Identity != twin && own[twin] {
			rows[i].Identity = twin
			f.resolved++
		}
	}
}

// complete gives a row its tenant, a first duration, and its cost.
func (c *collector) complete(r *raw, f *facts) error {
	if r.tenant == "" {
		r.tenant = c.tenantOf(r.file)
		f.tenantless++
	}
	if r.timed && r.at.relative {
		r.at.at = Origin.Add(r.at.after).Truncate(time.Millisecond)
		f.relative++
	}
	if r.ended && !r.lasted && r.timed {
		end := r.end.at
		if r.end.relative {
			end = Origin.Add(r.end.after)
		}
		if d := end.Sub(r.at.at); d >= 0 && d <= maxDuration {
			r.duration, r.lasted = d, true
		}
	}
	if !r.lasted && !r.offsetSet {
		r.duration = (time.Duration(r.usage.Output) * time.Second / tokensPerSecond).Truncate(time.Millisecond)
		f.guessedDuration++
	}
	if r.costed {
		return nil
	}
	if r.usage.IsZero() {
		f.costless++
		return nil
	}
	at := Origin
	if r.timed {
		at = r.at.at
	}
	cost, err := c.price(r.model, at, r.usage)
	if err != nil {
		return modelError(err)
	}
	r.cost, r.costed = cost, true
	f.pricedRows++
	return nil
}

// modelError is about the stated model: the rows' own fall back to it.
func modelError(err error) error {
	var unpriced *pricing.UnpricedError
	if errors.As(err, &unpriced) {
		return &holdfast.InvalidError{Field: "model", Problem: unpriced.Error(), Allowed: "a model of the table, such as " + DefaultModel}
	}
	return err
}
