package launch

import (
	"context"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// New is a service over its parts.
func New(deps Deps, options Options) (*Service, error) {
	return &Service{Deps: deps, options: options}, nil
}

// Launch judges a request and, when it is admitted, holds its capacity, writes its
// document and queues it. Exactly one of the three is set. An external run is
// running when this returns.
func (s *Service) Launch(ctx context.Context, who auth.Principal, r Request) (runs.Run, holdfast.Denial, error) {
	return runs.Run{}, holdfast.Denial{}, ErrUnavailable
}

// Preview answers what a launch would get, by the same checks, and takes nothing.
func (s *Service) Preview(ctx context.Context, who auth.Principal, r Request) (Preview, error) {
	return Preview{}, ErrUnavailable
}

// LeaseOf is the lease of an external run as its last renewal set it.
func (s *Service) LeaseOf(run runs.Run) Lease { return Lease{} }

// Heartbeat renews an external run; spent is cumulative.
func (s *Service) Heartbeat(ctx context.Context, who auth.Principal, id holdfast.RunID, spent holdfast.MicroUSD) (Lease, error) {
	return Lease{}, ErrUnavailable
}

// Settle ends an external run. closed says whether this call ended it.
func (s *Service) Settle(ctx context.Context, who auth.Principal, id holdfast.RunID, spent holdfast.MicroUSD, outcome string) (closed bool, err error) {
	return false, ErrUnavailable
}

// Cancel ends a queued run and asks a running one to stop.
func (s *Service) Cancel(ctx context.Context, who auth.Principal, id holdfast.RunID) (runs.Run, error) {
	return runs.Run{}, ErrUnavailable
}

// Resume brings a failed_resumable or parked run back through the gate.
func (s *Service) Resume(ctx context.Context, who auth.Principal, id holdfast.RunID) (runs.Run, holdfast.Denial, error) {
	return runs.Run{}, holdfast.Denial{}, ErrUnavailable
}

// Explain tells the story of a run or of a decision, by its id.
func (s *Service) Explain(ctx context.Context, who auth.Principal, id string) (Explanation, error) {
	return Explanation{}, ErrUnavailable
}

// Claim answers a runner that wants to begin, or to go on, with a run.
func (s *Service) Claim(ctx context.Context, c queue.Claim) (queue.Grant, error) {
	return queue.Grant{}, ErrUnavailable
}

// Apply takes a runner's report.
func (s *Service) Apply(ctx context.Context, r queue.Report) error { return ErrUnavailable }

// ReleaseAllocation takes an allocation away, for an operator, and fences its run.
// closed says whether this call closed it.
func (s *Service) ReleaseAllocation(ctx context.Context, who auth.Principal, id holdfast.AllocationID, reason string) (closed bool, err error) {
	return false, ErrUnavailable
}

// Capacity shows the subjects of a team, or, to an operator that names none, of all
// teams, and those of the platform.
func (s *Service) Capacity(ctx context.Context, who auth.Principal, team string) ([]SubjectView, error) {
	return nil, ErrUnavailable
}

// CapacitySubject shows one subject with its open entries.
func (s *Service) CapacitySubject(ctx context.Context, who auth.Principal, subject holdfast.Subject) (SubjectView, error) {
	return SubjectView{}, ErrUnavailable
}

// Recover puts things right at the start of a process that knows its former self,
// and every runner of it, to be dead.
func (s *Service) Recover(ctx context.Context) error { return ErrUnavailable }

// Liveness says whether the holder of an allocation lives; it is the sweeper's.
func (s *Service) Liveness(ctx context.Context, a capacityledger.Allocation) (capacityledger.Liveness, error) {
	return capacityledger.LivenessUnknown, nil
}

// Sweep makes one pass of every sweep, in their order.
func (s *Service) Sweep(ctx context.Context) error { return ErrUnavailable }

// Run sweeps every period until ctx ends.
func (s *Service) Run(ctx context.Context) error { <-ctx.Done(); return nil }
