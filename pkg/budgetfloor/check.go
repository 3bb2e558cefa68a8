package budgetfloor

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
)

// Bounds of a policy.
const (
	maxReservations = 500
	maxRepoQuotas   = 2_000
	maxTeams        = 1_000
	maxNote         = 1_000
)

// Checked is the policy with its names folded and its tiers filled in, or an
// *holdfast.InvalidError that names the field ("reservations[1].monthly_usd"). What
// it returns is what is stored; checking that again changes nothing.
func (p Policy) Checked() (Policy, error) {
	switch {
	case len(p.Reservations) > maxReservations:
		return Policy{}, invalid("reservations", "there are too many", fmt.Sprintf("at most %d", maxReservations))
	case len(p.RepoQuotas) > maxRepoQuotas:
		return Policy{}, invalid("repo_quotas", "there are too many", fmt.Sprintf("at most %d", maxRepoQuotas))
	}
	p.Reservations = slices.Clone(p.Reservations)
	for i, r := range p.Reservations {
		checked, err := r.checked()
		if err != nil {
			return Policy{}, holdfast.InField(fmt.Sprintf("reservations[%d]", i), err)
		}
		p.Reservations[i] = checked
	}
	if err := p.checkTogether(); err != nil {
		return Policy{}, err
	}
	p.RepoQuotas = slices.Clone(p.RepoQuotas)
	for i, q := range p.RepoQuotas {
		checked, err := p.checkedQuota(q)
		if err != nil {
			return Policy{}, holdfast.InField(fmt.Sprintf("repo_quotas[%d]", i), err)
		}
		if at := slices.IndexFunc(p.RepoQuotas[:i], func(other RepoQuota) bool { return other.Repo == checked.Repo }); at >= 0 {
			return Policy{}, invalid(fmt.Sprintf("repo_quotas[%d].repo", i), fmt.Sprintf("%s has a quota already, in repo_quotas[%d]", checked.Repo, at), "one quota per repository")
		}
		p.RepoQuotas[i] = checked
	}
	return p, nil
}

func invalid(field, problem, allowed string) error {
	return &holdfast.InvalidError{Field: field, Problem: problem, Allowed: allowed}
}

// checkTogether refuses what is wrong only beside another reservation: two of one
// identity, which would compose against their own holder, and windows that are
// promised more than once over.
func (p Policy) checkTogether() error {
	at := map[holdfast.Identity]int{}
	fiveHour, week := 0, 0
	for i, r := range p.Reservations {
		field := fmt.Sprintf("reservations[%d]", i)
		if first, taken := at[r.Holder()]; taken {
			return invalid(field+".bot", fmt.Sprintf("%s is reserved for already, in reservations[%d]", r.Holder(), first), "one reservation per bot and tier")
		}
		at[r.Holder()] = i
		if fiveHour += r.FiveHourPercent; fiveHour > 100 {
			return invalid(field+".five_hour_percent", fmt.Sprintf("the reservations sum to %d %% of the window", fiveHour), "at most 100 in all")
		}
		if week += r.WeekPercent; week > 100 {
			return invalid(field+".week_percent", fmt.Sprintf("the reservations sum to %d %% of the window", week), "at most 100 in all")
		}
	}
	return nil
}

func (r Reservation) checked() (Reservation, error) {
	bot, tier, team, err := checkedIdentity(r.Bot, r.Tier, r.Team)
	if err != nil {
		return Reservation{}, err
	}
	r.Bot, r.Tier, r.Team = bot, tier, team
	switch {
	case r.FiveHourPercent < 0 || r.FiveHourPercent > 100:
		return Reservation{}, invalid("five_hour_percent", fmt.Sprintf("%d is not a share of the window", r.FiveHourPercent), "a whole number from 0 to 100")
	case r.WeekPercent < 0 || r.WeekPercent > 100:
		return Reservation{}, invalid("week_percent", fmt.Sprintf("%d is not a share of the window", r.WeekPercent), "a whole number from 0 to 100")
	case r.ConcurrentRuns < 0 || r.ConcurrentRuns > holdfast.MaxSlots:
		return Reservation{}, invalid("concurrent_runs", fmt.Sprintf("%d is not a number of slots", r.ConcurrentRuns), fmt.Sprintf("a whole number from 0 to %d", holdfast.MaxSlots))
	case r.MonthlyUSD < 0 || r.MonthlyUSD > holdfast.MaxUSD:
		return Reservation{}, invalid("monthly_usd", fmt.Sprintf("%s cannot be reserved", r.MonthlyUSD.Dollars()), "0 to 1000000000 dollars")
	case len(r.Note) > maxNote || !utf8.ValidString(r.Note):
		return Reservation{}, invalid("note", "it is too long or not text", fmt.Sprintf("at most %d bytes", maxNote))
	case len(r.Teams) > maxTeams:
		return Reservation{}, invalid("teams", "there are too many", fmt.Sprintf("at most %d", maxTeams))
	}
	teams := make([]holdfast.TeamID, 0, len(r.Teams))
	for i, name := range r.Teams {
		folded, err := holdfast.FoldName(string(name))
		if err != nil {
			return Reservation{}, holdfast.InField(fmt.Sprintf("teams[%d]", i), err)
		}
		if r.Tier == holdfast.TierTeam && folded != string(r.Team) {
			return Reservation{}, invalid(fmt.Sprintf("teams[%d]", i), fmt.Sprintf("a bot of team %s runs in that team only", r.Team), "no teams, for a reservation of tier team")
		}
		if !slices.Contains(teams, holdfast.TeamID(folded)) {
			teams = append(teams, holdfast.TeamID(folded))
		}
	}
	if r.Teams = teams; len(teams) == 0 {
		r.Teams = nil
	}
	return r, nil
}

// checkedIdentity folds the names of a qualified bot. A missing tier is the
// platform's: policies that were stored before tiers existed mean that.
func checkedIdentity(bot holdfast.BotID, tier holdfast.Tier, team holdfast.TeamID) (holdfast.BotID, holdfast.Tier, holdfast.TeamID, error) {
	bad := func(err error) (holdfast.BotID, holdfast.Tier, holdfast.TeamID, error) { return "", "", "", err }
	if strings.TrimSpace(string(bot)) == "" {
		return bad(invalid("bot", "it is missing", "the name of a bot"))
	}
	name, err := holdfast.FoldName(string(bot))
	if err != nil {
		return bad(holdfast.InField("bot", err))
	}
	switch tier {
	case "", holdfast.TierPlatform:
		if team != "" {
			return bad(invalid("team", "a bot of the platform belongs to no team", "tier: team, or no team (teams: limits where it is withheld)"))
		}
		return holdfast.BotID(name), holdfast.TierPlatform, "", nil
	case holdfast.TierTeam:
		if team == "" {
			return bad(invalid("team", "it is missing", "the id of the team whose bot it is"))
		}
		owner, err := holdfast.FoldName(string(team))
		if err != nil {
			return bad(holdfast.InField("team", err))
		}
		return holdfast.BotID(name), holdfast.TierTeam, holdfast.TeamID(owner), nil
	}
	return bad(invalid("tier", fmt.Sprintf("%q is not a tier", holdfast.Clip(string(tier), 40)), "platform, team"))
}

func (p Policy) checkedQuota(q RepoQuota) (RepoQuota, error) {
	repo := RepoName(q.Repo)
	switch {
	case repo == "" || len(repo) > 200 || holdfast.Clip(repo, 200) != repo || strings.ContainsAny(repo, " \t"):
		return RepoQuota{}, invalid("repo", fmt.Sprintf("%q is not a repository", holdfast.Clip(q.Repo, 80)), "owner/name")
	case q.MonthlyUSD != nil && (*q.MonthlyUSD < 0 || *q.MonthlyUSD > holdfast.MaxUSD):
		return RepoQuota{}, invalid("monthly_usd", fmt.Sprintf("%s is not a quota", q.MonthlyUSD.Dollars()), "0 to 1000000000 dollars")
	case q.ReserveSharePercent < 0 || q.ReserveSharePercent > 100:
		return RepoQuota{}, invalid("reserve_share_percent", fmt.Sprintf("%d is not a share", q.ReserveSharePercent), "a whole number from 0 to 100")
	case q.MonthlyUSD == nil && q.ReserveSharePercent == 0:
		return RepoQuota{}, invalid("monthly_usd", "the quota says nothing", "monthly_usd, or reserve_share_percent with share_of, or both")
	case q.ReserveSharePercent > 0 && q.ShareOf == nil:
		return RepoQuota{}, invalid("share_of", "it is missing", "the reservation that the share is of: {bot, tier, team}")
	case q.ReserveSharePercent == 0 && q.ShareOf != nil:
		return RepoQuota{}, invalid("reserve_share_percent", "share_of is written and the share is not", "1 to 100")
	}
	q.Repo = repo
	if q.ShareOf == nil {
		return q, nil
	}
	bot, tier, team, err := checkedIdentity(q.ShareOf.Bot, q.ShareOf.Tier, q.ShareOf.Team)
	if err != nil {
		return RepoQuota{}, holdfast.InField("share_of", err)
	}
	q.ShareOf = &ShareOf{Bot: bot, Tier: tier, Team: team}
	holder := q.ShareOf.Holder()
	switch reservation, found := p.ReservationOf(holder); {
	case !found:
		return RepoQuota{}, invalid("share_of", fmt.Sprintf("nothing is reserved for %s", holder), "a bot and tier with a reservation of monthly_usd")
	case reservation.MonthlyUSD == 0:
		// A share of a window or of slots cannot be counted per repository, and a
		// silent zero would read as unlimited.
		return RepoQuota{}, invalid("share_of", fmt.Sprintf("the reservation of %s holds no monthly_usd", holder), "a bot and tier with a reservation of monthly_usd")
	}
	return q, nil
}

// RepoName is the form in which repositories are compared: "owner/name" in lower
// case. The host, user and ".git" of an address are left out, so that another
// spelling of a repository is not another repository.
func RepoName(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if _, rest, ok := strings.Cut(s, "://"); ok {
		_, s, _ = strings.Cut(rest, "/")
	} else if user, rest, ok := strings.Cut(s, ":"); ok && strings.Contains(user, "@") {
		s = rest
	}
	s, _, _ = strings.Cut(s, "?")
	s, _, _ = strings.Cut(s, "#")
	return strings.TrimSuffix(strings.Trim(s, "/"), ".git")
}
