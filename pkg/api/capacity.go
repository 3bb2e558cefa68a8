package api

import "time"

// SubjectCapacity is one subject's balance. Withheld and Free are those of a caller
// without a reservation.
type SubjectCapacity struct {
	Subject     string    `json:"subject" example:"team/acme/usd@2026-11"`
	Cap         *Amount   `json:"cap" doc:"null: unlimited"`
	Settled     Amount    `json:"settled"`
	Outstanding Amount    `json:"outstanding"`
	Withheld    Amount    `json:"withheld"`
	Free        *Amount   `json:"free" doc:"null: unlimited"`
	Over        Amount    `json:"over" doc:"what is promised and used beyond the cap"`
	Holders     []Holding `json:"holders" nullable:"false"`
	NextExpiry  time.Time `json:"next_expiry,omitzero"`
	Entries     []Entry   `json:"entries,omitempty" doc:"the open allocations; of a single subject only"`
}

// Entry is one open allocation of a subject.
type Entry struct {
	Allocation string    `json:"allocation"`
	Holder     string    `json:"holder"`
	Run        string    `json:"run"`
	Team       string    `json:"team,omitempty"`
	Amount     Amount    `json:"amount"`
	Spent      Amount    `json:"spent"`
	AcquiredAt time.Time `json:"acquired_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	Confirmed  bool      `json:"confirmed" doc:"its run has renewed it at least once"`
}

// Capacity lists subjects.
type Capacity struct {
	Subjects []SubjectCapacity `json:"subjects" nullable:"false"`
	Policy   PolicyStanding    `json:"policy" doc:"how well the policy is known that these figures are by"`
}

// PolicyStanding says how well the policy of reservations is known.
type PolicyStanding struct {
	State  string    `json:"state" enum:"fresh,stale,absent,never" doc:"fresh; stale: the last known one is held; absent: nothing is written; never: nobody knows what is reserved, and launches are admitted without an allocation"`
	AsOf   time.Time `json:"as_of,omitzero" doc:"when it was read from the store; absent: never"`
	Reason string    `json:"reason,omitempty" doc:"why it cannot be read now; for an operator"`
}

// ReleaseRequest gives a reason for taking an allocation away.
type ReleaseRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"why; it is kept in the audit trail"`
}

// ReleaseAnswer says whether this call closed the allocation.
type ReleaseAnswer struct {
	Closed bool `json:"closed"`
}
