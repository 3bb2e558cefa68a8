package launch

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// The readers of the policy, as the arms of its availability are counted.
const (
	readerGate = "gate" // slots and dollars
	readerWalk = "walk" // the windows of credentials
)

// WindowCeiling is up to which utilisation of an account's window a workload may
// start.
type WindowCeiling struct {
	Axis holdfast.Axis
	// Deployment is the cap that the deployment enforces, for everybody; zero: it is
	// not enforced, and then nothing is, whatever is reserved.
	Deployment holdfast.BasisPoints
	// Effective is the cap for this workload: the deployment's less what is reserved
	// for others. It is never above Deployment.
	Effective holdfast.BasisPoints
	// HeldOut says that others have reserved all of it. Effective is zero then, which
	// is a refusal and not "not enforced".
	HeldOut bool
}

// WindowPolicy is the policy of windows for one workload, as the credential walk
// judges by it and as a run's message carries it.
type WindowPolicy struct {
	Windows []WindowCeiling   // five hours, then the week
	State   platformcfg.State // how well the policy was known
}

// WindowPolicy is the second reader of the policy (ADR-155 §8), with the same four
// arms as the gate. Fresh and stale lower the ceilings by what is reserved for
// others; absent lowers nothing. Never lowers nothing either, because nobody knows
// by how much, and is logged and counted: the reserve is not held for that run. An
// unknown deployment cap is an error: it is not the absence of one.
func (s *Service) WindowPolicy(ctx context.Context, w Workload, run holdfast.RunID) (WindowPolicy, error) {
	caps, state := s.Settings.UsageCaps.Lookup(ctx)
	if !state.Known() {
		return WindowPolicy{}, fmt.Errorf("%w: the usage-caps setting was never read", ErrUnavailable)
	}
	policy, state := s.Settings.BudgetFloor.Lookup(ctx)
	held := s.policyHeld(ctx, readerWalk, state, run)
	p := WindowPolicy{State: state}
	for _, axis := range []holdfast.Axis{holdfast.AxisFiveHour, holdfast.AxisWeek} {
		ceiling := WindowCeiling{Axis: axis, Deployment: caps.Cap(axis)}
		ceiling.Effective = ceiling.Deployment
		if held {
			ceiling.Effective, ceiling.HeldOut = policy.WindowCeiling(w.Identity(), axis, ceiling.Deployment, s.now())
		}
		p.Windows = append(p.Windows, ceiling)
	}
	return p, nil
}

// policyHeld says whether a reader holds what the policy reserves, and logs and
// counts the two arms in which the policy may not be the one that is written.
func (s *Service) policyHeld(ctx context.Context, reader string, state platformcfg.State, run holdfast.RunID) bool {
	if state != platformcfg.Stale && state != platformcfg.Never {
		return true
	}
	if f := s.options.Events.PolicyUnavailable; f != nil {
		f(reader, state)
	}
	if state == platformcfg.Stale {
		s.log.WarnContext(ctx, "the policy cannot be read: what was last known of it stays reserved", "reader", reader, "run", run)
		return true
	}
	s.log.WarnContext(ctx, "the policy was never read: nothing is held back for anybody", "reader", reader, "run", run)
	s.failedOpen("policy")
	return false
}
