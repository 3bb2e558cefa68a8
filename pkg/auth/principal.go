package auth

import (
	"slices"

	"github.com/holdfast-io/holdfast"
)

// Role is what a caller may do in a team. Roles are a ladder; a word that is not on
// it is below every role.
type Role string

// The roles, from the lowest.
const (
	Viewer Role = "viewer"
	Member Role = "member"
	Admin  Role = "admin"
)

func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Member:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// AtLeast says whether the role includes another. A word off the ladder includes
// nothing and is included in nothing.
func (r Role) AtLeast(other Role) bool { return other.rank() > 0 && r.rank() >= other.rank() }

// lower is the smaller of two roles.
func lower(a, b Role) Role {
	if a.rank() < b.rank() {
		return a
	}
	return b
}

// Membership is a role in a team.
type Membership struct {
	Team holdfast.TeamID `json:"team"`
	Role Role            `json:"role"`
}

// Principal is who a caller is. The zero Principal is nobody.
type Principal struct {
	Name    string // the account's id or the token's name, for people and for the audit trail
	TokenID string // or the id of a session of a browser
	// Account is the id of the account that it acts for; empty: a team's own token or
	// the operator's.
	Account string
	// Operator may act in every team and on the platform; the rest is empty.
	Operator bool
	// Team and Role are set where the caller has one team; an account with several has
	// [Principal.Memberships] only, and names the team in its requests.
	Team holdfast.TeamID
	Role Role
	// Memberships are the teams of an account that has several, by team.
	Memberships []Membership
	// Restricted says that a token was made to do less than its account may.
	Restricted bool
}

// RoleIn is the role in a team; empty without one. An operator is an admin of every
// team.
func (p Principal) RoleIn(team holdfast.TeamID) Role {
	switch {
	case team == "":
		return ""
	case p.Operator:
		return Admin
	case p.Team == team:
		return p.Role
	}
	for _, m := range p.Memberships {
		if m.Team == team {
			return m.Role
		}
	}
	return ""
}

// In says whether the team's things exist for the principal.
func (p Principal) In(team holdfast.TeamID) bool { return p.May(team, Viewer) }

// May says whether the principal has at least that role in the team. An operator may
// everything, also where there is no team.
func (p Principal) May(team holdfast.TeamID, role Role) bool {
	return p.Operator || p.RoleIn(team).AtLeast(role)
}

// Teams are the teams of the principal, by id; none of an operator, who has all.
func (p Principal) Teams() []holdfast.TeamID {
	if p.Team != "" {
		return []holdfast.TeamID{p.Team}
	}
	teams := make([]holdfast.TeamID, 0, len(p.Memberships))
	for _, m := range p.Memberships {
		teams = append(teams, m.Team)
	}
	return teams
}

// Best is the highest role that the principal has in any team.
func (p Principal) Best() Role {
	best := p.Role
	for _, m := range p.Memberships {
		if m.Role.AtLeast(best) || best == "" {
			best = m.Role
		}
	}
	return best
}

// restrict is what is left of an account's rights for a token that is limited to a
// team (empty: to all of them) and to a role (empty: to the account's own).
func restrict(a Account, team holdfast.TeamID, role Role) Principal {
	p := Principal{Name: a.ID, Account: a.ID, Restricted: team != "" || role != ""}
	if a.IsOperator() && !p.Restricted {
		p.Operator = true
		return p
	}
	memberships := a.Effective()
	if a.IsOperator() && team != "" {
		memberships = []Membership{{team, Admin}}
	}
	for _, m := range memberships {
		if team != "" && m.Team != team {
			continue
		}
		if role != "" {
			m.Role = lower(m.Role, role)
		}
		p.Memberships = append(p.Memberships, m)
	}
	if len(p.Memberships) == 1 {
		p.Team, p.Role, p.Memberships = p.Memberships[0].Team, p.Memberships[0].Role, nil
	}
	return p
}

// merged are memberships of two origins, the higher role of each team, by team.
func merged(lists ...[]Membership) []Membership {
	var out []Membership
	for _, m := range slices.Concat(lists...) {
		i, found := slices.BinarySearchFunc(out, m.Team, func(have Membership, team holdfast.TeamID) int {
			switch {
			case have.Team < team:
				return -1
			case have.Team > team:
				return 1
			}
			return 0
		})
		switch {
		case !found:
			out = slices.Insert(out, i, m)
		case m.Role.AtLeast(out[i].Role):
			out[i].Role = m.Role
		}
	}
	return out
}
