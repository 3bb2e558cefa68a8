package api

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// Membership is a role in a team.
type Membership struct {
	Team string `json:"team"`
	Role string `json:"role" enum:"viewer,member,admin"`
}

// Account is a person or a program with roles in teams.
type Account struct {
	ID          string       `json:"id"`
	Kind        string       `json:"kind" enum:"user,service"`
	Name        string       `json:"name,omitempty"`
	Email       string       `json:"email,omitempty"`
	Disabled    bool         `json:"disabled"`
	Operator    bool         `json:"operator" doc:"it may act in every team and on the platform"`
	Memberships []Membership `json:"memberships" doc:"as they were given here"`
	Granted     []Membership `json:"granted,omitempty" doc:"from the groups of the last login; the next one replaces them"`
	// GrantedOperator says that a group made it an operator.
	GrantedOperator bool      `json:"granted_operator,omitempty" doc:"a group of the last login made it an operator"`
	LogsIn          bool      `json:"logs_in" doc:"somebody has logged in as it with a browser"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	LastSeenAt      time.Time `json:"last_seen_at,omitzero" doc:"at most a minute old"`
}

// AccountCreate makes an account.
type AccountCreate struct {
	ID          string       `json:"id" doc:"1 to 63 lower case letters, digits and dashes; it is the actor in the audit trail"`
	Kind        string       `json:"kind" enum:"user,service"`
	Name        string       `json:"name,omitempty" maxLength:"200"`
	Email       string       `json:"email,omitempty" maxLength:"254" doc:"the first login with it, verified by the provider, takes the account over"`
	Operator    bool         `json:"operator,omitempty"`
	Memberships []Membership `json:"memberships,omitempty"`
}

// AccountPatch changes what it names.
type AccountPatch struct {
	Name        *string       `json:"name,omitempty" maxLength:"200"`
	Email       *string       `json:"email,omitempty" maxLength:"254"`
	Disabled    *bool         `json:"disabled,omitempty" doc:"its tokens and sessions open nothing from the next request on"`
	Operator    *bool         `json:"operator,omitempty"`
	Memberships *[]Membership `json:"memberships,omitempty" doc:"replaces those that were given here"`
}

// Member is an account as its team sees it.
type Member struct {
	Account  string `json:"account"`
	Kind     string `json:"kind" enum:"user,service"`
	Name     string `json:"name,omitempty"`
	Role     string `json:"role" enum:"viewer,member,admin"`
	Source   string `json:"source" enum:"here,login" doc:"login: a group of the logins' provider gives it, and takes it"`
	Disabled bool   `json:"disabled,omitempty"`
}

// MemberPut gives an account a role in a team.
type MemberPut struct {
	Role string `json:"role" enum:"viewer,member,admin"`
}

// Me is who the caller is, and what it may do.
type Me struct {
	Name        string       `json:"name" doc:"the actor in the audit trail"`
	Account     string       `json:"account,omitempty" doc:"absent of a team's own token and the operator's"`
	TokenID     string       `json:"token_id"`
	Operator    bool         `json:"operator"`
	Memberships []Membership `json:"memberships" doc:"what this token may do; an operator has none and may everything"`
	Restricted  bool         `json:"restricted,omitempty" doc:"the token was made to do less than its account may"`
}

// PersonalTokenCreate asks for a token of an account.
type PersonalTokenCreate struct {
	Name      string    `json:"name" minLength:"1" maxLength:"200"`
	Team      string    `json:"team,omitempty" doc:"the one team that it is limited to; absent: all of the account's"`
	Role      string    `json:"role,omitempty" enum:"viewer,member,admin" doc:"the most that it may; absent: what the account may"`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"absent: it does not expire"`
}

// PersonalToken is a token of an account, without its secret.
type PersonalToken struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Account    string    `json:"account"`
	Team       string    `json:"team,omitempty" doc:"the one team that it is limited to"`
	Role       string    `json:"role,omitempty" doc:"the most that it may"`
	CreatedAt  time.Time `json:"created_at"`
	CreatedBy  string    `json:"created_by,omitempty"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
}

// PersonalTokenIssued is a new token with its secret, which is shown this once.
type PersonalTokenIssued struct {
	PersonalToken
	Secret string `json:"token" doc:"the bearer token; it is not kept and cannot be shown again"`
}

// GroupRule gives whoever logs in as a member of a group a role in a team, or makes
// them an operator.
type GroupRule struct {
	Group    string          `json:"group" minLength:"1" maxLength:"200" doc:"as the provider's claim says it, to the letter"`
	Team     holdfast.TeamID `json:"team,omitempty"`
	Role     string          `json:"role,omitempty" enum:"viewer,member,admin"`
	Operator bool            `json:"operator,omitempty"`
}

// LoginRules say what the groups of a login mean.
type LoginRules struct {
	Groups []GroupRule `json:"groups,omitempty"`
	SettingState
}
