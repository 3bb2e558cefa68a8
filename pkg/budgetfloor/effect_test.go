package budgetfloor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
)

func slots(n holdfast.Slots) holdfast.Limit { return holdfast.AtMost(holdfast.SlotAmount(n)) }

func dollars(n holdfast.MicroUSD) holdfast.Limit {
	return holdfast.AtMost(holdfast.USDAmount(n * holdfast.OneUSD))
}

// unlimited is a deployment without any cap, and with one team.
func unlimited() budgetfloor.Deployment {
	return budgetfloor.Deployment{
		Teams:         []budgetfloor.Team{{ID: "acme", Slots: holdfast.NoLimit, USD: holdfast.NoLimit}},
		PlatformSlots: holdfast.NoLimit, PlatformUSD: holdfast.NoLimit,
	}
}

func TestEffectsServeReservationsInPolicyOrderAndCutThemToTheCap(t *testing.T) {
	p := decode(t, `{"reservations":[{"bot":"review-pr","concurrent_runs":2,"five_hour_percent":20},{"bot":"feature-dev","concurrent_runs":2}]}`)
	d := unlimited()
	d.Teams[0].Slots = slots(3)
	d.PlatformSlots = slots(10)
	d.FiveHour = 8000
	var got []string
	for _, e := range p.Effects(d, noon) {
		got = append(got, strings.Join([]string{
			e.Subject.String(), "cap " + e.Cap.String(), "written " + e.Written.String(), "withheld " + e.Withheld.String(),
			"ordinary " + e.Ordinary.String(), strings.Join(texts(e.Shares), " and "),
		}, ", "))
	}
	want := []string{
		"team/acme/slots, cap 3 slots, written 4 slots, withheld 3 slots, ordinary 0 slots, platform/review-pr 2 slots and platform/feature-dev 1 slot",
		"platform/all/slots, cap 10 slots, written 4 slots, withheld 4 slots, ordinary 6 slots, platform/review-pr 2 slots and platform/feature-dev 2 slots",
		"account/any/five_hour, cap 80%, written 20%, withheld 20%, ordinary 60%, platform/review-pr 20%",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// On an organisation that has a cap the platform's reservations and its teams' count,
// and a reservation in a team without a cap bites through it.
func TestAnOrganisationsCapHasItsEffect(t *testing.T) {
	p := decode(t, `{"reservations":[{"bot":"review-pr","concurrent_runs":1},{"bot":"own","tier":"team","team":"acme","concurrent_runs":1},{"bot":"own","tier":"team","team":"elsewhere","concurrent_runs":1}]}`)
	d := unlimited()
	d.Organisations = []budgetfloor.Organisation{
		{ID: "eu", Slots: slots(2), USD: holdfast.NoLimit, Members: []holdfast.TeamID{"acme"}},
		{ID: "us", Slots: holdfast.NoLimit, USD: holdfast.NoLimit, Members: []holdfast.TeamID{"elsewhere"}},
	}
	var got []string
	for _, e := range p.Effects(d, noon) {
		if e.Subject.Kind == holdfast.KindOrg {
			got = append(got, strings.Join([]string{e.Subject.String(), e.Ordinary.String(), strings.Join(texts(e.Shares), " and ")}, ", "))
		}
	}
	if diff := cmp.Diff([]string{"org/eu/slots, 0 slots, platform/review-pr 1 slot and team:acme/own 1 slot"}, got); diff != "" {
		t.Error(diff)
	}
	kinds := map[budgetfloor.WarningKind]holdfast.Subject{}
	for _, w := range p.Warnings(d, noon) {
		kinds[w.Kind] = w.Subject
	}
	if _, inert := kinds[budgetfloor.WarnInertAxis]; inert || kinds[budgetfloor.WarnSwallowedCap] != holdfast.OrgSubject("eu", holdfast.AxisSlots, "") {
		t.Errorf("warned of %v", kinds)
	}
	d.Organisations = nil
	if !slices.ContainsFunc(p.Warnings(d, noon), func(w budgetfloor.Warning) bool { return w.Kind == budgetfloor.WarnInertAxis }) {
		t.Error("without any cap nothing is warned of")
	}
}

func TestAnEffectWithoutACapWithholdsNothing(t *testing.T) {
	p := decode(t, `{"reservations":[{"bot":"review-pr","monthly_usd":300}]}`)
	for _, e := range p.Effects(unlimited(), noon) {
		if !e.Withheld.IsZero() || !e.Ordinary.None() {
			t.Errorf("%s: withheld %s, ordinary keeps %s; want nothing and no limit", e.Subject, e.Withheld, e.Ordinary)
		}
	}
	if p.Reservations = nil; len(p.Effects(unlimited(), noon)) != 0 {
		t.Error("a policy without reservations has effects")
	}
}

func TestWarnings(t *testing.T) {
	capped := func(change func(*budgetfloor.Deployment)) budgetfloor.Deployment {
		d := budgetfloor.Deployment{
			Teams:         []budgetfloor.Team{{ID: "acme", Slots: slots(10), USD: dollars(1000)}, {ID: "web", Slots: slots(10), USD: dollars(1000)}},
			PlatformSlots: holdfast.NoLimit, PlatformUSD: holdfast.NoLimit, FiveHour: 8000, Week: 9000, Pools: true,
		}
		change(&d)
		return d
	}
	asIs := func(*budgetfloor.Deployment) {}
	for _, row := range []struct {
		name   string
		policy string
		change func(*budgetfloor.Deployment)
		want   []budgetfloor.WarningKind
		says   []string // each stands in one of the texts
	}{
		{"a policy that holds and leaves room", `{"bot":"a","concurrent_runs":2,"monthly_usd":300,"five_hour_percent":20,"week_percent":10,"pool_eligible":true}`, asIs, nil, nil},
		{"no cap on the window", `{"bot":"a","five_hour_percent":20}`, func(d *budgetfloor.Deployment) { d.FiveHour = 0 },
			[]budgetfloor.WarningKind{budgetfloor.WarnInertAxis}, []string{"account/any/five_hour", "usage-caps", "five_hour_percent"}},
		{"only windows that somebody reserved are warned of", `{"bot":"a","five_hour_percent":20}`, func(d *budgetfloor.Deployment) { d.Week = 0 }, nil, nil},
		{"a holder that is no bot", `{"bot":"a","concurrent_runs":2},{"bot":"b","concurrent_runs":2}`, func(d *budgetfloor.Deployment) {
			d.Unknown = []holdfast.Identity{holdfast.PlatformBot("b")}
		}, []budgetfloor.WarningKind{budgetfloor.WarnUnknownBot}, []string{"there is no bot platform/b", "holdfast bots", "holdfast policy rm"}},
		{"no cap in one team", `{"bot":"a","concurrent_runs":2}`, func(d *budgetfloor.Deployment) { d.Teams[1].Slots = holdfast.NoLimit },
			[]budgetfloor.WarningKind{budgetfloor.WarnInertAxis}, []string{"team/web/slots"}},
		{"a cap over all teams gives it its bite", `{"bot":"a","concurrent_runs":2}`, func(d *budgetfloor.Deployment) {
			d.Teams[1].Slots, d.PlatformSlots = holdfast.NoLimit, slots(5)
		}, nil, nil},
		{"the window swallowed to the point", `{"bot":"a","five_hour_percent":80}`, asIs, []budgetfloor.WarningKind{budgetfloor.WarnSwallowedCap}, []string{"account/any/five_hour: 80% is reserved of a cap of 80%"}},
		{"one point below", `{"bot":"a","five_hour_percent":79}`, asIs, nil, nil},
		{"the window swallowed and more", `{"bot":"a","five_hour_percent":81}`, asIs, []budgetfloor.WarningKind{budgetfloor.WarnOverReserved}, []string{"81% is reserved of a cap of 80%"}},
		{"more reserved than the cap", `{"bot":"a","concurrent_runs":2},{"bot":"b","concurrent_runs":2}`, func(d *budgetfloor.Deployment) {
			d.Teams[0].Slots = slots(3)
		}, []budgetfloor.WarningKind{budgetfloor.WarnOverReserved}, []string{"team/acme/slots: 4 slots is reserved of a cap of 3 slots, so platform/a gets 2 slots, platform/b gets 1 slot"}},
		{"the whole cap reserved", `{"bot":"a","monthly_usd":1000,"teams":["web"]}`, asIs, []budgetfloor.WarningKind{budgetfloor.WarnSwallowedCap}, []string{"team/web/usd"}},
		{"a team that does not exist", `{"bot":"a","tier":"team","team":"gone","concurrent_runs":1}`, asIs, []budgetfloor.WarningKind{budgetfloor.WarnUnknownTeam}, []string{"gone"}},
		{"a listed team that does not exist", `{"bot":"a","teams":["acme","gone"],"concurrent_runs":1}`, asIs, []budgetfloor.WarningKind{budgetfloor.WarnUnknownTeam}, []string{"gone"}},
		{"pool eligible without a pool", `{"bot":"a","concurrent_runs":1,"pool_eligible":true}`, func(d *budgetfloor.Deployment) { d.Pools = false },
			[]budgetfloor.WarningKind{budgetfloor.WarnNoPool}, []string{"spends the lent credential"}},
		{"a reservation of nothing", `{"bot":"a"}`, asIs, []budgetfloor.WarningKind{budgetfloor.WarnHoldsNothing}, []string{"platform/a"}},
		{"a reservation that is lent out", `{"bot":"a","concurrent_runs":50,"suspended_until":"2026-12-01T08:00:00Z"}`, asIs, []budgetfloor.WarningKind{budgetfloor.WarnLentOut}, []string{"2026-12-01T08:00:00Z"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := decode(t, `{"reservations":[`+row.policy+`]}`)
			var kinds []budgetfloor.WarningKind
			var all strings.Builder
			for _, w := range p.Warnings(capped(row.change), noon) {
				kinds = append(kinds, w.Kind)
				all.WriteString(w.Text + "\n")
			}
			if diff := cmp.Diff(row.want, kinds); diff != "" {
				t.Errorf("%s\n%s", diff, all.String())
			}
			for _, part := range row.says {
				if !strings.Contains(all.String(), part) {
					t.Errorf("the warning does not say %q: %s", part, all.String())
				}
			}
		})
	}
}
