package webhook_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

func TestEachEventOfEachForgeMatchesTheRulesThatWantIt(t *testing.T) {
	only := func(actions ...webhook.Action) webhook.Rule {
		return webhook.Rule{Bot: "probe", Actions: actions}
	}
	all := webhook.Rule{Bot: "probe", Actions: webhook.Actions(), Draft: webhook.Include, Forks: webhook.Include}
	for _, row := range []struct {
		forge webhook.Forge
		name  string
		rule  webhook.Rule
		wants bool
	}{
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe"}, true},
		{webhook.GitHub, "github_synchronize", webhook.Rule{Bot: "probe"}, true},
		{webhook.GitHub, "github_ready_for_review", webhook.Rule{Bot: "probe"}, true},
		{webhook.GitHub, "github_closed", webhook.Rule{Bot: "probe"}, false},
		{webhook.GitHub, "github_labeled", webhook.Rule{Bot: "probe"}, false},
		{webhook.GitHub, "github_labeled", only(webhook.Labeled), true},
		{webhook.GitHub, "github_closed", only(webhook.Closed), true},
		{webhook.GitHub, "github_merged", only(webhook.Closed), false},
		{webhook.GitHub, "github_merged", only(webhook.Merged), true},
		{webhook.GitHub, "github_draft", webhook.Rule{Bot: "probe"}, false},
		{webhook.GitHub, "github_draft", webhook.Rule{Bot: "probe", Draft: webhook.Exclude}, false},
		{webhook.GitHub, "github_draft", webhook.Rule{Bot: "probe", Draft: webhook.Include}, true},
		{webhook.GitHub, "github_draft", webhook.Rule{Bot: "probe", Draft: webhook.Only}, true},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Draft: webhook.Only}, false},
		{webhook.GitHub, "github_fork", webhook.Rule{Bot: "probe"}, false},
		{webhook.GitHub, "github_fork", webhook.Rule{Bot: "probe", Forks: webhook.Include}, true},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Forks: webhook.Only}, false},
		{webhook.GitHub, "github_labeled", webhook.Rule{Bot: "probe", Actions: []webhook.Action{webhook.Labeled}, Labels: []string{"Needs-Agent"}}, true},
		{webhook.GitHub, "github_labeled", webhook.Rule{Bot: "probe", Actions: []webhook.Action{webhook.Labeled}, Labels: []string{"wontfix"}}, false},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Repo: "acme/*"}, true},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Repo: "ACME/Widgets"}, true},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Repo: "acme/gadgets"}, false},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Repo: "*"}, false},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Base: "main"}, true},
		{webhook.GitHub, "github_opened", webhook.Rule{Bot: "probe", Base: "release-*"}, false},
		{webhook.GitLab, "gitlab_open", webhook.Rule{Bot: "probe"}, true},
		{webhook.GitLab, "gitlab_open", webhook.Rule{Bot: "probe", Repo: "acme/*"}, false},
		{webhook.GitLab, "gitlab_open", webhook.Rule{Bot: "probe", Repo: "acme/**"}, true},
		{webhook.GitLab, "gitlab_open", webhook.Rule{Bot: "probe", Repo: "acme/backend/**"}, true},
		{webhook.GitLab, "gitlab_open", webhook.Rule{Bot: "probe", Repo: "acme/back/**"}, false},
		{webhook.GitLab, "gitlab_draft", webhook.Rule{Bot: "probe"}, false},
		{webhook.GitLab, "gitlab_push", only(webhook.Synchronize), true},
		{webhook.GitLab, "gitlab_ready", only(webhook.ReadyForReview), true},
		{webhook.GitLab, "gitlab_ready", only(webhook.Synchronize), false},
		{webhook.GitLab, "gitlab_labeled", only(webhook.Labeled), true},
		{webhook.GitLab, "gitlab_labeled", only(webhook.Unlabeled), false},
		{webhook.GitLab, "gitlab_edited", webhook.Rule{Bot: "probe"}, false},
		{webhook.GitLab, "gitlab_edited", only(webhook.Edited), true},
		{webhook.GitLab, "gitlab_merge", only(webhook.Merged), true},
		{webhook.GitLab, "gitlab_close", only(webhook.Closed), true},
		{webhook.GitLab, "gitlab_fork", webhook.Rule{Bot: "probe"}, false},
		{webhook.GitLab, "gitlab_fork", all, true},
		{webhook.Forgejo, "forgejo_opened", webhook.Rule{Bot: "probe"}, true},
		{webhook.Forgejo, "forgejo_draft", webhook.Rule{Bot: "probe"}, false},
		{webhook.Forgejo, "forgejo_synchronized", webhook.Rule{Bot: "probe"}, true},
		{webhook.Forgejo, "forgejo_label_updated", only(webhook.Labeled), true},
		{webhook.Forgejo, "forgejo_merged", only(webhook.Merged), true},
		{webhook.Forgejo, "forgejo_fork", webhook.Rule{Bot: "probe"}, false},
	} {
		w := newWorld(t)
		h := w.hook(row.forge, row.rule)
		answer, err := w.receive(h, fixture(t, row.forge, eventOf[row.forge], row.name, "1"))
		if err != nil || (answer.Run != "") != row.wants {
			t.Errorf("%s with %+v: %+v, %v; want a run: %t", row.name, row.rule, answer, err, row.wants)
		}
	}
}

func TestTheFirstRuleThatMatchesLaunches(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub,
		webhook.Rule{Repo: "acme/gadgets", Bot: "docs-writer"},
		webhook.Rule{Repo: "acme/widgets", Bot: "review-pr"},
		webhook.Rule{Bot: "probe"},
	)
	w.launched(h, opened(t, webhook.GitHub, 1))
	if run := w.All()[0]; run.Identity != holdfast.PlatformBot("review-pr") {
		t.Errorf("%s was launched", run.Identity)
	}
}

func TestForgejoSaysInItsEventNameWhatWasDone(t *testing.T) {
	for _, event := range []string{"pull_request", "pull_request_sync", "pull_request_label"} {
		w := newWorld(t)
		w.launched(w.hook(webhook.Forgejo), fixture(t, webhook.Forgejo, event, "forgejo_synchronized", "1"))
	}
}

func TestWhatAnEventHoldsIsNoTemplate(t *testing.T) {
	w := newWorld(t)
	bot := holdfast.Bot{Name: "reader", Lane: holdfast.LaneCommand, Command: []string{"read", "{{title}}"}, Inputs: map[string]holdfast.BotInput{"title": {}}}
	if _, _, err := w.Bots.Put(t.Context(), w.Clock.Now(), "acme", bot, "dev"); err != nil {
		t.Fatal(err)
	}
	h := w.hook(webhook.GitHub, webhook.Rule{Bot: "reader", Inputs: map[string]string{"title": "<{{title}}> by {{author}}"}})
	d := opened(t, webhook.GitHub, 1)
	body := strings.Replace(string(d.body), "Count what is promised, too", "{{clone_url}} $(reboot)", 1)
	w.launched(h, signed(webhook.GitHub, "pull_request", "1", []byte(body)))
	if got := w.All()[0].Inputs["title"]; got != "<{{clone_url}} $(reboot)> by mona" {
		t.Errorf("the input is %q", got)
	}
}

func TestHooksThatCannotBeMeantAreRefusedWithTheirField(t *testing.T) {
	w := newWorld(t)
	for field, change := range map[string]func(*webhook.Hook){
		"team":                 func(h *webhook.Hook) { h.Team = "A" },
		"name":                 func(h *webhook.Hook) { h.Name = "" },
		"forge":                func(h *webhook.Hook) { h.Forge = "sourceforge" },
		"rules":                func(h *webhook.Hook) { h.Rules = nil },
		"rules[0].bot":         func(h *webhook.Hook) { h.Rules[0].Bot = "" },
		"rules[0].repo":        func(h *webhook.Hook) { h.Rules[0].Repo = "a[" },
		"rules[0].base":        func(h *webhook.Hook) { h.Rules[0].Base = strings.Repeat("x", 300) },
		"rules[0].actions":     func(h *webhook.Hook) { h.Rules[0].Actions = []webhook.Action{"renamed"} },
		"rules[0].draft":       func(h *webhook.Hook) { h.Rules[0].Draft = "maybe" },
		"rules[0].forks":       func(h *webhook.Hook) { h.Rules[0].Forks = "maybe" },
		"rules[0].labels":      func(h *webhook.Hook) { h.Rules[0].Labels = make([]string, 21) },
		"rules[0].inputs.pr":   func(h *webhook.Hook) { h.Rules[0].Inputs = map[string]string{"pr": "{{secret}}"} },
		"rules[0].budget_usd":  func(h *webhook.Hook) { h.Rules[0].BudgetUSD = new(holdfast.MicroUSD) },
		"rules[0].inputs.long": func(h *webhook.Hook) { h.Rules[0].Inputs = map[string]string{"long": strings.Repeat("x", 40_000)} },
	} {
		h := webhook.Hook{Team: "acme", Name: "n", Forge: webhook.GitHub, Rules: []webhook.Rule{{Bot: "probe"}}}
		change(&h)
		_, err := w.hooks.Create(t.Context(), h, secret)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%v, want the field %s", err, field)
		}
	}
	if list, _, err := w.hooks.List(t.Context(), "acme", 0, ""); err != nil || len(list) != 0 {
		t.Errorf("%d hooks, %v", len(list), err)
	}
	surfacetest.Must(w.hooks.Create(t.Context(), webhook.Hook{Team: "acme", Name: "n", Forge: webhook.GitHub, Rules: []webhook.Rule{{Bot: "probe", Inputs: map[string]string{"x": "{{ unclosed"}}}}, secret))(t)
}
