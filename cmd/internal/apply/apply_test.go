package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/apply"
	"github.com/holdfast-io/holdfast/examples"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func read(t *testing.T, texts ...string) apply.Fleet {
	t.Helper()
	var files []apply.File
	for _, text := range texts {
		files = append(files, apply.File{Name: "f.yaml", Text: []byte(text)})
	}
	fleet, err := apply.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

func TestTheExamplesAreReadWhole(t *testing.T) {
	var files []apply.File
	for _, name := range []string{"fleet.yaml"} {
		text, err := examples.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, apply.File{Name: name, Text: text})
	}
	fleet, err := apply.Read(files)
	if err != nil || len(fleet.Teams) == 0 || len(fleet.Bots) == 0 || fleet.Limits == nil || fleet.Policy == nil {
		t.Errorf("%+v, %v", fleet, err)
	}
	policy, err := examples.Files.ReadFile("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if fleet := read(t, string(policy)); fleet.Policy == nil || len(fleet.Policy.Reservations) == 0 {
		t.Errorf("a policy alone is read as %+v", fleet)
	}
}

func TestOneThingWrittenTwiceIsRefusedWhereverItStands(t *testing.T) {
	for _, texts := range [][]string{
		{"teams: [{id: a}, {id: A}]"}, {"teams: [{id: a}]", "teams: [{id: a}]"}, {"limits: {}\n---\nlimits: {}"},
		{"policy: {}", "reservations: []"}, {"policy: {}\nreservations: [{bot: a, concurrent_runs: 1}]"},
		{"organisations: [{id: eu}, {id: EU}]"}, {"bots: [{bot: x, lane: command}, {bot: X, lane: command}]"}, {"bots: [{team: a, bot: x}]", "bots: [{team: A, bot: x}]"},
	} {
		var files []apply.File
		for _, text := range texts {
			files = append(files, apply.File{Name: "f.yaml", Text: []byte(text)})
		}
		_, err := apply.Read(files)
		var invalid *holdfast.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "twice") || !strings.Contains(err.Error(), "f.yaml line") {
			t.Errorf("%q: %v", texts, err)
		}
	}
	// A platform's and a team's bot of one name are two things.
	read(t, "bots: [{bot: x}, {team: a, bot: x}]")
}

// settings answers for one policy and one limits setting, and counts writes.
type settings struct {
	t      *testing.T
	policy api.BudgetFloor
	limits api.Limits
	org    *api.Organisation // nil: there is none
	writes []string
}

func (s *settings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := any(s.policy)
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/teams/"), strings.HasPrefix(r.URL.Path, "/api/bots/"), strings.HasPrefix(r.URL.Path, "/api/organisations/"):
		if s.org != nil && strings.HasPrefix(r.URL.Path, "/api/organisations/") {
			answer = *s.org
			break
		}
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", api.ProblemType)
			w.WriteHeader(http.StatusNotFound)
			answer = api.Problem{Status: http.StatusNotFound, Title: "Not found"}
			break
		}
		answer = api.Bot{}
	case r.URL.Path == "/api/organisations":
		answer = api.Organisation{}
	case r.URL.Path == "/api/teams":
		answer = api.Team{}
	case strings.HasSuffix(r.URL.Path, "/limits"):
		answer = s.limits
	case r.Method == http.MethodPut:
		var body api.BudgetFloor
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.t.Error(err)
		}
		if !body.UpdatedAt.Equal(s.policy.UpdatedAt) {
			w.Header().Set("Content-Type", api.ProblemType)
			w.WriteHeader(http.StatusConflict)
			answer = api.Problem{Status: http.StatusConflict, Title: "Conflict"}
			break
		}
		s.policy = body
	}
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func serve(t *testing.T, s *settings) *client.Client {
	t.Helper()
	s.t = t
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "x", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheOrderIsOrganisationsTeamsLimitsBotsPolicyWhateverTheFilesSay(t *testing.T) {
	s := &settings{}
	c := serve(t, s)
	plan, err := apply.NewPlan(t.Context(), c, read(t, "policy: {reservations: [{bot: x, concurrent_runs: 1}]}\nbots: [{bot: x, lane: command}]", "limits: {max_run_usd: 1}\nteams: [{id: a, organisation: eu, suspended: true}]\norganisations: [{id: eu, limits: {monthly_usd: 9}}]"))
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	if err := plan.Apply(t.Context(), func(c apply.Change) { done = append(done, c.Action+" "+c.What) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"create organisation eu", "create team a", "change the limits setting", "create bot platform/x", "change the policy"}, done); diff != "" {
		t.Error(diff)
	}
	want := []string{"POST /api/organisations", "POST /api/teams", "PATCH /api/teams/a", "PUT /api/admin/settings/limits", "PUT /api/bots/x", "PUT /api/admin/settings/budget-floor"}
	if diff := cmp.Diff(want, s.writes); diff != "" {
		t.Error(diff)
	}
}

func TestAPolicyThatSomebodyWroteAfterTheDiffIsNotOverwritten(t *testing.T) {
	s := &settings{policy: api.BudgetFloor{SettingState: api.SettingState{UpdatedAt: time.UnixMilli(1).UTC()}}}
	c := serve(t, s)
	plan, err := apply.NewPlan(t.Context(), c, read(t, "reservations: [{bot: x, concurrent_runs: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	s.policy.UpdatedAt = time.UnixMilli(2).UTC()
	var conflict *client.Conflict
	if err := plan.Apply(context.Background(), nil); !errors.As(err, &conflict) {
		t.Errorf("want a conflict, got %v", err)
	}
	if len(s.policy.Reservations) != 0 {
		t.Errorf("it was overwritten: %+v", s.policy)
	}
}

func TestWhatMeansTheSameIsNoChange(t *testing.T) {
	five := 5 * holdfast.OneUSD
	s := &settings{
		limits: api.Limits{
			DefaultLaunchesPerMinute: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(600)}, DefaultRunUSD: &five,
			DefaultMonthlyUSD: holdfast.USDLimit{LimitSetting: holdfast.Unlimited},
			SettingState:      api.SettingState{Origin: "stored", Warnings: []string{"w"}},
		},
		policy: api.BudgetFloor{
			Reservations: []api.Reservation{{Bot: "review-pr", Tier: "platform", ConcurrentRuns: 1}},
			Reserved:     []string{"platform/review-pr"}, SettingState: api.SettingState{Warnings: []string{"w"}},
		},
	}
	plan, err := apply.NewPlan(t.Context(), serve(t, s), read(t, "limits: {}\npolicy: {reservations: [{bot: Review_PR, concurrent_runs: 1}]}"))
	if err != nil || len(plan.Changes()) != 0 {
		t.Errorf("%+v, %v", plan.Changes(), err)
	}
}

// A limit that an organisation's file leaves out is taken away; saying it again is no
// change.
func TestAnOrganisationsLimitsAreWhatItsFileSays(t *testing.T) {
	limited := api.TeamLimits{MonthlyUSD: holdfast.USDLimit{LimitSetting: holdfast.LimitTo(9_000_000)}, MonthlyRuns: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(4)}}
	s := &settings{org: &api.Organisation{ID: "eu", Limits: limited}}
	c := serve(t, s)
	plan, err := apply.NewPlan(t.Context(), c, read(t, "organisations: [{id: eu, limits: {monthly_usd: 9}}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := []apply.Change{{What: "organisation eu", Action: apply.ActionChange, Fields: []apply.Field{{Path: "limits.monthly_runs", From: "4", To: "null"}}}}
	if diff := cmp.Diff(want, plan.Changes()); diff != "" {
		t.Error(diff)
	}
	plan, err = apply.NewPlan(t.Context(), c, read(t, "organisations: [{id: eu, limits: {monthly_usd: 9.0, monthly_runs: 4, max_concurrent_runs: null}}]"))
	if err != nil || len(plan.Changes()) != 0 {
		t.Errorf("the same again changes %+v, %v", plan.Changes(), err)
	}
}

func TestTheDiffNamesWhatChangesAndTheOrderOfReservations(t *testing.T) {
	s := &settings{policy: api.BudgetFloor{Reservations: []api.Reservation{
		{Bot: "a", Tier: "platform", ConcurrentRuns: 1, Note: "old"}, {Bot: "b", Tier: "platform", MonthlyUSD: 1_500_000},
	}}}
	plan, err := apply.NewPlan(t.Context(), serve(t, s), read(t, "reservations: [{bot: b, monthly_usd: 2.5}, {bot: a, concurrent_runs: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := []apply.Change{{What: "the policy", Action: apply.ActionChange, Fields: []apply.Field{
		{Path: "order of reservations", From: `["platform/a", "platform/b"]`, To: `["platform/b", "platform/a"]`},
		{Path: "reservation.platform/a.note", From: `"old"`},
		{Path: "reservation.platform/b.monthly_usd", From: "1.5", To: "2.5"},
	}}}
	if diff := cmp.Diff(want, plan.Changes()); diff != "" {
		t.Error(diff)
	}
}
