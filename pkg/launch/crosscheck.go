package launch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Lost says which of the two stores lacks what the other one has.
type Lost string

// What may be lost.
const (
	LostLedger  Lost = "ledger"  // it says that less was used than the run documents say
	LostRecords Lost = "records" // they say that less was used than the ledger says
)

// Finding is a subject of the month on which the ledger and the run documents
// disagree: one of the two stores was lost, cut off, or restored from another day.
type Finding struct {
	Subject   holdfast.Subject
	Ledger    holdfast.Amount // settled
	Documents holdfast.Amount // charged to the subject by runs that are settled, or by all when these are lost
	Lost      Lost
}

// String says what is wrong.
func (f Finding) String() string {
	return fmt.Sprintf("%s: the ledger has %s settled, the run documents add up to %s", f.Subject, f.Ledger, f.Documents)
}

// WayOut says what an operator can do.
func (f Finding) WayOut() string {
	if f.Lost == LostLedger {
		return "stop, and restore ledger.db (with ledger.db-wal) from where it was lost; until then, or until the month ends, this much more can be used than the limit says: lower the team's limit by the difference"
	}
	return "stop, and restore records.db (with records.db-wal) from where it was lost; limits are judged on the ledger and hold, but the runs and what else was recorded are missing"
}

// charge is what run documents say that a subject was charged.
type charge struct{ settled, all int64 }

// CrossCheck compares, for every team and the UTC month of an instant, what the ledger
// has settled (dollars and runs) with what the run documents charged to it. It reads
// and changes nothing; no finding means that they agree. It is for a start, after
// [Service.Recover] and before anybody launches: it reads every run of the month, and
// what moves meanwhile could look like a disagreement.
//
// The ledger must have at least what settled runs say, because these are settled only
// when it has taken their spend; and at most what all documents say, because a
// document takes a spend before the ledger does.
func (s *Service) CrossCheck(ctx context.Context, now time.Time) ([]Finding, error) {
	charges := map[holdfast.Subject]charge{}
	month := holdfast.MonthPeriod(now)
	u := now.UTC()
	err := s.Runs.WalkSince(ctx, "", time.Date(u.Year(), u.Month(), 1, 0, 0, 0, 0, time.UTC), func(run runs.Run) error {
		addCharges(charges, run)
		return nil
	})
	if err != nil {
		return nil, unavailable(err)
	}
	subjects, err := s.settledSubjects(ctx, month)
	if err != nil {
		return nil, err
	}
	for subject := range charges {
		if ofMonth(subject, month) && !slices.Contains(subjects, subject) {
			subjects = append(subjects, subject)
		}
	}
	var findings []Finding
	for _, subject := range subjects {
		found, ok, err := s.compare(ctx, subject, charges[subject])
		if err != nil {
			return nil, err
		}
		if ok {
			findings = append(findings, found)
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Subject.String(), b.Subject.String()) })
	return findings, nil
}

// compare judges one subject. A run of an earlier month that was resumed in this one
// is charged to this one: where the documents of the month are not enough, all of the
// team's are read.
func (s *Service) compare(ctx context.Context, subject holdfast.Subject, c charge) (Finding, bool, error) {
	balance, err := s.Ledger.Outstanding(ctx, subject)
	if err != nil {
		return Finding{}, false, unavailable(err)
	}
	if balance.Settled > c.all {
		every := map[holdfast.Subject]charge{}
		err := s.Runs.WalkSince(ctx, holdfast.TeamID(subject.ID), time.Time{}, func(run runs.Run) error {
			addCharges(every, run)
			return nil
		})
		if err != nil {
			return Finding{}, false, unavailable(err)
		}
		c = every[subject]
	}
	unit := subject.Axis.Unit()
	f := Finding{Subject: subject, Ledger: holdfast.AmountOf(unit, balance.Settled)}
	switch {
	case balance.Settled < c.settled:
		f.Lost, f.Documents = LostLedger, holdfast.AmountOf(unit, c.settled)
	case balance.Settled > c.all:
		f.Lost, f.Documents = LostRecords, holdfast.AmountOf(unit, c.all)
	}
	return f, f.Lost != "", nil
}

// settledSubjects are the subjects of the month that the ledger knows.
func (s *Service) settledSubjects(ctx context.Context, month string) ([]holdfast.Subject, error) {
	const page = 1000
	var found []holdfast.Subject
	for after := ""; ; {
		subjects, err := s.Ledger.Subjects(ctx, after, page)
		if err != nil {
			return nil, unavailable(err)
		}
		for _, subject := range subjects {
			if ofMonth(subject, month) {
				found = append(found, subject)
			}
		}
		if len(subjects) < page {
			return found, nil
		}
		after = subjects[len(subjects)-1].String()
	}
}

func ofMonth(subject holdfast.Subject, month string) bool {
	return subject.Kind == holdfast.KindTeam && subject.Period == month && (subject.Axis == holdfast.AxisUSD || subject.Axis == holdfast.AxisRuns)
}

// addCharges adds what a document says that its run was charged, to the very subjects
// that it was charged to: what each attempt spent to what that attempt held, and a run
// of the month for the launch and for each resume. What was never held was charged to
// nobody.
func addCharges(charges map[holdfast.Subject]charge, run runs.Run) {
	add := func(subject holdfast.Subject, settled bool, amount int64) {
		c := charges[subject]
		c.all += amount
		if settled {
			c.settled += amount
		}
		charges[subject] = c
	}
	for attempt, spent := range run.SpentBy {
		for _, hold := range holdsOf(run, attempt) {
			if hold.Subject.Axis == holdfast.AxisUSD {
				add(hold.Subject, run.Settled, int64(spent))
			}
		}
	}
	units := unitsOf(run)
	for _, unit := range units {
		add(unit, run.Settled, 1)
	}
	// What a generation held that began no attempt is no longer in the document, and it
	// may have been used. The month of it is one of these.
	if gone := int64(run.Generation + 1 - len(units)); gone > 0 {
		units = append(units, runsSubject(run.Team, run.CreatedAt), runsSubject(run.Team, run.QueuedAt))
		slices.SortFunc(units, func(a, b holdfast.Subject) int { return cmp.Compare(a.Period, b.Period) })
		for _, unit := range slices.Compact(units) {
			add(unit, false, gone)
		}
	}
}

// unitsOf are the subjects of the runs of the month that a run used, one for each.
func unitsOf(run runs.Run) []holdfast.Subject {
	ids := map[holdfast.AllocationID]holdfast.Subject{}
	note := func(holds []runs.Hold) {
		for _, hold := range holds {
			if hold.Subject.Axis == holdfast.AxisRuns && hold.Subject.Kind == holdfast.KindTeam { // its organisation has it too
				ids[hold.ID] = hold.Subject
			}
		}
	}
	for _, former := range run.Former {
		note(former.Holds)
	}
	if run.StatusReason != runs.ReasonLaunchFailed { // else the launch or resume gave it back
		note(run.Holds)
	}
	return slices.Collect(maps.Values(ids))
}
