package mongo

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// fate is what became of a try. The zero value is that it is not known yet.
type fate uint8

const (
	fateOpen     fate = iota
	fateGranted       // its entry stays as it was pushed
	fateLowered       // its entry stays with a smaller allowance
	fateAnswered      // its answer is another entry, or an error: its own entry goes
	fateRefused       // its entry goes
	fateAgain         // its entry goes, and it is asked again
)

// try is one ask on its way: pushed as an entry with a stamp of its own, so that
// nothing that is written about one try can touch another one of the same id.
type try struct {
	entry
	job    *askJob
	at     int // in the job
	ask    *capacityledger.Ask
	copies int // of its entry: one, unless the driver wrote it twice
	fate   fate
	answer *answer // the job's
}

// requested is what the try has in the counters until it is decided.
func (t *try) requested() int64 { return t.ask.Requested.Int() }

// admit answers asks together: one write that counts and records all, the judgement
// on what it returned, and at most two further writes, one for all allowances that
// are smaller than the ask and one for all refusals.
func (n *lane) admit(base context.Context, jobs []*askJob) {
	asking, cancel := n.context(base)
	defer cancel()
	jobs = n.look(asking, jobs)
	if len(jobs) == 0 {
		return
	}
	tries := n.tries(jobs)
	i, err := n.push(asking, tries)
	// What was recorded is decided, whether or not somebody still waits for it.
	ctx, cancel := n.context(context.WithoutCancel(base))
	defer cancel()
	if err != nil {
		n.lose(tries)
		finishAll(jobs, err)
		return
	}
	n.remember(i)
	if err := n.decide(ctx, i, tries); err != nil {
		n.lose(tries)
		finishAll(jobs, err)
		return
	}
	waiting := n.finishGranted(jobs, tries)
	if err := errors.Join(n.lower(ctx, tries), n.mirror(ctx, tries)); err != nil {
		for _, t := range tries {
			if t.fate != fateGranted {
				n.lose([]*try{t})
			}
		}
		finishAll(waiting, err)
		return
	}
	n.clean(ctx, i)
	finishAll(waiting, nil)
}

// look answers asks that are made again by a reading, where that tells already that
// they would be refused; the others are returned. So who waits for others in flight
// puts nothing in flight himself.
func (n *lane) look(ctx context.Context, jobs []*askJob) []*askJob {
	if !slices.ContainsFunc(jobs, func(j *askJob) bool { return j.again }) {
		return jobs
	}
	i, err := n.ledger.read(ctx, n.reader, bson.D{{Key: fieldClosed, Value: 0}})
	if err != nil || i == nil {
		return jobs // the write will say it
	}
	n.remember(i)
	var left []*askJob
	for _, job := range jobs {
		if !job.again || !n.lookOne(i, job) {
			left = append(left, job)
			continue
		}
		job.finish(nil)
	}
	return left
}

// lookOne judges a job's asks as if they were pushed now, without pushing them; true
// when all are refused.
func (n *lane) lookOne(i *image, job *askJob) bool {
	tries := n.tries([]*askJob{job})
	b, older := newBench(i, nil)
	n.doubt(b, i, older, job)
	for _, t := range tries {
		if i.has(t.ID) != nil || string(t.ID) <= i.top {
			return false
		}
		n.judge(b, t)
		if t.fate != fateRefused || t.answer.open && job.last {
			return false
		}
	}
	return true
}

func finishAll(jobs []*askJob, err error) {
	for _, job := range jobs {
		job.finish(err)
	}
}

// finishGranted answers the calls of which everything was granted as it was pushed,
// and returns the others: these wait until what they were told is so in the record.
func (n *lane) finishGranted(jobs []*askJob, tries []*try) []*askJob {
	wait := map[*askJob]bool{}
	for _, t := range tries {
		if t.fate != fateGranted {
			wait[t.job] = true
			continue
		}
		n.grants(&t.entry)
	}
	var waiting []*askJob
	for _, job := range jobs {
		if wait[job] {
			waiting = append(waiting, job)
			continue
		}
		job.finish(nil)
	}
	return waiting
}

// tries makes the entries of the asks.
func (n *lane) tries(jobs []*askJob) []*try {
	out := make([]*try, 0, len(jobs))
	for _, job := range jobs {
		for at := range job.asks {
			stamp, ask := n.ledger.stamp(), &job.asks[at]
			job.answers[at] = answer{}
			out = append(out, &try{job: job, at: at, ask: ask, answer: &job.answers[at], entry: entry{
				Allocation: capacityledger.Allocation{
					ID: ask.ID, Subject: n.key, Holder: ask.Holder, Run: ask.Run, Requested: ask.Requested, Minimum: ask.Minimum,
					Amount: ask.Requested, Spent: holdfast.AmountOf(ask.Requested.Unit(), 0),
					AcquiredAt: job.now, ExpiresAt: ask.Expires, Cap: ask.Terms.Cap, Nonce: stamp,
				},
				stamp: stamp, reserved: ask.Terms.Reserved, unjudged: ask.Unjudged,
			}})
		}
	}
	return out
}

// push counts and records the tries in one write and returns the state after it. The
// write names the subject and nothing else. The document is made first, by a write of
// its own: racing writes that also create may be shown the same state.
func (n *lane) push(ctx context.Context, tries []*try) (*image, error) {
	var moved counting
	earliest := tries[0].ExpiresAt
	for _, t := range tries {
		moved.move(t.Holder, 0, t.requested())
		if t.ExpiresAt.Before(earliest) {
			earliest = t.ExpiresAt
		}
	}
	// The same write takes closes out that the history has by now.
	var out []bson.E
	var counters bson.D
	n.shutBy.collect(false)
	if gone := n.shutBy.copied; len(gone) > 0 {
		n.shutBy.copied = nil
		out, counters = []bson.E{takingOutWhole(gone)}, fewer(len(gone))
	}
	update := append(bson.D{
		{Key: "$inc", Value: moved.inc(counters...)},
		{Key: "$push", Value: bson.D{{Key: fieldOpen, Value: bson.D{{Key: "$each", Value: documents(len(tries), func(at int) *entry { return &tries[at].entry })}}}}},
		{Key: "$min", Value: bson.D{{Key: fieldNext, Value: earliest}}},
	}, out...)
	after := options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(bson.D{{Key: fieldClosed, Value: 0}})
	for range 3 {
		if !n.created {
			if err := n.create(ctx, tries[0].terms()); err != nil {
				return nil, err
			}
		}
		raw, err := n.ledger.subjects.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: n.key.String()}}, update, after).Raw()
		switch {
		case errors.Is(err, driver.ErrNoDocuments):
			n.created = false // it was removed since
			continue
		case err != nil:
			return nil, unavailable(err)
		}
		return n.reader.image(raw)
	}
	return nil, unavailable(errors.New("the subject's record is removed as fast as it is made"))
}

// create inserts the subject's document when there is none.
func (n *lane) create(ctx context.Context, terms string) error {
	_, err := n.ledger.subjects.InsertOne(ctx, newDocument(n.key, n.ledger.options.KeepRecords, terms))
	if err != nil && !driver.IsDuplicateKeyError(err) {
		return unavailable(err)
	}
	n.created = true
	return nil
}

// bench is what a batch is judged on.
type bench struct {
	// state is the counters without the tries that are not judged yet; sure is the
	// same without the undecided entries of others.
	state, sure tally
	doubt       doubt
	terms       string // of the latest asks that were granted
	open        int    // entries that count
	granted     map[holdfast.AllocationID]*try
	older       map[holdfast.AllocationID]*entry // the first entry of an id that is asked
	closed      map[holdfast.AllocationID]*entry // and its close
}

// decide gives each try its fate, one after the other as if each had come alone: on
// the state that the write returned, without the later tries of the batch and
// without what the earlier ones asked and did not get.
func (n *lane) decide(ctx context.Context, i *image, tries []*try) error {
	b, older := newBench(i, tries)
	n.doubt(b, i, older, tries[0].job)
	var err error
	if b.closed, err = n.closedBefore(ctx, i, tries); err != nil {
		return err
	}
	for _, t := range tries {
		if err := n.decideOne(ctx, b, t); err != nil {
			return err
		}
	}
	return n.shake(ctx, i, tries)
}

// shake marks the subject, before anybody is told, when something was granted that
// those who asked before could not foresee: on other terms than theirs, or on none.
func (n *lane) shake(ctx context.Context, i *image, tries []*try) error {
	terms, shaken := i.terms, false
	for _, t := range tries {
		if t.fate != fateGranted && t.fate != fateLowered {
			continue
		}
		switch {
		case t.unjudged:
			shaken = true
		case t.terms() != terms:
			terms, shaken = t.terms(), true
		}
	}
	if !shaken {
		return nil
	}
	_, err := n.update(ctx, bson.D{{Key: "_id", Value: n.key.String()}}, bson.D{
		{Key: "$set", Value: bson.D{{Key: fieldTerms, Value: terms}}},
		{Key: "$max", Value: bson.D{{Key: fieldShaken, Value: tries[0].job.now}}},
	})
	return err
}

// doubt leaves the entries out that were refused for certain.
func (n *lane) doubt(b *bench, i *image, older []*entry, job *askJob) {
	b.doubt = n.doubts(i, older, job)
	for _, e := range b.doubt.refused {
		b.state.add(e.Holder, -e.Outstanding().Int())
		b.open--
	}
	b.sure = b.state.clone()
	for _, e := range b.doubt.flying {
		b.sure.add(e.Holder, -e.Outstanding().Int())
	}
}

// newBench tells the entries of the batch from those before it.
func newBench(i *image, tries []*try) (*bench, []*entry) {
	b := &bench{state: i.clone(), terms: i.terms, granted: map[holdfast.AllocationID]*try{}, older: map[holdfast.AllocationID]*entry{}}
	byStamp := make(map[string]*try, len(tries))
	asked := make(map[holdfast.AllocationID]bool, len(tries))
	for _, t := range tries {
		byStamp[t.stamp] = t
		asked[t.ID] = true
	}
	older := make([]*entry, 0, len(i.open))
	for at := range i.open {
		e := &i.open[at]
		if t := byStamp[e.stamp]; t != nil {
			t.copies++
			b.state.add(t.Holder, -t.requested())
			continue
		}
		older = append(older, e)
		if asked[e.ID] && b.older[e.ID] == nil {
			b.older[e.ID] = e
		}
	}
	b.open = len(older)
	return b, older
}

// decideOne gives one try its fate: that of its id where there is one, else the judge's.
func (n *lane) decideOne(ctx context.Context, b *bench, t *try) error {
	switch known := b.granted[t.ID]; {
	case t.copies != 1:
		t.again(true)
	case known != nil:
		t.replayed(&known.entry)
	case b.closed[t.ID] != nil:
		t.replayed(b.closed[t.ID])
	case b.older[t.ID] != nil:
		return n.replay(ctx, b, t, b.older[t.ID])
	default:
		n.judge(b, t)
	}
	return nil
}

// judge judges a try of an id that nobody has asked before.
func (n *lane) judge(b *bench, t *try) {
	requested := t.requested()
	switch {
	case b.open >= holdfast.MaxOpenPerSubject:
		t.fate, t.answer.Err = fateAnswered, capacityledger.ErrTooManyOpen
		return
	case requested < 0 || requested > subject.MaxTotal-b.state.settled-b.state.outstanding:
		t.fate, t.answer.Err = fateAnswered, capacityledger.ErrOverflow
		return
	}
	excess := b.doubt.excess[termsKey(t.Cap, t.reserved)]
	post := b.state
	if len(excess) > 0 {
		post = b.state.clone()
		for _, e := range excess {
			post.add(e.holder, -e.amount)
		}
	}
	post.add(t.Holder, requested)
	verdict := t.job.judge(post.post(), *t.ask)
	if verdict.Refused {
		post.add(t.Holder, -requested)
		before := post.balance(n.key)
		t.fate, t.answer.Verdict, t.answer.Balance = fateRefused, verdict, &before
		if len(b.doubt.flying) > 0 {
			b.sure.add(t.Holder, requested)
			t.answer.open = !t.job.judge(b.sure.post(), *t.ask).Refused
			b.sure.add(t.Holder, -requested)
		}
		if len(excess) == 0 {
			b.state = post
		}
		return
	}
	if len(excess) > 0 {
		b.state.add(t.Holder, verdict.Allowance)
	} else {
		post.add(t.Holder, verdict.Allowance-requested)
		b.state = post
	}
	b.sure.add(t.Holder, verdict.Allowance)
	b.open++
	t.fate = fateGranted
	if verdict.Allowance != requested {
		t.fate = fateLowered
		t.Amount = holdfast.AmountOf(t.Amount.Unit(), verdict.Allowance)
	}
	t.answer.Verdict, t.answer.Allocation = verdict, t.Allocation
	b.granted[t.ID] = t
}
