package budgetfloor_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// decode reads a policy that must be right.
func decode(t *testing.T, text string) budgetfloor.Policy {
	t.Helper()
	p, err := budgetfloor.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

var (
	review     = holdfast.PlatformBot("review-pr")
	feature    = holdfast.PlatformBot("feature-dev")
	acmeReview = holdfast.TeamBot("acme", "review-pr")
)

func TestAPolicyThatCannotBeMeantIsRefusedAtItsField(t *testing.T) {
	for _, row := range []struct{ name, text, field string }{
		{"not JSON", `{"reservations":`, ""},
		{"an unknown field", `{"reservation":[]}`, "reservation"},
		{"an unknown field of a reservation", `{"reservations":[{"bot":"a"},{"bot":"b","slots":2}]}`, "reservations[1].slots"},
		{"an unknown field of a share", `{"repo_quotas":[{"repo":"a/b","share_of":{"name":"x"}}]}`, "repo_quotas[0].share_of.name"},
		{"no bot", `{"reservations":[{"concurrent_runs":2}]}`, "reservations[0].bot"},
		{"a blank bot", `{"reservations":[{"bot":"  "}]}`, "reservations[0].bot"},
		{"a bot that is no name", `{"reservations":[{"bot":"a/b"}]}`, "reservations[0].bot"},
		{"a tier that is none", `{"reservations":[{"bot":"a","tier":"org"}]}`, "reservations[0].tier"},
		{"a tier in capitals", `{"reservations":[{"bot":"a","tier":"Platform"}]}`, "reservations[0].tier"},
		{"a team's bot without a team", `{"reservations":[{"bot":"a","tier":"team"}]}`, "reservations[0].team"},
		{"a platform bot with a team", `{"reservations":[{"bot":"a","tier":"platform","team":"acme"}]}`, "reservations[0].team"},
		{"no tier with a team", `{"reservations":[{"bot":"a","team":"acme"}]}`, "reservations[0].team"},
		{"a team that is no name", `{"reservations":[{"bot":"a","tier":"team","team":"a|b"}]}`, "reservations[0].team"},
		{"101 percent", `{"reservations":[{"bot":"a","five_hour_percent":101}]}`, "reservations[0].five_hour_percent"},
		{"minus one percent", `{"reservations":[{"bot":"a","week_percent":-1}]}`, "reservations[0].week_percent"},
		{"half a percent", `{"reservations":[{"bot":"a","week_percent":0.5}]}`, "reservations[0].week_percent"},
		{"a word for a percent", `{"reservations":[{"bot":"a","week_percent":"20"}]}`, "reservations[0].week_percent"},
		{"minus one slot", `{"reservations":[{"bot":"a","concurrent_runs":-1}]}`, "reservations[0].concurrent_runs"},
		{"an absurd number of slots", `{"reservations":[{"bot":"a","concurrent_runs":1000000001}]}`, "reservations[0].concurrent_runs"},
		{"more slots than 64 bits hold", `{"reservations":[{"bot":"a","concurrent_runs":18446744073709551616}]}`, "reservations[0].concurrent_runs"},
		{"minus one dollar", `{"reservations":[{"bot":"b"},{"bot":"a","monthly_usd":-1}]}`, "reservations[1].monthly_usd"},
		{"an absurd amount", `{"reservations":[{"bot":"a","monthly_usd":1000000001}]}`, "reservations[0].monthly_usd"},
		{"a seventh decimal", `{"reservations":[{"bot":"a","monthly_usd":1.0000001}]}`, "reservations[0].monthly_usd"},
		{"a team in the list that is no name", `{"reservations":[{"bot":"a","teams":["x","y/z"]}]}`, "reservations[0].teams[1]"},
		{"a team's bot in another team", `{"reservations":[{"bot":"a","tier":"team","team":"acme","teams":["web"]}]}`, "reservations[0].teams[0]"},
		{"a time that is none", `{"reservations":[{"bot":"a","suspended_until":"soon"}]}`, "reservations[0].suspended_until"},
		{"one bot twice", `{"reservations":[{"bot":"a"},{"bot":"A","tier":"platform"}]}`, "reservations[1].bot"},
		{"one team's bot twice", `{"reservations":[{"bot":"a","tier":"team","team":"x"},{"bot":"a","tier":"team","team":"X"}]}`, "reservations[1].bot"},
		{"windows that sum to 101", `{"reservations":[{"bot":"a","five_hour_percent":60},{"bot":"b","five_hour_percent":41}]}`, "reservations[1].five_hour_percent"},
		{"weeks that sum to 110", `{"reservations":[{"bot":"a","week_percent":50},{"bot":"b"},{"bot":"c","week_percent":60}]}`, "reservations[2].week_percent"},
		{"a quota without a repository", `{"repo_quotas":[{"monthly_usd":5}]}`, "repo_quotas[0].repo"},
		{"a repository with blanks", `{"repo_quotas":[{"repo":"a b/c","monthly_usd":5}]}`, "repo_quotas[0].repo"},
		{"a quota of nothing", `{"repo_quotas":[{"repo":"a/b"}]}`, "repo_quotas[0].monthly_usd"},
		{"a negative quota", `{"repo_quotas":[{"repo":"a/b","monthly_usd":-5}]}`, "repo_quotas[0].monthly_usd"},
		{"one repository twice", `{"repo_quotas":[{"repo":"a/b","monthly_usd":5},{"repo":"https://github.com/A/b.git","monthly_usd":5}]}`, "repo_quotas[1].repo"},
		{"a share of 101", `{"repo_quotas":[{"repo":"a/b","reserve_share_percent":101,"share_of":{"bot":"a"}}]}`, "repo_quotas[0].reserve_share_percent"},
		{"a share of nobody", `{"repo_quotas":[{"repo":"a/b","reserve_share_percent":10}]}`, "repo_quotas[0].share_of"},
		{"somebody without a share", `{"repo_quotas":[{"repo":"a/b","monthly_usd":1,"share_of":{"bot":"a"}}]}`, "repo_quotas[0].reserve_share_percent"},
		{"a share of a bot without a reservation", `{"reservations":[{"bot":"b","monthly_usd":5}],"repo_quotas":[{"repo":"a/b","reserve_share_percent":10,"share_of":{"bot":"a"}}]}`, "repo_quotas[0].share_of"},
		{"a share of a reservation without dollars", `{"reservations":[{"bot":"a","week_percent":5}],"repo_quotas":[{"repo":"a/b","reserve_share_percent":10,"share_of":{"bot":"a"}}]}`, "repo_quotas[0].share_of"},
		{"a share of the same name in the other tier", `{"reservations":[{"bot":"a","monthly_usd":5}],"repo_quotas":[{"repo":"a/b","reserve_share_percent":10,"share_of":{"bot":"a","tier":"team","team":"acme"}}]}`, "repo_quotas[0].share_of"},
		{"a share of a team's bot without the team", `{"reservations":[{"bot":"a","monthly_usd":5}],"repo_quotas":[{"repo":"a/b","reserve_share_percent":10,"share_of":{"bot":"a","tier":"team"}}]}`, "repo_quotas[0].share_of.team"},
		{"a note without end", `{"reservations":[{"bot":"a","note":"` + strings.Repeat("x", 1001) + `"}]}`, "reservations[0].note"},
		{"reservations without end", `{"reservations":[` + strings.TrimSuffix(strings.Repeat(`{"bot":"a"},`, 501), ",") + `]}`, "reservations"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := budgetfloor.Decode([]byte(row.text))
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) {
				t.Fatalf("%v is not an InvalidError", err)
			}
			if bad.Field != row.field || bad.Problem == "" || bad.Allowed == "" {
				t.Errorf("field %q, problem %q, allowed %q; want the field %q and both texts", bad.Field, bad.Problem, bad.Allowed, row.field)
			}
		})
	}
}

func TestAPolicyIsStoredWithFoldedNamesAndStatedTiers(t *testing.T) {
	p := decode(t, `{"reservations":[
		{"bot":"Review PR","concurrent_runs":2,"teams":["Web","web","Pay_Ments"]},
		{"bot":"feature_dev","tier":"team","team":"Acme","teams":["acme"],"monthly_usd":"300"}],
		"repo_quotas":[{"repo":" https://github.com/Acme/Widgets.git ","reserve_share_percent":50,"share_of":{"bot":"Feature Dev","tier":"team","team":"ACME"}}]}`)
	want := budgetfloor.Policy{
		Reservations: []budgetfloor.Reservation{
			{Bot: "review-pr", Tier: holdfast.TierPlatform, ConcurrentRuns: 2, Teams: []holdfast.TeamID{"web", "pay-ments"}},
			{Bot: "feature-dev", Tier: holdfast.TierTeam, Team: "acme", Teams: []holdfast.TeamID{"acme"}, MonthlyUSD: 300 * holdfast.OneUSD},
		},
		RepoQuotas: []budgetfloor.RepoQuota{{
			Repo: "acme/widgets", ReserveSharePercent: 50,
			ShareOf: &budgetfloor.ShareOf{Bot: "feature-dev", Tier: holdfast.TierTeam, Team: "acme"},
		}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	again, err := p.Checked()
	if diff := cmp.Diff(p, again); diff != "" || err != nil {
		t.Errorf("checking again changes it: %v %s", err, diff)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, decode(t, string(text))); diff != "" {
		t.Errorf("written and read back: %s", diff)
	}
}

func TestCheckedLeavesThePolicyThatItWasGivenAlone(t *testing.T) {
	p := budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "Review PR"}}}
	if _, err := p.Checked(); err != nil {
		t.Fatal(err)
	}
	if p.Reservations[0].Bot != "Review PR" {
		t.Error("the caller's policy was changed")
	}
}

func TestAStoredReservationWithoutATierIsThePlatforms(t *testing.T) {
	var stored budgetfloor.Policy // as an older build wrote it, not checked since
	if err := json.Unmarshal([]byte(`{"reservations":[{"bot":"review-pr","concurrent_runs":2}]}`), &stored); err != nil {
		t.Fatal(err)
	}
	if got := stored.Holders(); len(got) != 1 || got[0] != review {
		t.Errorf("it is held for %v, want %s", got, review)
	}
}

func TestRepoNameIsOneNameForEverySpellingOfARepository(t *testing.T) {
	for spelling, want := range map[string]string{
		"acme/widgets": "acme/widgets", " Acme/Widgets ": "acme/widgets", "acme/widgets.git": "acme/widgets",
		"https://github.com/acme/widgets": "acme/widgets", "https://u:p@github.com/acme/widgets.git/": "acme/widgets",
		"ssh://git@github.com/acme/widgets.git": "acme/widgets", "git@github.com:acme/widgets.git": "acme/widgets",
		"https://github.com/acme/widgets?x=1#y": "acme/widgets", "": "", "/": "",
	} {
		if got := budgetfloor.RepoName(spelling); got != want {
			t.Errorf("%q is %q, want %q", spelling, got, want)
		}
	}
}
