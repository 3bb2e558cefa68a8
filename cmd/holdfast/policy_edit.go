package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
)

// holderFlags say whose bot is meant, where the name alone does not.
type holderFlags struct {
	tier oneOf
	team string
}

func (f *holderFlags) add(flags *pflag.FlagSet) {
	f.tier = oneOf{allowed: []string{string(holdfast.TierPlatform), string(holdfast.TierTeam)}}
	flags.Var(&f.tier, "tier", "whose bot it is (default platform, or team with --team)")
	flags.StringVarP(&f.team, "team", "t", "", "team whose own bot it is")
}

// identity is the holder that the argument and the flags name. The argument may be
// a bot's name or a holder as capacity prints it: platform/review-pr,
// team:web/feature-dev.
func (f *holderFlags) identity(text string) (holdfast.Identity, error) {
	if strings.Contains(text, "/") {
		if f.tier.value != "" || f.team != "" {
			return holdfast.Identity{}, usagef("%q already says whose bot it is (allowed: without --tier and --team)", clip(text, 80))
		}
		identity, err := holdfast.ParseIdentity(text)
		return identity, holdfast.InField("BOT", err)
	}
	name, err := holdfast.FoldName(text)
	if err != nil {
		return holdfast.Identity{}, holdfast.InField("BOT", err)
	}
	tier := f.tier.value
	switch {
	case tier == "" && f.team != "":
		tier = string(holdfast.TierTeam)
	case tier == string(holdfast.TierTeam) && f.team == "":
		return holdfast.Identity{}, usagef("--team is missing (allowed: the team whose own bot %s is)", name)
	case tier == string(holdfast.TierPlatform) && f.team != "":
		return holdfast.Identity{}, usagef("--team does not go with --tier platform (allowed: --tier team, or no --team)")
	}
	if tier != string(holdfast.TierTeam) {
		return holdfast.PlatformBot(holdfast.BotID(name)), nil
	}
	team, err := holdfast.FoldName(f.team)
	if err != nil {
		return holdfast.Identity{}, holdfast.InField("--team", err)
	}
	return holdfast.TeamBot(holdfast.TeamID(team), holdfast.BotID(name)), nil
}

// reservationOf finds the reservation of an identity; -1 when there is none.
func reservationOf(policy *api.BudgetFloor, identity holdfast.Identity) int {
	return slices.IndexFunc(policy.Reservations, func(r api.Reservation) bool {
		stored, err := holdfast.ParseIdentity(holderOf(r.Bot, r.Tier, r.Team))
		return err == nil && stored == identity
	})
}

func quotaOf(policy *api.BudgetFloor, repo string) int {
	return slices.IndexFunc(policy.RepoQuotas, func(q api.RepoQuota) bool {
		return budgetfloor.RepoName(q.Repo) == budgetfloor.RepoName(repo)
	})
}

func newPolicyReserve(c *cli) *cobra.Command {
	var holder holderFlags
	var edit editFlags
	var typed api.Reservation
	var usd usdFlag
	cmd := &cobra.Command{
		Use: "reserve BOT", Short: "Reserve capacity for a bot",
		Long: `Reserve changes one reservation, or makes it. An axis that is not typed keeps its
value, 0 clears it. The reservation is withheld from everybody else on every subject
that has a cap; --teams keeps it out of the other teams' subjects.`,
		Example: `  holdfast policy reserve review-pr --concurrent-runs 2 --monthly-usd 300
  holdfast policy reserve feature-dev --team web --concurrent-runs 1
  holdfast policy reserve review-pr --monthly-usd 0 --note "slots are enough"
  holdfast policy reserve review-pr --concurrent-runs 3 --dry-run`,
		Args: exactly("BOT"),
	}
	flags := cmd.Flags()
	holder.add(flags)
	edit.add(flags)
	flags.Int64Var(&typed.ConcurrentRuns, "concurrent-runs", 0, "slots")
	flags.Var(&usd, "monthly-usd", "dollars of the calendar month")
	flags.IntVar(&typed.FiveHourPercent, "five-hour", 0, "percent of the five-hour window")
	flags.IntVar(&typed.WeekPercent, "week", 0, "percent of the weekly window")
	flags.BoolVar(&typed.PoolEligible, "pool-eligible", false, "let it draw from pledged pools")
	flags.StringSliceVar(&typed.Teams, "teams", nil, "withhold it only in these teams' subjects, by commas; empty for all")
	flags.StringVar(&typed.Note, "note", "", "why, for people")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		identity, err := holder.identity(args[0])
		if err != nil {
			return err
		}
		return c.editPolicy(cmd.Context(), edit, func(policy *api.BudgetFloor) error {
			at := reservationOf(policy, identity)
			if at < 0 {
				policy.Reservations = append(policy.Reservations, api.Reservation{
					Bot: string(identity.Bot()), Tier: string(identity.Tier()), Team: string(identity.Team()),
				})
				at = len(policy.Reservations) - 1
			}
			r := &policy.Reservations[at]
			changeReservation(r, typed, usd, flags.Changed)
			if r.ConcurrentRuns == 0 && r.MonthlyUSD == 0 && r.FiveHourPercent == 0 && r.WeekPercent == 0 {
				return usagef("nothing would be reserved for %s (allowed: at least one of --concurrent-runs, --monthly-usd, --five-hour, --week above 0; `holdfast policy rm` removes it)", identity)
			}
			return nil
		})
	}
	return cmd
}

func changeReservation(r *api.Reservation, typed api.Reservation, usd usdFlag, changed func(string) bool) {
	if changed("concurrent-runs") {
		r.ConcurrentRuns = typed.ConcurrentRuns
	}
	if usd.value != nil {
		r.MonthlyUSD = *usd.value
	}
	if changed("five-hour") {
		r.FiveHourPercent = typed.FiveHourPercent
	}
	if changed("week") {
		r.WeekPercent = typed.WeekPercent
	}
	if changed("pool-eligible") {
		r.PoolEligible = typed.PoolEligible
	}
	if changed("teams") {
		r.Teams = typed.Teams
	}
	if changed("note") {
		r.Note = typed.Note
	}
}

func newPolicyQuota(c *cli) *cobra.Command {
	var usd usdFlag
	var edit editFlags
	var share int
	var shareOf string
	cmd := &cobra.Command{
		Use: "quota REPO", Short: "Cap what one repository spends in a month",
		Long: `Quota changes one repository's quota, or makes it: an amount, a share of a
reservation's dollars, or the smaller of both. What is not typed keeps its value, 0
clears it.`,
		Example: `  holdfast policy quota acme/widgets --monthly-usd 50
  holdfast policy quota acme/widgets --reserve-share 25 --share-of review-pr`,
		Args: exactly("REPO"),
	}
	flags := cmd.Flags()
	edit.add(flags)
	flags.Var(&usd, "monthly-usd", "dollars of the calendar month")
	flags.IntVar(&share, "reserve-share", 0, "percent of a reservation's dollars")
	flags.StringVar(&shareOf, "share-of", "", "the reservation: BOT, platform/BOT or team:TEAM/BOT")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var of *api.ShareOf
		if shareOf != "" {
			identity, err := holdfast.ParseIdentity(shareOf)
			if err != nil {
				return holdfast.InField("--share-of", err)
			}
			of = &api.ShareOf{Bot: string(identity.Bot()), Tier: string(identity.Tier()), Team: string(identity.Team())}
		}
		return c.editPolicy(cmd.Context(), edit, func(policy *api.BudgetFloor) error {
			at := quotaOf(policy, args[0])
			if at < 0 {
				policy.RepoQuotas = append(policy.RepoQuotas, api.RepoQuota{Repo: args[0]})
				at = len(policy.RepoQuotas) - 1
			}
			q := &policy.RepoQuotas[at]
			if usd.value != nil {
				q.MonthlyUSD = usd.value
				if *usd.value == 0 {
					q.MonthlyUSD = nil
				}
			}
			if of != nil {
				q.ShareOf = of
			}
			if flags.Changed("reserve-share") {
				q.ReserveSharePercent = share
				if share == 0 {
					q.ShareOf = nil
				}
			}
			if q.MonthlyUSD == nil && q.ReserveSharePercent == 0 {
				return usagef("%s would have no quota (allowed: --monthly-usd or --reserve-share above 0; `holdfast policy rm --repo` removes it)", clip(args[0], 100))
			}
			return nil
		})
	}
	return cmd
}

func newPolicySuspend(c *cli) *cobra.Command {
	var holder holderFlags
	var edit editFlags
	var span waitFlag
	var until string
	var lift bool
	cmd := &cobra.Command{
		Use: "suspend BOT", Short: "Lend a reservation out for a while",
		Long: `Suspend lends what is reserved for a bot to everybody until the time is over; then it
is withheld again by itself. --lift takes it back now.`,
		Example: `  holdfast policy suspend review-pr --for 2h
  holdfast policy suspend review-pr --until 2026-12-01T08:00:00Z
  holdfast policy suspend review-pr --lift`,
		Args: exactly("BOT"),
	}
	flags := cmd.Flags()
	holder.add(flags)
	edit.add(flags)
	flags.Var(&span, "for", "for so long from now: 2h, 3d")
	flags.StringVar(&until, "until", "", "until this time")
	flags.BoolVar(&lift, "lift", false, "take it back now")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		identity, err := holder.identity(args[0])
		if err != nil {
			return err
		}
		end, err := suspensionEnd(c.clock(), span, until, lift)
		if err != nil {
			return err
		}
		return c.editPolicy(cmd.Context(), edit, func(policy *api.BudgetFloor) error {
			at := reservationOf(policy, identity)
			if at < 0 {
				return usagef("nothing is reserved for %s (allowed: a bot of `holdfast policy show`)", identity)
			}
			policy.Reservations[at].SuspendedUntil = end
			return nil
		})
	}
	return cmd
}

// suspensionEnd is when a reservation is withheld again; zero for at once.
func suspensionEnd(now time.Time, span waitFlag, until string, lift bool) (time.Time, error) {
	given := 0
	for _, typed := range []bool{span.span > 0, until != "", lift} {
		if typed {
			given++
		}
	}
	switch {
	case given != 1:
		return time.Time{}, usagef("it must be said until when (allowed: exactly one of --for, --until, --lift)")
	case lift:
		return time.Time{}, nil
	case span.span > 0:
		return now.Add(span.span).UTC().Truncate(time.Second), nil
	}
	end, err := parseInstant(until)
	if err != nil || !end.After(now) {
		return time.Time{}, usagef("--until %q is not a time to come (allowed: such as 2026-12-01T08:00:00Z or 2026-12-01)", clip(until, 40))
	}
	return end, nil
}

func newPolicyRemove(c *cli) *cobra.Command {
	var holder holderFlags
	var edit editFlags
	var repo string
	cmd := &cobra.Command{
		Use: "rm [BOT]", Short: "Remove a reservation, or a repository's quota",
		Example: `  holdfast policy rm review-pr
  holdfast policy rm feature-dev --team web
  holdfast policy rm --repo acme/widgets`,
		Args: exactly("BOT?"),
	}
	flags := cmd.Flags()
	holder.add(flags)
	edit.add(flags)
	flags.StringVar(&repo, "repo", "", "remove this repository's quota")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (repo == "") == (len(args) == 0) {
			return usagef("it must be said what to remove (allowed: either BOT or --repo REPO)")
		}
		if repo != "" {
			return c.editPolicy(cmd.Context(), edit, func(policy *api.BudgetFloor) error {
				at := quotaOf(policy, repo)
				if at < 0 {
					return usagef("%s has no quota (allowed: a repository of `holdfast policy show`)", clip(repo, 100))
				}
				policy.RepoQuotas = slices.Delete(policy.RepoQuotas, at, at+1)
				return nil
			})
		}
		identity, err := holder.identity(args[0])
		if err != nil {
			return err
		}
		return c.editPolicy(cmd.Context(), edit, func(policy *api.BudgetFloor) error {
			at := reservationOf(policy, identity)
			if at < 0 {
				return usagef("nothing is reserved for %s (allowed: a bot of `holdfast policy show`)", identity)
			}
			policy.Reservations = slices.Delete(policy.Reservations, at, at+1)
			return nil
		})
	}
	return cmd
}
