package decisions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func TestListFilters(t *testing.T) {
	c := clocktest.New()
	r := open(t, memory.NewRecords(), c, decisions.Options{})
	record := func(detail string, d decisions.Decision) {
		d.Detail = detail
		r.Record(d)
		c.Advance(time.Minute)
	}
	held := refusal("acme", "Feature Dev")
	held.Cause = holdfast.CauseReserved
	rate := refusal("acme", "x")
	rate.Reason, rate.Subject = holdfast.DenyLaunchRate, holdfast.Subject{}
	ours := admission("acme", "01B")
	ours.Identity = holdfast.TeamBot("acme", "feature-dev")
	record("0", admission("acme", "01A"))
	record("1", held)
	record("2", refusal("web", "feature-dev"))
	record("3", rate)
	record("4", ours)
	record("5", refusal("acme", "!"))
	yes, no := true, false
	for _, row := range []struct {
		name   string
		filter decisions.Filter
		want   string
	}{
		{"all", decisions.Filter{}, "5 4 3 2 1 0"},
		{"a team", decisions.Filter{Team: "acme"}, "5 4 3 1 0"},
		{"a reason", decisions.Filter{Reason: holdfast.DenyConcurrency}, "5 2 1"},
		{"a team's reason", decisions.Filter{Team: "acme", Reason: holdfast.DenyConcurrency}, "5 1"},
		{"a cause", decisions.Filter{Cause: holdfast.CauseReserved}, "1"},
		{"admissions", decisions.Filter{Admitted: &yes}, "4 0"},
		{"a team's refusals", decisions.Filter{Team: "acme", Admitted: &no}, "5 3 1"},
		{"a bot, as resolved or as asked", decisions.Filter{Bot: "Feature_Dev"}, "4 2 1"},
		{"since", decisions.Filter{Since: clocktest.T0.Add(3 * time.Minute)}, "5 4 3"},
	} {
		for _, limit := range []int{1, 0} {
			row.filter.Limit, row.filter.Cursor = limit, ""
			var got []string
			for {
				page, next, err := r.List(t.Context(), row.filter)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range page {
					got = append(got, d.Detail)
				}
				if row.filter.Cursor = next; next == "" {
					break
				}
			}
			if strings.Join(got, " ") != row.want {
				t.Errorf("%s by %d: %v, want %s", row.name, limit, got, row.want)
			}
		}
	}
	for _, f := range []decisions.Filter{{Limit: -1}, {Bot: "a/b"}} {
		_, _, err := r.List(t.Context(), f)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) {
			t.Errorf("%+v: %v, want an InvalidError", f, err)
		}
	}
}

func TestPruneKeepsEightDaysAndTheNewestOfATeam(t *testing.T) {
	c := clocktest.New()
	dropped := 0
	r := open(t, memory.NewRecords(), c, decisions.Options{KeepPerTeam: 10, Dropped: func(n int) { dropped += n }})
	record := func(team holdfast.TeamID, n int) {
		for i := range n {
			r.Record(admission(team, holdfast.RunID(fmt.Sprint(i))))
			c.Advance(time.Millisecond)
		}
		flush(t, r)
	}
	prune := func(want int) {
		t.Helper()
		if n, err := r.Prune(t.Context()); n != want || err != nil {
			t.Errorf("%d pruned, %v; want %d", n, err, want)
		}
	}
	record("acme", 1300)
	record("web", 8)
	prune(1290)
	if dropped != 1290 {
		t.Errorf("%d counted as dropped, want 1290", dropped)
	}
	list, _, err := r.List(t.Context(), decisions.Filter{Team: "acme"})
	if err != nil || len(list) != 10 || list[0].Run != "1299" || list[9].Run != "1290" {
		t.Errorf("%d left, %v; want the newest 10", len(list), err)
	}
	prune(0)
	c.Set(clocktest.T0.Add(8 * 24 * time.Hour)) // the first decision is eight days old, and deleted already
	prune(0)
	c.Advance(time.Hour)
	prune(18)
	if dropped != 1290 {
		t.Error("what is too old counts as dropped")
	}
}
