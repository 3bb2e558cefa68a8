package server

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// policyStanding is how well the policy is known. Why it cannot be read is for an
// operator: it names what is inside.
func (s *Server) policyStanding(c call) api.PolicyStanding {
	standing := s.deps.Settings.BudgetFloor.Standing()
	wire := api.PolicyStanding{State: string(standing.State), AsOf: utc(standing.AsOf)}
	if c.Operator && standing.Err != nil {
		wire.Reason = holdfast.Clip(standing.Err.Error(), 300)
	}
	return wire
}

// policyWarning says what is in force while the policy cannot be read; empty while
// it can, and before anybody has asked for it.
func (s *Server) policyWarning() string {
	standing := s.deps.Settings.BudgetFloor.Standing()
	switch {
	case !standing.InDoubt():
		return ""
	case standing.State == platformcfg.Never:
		return "the policy of reservations was never read since the start: nothing is held back for anybody, and launches are admitted without an allocation; bring the record store back"
	}
	return fmt.Sprintf("the policy of reservations cannot be read: what was known of it at %s stays reserved, and a later change is not in force here; bring the record store back", standing.AsOf.UTC().Format(time.RFC3339))
}
