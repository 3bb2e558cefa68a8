package teams_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func open(t *testing.T, db records.DB) *teams.Repository {
	t.Helper()
	r, err := teams.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestATeamIsCreatedOnceAndReadBackWithItsLimitsAsWritten(t *testing.T) {
	r := open(t, memory.NewRecords())
	var limits teams.Limits // absent, null, zero and a number are four things
	if err := json.Unmarshal([]byte(`{"monthly_usd":null,"monthly_runs":0,"launches_per_minute":60}`), &limits); err != nil {
		t.Fatal(err)
	}
	team := teams.Team{ID: "acme", Name: "Acme Inc.", Limits: limits, CreatedAt: clocktest.T0, UpdatedAt: clocktest.T0}
	if _, err := r.Create(t.Context(), team); err != nil {
		t.Fatal(err)
	}
	got, err := r.Get(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(team, got, cmp.Comparer(func(a, b holdfast.LimitSetting) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if !got.Limits.MaxConcurrentRuns.Inherits() || !got.Limits.MonthlyUSD.Limit(holdfast.UnitUSD).None() || got.Limits.MonthlyUSD.Inherits() {
		t.Errorf("absent and null are no longer apart: %+v", got.Limits)
	}
	if n, set := got.Limits.MonthlyRuns.Value(); n != 0 || !set {
		t.Errorf("the limit of 0 runs became %d, %t", n, set)
	}
	if _, err := r.Create(t.Context(), team); !errors.Is(err, records.ErrExists) {
		t.Errorf("created again: %v, want exists", err)
	}
}

func TestATeamThatDoesNotExistIsNotFoundWhateverItsName(t *testing.T) {
	r := open(t, memory.NewRecords())
	for _, id := range []holdfast.TeamID{"gone", "", "a/b", "A", holdfast.TeamID(strings.Repeat("x", 300)), "a\x00b"} {
		if _, err := r.Get(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("get %q: %v, want not found", id, err)
		}
		if _, err := r.Update(t.Context(), id, func(*teams.Team) error { return nil }); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("update %q: %v, want not found", id, err)
		}
	}
}

func TestATeamThatCannotBeMeantIsRefusedAtItsField(t *testing.T) {
	r := open(t, memory.NewRecords())
	for _, row := range []struct {
		field  string
		change func(*teams.Team)
	}{
		{"id", func(x *teams.Team) { x.ID = "" }},
		{"id", func(x *teams.Team) { x.ID = "Acme" }},
		{"id", func(x *teams.Team) { x.ID = "a|b" }},
		{"name", func(x *teams.Team) { x.Name = strings.Repeat("x", 201) }},
		{"name", func(x *teams.Team) { x.Name = "a\nb" }},
		{"organisation", func(x *teams.Team) { x.Organisation = "E U" }},
		{"suspended_reason", func(x *teams.Team) { x.SuspendedReason = strings.Repeat("x", 501) }},
		{"limits.max_concurrent_runs", func(x *teams.Team) { x.Limits.MaxConcurrentRuns.LimitSetting = holdfast.LimitTo(-1) }},
		{"limits.monthly_usd", func(x *teams.Team) { x.Limits.MonthlyUSD.LimitSetting = holdfast.LimitTo(int64(holdfast.MaxUSD) + 1) }},
		{"limits.monthly_runs", func(x *teams.Team) { x.Limits.MonthlyRuns.LimitSetting = holdfast.LimitTo(1 << 40) }},
		{"limits.launches_per_minute", func(x *teams.Team) { x.Limits.LaunchesPerMinute.LimitSetting = holdfast.LimitTo(-5) }},
	} {
		team := teams.Team{ID: "acme"}
		row.change(&team)
		_, err := r.Create(t.Context(), team)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != row.field || bad.Allowed == "" {
			t.Errorf("%+v: %v, want the field %s", team, err, row.field)
		}
	}
	if _, err := r.Create(t.Context(), teams.Team{ID: "acme"}); err != nil {
		t.Fatal(err)
	}
	_, err := r.Update(t.Context(), "acme", func(x *teams.Team) error {
		x.Limits.MonthlyUSD.LimitSetting = holdfast.LimitTo(-1)
		return nil
	})
	var bad *holdfast.InvalidError
	if !errors.As(err, &bad) {
		t.Errorf("an update is not checked: %v", err)
	}
	if got, _ := r.Get(t.Context(), "acme"); !got.Limits.MonthlyUSD.Inherits() {
		t.Error("the refused update was stored")
	}
}

func TestUpdatesOf16WritersAllLandAndKeepWhoTheTeamIs(t *testing.T) {
	r := open(t, memory.NewRecords())
	if _, err := r.Create(t.Context(), teams.Team{ID: "acme", CreatedAt: clocktest.T0}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			_, err := r.Update(t.Context(), "acme", func(x *teams.Team) error {
				n, _ := x.Limits.MonthlyRuns.Value()
				x.Limits.MonthlyRuns.LimitSetting = holdfast.LimitTo(n + 1)
				x.ID, x.CreatedAt = "other", time.Time{}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	got, err := r.Get(t.Context(), "acme")
	if n, _ := got.Limits.MonthlyRuns.Value(); err != nil || n != 16 || got.ID != "acme" || !got.CreatedAt.Equal(clocktest.T0) {
		t.Errorf("%+v, %v; want 16 updates on the same team", got, err)
	}
}

func TestAnErrorOfTheChangeIsReturnedAndNothingIsWritten(t *testing.T) {
	r := open(t, memory.NewRecords())
	if _, err := r.Create(t.Context(), teams.Team{ID: "acme"}); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	_, err := r.Update(t.Context(), "acme", func(x *teams.Team) error { x.Suspended = true; return no })
	if got, _ := r.Get(t.Context(), "acme"); !errors.Is(err, no) || got.Suspended {
		t.Errorf("%v, suspended %t; want the error and nothing written", err, got.Suspended)
	}
}

func TestListPagesThroughAllTeamsByID(t *testing.T) {
	r := open(t, memory.NewRecords())
	var want, got []string
	for i := range 25 {
		id := fmt.Sprintf("team-%02d", i)
		want = append(want, id)
		if _, err := r.Create(t.Context(), teams.Team{ID: holdfast.TeamID(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for cursor := ""; ; {
		page, next, err := r.List(t.Context(), 10, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, team := range page {
			got = append(got, string(team.ID))
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	all, err := r.All(t.Context())
	if err != nil || len(all) != 25 {
		t.Errorf("%d teams in all, %v", len(all), err)
	}
	if _, _, err := r.List(t.Context(), 1001, ""); err == nil {
		t.Error("a page of 1001 was accepted")
	}
}

func TestAnUnreachableStoreIsNotATeamThatDoesNotExist(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	r := open(t, db)
	db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
	if _, err := r.Get(t.Context(), "acme"); !errors.Is(err, records.ErrUnavailable) || errors.Is(err, records.ErrNotFound) {
		t.Errorf("%v, want unavailable only", err)
	}
}
