package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func open(t *testing.T, db records.DB, c *clocktest.Manual) *audit.Log {
	t.Helper()
	l, err := audit.New(t.Context(), db, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestEntriesAreListedTheNewestFirstByWhatTheySay(t *testing.T) {
	c := clocktest.New()
	l := open(t, memory.NewRecords(), c)
	for _, e := range []audit.Entry{
		{Actor: "ann", Action: "team.created", Target: "team/acme", Team: "acme"},
		{Actor: "ann", Action: "settings.limits.updated", Target: "settings/limits", Detail: map[string]string{"0": "1"}},
		{Actor: "bob", Action: "team.updated", Target: "team/acme", Team: "acme"},
		{Actor: "bob", Action: "team.updated", Target: "team/web", Team: "web"},
	} {
		got, err := l.Record(t.Context(), e)
		if err != nil || got.ID == "" || !got.At.Equal(c.Now()) {
			t.Fatalf("%+v, %v", got, err)
		}
		c.Advance(time.Minute)
	}
	for _, row := range []struct {
		filter audit.Filter
		want   []string
	}{
		{audit.Filter{}, []string{"bob team/web", "bob team/acme", "ann settings/limits", "ann team/acme"}},
		{audit.Filter{Team: "acme"}, []string{"bob team/acme", "ann team/acme"}},
		{audit.Filter{Actor: "ann"}, []string{"ann settings/limits", "ann team/acme"}},
		{audit.Filter{Action: "team.updated"}, []string{"bob team/web", "bob team/acme"}},
		{audit.Filter{Target: "team/acme", Actor: "bob"}, []string{"bob team/acme"}},
		{audit.Filter{Since: clocktest.T0.Add(2 * time.Minute)}, []string{"bob team/web", "bob team/acme"}},
		{audit.Filter{Actor: "nobody"}, nil},
	} {
		for _, limit := range []int{1, 0} {
			row.filter.Limit, row.filter.Cursor = limit, ""
			var got []string
			for {
				page, next, err := l.List(t.Context(), row.filter)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page {
					got = append(got, e.Actor+" "+e.Target)
				}
				if row.filter.Cursor = next; next == "" {
					break
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%+v: %s", row.filter, diff)
			}
		}
	}
}

func TestAnActIsRecordedHoweverLongItsWordsAreAndAnEntryOfNothingIsABug(t *testing.T) {
	l := open(t, memory.NewRecords(), clocktest.New())
	detail := map[string]string{}
	for i := range 80 {
		detail[fmt.Sprint(i)] = strings.Repeat("x", 10_000)
	}
	got, err := l.Record(t.Context(), audit.Entry{Actor: strings.Repeat("a", 5_000), Action: "x\ny", Target: "t", Detail: detail})
	if err != nil || len(got.Actor) > 310 || got.Action != "x y" || len(got.Detail) != 50 {
		t.Errorf("%d bytes of actor, %q, %d details, %v", len(got.Actor), got.Action, len(got.Detail), err)
	}
	for _, e := range []audit.Entry{{Action: "a", Target: "t"}, {Actor: "a", Target: "t"}, {Actor: "a", Action: "a"}} {
		if _, err := l.Record(t.Context(), e); err == nil {
			t.Errorf("%+v was recorded", e)
		}
	}
}

func TestAnEntryThatCannotBeWrittenIsAnError(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	l := open(t, db, clocktest.New())
	db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
	if _, err := l.Record(t.Context(), audit.Entry{Actor: "a", Action: "b", Target: "c"}); !errors.Is(err, records.ErrUnavailable) {
		t.Errorf("%v, want unavailable", err)
	}
}
