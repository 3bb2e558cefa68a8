package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
)

// client plays one part of a history and writes down what it was answered.
type client struct {
	number int
	plan   *plan
	ledger *capacityledger.Ledger
	hook   *hook
	time   *atomic.Int64 // the history's own time: one more at each call and answer
	log    []porcupine.Operation
}

// play lets the clients of a plan run against each other, and one more look at what
// is left and close it.
func play(ctx context.Context, stores []capacityledger.Store, p *plan) ([]porcupine.Operation, error) {
	var waiting atomic.Int32
	var time atomic.Int64
	players := make([]*client, clients)
	for i := range players {
		players[i] = newClient(stores[i%len(stores)], p, i, &waiting, &time)
	}
	failures := make([]error, clients)
	var all sync.WaitGroup
	for i, c := range players {
		all.Go(func() {
			for _, next := range p.script[i] {
				if failures[i] = c.play(ctx, next); failures[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	last := newClient(stores[0], p, clients, &waiting, &time)
	last.hook.dice = p.dice[0]
	err := last.tidy(ctx)
	var log []porcupine.Operation
	for _, c := range append(players, last) {
		log = append(log, c.log...)
	}
	slices.SortFunc(log, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text(log))
	}
	return beside(log), nil
}

func newClient(store capacityledger.Store, p *plan, number int, waiting *atomic.Int32, time *atomic.Int64) *client {
	h := &hook{Store: store, plan: p, dice: p.dice[number%clients], waiting: waiting}
	c := &client{number: number, plan: p, hook: h, time: time}
	var under capacityledger.Store = h
	if one, ok := store.(capacityledger.Direct); ok && number%2 == 0 {
		under = direct{h, one}
	}
	c.ledger = capacityledger.New(under, capacityledger.Options{Clock: clocktest.At(p.second(sweepAt))})
	return c
}

// tidy reads everything, closes what is open through a sweep that finds all of it,
// and reads again: what a history leaves is a part of what must be explained.
func (c *client) tidy(ctx context.Context) error {
	steps := []call{{in: input{verb: balance}}}
	for i := range ids {
		steps = append(steps, call{in: input{verb: get, id: i}})
	}
	for _, step := range steps {
		if err := c.play(ctx, step); err != nil {
			return err
		}
	}
	if err := c.sweep(ctx, lastSecond, noFault); err != nil {
		return err
	}
	if err := c.play(ctx, call{in: input{verb: balance}}); err != nil {
		return err
	}
	if last := c.log[len(c.log)-1].Output.(*output); last.outstanding != 0 || last.open != 0 {
		return fmt.Errorf("%s: %d outstanding, open %06b after a sweep of everything", c.plan.subject, last.outstanding, last.open)
	}
	return nil
}

// play makes one call and writes it down, unless it was cut off before it did anything.
func (c *client) play(ctx context.Context, next call) error {
	if next.sweep {
		return c.sweep(ctx, sweepAt, next.fault)
	}
	in := next.in
	if c.plan.careful && in.verb != reserve && in.verb != balance && !c.plan.granted[in.id].Load() && c.number < clients {
		return nil
	}
	c.hook.fault = next.fault
	began := c.time.Add(1)
	out, err := c.make(ctx, &in)
	ended := c.time.Add(1)
	c.hook.fault = noFault
	switch {
	case err == nil:
	case errors.Is(err, capacityledger.ErrUnavailable) && next.fault == cut:
		return nil
	case errors.Is(err, capacityledger.ErrUnavailable) && next.fault == dropped && !(in.verb == reserve && errors.Is(c.hook.admitted.Err, capacityledger.ErrUnavailable)):
		out = output{kind: lost}
		if in.verb == reserve && c.hook.admitted.Err == nil && !c.hook.admitted.Verdict.Refused {
			out.amount = c.hook.admitted.Allocation.Amount.Int()
		}
	case errors.Is(err, capacityledger.ErrUnavailable) && c.plan.careful && in.verb == reserve:
		c.plan.undecided.Add(1)
		out = output{kind: undecided} // two askers of one id met, and this one was told that nothing is known
	default:
		return fmt.Errorf("%s %s: %w", verbNames[in.verb], c.plan.allIDs[in.id], err)
	}
	if in.verb == reserve && out.kind == done {
		c.plan.granted[in.id].Store(true)
	}
	c.write(in, out, began, ended)
	return nil
}

func (c *client) write(in input, out output, began, ended int64) {
	c.log = append(c.log, porcupine.Operation{ClientId: c.number, Input: &in, Output: &out, Call: began, Return: ended})
}

// sweep is a pass of an expiry. Each of its closes is a call of its own, because a
// sweep is not promised to be one step.
func (c *client) sweep(ctx context.Context, until int, fault fault) error {
	c.hook.fault, c.hook.swept, c.hook.answers = fault, nil, nil
	began := c.time.Add(1)
	_, err := c.ledger.Expire(ctx, c.plan.second(until), 100)
	ended := c.time.Add(1)
	c.hook.fault = noFault
	if err != nil && fault == noFault {
		return fmt.Errorf("sweep: %w", err)
	}
	for i, closing := range c.hook.swept {
		at := c.plan.index(closing.ID)
		if at < 0 {
			return fmt.Errorf("a sweep of %s found %s", c.plan.subject, closing.ID)
		}
		out := output{closes: c.hook.answers[i].Closed}
		if c.hook.answers[i].Err != nil {
			out = output{kind: unknown}
		}
		c.write(input{verb: expire, id: at, expires: c.plan.secondOf(closing.IfExpires)}, out, began, ended)
	}
	return nil
}

// make makes the call and puts its answer into the model's words. An error that is no
// answer is returned.
func (c *client) make(ctx context.Context, in *input) (output, error) {
	id, amount := c.plan.allIDs[in.id], func(n int64) holdfast.Amount { return holdfast.AmountOf(c.plan.subject.Axis.Unit(), n) }
	switch in.verb {
	case reserve:
		a, denial, err := c.ledger.Reserve(ctx, c.plan.ask(in))
		if denial.Denied() {
			return output{
				kind: denied, settled: denial.Settled.Int(), outstanding: denial.Outstanding.Int(),
				reservedFor: denial.Cause == holdfast.CauseReserved, hopeless: !denial.Retryable,
			}, nil
		}
		return c.shown(a, err)
	case renew:
		a, _, err := c.ledger.Renew(ctx, id, capacityledger.Renewal{Attempt: in.attempt, Sequence: in.sequence, Spent: amount(in.spent), Expires: c.plan.second(in.expires)})
		return c.shown(a, err)
	case settle:
		closes, err := c.ledger.Settle(ctx, id, capacityledger.Report{Attempt: in.attempt, Sequence: in.sequence, Spent: amount(in.spent)})
		return told(output{closes: closes}, err)
	case release:
		closes, err := c.ledger.Release(ctx, id)
		return told(output{closes: closes}, err)
	case lower:
		return told(output{}, c.ledger.Lower(ctx, []capacityledger.Correction{{ID: id, Amount: amount(in.requested)}}))
	case get:
		a, err := c.ledger.Get(ctx, id)
		out, err := c.shown(a, err)
		out.outcome = slices.Index([]capacityledger.Outcome{capacityledger.Open, capacityledger.Settled, capacityledger.Released, capacityledger.Expired}, a.Outcome)
		return out, err
	default:
		b, err := c.ledger.Outstanding(ctx, c.plan.subject)
		return c.balance(b), err
	}
}

func (c *client) shown(a capacityledger.Allocation, err error) (output, error) {
	if err != nil {
		return told(output{}, err)
	}
	return output{amount: a.Amount.Int(), spent: a.Spent.Int(), expires: c.plan.secondOf(a.ExpiresAt)}, nil
}

// told keeps the errors that are answers.
func told(out output, err error) (output, error) {
	for sentinel, kind := range map[error]kind{capacityledger.ErrClosed: closed, capacityledger.ErrMismatch: mismatch, capacityledger.ErrNotFound: unknown} {
		if errors.Is(err, sentinel) {
			return output{kind: kind}, nil
		}
	}
	return out, err
}

func (c *client) balance(b capacityledger.Balance) output {
	out := output{settled: b.Settled, outstanding: b.Outstanding}
	for _, h := range b.Holders {
		if at := slices.Index(identities[:], h.Holder); at >= 0 {
			out.held[at] = h.Outstanding
		}
	}
	for _, a := range b.Open {
		if at := c.plan.index(a.ID); at >= 0 {
			out.open |= 1 << at
		}
	}
	return out
}

// beside tells each reserve and balance how much other reserves asked for while it
// was under way. Only a twin that shows asks in flight is allowed to notice. An ask
// that was told that nothing is known took part in that, and in nothing else.
func beside(log []porcupine.Operation) []porcupine.Operation {
	for i := range log {
		in := log[i].Input.(*input)
		for j := range log {
			other := log[j].Input.(*input)
			meets := log[j].Call < log[i].Return && log[i].Call < log[j].Return
			if i != j && meets && other.verb == reserve {
				in.beside += other.requested
			}
		}
	}
	return slices.DeleteFunc(log, func(op porcupine.Operation) bool { return op.Output.(*output).kind == undecided })
}
