package server

import (
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// RunOnWire is a run as the API shows it.
func RunOnWire(r runs.Run) api.Run {
	out := api.Run{
		ID: string(r.ID), Team: string(r.Team), Identity: api.IdentityOf(r.Identity),
		Status: string(r.Status), StatusReason: string(r.StatusReason), Detail: r.Detail, ExitCode: r.ExitCode,
		BudgetUSD: r.Budget, AskedUSD: r.Asked, CutBy: string(r.CutBy), SpentUSD: r.Spent, Allocations: make([]api.Allocation, 0, len(r.Holds)), Unheld: r.Unheld, DecisionID: r.DecisionID,
		Repo: r.Repo, Inputs: r.Inputs, Pool: r.Pool, External: r.External, Caller: r.Caller, Runner: r.Runner,
		Attempt: r.Attempt, Generation: r.Generation, Skipped: r.SkippedReports, CancelAsked: r.CancelAsked,
		CreatedAt: utc(r.CreatedAt), QueuedAt: utc(r.QueuedAt), StartedAt: utc(r.StartedAt), EndedAt: utc(r.EndedAt), ReportedAt: utc(r.ReportedAt),
	}
	if r.Retry != (runs.Retry{}) {
		out.Retry = &api.RunRetry{Tries: r.Retry.Tries, Refusals: r.Retry.Refusals, Last: r.Retry.Last, GivenUp: r.Retry.GivenUp}
		if r.RetryOpen() {
			out.Retry.NotBefore = utc(r.Retry.NotBefore)
		}
	}
	for _, p := range r.Past {
		out.Past = append(out.Past, api.RunAttempt{
			Attempt: p.Attempt, Status: string(p.Status), StatusReason: string(p.Reason), Detail: p.Detail, Runner: p.Runner,
			StartedAt: utc(p.StartedAt), EndedAt: utc(p.EndedAt), SpentUSD: p.Spent, DecisionID: p.DecisionID,
		})
	}
	for _, hold := range r.Holds {
		out.Allocations = append(out.Allocations, api.Allocation{ID: string(hold.ID), Subject: hold.Subject.String(), Amount: api.AmountOf(hold.AmountOf())})
	}
	self := "/api/runs/" + out.ID
	out.Links = map[string]string{"self": self, "explain": self + "/explain"}
	if !r.Status.Ended() {
		out.Links["cancel"] = self + "/cancel"
	}
	if r.External {
		if !r.Status.Ended() {
			out.Links["heartbeat"], out.Links["settle"] = self+"/heartbeat", self+"/settle"
		}
	} else {
		out.Links["logs"] = self + "/logs"
	}
	return out
}

// wholeSeconds rounds up: a period below one second is not "never".
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// CapacityOnWire is a subject's balance as the API shows it.
func CapacityOnWire(v launch.SubjectView) api.SubjectCapacity {
	unit := v.Subject.Axis.Unit()
	amount := func(a holdfast.Amount) api.Amount { return api.AmountOf(holdfast.AmountOf(unit, a.Int())) }
	limit := func(l holdfast.Limit) *api.Amount {
		if l.None() {
			return nil
		}
		a := amount(l.Max())
		return &a
	}
	out := api.SubjectCapacity{
		Subject: v.Subject.String(), Cap: limit(v.Cap), Settled: amount(v.Settled), Outstanding: amount(v.Outstanding),
		Withheld: amount(v.Withheld), Free: limit(v.Free), Over: amount(v.Over),
		Holders: make([]api.Holding, 0, len(v.Holders)), NextExpiry: utc(v.NextExpiry),
	}
	for _, h := range v.Holders {
		holder := h.Holder.String()
		if holder == "" {
			holder = "others"
		}
		out.Holders = append(out.Holders, api.Holding{Holder: holder, Reserved: amount(h.Reserved), Settled: amount(h.Settled), Outstanding: amount(h.Outstanding), FreeFor: limit(h.FreeFor)})
	}
	for _, e := range v.Entries {
		out.Entries = append(out.Entries, api.Entry{
			Allocation: string(e.Allocation), Holder: e.Holder.String(), Run: string(e.Run), Team: string(e.Team),
			Amount: amount(e.Amount), Spent: amount(e.Spent), AcquiredAt: utc(e.AcquiredAt), ExpiresAt: utc(e.ExpiresAt), Confirmed: e.Confirmed,
		})
	}
	return out
}

func capacitiesOnWire(views []launch.SubjectView) []api.SubjectCapacity {
	out := make([]api.SubjectCapacity, 0, len(views))
	for _, v := range views {
		out = append(out, CapacityOnWire(v))
	}
	return out
}

func teamOnWire(t teams.Team) api.Team {
	return api.Team{
		ID: string(t.ID), Name: t.Name, Organisation: string(t.Organisation), Suspended: t.Suspended, SuspendedReason: t.SuspendedReason,
		Limits: api.TeamLimits(t.Limits), CreatedAt: utc(t.CreatedAt), UpdatedAt: utc(t.UpdatedAt),
	}
}

func tokenOnWire(t auth.Token) api.Token {
	return api.Token{
		ID: t.ID, Name: t.Name, Team: string(t.Team), Role: string(t.Role),
		CreatedAt: utc(t.CreatedAt), ExpiresAt: utc(t.ExpiresAt), LastUsedAt: utc(t.LastUsedAt), RevokedAt: utc(t.RevokedAt),
	}
}

func botOnWire(r botsource.Resolved) api.Bot {
	b := r.Bot
	out := api.Bot{
		BotBody: api.BotBody{
			Bot: string(b.Name), Lane: string(b.Lane), Command: b.Command, Prompt: b.Prompt, Model: b.Model,
			BudgetUSD: b.BudgetUSD, MinBudgetUSD: b.MinBudget, MaxDuration: b.MaxDuration, Retries: b.Retries, Env: b.Env,
			RepoURL: b.RepoURL, Ref: b.Ref, Inputs: b.Inputs, Description: b.Description,
		},
		Tier: string(r.Identity.Tier()), Team: string(r.Identity.Team()), Origin: string(r.Origin),
	}
	for _, need := range b.Needs {
		out.Needs = append(out.Needs, string(need))
	}
	return out
}

func botFromWire(name holdfast.BotID, b api.BotBody) holdfast.Bot {
	out := holdfast.Bot{
		Name: name, Lane: holdfast.Lane(b.Lane), Command: b.Command, Prompt: b.Prompt, Model: b.Model,
		BudgetUSD: b.BudgetUSD, MinBudget: b.MinBudgetUSD, MaxDuration: b.MaxDuration, Retries: b.Retries, Env: b.Env,
		RepoURL: b.RepoURL, Ref: b.Ref, Inputs: b.Inputs, Description: b.Description,
	}
	for _, need := range b.Needs {
		out.Needs = append(out.Needs, holdfast.Provider(need))
	}
	return out
}
