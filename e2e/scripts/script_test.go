package scripts_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

// script is what callers, a runner and a server do in a whole life: launches of each
// kind, claims, heartbeats, reports, a settle, a cancel, sweeps and questions. Callers
// try again what failed, as real ones do; a denial of anybody who fits, or an answer
// that is two things, ends it.
type script struct {
	*world
	err error
	// told has what was acknowledged, for who looks after a crash.
	told acknowledged
}

// acknowledged is what the callers of a script were answered.
type acknowledged struct {
	launched  []holdfast.RunID
	settled   map[holdfast.RunID]holdfast.MicroUSD
	beats     map[holdfast.RunID]holdfast.MicroUSD
	cancelled []holdfast.RunID
}

func newScript(w *world) *script {
	return &script{world: w, told: acknowledged{settled: map[holdfast.RunID]holdfast.MicroUSD{}, beats: map[holdfast.RunID]holdfast.MicroUSD{}}}
}

func (s *script) note(err error) {
	if s.err == nil {
		s.err = err
	}
}

// twice makes a call again that failed because something was away.
func (s *script) twice(what string, call func() error) {
	err := call()
	s.note(unavailableOnly(what, err))
	if err != nil && !errors.Is(err, launch.ErrConflict) {
		s.note(unavailableOnly(what+" again", call()))
	}
}

// launch starts a run as a caller does; empty when it could not be.
func (s *script) launch(bot string, external bool) (id holdfast.RunID) {
	s.twice("launch "+bot, func() error {
		run, denial, err := s.Launch(s.ctx, operator, launch.Request{Team: string(s.team), Bot: bot, External: external, Surface: "test"})
		s.note(answer("launch "+bot, denial, err))
		if denial.Denied() {
			s.note(fmt.Errorf("launch %s was denied: %s", bot, denial.Public))
		}
		id = run.ID
		return err
	})
	s.flush()
	if id != "" {
		s.told.launched = append(s.told.launched, id)
	}
	return id
}

// flush writes the decisions. One at a time is written in an order.
func (s *script) flush() { s.note(unavailableOnly("decisions", s.judged.Flush(s.ctx))) }

// refused launches what can never fit.
func (s *script) refused() {
	id := s.runs.NewID(s.clock.Now())
	s.twice("launch without room", func() error {
		_, denial, err := s.Launch(s.ctx, operator, launch.Request{Team: s.full(), Bot: "probe", Run: id, Surface: "test"})
		s.note(answer("launch without room", denial, err))
		if err == nil && !denial.Denied() {
			s.note(fmt.Errorf("a team without slots got one"))
		}
		return err
	})
	s.flush()
}

// begin is a runner that takes the oldest message and starts its run.
func (s *script) begin() (queue.RunMessage, queue.Grant, bool) {
	message, ok := s.queue.take()
	if !ok {
		return queue.RunMessage{}, queue.Grant{}, false
	}
	var grant queue.Grant
	for range 3 {
		var err error
		grant, err = s.Claim(s.ctx, queue.Claim{Run: message.Run, Publication: message.Publication, Generation: message.Generation, Runner: "r1", Nonce: string(message.Run)})
		s.note(unavailableOnly("claim", err))
		if err == nil && grant.Verdict != queue.GrantLater {
			break
		}
	}
	if grant.Verdict != queue.GrantGo {
		if grant.Verdict == queue.GrantDrop {
			s.queue.ack(message)
		} else {
			s.queue.handBack(message.Run)
		}
		return message, grant, false
	}
	s.report(queue.Report{Run: message.Run, Attempt: grant.Attempt, Sequence: 1, Kind: queue.ReportStarted})
	return message, grant, true
}

// report is durable: it is told again until it is taken.
func (s *script) report(r queue.Report) {
	r.Version, r.Runner, r.At = 1, "r1", s.clock.Now()
	s.twice("report "+string(r.Kind), func() error { return s.Apply(s.ctx, r) })
}

// beat is a runner's heartbeat; one that is not answered is not repeated.
func (s *script) beat(m queue.RunMessage, attempt int, sequence int64, spent holdfast.MicroUSD) {
	_, err := s.Claim(s.ctx, queue.Claim{Run: m.Run, Publication: m.Publication, Generation: m.Generation, Runner: "r1", Attempt: attempt, Sequence: sequence, Spent: spent})
	s.note(unavailableOnly("heartbeat", err))
}

// work is a runner's life of one run.
func (s *script) work(spent holdfast.MicroUSD, ending queue.Ending) {
	message, grant, ok := s.begin()
	if !ok {
		return
	}
	s.clock.Advance(20 * time.Second)
	s.beat(message, grant.Attempt, 2, spent/2)
	s.report(queue.Report{Run: message.Run, Attempt: grant.Attempt, Sequence: 3, Kind: queue.ReportProgress, Spent: spent / 2})
	s.clock.Advance(20 * time.Second)
	s.report(queue.Report{Run: message.Run, Attempt: grant.Attempt, Sequence: 4, Kind: queue.ReportEnded, Spent: spent, Ending: ending})
	s.queue.ack(message)
}

// drive is the caller of an external run.
func (s *script) drive(id holdfast.RunID, spent holdfast.MicroUSD, settles bool) {
	if id == "" {
		return
	}
	s.clock.Advance(20 * time.Second)
	_, err := s.Heartbeat(s.ctx, operator, id, spent/2)
	s.note(unavailableOnly("heartbeat", err))
	if err == nil {
		s.told.beats[id] = spent / 2
	}
	if !settles {
		return
	}
	s.twice("settle", func() error {
		_, err := s.Settle(s.ctx, operator, id, spent, "finished")
		if err == nil {
			s.told.settled[id] = spent
		}
		return err
	})
}

func (s *script) cancel(id holdfast.RunID) {
	if id == "" {
		return
	}
	s.twice("cancel", func() error {
		_, err := s.Cancel(s.ctx, operator, id)
		if err == nil {
			s.told.cancelled = append(s.told.cancelled, id)
		}
		return err
	})
}

func (s *script) sweep() { s.note(unavailableOnly("sweep", s.Sweep(s.ctx))) }

// ask puts the questions that read and take nothing.
func (s *script) ask(id holdfast.RunID) {
	p, err := s.Preview(s.ctx, operator, launch.Request{Team: string(s.team), Bot: "probe", Surface: "test"})
	s.note(unavailableOnly("preview", err))
	s.note(answer("preview", p.Denial, err))
	_, err = s.Capacity(s.ctx, operator, string(s.team))
	s.note(unavailableOnly("capacity", err))
	if id != "" {
		if _, err := s.Explain(s.ctx, operator, string(id)); !errors.Is(err, launch.ErrNotFound) {
			s.note(unavailableOnly("explain", err))
		}
	}
}

// whole is the script that goes through everything once.
func (s *script) whole() error {
	s.launch("probe", false)
	external := s.launch("probe", true)
	s.work(700_000, queue.EndFinished)
	s.drive(external, 500_000, true)
	s.refused()
	s.cancel(s.launch("probe", false))
	s.ask(external)

	// One is interrupted and goes on; another's caller never comes back.
	interrupted := s.launch("feature-dev", false)
	s.work(300_000, queue.EndInterrupted)
	s.resume(interrupted)
	s.drive(s.launch("review-pr", true), 200_000, false)
	s.sweep()

	// A message that is lost is published again; a runner that dies is noticed; what
	// an operator takes away ends its run.
	lost := s.launch("docs-writer", false)
	s.queue.mu.Lock()
	delete(s.queue.all, lost)
	s.queue.mu.Unlock()
	s.clock.Advance(31 * time.Second)
	s.sweep()
	s.begin()
	s.take(s.launch("probe", true))
	s.clock.Advance(lease + skew + time.Second)
	s.sweep()
	s.sweep()
	return s.err
}

func (s *script) resume(id holdfast.RunID) {
	if id == "" {
		return
	}
	s.twice("resume", func() error {
		_, denial, err := s.Resume(s.ctx, operator, id)
		s.note(answer("resume", denial, err))
		if denial.Denied() {
			s.note(fmt.Errorf("resume was denied: %s", denial.Public))
		}
		return err
	})
	s.flush()
	s.work(100_000, queue.EndFinished)
}

// take is an operator who releases what a run holds.
func (s *script) take(id holdfast.RunID) {
	if id == "" {
		return
	}
	slot := holdfast.NewAllocationID(id, holdfast.TeamSubject(s.team, holdfast.AxisSlots, ""), 0)
	s.twice("release", func() error {
		_, err := s.ReleaseAllocation(s.ctx, operator, slot, "a test")
		if errors.Is(err, launch.ErrNotFound) {
			return nil // it was admitted while the ledger was away
		}
		return err
	})
}
