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

// checkTeam reads the team. Only an operator gets this far without one.
func (s *Service) checkTeam(ctx context.Context, a *admission, c call) (holdfast.Denial, error) {
	team, err := s.Teams.Get(ctx, c.team)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return holdfast.Denial{
			Reason: holdfast.DenyUnknownTeam,
			Public: fmt.Sprintf("there is no team %s; holdfast teams list shows those that exist", c.team),
		}, nil
	case err != nil:
		return holdfast.Denial{}, unavailable(err)
	}
	a.team = team
	if !team.Suspended {
		return holdfast.Denial{}, nil
	}
	denial := holdfast.Denial{Reason: holdfast.DenyTeamSuspended, Public: fmt.Sprintf("the team %s is suspended", c.team)}
	if team.SuspendedReason != "" {
		denial.Public += ": " + team.SuspendedReason
	}
	return denial, nil
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

// checkLaunchRate takes one launch of the team's rate. Whoever is refused after
// this check gets it back.
func (s *Service) checkLaunchRate(ctx context.Context, a *admission, c call) (holdfast.Denial, error) {
	perMinute, limited := a.rules.launchesPerMinute(a.team)
	if !limited {
		return holdfast.Denial{}, nil
	}
	denial := holdfast.Denial{
		Reason:    holdfast.DenyLaunchRate,
		Public:    fmt.Sprintf("the team %s may launch %d runs a minute", c.team, perMinute),
		Cap:       holdfast.AtMost(holdfast.RunAmount(perMinute)),
		Retryable: perMinute > 0,
	}
	if perMinute <= 0 {
		return denial, nil
	}
	if a.dry {
		left, err := s.rates.Left(ctx, c.team, perMinute, a.at)
		if left > 0 || err != nil {
			return holdfast.Denial{}, unavailable(err)
		}
		denial.RetryAfter = time.Minute / time.Duration(perMinute)
		return denial, nil
	}
	a.took("launch rate", func(ctx context.Context) error {
		return s.rates.Give(ctx, c.team, perMinute, s.now())
	})
	taken, wait, err := s.rates.Take(ctx, c.team, perMinute, a.at)
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
