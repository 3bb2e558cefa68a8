package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// fold makes one row of the rows of one run in one file.
func (c *collector) fold(f *facts) {
	type key struct {
		file        int
		tenant, run string
	}
	groups := map[key][]int{}
	for i, r := range c.rows {
		if r.run != "" {
			k := key{r.file, r.tenant, r.run}
			groups[k] = append(groups[k], i)
		}
	}
	folded := c.rows[:0:0]
	for i, r := range c.rows {
		group := groups[key{r.file, r.tenant, r.run}]
		switch {
		case r.run == "" || (len(group) == 1 && !r.offsetSet):
			folded = append(folded, r)
		case group[0] == i:
			folded = append(folded, foldRun(c.rows, group))
			f.foldedRuns++
			f.foldedRows += len(group)
		}
	}
	c.rows = folded
}

// foldRun is one run of several requests: it begins with the first of them, costs
// their sum, and works while any of them does and through short pauses.
func foldRun(rows []raw, group []int) raw {
	run := rows[group[0]]
	spans := make([]span, 0, len(group))
	var longest time.Duration
	for n, i := range group {
		r := rows[i]
		from := r.at.at
		if r.offsetSet {
			from = Origin.Add(r.offset)
		}
		spans = append(spans, span{from, from.Add(r.duration)})
		longest = max(longest, r.duration)
		if n == 0 {
			continue
		}
		run.cost += r.cost
		run.ask += r.ask
		run.usage = run.usage.Plus(r.usage)
		if r.timed && (!run.timed || r.at.at.Before(run.at.at)) {
			run.at, run.timed = r.at, true
		}
		if run.botless && !r.botless {
			run.bot, run.botless = r.bot, false
		}
	}
	run.cost = min(run.cost, holdfast.MaxUSD)
	run.ask = min(run.ask, holdfast.MaxUSD)
	run.duration = min(max(longest, worked(spans, requestGap)), maxDuration)
	return run
}

// worked is how long a run worked: the union of its spans, and of the pauses between
// them as much as is no idleness.
func worked(spans []span, gap time.Duration) time.Duration {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to))
	})
	var sum time.Duration
	until := spans[0].from
	for _, s := range spans {
		if s.from.After(until) {
			sum += min(s.from.Sub(until), gap)
			until = s.from
		}
		if s.to.After(until) {
			sum += s.to.Sub(until)
			until = s.to
		}
	}
	return sum.Truncate(time.Millisecond)
}

// priceSessions makes rows of the sessions of transcripts.
func (c *collector) priceSessions() error {
	ordered := make([]*session, 0, len(c.sessions))
	for _, s := range c.sessions {
		ordered = append(ordered, s)
	}
	slices.SortFunc(ordered, func(a, b *session) int { return cmp.Compare(a.order, b.order) })
	for _, s := range ordered {
		row := raw{tenant: s.project, run: s.id, botless: true, timed: true, lasted: true, costed: true}
		row.at.at = s.messages[0].at
		for _, m := range s.messages {
			if m.at.Before(row.at.at) {
				row.at.at = m.at
			}
			if !m.costed {
				cost, err := c.price(m.model, m.at, m.usage)
				if err != nil {
					return modelError(err)
				}
				m.cost = cost
			}
			row.cost = min(row.cost+m.cost, holdfast.MaxUSD)
			row.model = m.model
		}
		row.duration = min(worked(s.times, replyGap), maxDuration)
		c.rows = append(c.rows, row)
	}
	return nil
}

// spread gives rows without a time one: evenly over the span, in the files' order.
func (c *collector) spread(f *facts) {
	var untimed []int
	for i, r := range c.rows {
		if !r.timed {
			untimed = append(untimed, i)
		}
	}
	for n, i := range untimed {
		offset := time.Duration(int64(c.options.Span) / int64(len(untimed)) * int64(n))
		c.rows[i].at.at = Origin.Add(offset).Truncate(time.Millisecond)
	}
	f.spread = len(untimed)
}
