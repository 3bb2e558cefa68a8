package platformcfg_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func open(t *testing.T, db records.DB, c *clocktest.Manual) *platformcfg.Settings {
	t.Helper()
	s, err := platformcfg.New(t.Context(), db, c, platformcfg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func reserve(bot holdfast.BotID, n holdfast.Slots) budgetfloor.Policy {
	return budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: bot, ConcurrentRuns: n}}}
}

func TestTheCompareTokenLetsOneOfTwoWritersWin(t *testing.T) {
	c := clocktest.New()
	s := open(t, memory.NewRecords(), c).BudgetFloor
	stale := reserve("a", 1)
	stale.UpdatedAt = clocktest.T0
	if _, err := s.Write(t.Context(), stale, "op"); !errors.Is(err, platformcfg.ErrConflict) {
		t.Errorf("a first write with a token: %v, want a conflict", err)
	}
	first, err := s.Write(t.Context(), reserve("a", 1), "op")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Write(t.Context(), reserve("a", 2), "op")
	var conflict *platformcfg.ConflictError
	if !errors.As(err, &conflict) || !conflict.Stored.Equal(first.Value.UpdatedAt) || conflict.Family != "budget-floor" {
		t.Errorf("a later write without a token: %v, want a conflict that names %s", err, first.Value.UpdatedAt)
	}
	next := first.Value
	next.Reservations[0].ConcurrentRuns = 3
	second, err := s.Write(t.Context(), next, "op2") // the clock stands still
	if err != nil {
		t.Fatal(err)
	}
	if got := second.Value.UpdatedAt.Sub(first.Value.UpdatedAt); got != time.Millisecond {
		t.Errorf("the token moved by %s, want a millisecond: it rises strictly", got)
	}
	if _, err := s.Write(t.Context(), next, "op3"); !errors.Is(err, platformcfg.ErrConflict) {
		t.Errorf("the old token again: %v, want a conflict", err)
	}
	read, err := s.Read(t.Context())
	if err != nil || read.Value.Reservations[0].ConcurrentRuns != 3 || read.UpdatedBy != "op2" || !read.Written {
		t.Errorf("stored: %+v, %v; want the second write", read, err)
	}
	c.Advance(-time.Hour) // a clock that steps back must not make an old token new again
	third, err := s.Write(t.Context(), read.Value, "op")
	if err != nil || !third.Value.UpdatedAt.After(second.Value.UpdatedAt) {
		t.Errorf("after the clock stepped back the token is %s, %v; want it above %s", third.Value.UpdatedAt, err, second.Value.UpdatedAt)
	}
}

func TestOf64WritersWithOneTokenOneWins(t *testing.T) {
	s := open(t, memory.NewRecords(), clocktest.New()).BudgetFloor
	for round, token := 0, (time.Time{}); round < 20; round++ {
		var won, lost atomic.Int64
		var group sync.WaitGroup
		for i := range 64 {
			group.Go(func() {
				p := reserve("a", holdfast.Slots(i))
				p.UpdatedAt = token
				switch _, err := s.Write(t.Context(), p, "op"); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, platformcfg.ErrConflict):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 || lost.Load() != 63 {
			t.Fatalf("round %d: %d won and %d lost, want 1 and 63", round, won.Load(), lost.Load())
		}
		read, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token = read.Value.UpdatedAt
	}
}

func TestAWriteIsReadByThisProcessAtOnceAndByOthersAfterTheirTime(t *testing.T) {
	db, c := memory.NewRecords(), clocktest.New()
	here, there := open(t, db, c).Maintenance, open(t, db, c).Maintenance
	if m, state := here.Lookup(t.Context()); m.On || state != platformcfg.Absent {
		t.Errorf("at first: %+v %s, want off and absent", m, state)
	}
	_, _ = there.Lookup(t.Context())
	if _, err := here.Write(t.Context(), platformcfg.Maintenance{On: true, Message: "moving"}, "op"); err != nil {
		t.Fatal(err)
	}
	if m, state := here.Lookup(t.Context()); !m.On || state != platformcfg.Fresh {
		t.Errorf("here: %+v %s, want on and fresh", m, state)
	}
	if m, _ := there.Lookup(t.Context()); m.On {
		t.Error("the other process knew without reading")
	}
	c.Advance(platformcfg.DefaultTTL)
	if m, _ := there.Lookup(t.Context()); !m.On {
		t.Error("the other process does not know after its time")
	}
}

// ADR-155 §8 with a real store behind it: a policy that was known goes on holding.
func TestAPolicyThatWasReadOnceIsHeldWhileTheStoreIsDown(t *testing.T) {
	db, c := recordstest.NewFaults(memory.NewRecords()), clocktest.New()
	var told []string
	s, err := platformcfg.New(t.Context(), db, c, platformcfg.Options{Failed: func(family string, err error, served platformcfg.State) {
		if !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("told of %v", err)
		}
		told = append(told, family+" "+string(served))
	}})
	if err != nil {
		t.Fatal(err)
	}
	down := func(context.Context, recordstest.Operation) error { return records.ErrUnavailable }
	db.Before(down)
	if p, state := s.BudgetFloor.Lookup(t.Context()); state != platformcfg.Never || len(p.Reservations) != 0 {
		t.Errorf("cold and down: %+v %s, want nothing and never", p, state)
	}
	if _, err := s.BudgetFloor.Write(t.Context(), reserve("review-pr", 2), "op"); !errors.Is(err, records.ErrUnavailable) {
		t.Errorf("a write while it is down: %v, want unavailable", err)
	}
	db.Before(nil)
	if _, err := s.BudgetFloor.Write(t.Context(), reserve("review-pr", 2), "op"); err != nil {
		t.Fatal(err)
	}
	if _, state := s.BudgetFloor.Lookup(t.Context()); state != platformcfg.Fresh {
		t.Errorf("warm: %s, want fresh", state)
	}
	db.Before(down)
	c.Advance(platformcfg.DefaultTTL)
	p, state := s.BudgetFloor.Lookup(t.Context())
	if state != platformcfg.Stale || p.OtherReservedSlots("acme", holdfast.Identity{}, c.Now()) != 2 {
		t.Errorf("warm and down: %+v %s, want the reserve of 2 and stale", p, state)
	}
	if diff := cmp.Diff([]string{"budget-floor never", "budget-floor stale"}, told); diff != "" {
		t.Error(diff)
	}
}

func TestALostReplyOfAWriteLeavesTheCacheWithWhatIsStored(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	s := open(t, db, clocktest.New()).Maintenance
	_, _ = s.Lookup(t.Context())
	db.After(func(_ context.Context, op recordstest.Operation) error {
		if op.Verb == "insert" {
			return records.ErrUnavailable
		}
		return nil
	})
	if _, err := s.Write(t.Context(), platformcfg.Maintenance{On: true}, "op"); !errors.Is(err, records.ErrUnavailable) {
		t.Fatalf("%v, want unavailable", err)
	}
	if m, _ := s.Lookup(t.Context()); !m.On {
		t.Error("the write happened, and this process serves what was before")
	}
}

func TestLimitsFallBackToTheBuildsOwn(t *testing.T) {
	s := open(t, memory.NewRecords(), clocktest.New()).Limits
	l, state := s.Lookup(t.Context())
	launches, _ := l.DefaultLaunchesPerMinute.Value()
	if state != platformcfg.Absent || launches != 600 || *l.DefaultRunUSD != 5*holdfast.OneUSD || l.MaxRunUSD != nil || l.TeamCommandBots ||
		!l.DefaultMaxConcurrentRuns.Limit(holdfast.UnitSlots).None() {
		t.Errorf("nothing written: %+v %s", l, state)
	}
	value, err := s.Decode([]byte(`{"default_launches_per_minute":null,"max_run_usd":"2.5","default_max_concurrent_runs":0,"platform":{"max_concurrent_runs":4,"monthly_usd":100}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(t.Context(), value, "op"); err != nil {
		t.Fatal(err)
	}
	l, state = s.Lookup(t.Context())
	slots, written := l.DefaultMaxConcurrentRuns.Value()
	all, _ := l.Platform.MaxConcurrentRuns.Value()
	if state != platformcfg.Fresh || !l.DefaultLaunchesPerMinute.Limit(holdfast.UnitRuns).None() || slots != 0 || !written || all != 4 {
		t.Errorf("written: %+v %s", l, state)
	}
	if *l.DefaultRunUSD != 2_500_000 {
		t.Errorf("a run gets %s, want no more than the ceiling of a run", l.DefaultRunUSD.Dollars())
	}
	read, err := s.Read(t.Context())
	if err != nil || read.Value.DefaultRunUSD != nil {
		t.Errorf("as stored it is %v, %v; want what was written only", read.Value.DefaultRunUSD, err)
	}
}

func TestMaintenanceLiftsItselfAtItsInstant(t *testing.T) {
	until := clocktest.T0.Add(time.Hour)
	for _, row := range []struct {
		m    platformcfg.Maintenance
		at   time.Time
		want bool
	}{
		{platformcfg.Maintenance{}, clocktest.T0, false},
		{platformcfg.Maintenance{On: true}, clocktest.T0, true},
		{platformcfg.Maintenance{On: true, Until: until}, until.Add(-time.Millisecond), true},
		{platformcfg.Maintenance{On: true, Until: until}, until, false},
		{platformcfg.Maintenance{Until: until}, clocktest.T0, false},
	} {
		if got := row.m.InForce(row.at); got != row.want {
			t.Errorf("%+v at %s: %t", row.m, row.at, got)
		}
	}
}

func TestAWindowThatIsOffOrZeroIsNotEnforced(t *testing.T) {
	s := open(t, memory.NewRecords(), clocktest.New()).UsageCaps
	for text, want := range map[string][2]holdfast.BasisPoints{
		`{}`: {0, 0}, `{"five_hour_percent":80,"week_percent":90}`: {8000, 9000},
		`{"five_hour_percent":80,"five_hour_mode":"off","week_percent":90,"week_mode":"soft"}`: {0, 9000},
		`{"week_percent":0,"week_mode":"hard"}`:                                                {0, 0},
	} {
		c, err := s.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]holdfast.BasisPoints{c.Cap(holdfast.AxisFiveHour), c.Cap(holdfast.AxisWeek)}; got != want || c.Cap(holdfast.AxisSlots) != 0 {
			t.Errorf("%s enforces %v, want %v", text, got, want)
		}
	}
	if c, _ := s.Lookup(t.Context()); c.FiveHourMode != platformcfg.ModeSoft || c.WeekMode != platformcfg.ModeHard {
		t.Errorf("the modes in force are %q and %q, want soft and hard", c.FiveHourMode, c.WeekMode)
	}
}

func TestASettingThatCannotBeMeantIsRefusedAtItsField(t *testing.T) {
	s := open(t, memory.NewRecords(), clocktest.New())
	for _, row := range []struct{ family, text, field string }{
		{"budget-floor", `{"reservations":[{"bot":"a","week_percent":101}]}`, "reservations[0].week_percent"},
		{"usage-caps", `{"five_hour_percent":101}`, "five_hour_percent"},
		{"usage-caps", `{"week_percent":-1}`, "week_percent"},
		{"usage-caps", `{"week_mode":"Hard"}`, "week_mode"},
		{"usage-caps", `{"month_percent":1}`, "month_percent"},
		{"runner-pools", `{"pools":[{"name":"a"},{"name":"A"}]}`, "pools[1].name"},
		{"runner-pools", `{"pools":[{"name":"a/b"}]}`, "pools[0].name"},
		{"runner-pools", `{"pools":[{"name":"a","state":"on"}]}`, "pools[0].state"},
		{"runner-pools", `{"pools":[{"name":"a","max_ack_pending":-1}]}`, "pools[0].max_ack_pending"},
		{"maintenance", `{"on":"yes"}`, "on"},
		{"limits", `{"default_run_usd":0}`, "default_run_usd"},
		{"limits", `{"max_run_usd":-1}`, "max_run_usd"},
		{"limits", `{"max_run_usd":1,"default_run_usd":2}`, "default_run_usd"},
		{"limits", `{"default_monthly_usd":1000000001}`, "default_monthly_usd"},
		{"limits", `{"platform":{"max_concurrent_runs":-1}}`, "platform.max_concurrent_runs"},
		{"limits", `{"platform":{"slots":1}}`, "platform.slots"},
		{"limits", `{"updated_at":"yesterday"}`, "updated_at"},
	} {
		var err error
		switch row.family {
		case s.BudgetFloor.Name():
			_, err = s.BudgetFloor.Decode([]byte(row.text))
		case s.UsageCaps.Name():
			_, err = s.UsageCaps.Decode([]byte(row.text))
		case s.RunnerPools.Name():
			_, err = s.RunnerPools.Decode([]byte(row.text))
		case s.Maintenance.Name():
			_, err = s.Maintenance.Decode([]byte(row.text))
		case s.Limits.Name():
			_, err = s.Limits.Decode([]byte(row.text))
		}
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != row.field || bad.Allowed == "" {
			t.Errorf("%s %s: %v, want the field %q and what is allowed", row.family, row.text, err, row.field)
		}
	}
	if _, err := s.Limits.Write(t.Context(), platformcfg.LimitsSetting{DefaultMonthlyUSD: holdfast.USDLimit{LimitSetting: holdfast.LimitTo(-1)}}, "op"); err == nil {
		t.Error("a write does not check what it is given")
	}
}

func TestARunnerPoolIsFoundByItsFoldedName(t *testing.T) {
	s := open(t, memory.NewRecords(), clocktest.New()).RunnerPools
	written, err := s.Write(t.Context(), platformcfg.RunnerPools{Pools: []platformcfg.RunnerPool{{Name: "Big Iron"}, {Name: "old", State: platformcfg.PoolDraining}}}, "op")
	if err != nil {
		t.Fatal(err)
	}
	pool, ok := written.Value.Pool("big-iron")
	if !ok || pool.State != platformcfg.PoolActive {
		t.Errorf("%+v, %t; want the pool, active", pool, ok)
	}
	if _, ok := written.Value.Pool("gone"); ok {
		t.Error("a pool that is not registered was found")
	}
}

func TestWhatANewerBuildWroteIsReadAsFarAsItIsKnown(t *testing.T) {
	db := memory.NewRecords()
	s := open(t, db, clocktest.New())
	if _, err := s.BudgetFloor.Write(t.Context(), reserve("review-pr", 2), "op"); err != nil {
		t.Fatal(err)
	}
	c, err := db.Collection(t.Context(), records.Schema{Name: "settings"})
	if err != nil {
		t.Fatal(err)
	}
	row, err := c.Get(t.Context(), "budget-floor")
	if err != nil {
		t.Fatal(err)
	}
	row.Body = []byte(`{"family":"budget-floor","updated_at":"2026-03-10T12:00:00Z","value":{"reservations":[{"bot":"review-pr","concurrent_runs":2,"gpu_hours":4}],"more":1}}`)
	if _, err := c.Replace(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	p, state := s.BudgetFloor.Lookup(t.Context())
	if state != platformcfg.Fresh || len(p.Reservations) != 1 || p.Reservations[0].ConcurrentRuns != 2 {
		t.Errorf("%+v %s, want the reservation that this build knows", p, state)
	}
}
