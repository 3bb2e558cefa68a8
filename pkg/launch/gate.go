package launch

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
)

// callerCheck judges the caller before the bot is resolved.
type callerCheck struct {
	name string
	run  func(context.Context, *admission, call) (holdfast.Denial, error)
}

// launchCheck judges the resolved identity.
type launchCheck struct {
	name string
	run  func(context.Context, *admission, candidate) (holdfast.Denial, error)
}

// The names of the steps that are written down in more than one place.
const (
	resolveStep      = "resolution" // between the two slices
	launchRateCheck  = "launch-rate"
	concurrencyCheck = "concurrency"
	monthlyCheck     = "monthly"
)

// callerChecks are made in this order before the resolution, and cost none.
func (s *Service) callerChecks() []callerCheck {
	return []callerCheck{
		{"maintenance", s.checkMaintenance},
		{"membership", s.checkMembership},
		{"role", s.checkRole},
		{"team", s.checkTeam},
		{"repo-quota", s.checkRepoQuota},
		{launchRateCheck, s.checkLaunchRate},
	}
}

// launchChecks are made in this order after it.
func (s *Service) launchChecks() []launchCheck {
	return []launchCheck{
		{concurrencyCheck, s.checkConcurrency},
		{monthlyCheck, s.checkMonthly},
	}
}

// Order names the steps of the gate in the order in which they are made.
func (s *Service) Order() []string {
	var names []string
	for _, check := range s.callerChecks() {
		names = append(names, check.name)
	}
	names = append(names, resolveStep)
	for _, check := range s.launchChecks() {
		names = append(names, check.name)
	}
	return names
}

// resolveFunc finds out what is judged: from a request, or from a run document.
type resolveFunc func(context.Context, *admission) (candidate, holdfast.Denial, error)

// admit makes the checks. The first denial ends it; a preview goes on through the
// capacity checks, which then take nothing, to show the arithmetic of all of them,
// and still answers the first denial. It gives nothing back: who calls it unwinds.
func (s *Service) admit(ctx context.Context, a *admission, c call, resolve resolveFunc) (candidate, holdfast.Denial, error) {
	for _, check := range s.callerChecks() {
		denial, err := check.run(ctx, a, c)
		a.judged(check.name, denial, err)
		if denial.Denied() || err != nil {
			return candidate{}, denial, s.named(check.name, err)
		}
	}
	who, denial, err := resolve(ctx, a)
	a.judged(resolveStep, denial, err)
	if denial.Denied() || err != nil {
		return candidate{}, denial, s.named(resolveStep, err)
	}
	a.checkMark, a.undoMark = len(a.checks), len(a.undo)
	var first holdfast.Denial
	for _, check := range s.launchChecks() {
		denial, err := check.run(ctx, a, who)
		a.judged(check.name, denial, err)
		if err != nil {
			return who, holdfast.Denial{}, s.named(check.name, err)
		}
		if denial.Denied() && !first.Denied() {
			first = denial
		}
		if first.Denied() && !a.dry {
			break
		}
	}
	return who, first, nil
}

// named says in which check an error happened; bad requests name their field.
func (s *Service) named(check string, err error) error {
	if err == nil || isInvalid(err) {
		return err
	}
	return fmt.Errorf("%s: %w", check, err)
}

func isInvalid(err error) bool {
	var bad *holdfast.InvalidError
	return errors.As(err, &bad)
}
