package api

import "time"

// Organisation is a group of teams with limits over all of them together.
type Organisation struct {
	ID              string     `json:"id"`
	Name            string     `json:"name,omitempty"`
	Suspended       bool       `json:"suspended"`
	SuspendedReason string     `json:"suspended_reason,omitempty"`
	Limits          TeamLimits `json:"limits" doc:"over all its teams together; absent is unlimited, 0 lets nothing launch"`
	Teams           []string   `json:"teams" nullable:"false" doc:"its members, by id"`
	CreatedAt       time.Time  `json:"created_at"`
	UpdatedAt       time.Time  `json:"updated_at"`
}

// OrganisationCreate creates an organisation. Teams join it by their own field
// "organisation".
type OrganisationCreate struct {
	ID     string     `json:"id" doc:"1 to 63 lower case letters, digits and dashes"`
	Name   string     `json:"name,omitempty" maxLength:"200"`
	Limits TeamLimits `json:"limits,omitzero"`
}

// OrganisationPatch changes what it names. Limits are replaced one by one: one that
// is absent stays as it is, null is unlimited.
type OrganisationPatch struct {
	Name            *string     `json:"name,omitempty" maxLength:"200"`
	Suspended       *bool       `json:"suspended,omitempty"`
	SuspendedReason *string     `json:"suspended_reason,omitempty" maxLength:"500"`
	Limits          *TeamLimits `json:"limits,omitempty"`
}
