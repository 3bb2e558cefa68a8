package botsource_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func command(name holdfast.BotID, args ...string) holdfast.Bot {
	return holdfast.Bot{Name: name, Lane: holdfast.LaneCommand, Command: append([]string{"echo"}, args...)}
}

func open(t *testing.T, db records.DB) *botsource.Repository {
	t.Helper()
	rows, err := botsource.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func put(t *testing.T, rows *botsource.Repository, team holdfast.TeamID, bot holdfast.Bot) {
	t.Helper()
	if _, _, err := rows.Put(t.Context(), clocktest.T0, team, bot, "op"); err != nil {
		t.Fatal(err)
	}
}

func TestATeamsBotHidesThePlatformsWhichHidesTheBaked(t *testing.T) {
	rows := open(t, memory.NewRecords())
	r := botsource.NewResolver(rows, botsource.Options{})
	resolve := func(team holdfast.TeamID, want holdfast.Identity, origin botsource.Origin, says string) {
		t.Helper()
		got, found, err := r.Resolve(t.Context(), team, "review-pr")
		if err != nil || !found || got.Identity != want || got.Origin != origin || !slices.Contains(got.Bot.Command, says) {
			t.Errorf("for %q: %+v, %t, %v; want %s from %s that says %q", team, got, found, err, want, origin, says)
		}
	}
	platform, acme := holdfast.PlatformBot("review-pr"), holdfast.TeamBot("acme", "review-pr")
	resolve("acme", platform, botsource.OriginBaked, "sample-agent")
	put(t, rows, "", command("review-pr", "override"))
	resolve("acme", platform, botsource.OriginPlatform, "override")
	put(t, rows, "acme", command("review-pr", "ours"))
	resolve("acme", acme, botsource.OriginTeam, "ours")
	resolve("web", platform, botsource.OriginPlatform, "override")
	resolve("", platform, botsource.OriginPlatform, "override")
	if err := rows.Delete(t.Context(), "acme", "review-pr"); err != nil {
		t.Fatal(err)
	}
	resolve("acme", platform, botsource.OriginPlatform, "override")
	if err := rows.Delete(t.Context(), "", "review-pr"); err != nil {
		t.Fatal(err)
	}
	resolve("acme", platform, botsource.OriginBaked, "sample-agent")
}

func TestEverySpellingOfANameIsOneBotInEveryTier(t *testing.T) {
	rows := open(t, memory.NewRecords())
	put(t, rows, "acme", command("Docs_Writer"))
	put(t, rows, "", command("feature_dev"))
	r := botsource.NewResolver(rows, botsource.Options{})
	for spelling, want := range map[string]holdfast.Identity{
		"Docs Writer": holdfast.TeamBot("acme", "docs-writer"), "docs.writer": holdfast.TeamBot("acme", "docs-writer"),
		" feature-dev ": holdfast.PlatformBot("feature-dev"), "Feature__Dev": holdfast.PlatformBot("feature-dev"),
		"REVIEW PR": holdfast.PlatformBot("review-pr"),
	} {
		got, found, err := r.Resolve(t.Context(), "acme", spelling)
		if err != nil || !found || got.Identity != want || got.Bot.Name != want.Bot() {
			t.Errorf("%q: %+v, %t, %v; want %s", spelling, got, found, err, want)
		}
	}
	if _, found, err := r.Resolve(t.Context(), "acme", "nobody"); found || err != nil {
		t.Errorf("a name that nobody has: %t, %v; want not found and no error", found, err)
	}
	for _, name := range []string{"", "a/b", strings.Repeat("x", 64), "né"} {
		_, _, err := r.Resolve(t.Context(), "acme", name)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != "bot" {
			t.Errorf("%q: %v, want an InvalidError of the bot", name, err)
		}
	}
}

// Only "there is none" falls to the next tier: a team that cannot be read must not
// launch the platform's older bot of that name.
func TestAnUnreadableTierIsAnErrorAndNeverAnOlderBot(t *testing.T) {
	for _, unreadable := range []string{"team:acme/review-pr", "platform/review-pr"} {
		db := recordstest.NewFaults(memory.NewRecords())
		r := botsource.NewResolver(open(t, db), botsource.Options{})
		db.Before(func(_ context.Context, op recordstest.Operation) error {
			if op.ID == unreadable {
				return records.ErrUnavailable
			}
			return nil
		})
		_, found, err := r.Resolve(t.Context(), "acme", "review-pr")
		if found || !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("%s cannot be read: found %t, %v; want the store's error", unreadable, found, err)
		}
	}
}

func TestResolutionTellsOfEachReadAndANameThatIsNoneReadsNothing(t *testing.T) {
	var reads []string
	r := botsource.NewResolver(open(t, memory.NewRecords()), botsource.Options{OnRead: func(i holdfast.Identity) { reads = append(reads, i.String()) }})
	if _, _, err := r.Resolve(t.Context(), "acme", "review-pr"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"team:acme/review-pr", "platform/review-pr"}, reads); diff != "" {
		t.Error(diff)
	}
	reads = nil
	if _, _, err := r.Resolve(t.Context(), "acme", "a/b"); err == nil || len(reads) != 0 {
		t.Errorf("%v and %v, want an error and no read", err, reads)
	}
}

func TestListShowsEachNameOnceAsItResolves(t *testing.T) {
	rows := open(t, memory.NewRecords())
	put(t, rows, "", command("nightly"))
	put(t, rows, "", command("probe", "override"))
	put(t, rows, "acme", command("review-pr", "ours"))
	put(t, rows, "web", command("secret"))
	r := botsource.NewResolver(rows, botsource.Options{})
	for team, want := range map[holdfast.TeamID][]string{
		"acme": {"docs-writer baked", "feature-dev baked", "nightly platform", "probe platform", "review-pr team"},
		"":     {"docs-writer baked", "feature-dev baked", "nightly platform", "probe platform", "review-pr baked"},
	} {
		list, err := r.List(t.Context(), team)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range list {
			got = append(got, string(l.Bot.Name)+" "+string(l.Origin))
			resolved, found, err := r.Resolve(t.Context(), team, string(l.Bot.Name))
			if diff := cmp.Diff(l, resolved, cmp.AllowUnexported(holdfast.Identity{})); diff != "" || !found || err != nil {
				t.Errorf("%s resolves to something else than listed: %t %v %s", l.Bot.Name, found, err, diff)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("team %q: %s", team, diff)
		}
	}
}

func TestPutSaysWhetherItCreatedAndKeepsWhenItWasCreated(t *testing.T) {
	rows := open(t, memory.NewRecords())
	row, created, err := rows.Put(t.Context(), clocktest.T0, "acme", command("Night Shift"), "ann")
	if err != nil || !created || row.Bot.Name != "night-shift" || row.Identity != holdfast.TeamBot("acme", "night-shift") {
		t.Fatalf("%+v, %t, %v", row, created, err)
	}
	later := clocktest.T0.Add(time.Hour)
	row, created, err = rows.Put(t.Context(), later, "acme", command("night-shift", "new"), "bob")
	if err != nil || created || !row.CreatedAt.Equal(clocktest.T0) || !row.UpdatedAt.Equal(later) || row.UpdatedBy != "bob" || row.Bot.Command[1] != "new" {
		t.Errorf("%+v, %t, %v", row, created, err)
	}
	if got, err := rows.Get(t.Context(), "acme", "night-shift"); err != nil || got.UpdatedBy != "bob" {
		t.Errorf("stored: %+v, %v", got, err)
	}
	for _, missing := range []error{
		func() error { _, err := rows.Get(t.Context(), "", "night-shift"); return err }(),
		rows.Delete(t.Context(), "web", "night-shift"),
	} {
		if !errors.Is(missing, records.ErrNotFound) {
			t.Errorf("%v, want not found", missing)
		}
	}
}

func TestPutSurvivesADeleteInBetween(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	rows := open(t, db)
	put(t, rows, "", command("a"))
	once := true
	db.Before(func(ctx context.Context, op recordstest.Operation) error {
		if op.Verb == "replace" && once {
			once = false
			return rows.Delete(ctx, "", "a")
		}
		return nil
	})
	if _, created, err := rows.Put(t.Context(), clocktest.T0, "", command("a", "again"), "op"); err != nil || !created {
		t.Errorf("created %t, %v; want it created anew", created, err)
	}
}

func TestTheBakedCatalogPassesItsOwnCheckAndSharesNothing(t *testing.T) {
	var names []string
	for _, bot := range botsource.Baked() {
		names = append(names, string(bot.Name))
		if err := botsource.Check(bot); err != nil {
			t.Errorf("%s: %v", bot.Name, err)
		}
		if bot.Command[0] != botsource.Executable || len(bot.Needs) != 0 || bot.BudgetUSD == nil {
			t.Errorf("%s: %+v; want the binary's own agent, no provider, and a budget", bot.Name, bot)
		}
	}
	if diff := cmp.Diff([]string{"probe", "review-pr", "feature-dev", "docs-writer"}, names); diff != "" {
		t.Error(diff)
	}
	if _, ok := botsource.Baked()[1].Inputs["pr"]; !ok {
		t.Error("review-pr does not take the number that docs/surfaces.md lets a webhook give it")
	}
	r := botsource.NewResolver(open(t, memory.NewRecords()), botsource.Options{})
	first, _, _ := r.Resolve(t.Context(), "", "probe")
	first.Bot.Command[0] = "changed"
	*first.Bot.BudgetUSD = 1
	maps.DeleteFunc(first.Bot.Inputs, func(string, holdfast.BotInput) bool { return true })
	second, _, _ := r.Resolve(t.Context(), "", "probe")
	if second.Bot.Command[0] != botsource.Executable || *second.Bot.BudgetUSD == 1 || len(second.Bot.Inputs) == 0 {
		t.Error("a launch can change the catalog")
	}
}
