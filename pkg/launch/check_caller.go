package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// checkMaintenance refuses everybody while the fence is up.
func (s *Service) checkMaintenance(_ context.Context, a *admission, _ call) (holdfast.Denial, error) {
	fence := a.rules.maintenance
	if !fence.InForce(a.at) {
		return holdfast.Denial{}, nil
	}
	denial := holdfast.Denial{
		Reason:     holdfast.DenyMaintenance,
		Public:     "the platform is under maintenance and starts nothing",
		Retryable:  true,
		RetryAfter: time.Minute,
		ResetAt:    fence.Until,
	}
	if fence.Message != "" {
		denial.Public += ": " + fence.Message
	}
	if !fence.Until.IsZero() {
		denial.RetryAfter = fence.Until.Sub(a.at)
	}
	return denial, nil
}

// checkMembership refuses a caller of another team. A team that the caller may not
// see answers the same whether it exists or not.
func (s *Service) checkMembership(_ context.Context, _ *admission, c call) (holdfast.Denial, error) {
	if c.who.In(c.team) {
		return holdfast.Denial{}, nil
	}
	return holdfast.Denial{
		Reason: holdfast.DenyNoTeam,
		Public: fmt.Sprintf("this token does not belong to a team %s", c.team),
	}, nil
}

// checkRole refuses a caller whose role may only look.
func (s *Service) checkRole(_ context.Context, _ *admission, c call) (holdfast.Denial, error) {
	if c.who.May(c.team, auth.Member) {
		return holdfast.Denial{}, nil
	}
	return holdfast.Denial{
		Reason: holdfast.DenyRole,
		Public: fmt.Sprintf("the role %s may not launch; it takes a member or an admin", c.who.RoleIn(c.team)),
	}, nil
}

// checkTeam reads the team and the organisation that it belongs to. Only an operator
// gets this far without a team. A suspended organisation suspends its members.
func (s *Service) checkTeam(ctx context.Context, a *admission, c call) (holdfast.Denial, error) {
	found, err := s.ownersOf(ctx, a.rules, c.team)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return holdfast.Denial{
			Reason: holdfast.DenyUnknownTeam,
			Public: fmt.Sprintf("there is no team %s; holdfast teams list shows those that exist", c.team),
		}, nil
	case err != nil:
		return holdfast.Denial{}, unavailable(err)
	}
	a.owners = found
	switch {
	case a.team.Suspended:
		return suspended("team "+string(a.team.ID), a.team.SuspendedReason), nil
	case a.org.Suspended:
		return suspended(fmt.Sprintf("organisation %s of the team %s", a.org.ID, a.team.ID), a.org.SuspendedReason), nil
	}
	return holdfast.Denial{}, nil
}

func suspended(who, why string) holdfast.Denial {
	denial := holdfast.Denial{Reason: holdfast.DenyTeamSuspended, Public: "the " + who + " is suspended"}
	if why != "" {
		denial.Public += ": " + why
	}
	return denial
}

// checkRepoQuota refuses a repository whose month is spent. It is judged on the run
// documents, which count what was spent and what is still promised to live runs.
func (s *Service) checkRepoQuota(ctx context.Context, a *admission, c call) (holdfast.Denial, error) {
	limit := a.rules.policy.RepoCap(c.repo)
	if limit.None() {
		return holdfast.Denial{}, nil
	}
	month, err := s.Runs.MonthOf(ctx, runs.MonthFilter{Repo: c.repo}, a.at)
	if err != nil {
		return holdfast.Denial{}, unavailable(err)
	}
	used := holdfast.USDAmount(month.USD)
	if used.Less(limit.Max()) {
		return holdfast.Denial{}, nil
	}
	return holdfast.Denial{
		Reason:    holdfast.DenyRepoQuota,
		Public:    fmt.Sprintf("the repository %s has used %s of its quota of %s this month", c.repo, used, limit),
		Cap:       limit,
		Settled:   used,
		Remaining: limit.Max().Minus(used),
		Retryable: limit.Max().Int() > 0,
		ResetAt:   holdfast.MonthEnd(a.at),
	}, nil
}

// checkLaunchRate takes one launch of the team's rate and of its organisation's.
// Whoever is refused after it, by the other of the two as well, gets them back.
func (s *Service) checkLaunchRate(ctx context.Context, a *admission, _ call) (holdfast.Denial, error) {
	for _, rate := range a.rules.rates(a.owners) {
		denial, err := s.takeRate(ctx, a, rate)
		if denial.Denied() || err != nil {
			return denial, err
		}
	}
	return holdfast.Denial{}, nil
}

func (s *Service) takeRate(ctx context.Context, a *admission, r rate) (holdfast.Denial, error) {
	denial := holdfast.Denial{
		Reason:    holdfast.DenyLaunchRate,
		Public:    fmt.Sprintf("%s may launch %d runs a minute", r.who, r.perMinute),
		Cap:       holdfast.AtMost(holdfast.RunAmount(r.perMinute)),
		Retryable: r.perMinute > 0,
	}
	if r.perMinute <= 0 {
		return denial, nil
	}
	if a.dry {
		return s.foreseeRate(ctx, a, r, denial), nil
	}
	a.took("launch rate", func(ctx context.Context) error {
		return s.rates.Give(ctx, r.key, r.perMinute, s.now())
	})
	taken, wait, err := s.rates.Take(ctx, r.key, r.perMinute, a.at)
	if err != nil {
		return holdfast.Denial{}, s.unrated(ctx, a, err)
	}
	if taken {
		return holdfast.Denial{}, nil
	}
	a.untook()
	denial.RetryAfter = wait
	return denial, nil
}

// foreseeRate says what a launch would be told, and takes nothing. Where the rate
// cannot be judged the launch would pass.
func (s *Service) foreseeRate(ctx context.Context, a *admission, r rate, denial holdfast.Denial) holdfast.Denial {
	left, err := s.rates.Left(ctx, r.key, r.perMinute, a.at)
	if left > 0 || err != nil {
		return holdfast.Denial{}
	}
	denial.RetryAfter = time.Minute / time.Duration(r.perMinute)
	return denial
}

// unrated is the fail-open arm of the launch rate: where the shared buckets cannot be
// asked, or are fought over too long, the launch passes without a rate token, logged
// and counted. The rate protects the platform from a burst; what can run out is
// judged behind it all the same.
func (s *Service) unrated(ctx context.Context, a *admission, cause error) error {
	if ctx.Err() != nil { // the caller hung up; that says nothing about the buckets
		return unavailable(cause)
	}
	a.untook()
	s.log.WarnContext(ctx, "the launch rate cannot be judged: passing without a token", "run", a.run, "team", a.team.ID, "error", cause)
	s.failedOpen(launchRateCheck)
	return nil
}

// unavailable marks an error of a store; nil stays nil.
func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
