package launch

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Why a run was admitted without an allocation, as its document keeps it. Nobody
// can take such a run for a guarded one, and the adoption sweep records what it uses.
const (
	UnheldLedger = "ledger_unavailable"
	UnheldPolicy = "policy_never_read"
)

// withoutPolicy is the first of the two ways past the ledger: the policy was never
// read, so nobody knows what is reserved (ADR-155 §8). The launch passes without an
// allocation, logged and counted on its own. A stale policy keeps holding what it
// reserved, an absent one reserves nothing; both are judged.
func (s *Service) withoutPolicy(ctx context.Context, a *admission) bool {
	state := a.rules.policyState
	held := state != platformcfg.Never
	if !a.dry {
		held = s.policyHeld(ctx, readerGate, state, a.run)
	}
	if held {
		return false
	}
	a.unheld = UnheldPolicy
	return true
}

func (s *Service) failedOpen(check string) {
	if f := s.options.Events.FailedOpen; f != nil {
		f(check)
	}
}

// failOpen is the second: the ledger could not be asked in the middle of a check
// (ADR-155 §8). What this launch took from it is given back, and every axis is
// judged anew on the run documents: slots on the active runs, runs and dollars on
// the month's. Nobody knows who holds what then, so what is reserved for others is
// left out whole, used or not. A denial of that judgement is a denial; the error
// itself never is. When the documents cannot be read either, that is the error.
func (s *Service) failOpen(ctx context.Context, a *admission, c candidate, check string, subject holdfast.Subject, cause error) (holdfast.Denial, error) {
	if ctx.Err() != nil { // the caller hung up; that says nothing about the ledger
		return holdfast.Denial{}, unavailable(cause)
	}
	s.unwind(ctx, a, a.undoMark)
	a.checks = a.checks[:a.checkMark]
	a.holds, a.found, a.unheld, a.budget = nil, nil, UnheldLedger, c.ask
	if !a.dry {
		s.log.WarnContext(ctx, "the capacity ledger cannot be asked: judging on the run documents", "run", a.run, "team", a.team.ID, "subject", subject, "error", cause)
		s.failedOpen(check)
	}
	var first holdfast.Denial
	for _, axis := range []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisRuns, holdfast.AxisUSD} {
		if axis == holdfast.AxisRuns && !c.unit {
			continue
		}
		if f := s.options.Events.LedgerFallback; f != nil && !a.dry {
			f(axis)
		}
		denial, err := s.judgeDocuments(ctx, a, c, axis)
		if err != nil {
			return holdfast.Denial{}, unavailable(fmt.Errorf("%w; and before that: %w", err, cause))
		}
		if denial.Denied() && !first.Denied() {
			first = denial
		}
		if first.Denied() && !a.dry {
			break
		}
	}
	return first, nil
}

// checkOf is the check that judges an axis.
func checkOf(axis holdfast.Axis) string {
	switch axis {
	case holdfast.AxisSlots:
		return concurrencyCheck
	case holdfast.AxisRuns, holdfast.AxisUSD:
		return monthlyCheck
	case holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
	}
	return string(axis)
}

// judgeDocuments judges one axis on what the run documents add up to.
func (s *Service) judgeDocuments(ctx context.Context, a *admission, c candidate, axis holdfast.Axis) (holdfast.Denial, error) {
	period := holdfast.MonthPeriod(a.at)
	requested, minimum := holdfast.RunAmount(1), holdfast.RunAmount(1)
	switch axis {
	case holdfast.AxisSlots:
		period = ""
		requested, minimum = holdfast.SlotAmount(1), holdfast.SlotAmount(1)
	case holdfast.AxisUSD:
		requested, minimum = holdfast.USDAmount(c.ask), holdfast.USDAmount(c.minimum)
	case holdfast.AxisRuns, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
	}
	for _, subject := range a.rules.subjects(a.owners, axis, period) {
		balance, err := s.balanceOfDocuments(ctx, a, subject)
		if err != nil {
			return holdfast.Denial{}, err
		}
		ask := s.ask(a, c, subject, requested, minimum)
		verdict, denial, err := capacityledger.Consider(balance, ask)
		if err != nil {
			return holdfast.Denial{}, err
		}
		a.weighed(checkOf(axis), ask, verdict, denial, subject)
		if denial.Denied() {
			denial.Public += " (judged on the run documents, because the ledger cannot be asked)"
			return denial, nil
		}
		a.cut(subject, verdict.Allowance)
	}
	return holdfast.Denial{}, nil
}

// balanceOfDocuments is a subject's total as the run documents have it, without
// holders: of the team's runs, of its organisation's teams', or of all.
func (s *Service) balanceOfDocuments(ctx context.Context, a *admission, subject holdfast.Subject) (capacityledger.Balance, error) {
	whose := []holdfast.TeamID{a.team.ID}
	switch subject.Kind {
	case holdfast.KindPlatform:
		whose = []holdfast.TeamID{""}
	case holdfast.KindOrg:
		members, err := s.membersOf(ctx, a.org.ID)
		if err != nil {
			return capacityledger.Balance{}, err
		}
		whose = members
	case holdfast.KindTeam, holdfast.KindAccount, holdfast.KindDonor, holdfast.KindRunnerPool:
	}
	balance := capacityledger.Balance{Subject: subject}
	for _, team := range whose {
		if subject.Axis == holdfast.AxisSlots {
			active, err := s.Runs.Active(ctx, team)
			if err != nil {
				return capacityledger.Balance{}, err
			}
			balance.Outstanding += active
			continue
		}
		month, err := s.Runs.MonthOf(ctx, runs.MonthFilter{Team: team}, a.at)
		if err != nil {
			return capacityledger.Balance{}, err
		}
		if subject.Axis == holdfast.AxisRuns {
			balance.Settled += month.Runs
		} else {
			balance.Settled += int64(month.USD)
		}
	}
	return balance, nil
}
