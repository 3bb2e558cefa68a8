package launch

import (
	"context"
	"errors"
	"reflect"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// CallerCheckTypes are the types that a check before the resolution is given.
func CallerCheckTypes() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[admission](), reflect.TypeFor[call]()}
}

// Judged is everything that identity and policy add to a reserve: the rules in force,
// the bot that is served, who it is, and what the policy reserves on the subject.
func (s *Service) Judged(ctx context.Context, o teams.Team, bot string, subject holdfast.Subject) (Workload, capacityledger.Terms, error) {
	rules, err := s.readRules(ctx)
	if err != nil {
		return Workload{}, capacityledger.Terms{}, err
	}
	found, ok, err := s.Bots.Resolve(ctx, o.ID, bot)
	if err != nil || !ok {
		return Workload{}, capacityledger.Terms{}, errors.Join(err, ErrNotFound)
	}
	return WorkloadOf(found), rules.terms(subject, owners{team: o}, s.now()), nil
}
