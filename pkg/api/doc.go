// Package api is the wire: one Go struct per JSON document of the HTTP API, shared
// by the server, the typed client and the commands. It holds no rules. The OpenAPI
// document is generated from these structs, so a field's `doc` tag is the text that
// users read, and a field without `omitempty` or `omitzero` is required in requests
// and always there in answers.
//
// Conventions: snake_case; times are RFC 3339 in UTC; fields named …_usd are JSON
// numbers and are also read from decimal strings; amounts are {value, unit}; limits
// are absent (inherit), null (unlimited) or a number (0 lets nothing launch).
package api

import "github.com/holdfast-io/holdfast"

// Page is one page of a list. NextCursor is empty on the last one.
type Page[T any] struct {
	Items      []T    `json:"items" nullable:"false"`
	NextCursor string `json:"next_cursor,omitempty" doc:"pass it as ?cursor= for the next page; absent on the last one"`
}

// Amount is a number with its unit. Value is decimal text, so that no reader rounds
// it: "2.500000" of dollars, "3" of slots or runs, "20.00" of percent.
type Amount struct {
	Value string `json:"value" example:"2.500000"`
	Unit  string `json:"unit" enum:"usd,slots,runs,percent,none"`
}

// AmountOf is an amount on the wire.
func AmountOf(a holdfast.Amount) Amount { return Amount{Value: a.Value(), Unit: a.Unit().String()} }

// LimitOf is a limit on the wire; nil, which is null, is unlimited.
func LimitOf(l holdfast.Limit) *Amount {
	if l.None() {
		return nil
	}
	a := AmountOf(l.Max())
	return &a
}

// Identity is who a launch is, as the server resolved it.
type Identity struct {
	Bot  string `json:"bot"`
	Tier string `json:"tier" enum:"platform,team"`
	Team string `json:"team,omitempty" doc:"the owning team, of a team's own bot only"`
}

// IdentityOf is an identity on the wire.
func IdentityOf(i holdfast.Identity) Identity {
	return Identity{Bot: string(i.Bot()), Tier: string(i.Tier()), Team: string(i.Team())}
}

// String is the identity's one text form, as holders are printed: "platform/review-pr".
func (i Identity) String() string {
	if i.Tier == string(holdfast.TierTeam) {
		return "team:" + i.Team + "/" + i.Bot
	}
	if i.Bot == "" {
		return ""
	}
	return i.Tier + "/" + i.Bot
}
