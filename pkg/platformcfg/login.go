package platformcfg

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// GroupRule gives whoever logs in as a member of a group a role in a team, or makes
// them an operator.
type GroupRule struct {
	Group    string          `json:"group"` // as the provider's claim says it, to the letter
	Team     holdfast.TeamID `json:"team,omitempty"`
	Role     string          `json:"role,omitempty"` // viewer, member or admin
	Operator bool            `json:"operator,omitempty"`
}

// LoginRules say what the groups of a login mean. Who is in no group of the list may
// log in only as an account that an operator made.
type LoginRules struct {
	Groups    []GroupRule `json:"groups,omitempty"`
	UpdatedAt time.Time   `json:"updated_at,omitzero"`
}

const (
	maxGroupRules = 500
	maxGroup      = 200
)

func (l LoginRules) checked() (LoginRules, error) {
	if len(l.Groups) > maxGroupRules {
		return l, invalid("groups", "there are too many", fmt.Sprintf("at most %d", maxGroupRules))
	}
	l.Groups = slices.Clone(l.Groups)
	for i, rule := range l.Groups {
		field := fmt.Sprintf("groups[%d].", i)
		switch {
		case rule.Group == "" || len(rule.Group) > maxGroup || holdfast.Clip(rule.Group, maxGroup) != rule.Group:
			return l, invalid(field+"group", "it is missing, too long or holds control characters", fmt.Sprintf("1 to %d bytes, as the provider says it", maxGroup))
		case rule.Operator && (rule.Team != "" || rule.Role != ""):
			return l, invalid(field+"operator", "a team or a role is given beside it", "operator alone: an operator may act in every team")
		case rule.Operator:
			continue
		}
		team, err := holdfast.FoldName(string(rule.Team))
		if err != nil {
			return l, holdfast.InField(field+"team", err)
		}
		l.Groups[i].Team = holdfast.TeamID(team)
		if rule.Role != "viewer" && rule.Role != "member" && rule.Role != "admin" {
			return l, invalid(field+"role", fmt.Sprintf("%q is not a role", holdfast.Clip(rule.Role, 40)), "viewer, member, admin")
		}
		if slices.ContainsFunc(l.Groups[:i], func(other GroupRule) bool { return other == l.Groups[i] }) {
			return l, invalid(field+"group", "the rule stands there twice", "each rule once")
		}
	}
	return l, nil
}
