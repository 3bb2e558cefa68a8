package launch

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/botsource"
)

// Foresight says of launches that are kept for later, such as a schedule's, what would
// refuse them for good as things stand: a bot that is not there, inputs that it does
// not take, a pool that takes nothing. It is no part of the gate, which judges each
// launch when it comes: a bot may be made, or removed, in between. One is for one
// answer: it looks at each bot once.
type Foresight struct {
	service *Service
	seen    map[foreseen]resolution
}

type foreseen struct {
	team holdfast.TeamID
	bot  string
}

type resolution struct {
	found botsource.Resolved
	ok    bool
	err   error
}

// Foresight begins an answer.
func (s *Service) Foresight() *Foresight {
	return &Foresight{service: s, seen: map[foreseen]resolution{}}
}

// Warnings are sentences for people; nil says that nothing is foreseen. What cannot be
// looked up now is said too, and is no error.
func (f *Foresight) Warnings(ctx context.Context, team holdfast.TeamID, bot string, inputs map[string]string, pool string) []string {
	var out []string
	r := f.resolve(ctx, team, bot)
	switch {
	case r.err != nil:
		out = append(out, fmt.Sprintf("whether the team %s has a bot %s could not be looked up now", team, bot))
	case !r.ok:
		out = append(out, fmt.Sprintf("the team %s has no bot %s: nothing is launched until it has one; holdfast bots list --team %s shows those that it can launch", team, bot, team))
	default:
		if denial := f.service.checkLane(r.found.Bot.Lane, false); denial.Denied() {
			out = append(out, denial.Public)
		}
		if _, err := fillInputs(r.found.Bot, inputs, false); err != nil {
			out = append(out, err.Error())
		}
	}
	if pool == "" {
		pool = DefaultPool
	}
	if err := f.service.checkPool(ctx, pool); isInvalid(err) {
		out = append(out, err.Error())
	}
	return out
}

func (f *Foresight) resolve(ctx context.Context, team holdfast.TeamID, bot string) resolution {
	key := foreseen{team, bot}
	r, known := f.seen[key]
	if !known {
		r.found, r.ok, r.err = f.service.Bots.Resolve(ctx, team, bot)
		f.seen[key] = r
	}
	return r
}
