package budgetfloor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// texts writes shares as "holder amount".
func texts(shares []budgetfloor.Share) []string {
	out := []string{}
	for _, s := range shares {
		out = append(out, fmt.Sprintf("%s %s", s.Holder, s.Amount))
	}
	return out
}

func TestReservedCountsOnASubjectWhatHoldsThere(t *testing.T) {
	p := decode(t, `{"reservations":[
		{"bot":"review-pr","concurrent_runs":2,"monthly_usd":300,"five_hour_percent":20,"week_percent":10},
		{"bot":"feature-dev","tier":"team","team":"acme","concurrent_runs":1,"monthly_usd":50},
		{"bot":"docs-writer","concurrent_runs":3,"teams":["web","pay"]},
		{"bot":"nightly","concurrent_runs":4,"suspended_until":"2026-12-01T08:00:00Z"}]}`)
	after := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name    string
		subject string
		at      time.Time
		members []holdfast.TeamID
		want    []string
	}{
		{"a team sees the platform's and its own", "team/acme/slots", noon, nil, []string{"platform/review-pr 2 slots", "team:acme/feature-dev 1 slot"}},
		{"a team never sees another team's own", "team/other/slots", noon, nil, []string{"platform/review-pr 2 slots"}},
		{"a listed team sees what is meant for it", "team/web/slots", noon, nil, []string{"platform/review-pr 2 slots", "platform/docs-writer 3 slots"}},
		{"dollars of a month", "team/acme/usd@2026-11", noon, nil, []string{"platform/review-pr $300.00", "team:acme/feature-dev $50.00"}},
		{"a suspended one counts nowhere", "platform/all/slots", noon, nil, []string{"platform/review-pr 2 slots", "team:acme/feature-dev 1 slot", "platform/docs-writer 3 slots"}},
		{"and counts again at its instant", "platform/all/slots", after, nil, []string{"platform/review-pr 2 slots", "team:acme/feature-dev 1 slot", "platform/docs-writer 3 slots", "platform/nightly 4 slots"}},
		{"and not a moment before", "platform/all/slots", after.Add(-time.Millisecond), nil, []string{"platform/review-pr 2 slots", "team:acme/feature-dev 1 slot", "platform/docs-writer 3 slots"}},
		{"an account's window sees all", "account/f00/five_hour@1764547200", noon, nil, []string{"platform/review-pr 20%"}},
		{"an account's week", "account/f00/week@1764547200", noon, nil, []string{"platform/review-pr 10%"}},
		{"an organisation sees its members'", "org/eu/slots", noon, []holdfast.TeamID{"acme", "web"}, []string{"platform/review-pr 2 slots", "team:acme/feature-dev 1 slot", "platform/docs-writer 3 slots"}},
		{"an organisation without them sees the platform's", "org/eu/slots", noon, []holdfast.TeamID{"x"}, []string{"platform/review-pr 2 slots"}},
		{"a month of runs cannot be reserved", "team/acme/runs@2026-11", noon, nil, []string{}},
		{"nor can a pool's ceiling", "runner-pool/default/in_flight", noon, nil, []string{}},
		{"nor a donor's day", "donor/p1/usd@2026-11-30", noon, nil, []string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := holdfast.ParseSubject(row.subject)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, texts(p.Reserved(s, row.at, row.members...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ADR-155 §11: one name may be reserved once for each tier; neither entry is the
// other's, and neither bot is the other's holder.
func TestOneNameReservedInBothTiersIsTwoHolders(t *testing.T) {
	p := decode(t, `{"reservations":[
		{"bot":"review-pr","concurrent_runs":2,"monthly_usd":300,"week_percent":20},
		{"bot":"review-pr","tier":"team","team":"acme","concurrent_runs":5,"monthly_usd":70,"week_percent":30}]}`)
	for _, row := range []struct {
		asker holdfast.Identity
		team  holdfast.TeamID
		slots holdfast.Slots
		usd   holdfast.MicroUSD
	}{
		{review, "acme", 5, 70 * holdfast.OneUSD},
		{acmeReview, "acme", 2, 300 * holdfast.OneUSD},
		{holdfast.TeamBot("other", "review-pr"), "other", 2, 300 * holdfast.OneUSD},
		{review, "other", 0, 0},
		{holdfast.Identity{}, "acme", 7, 370 * holdfast.OneUSD},
	} {
		if got := p.OtherReservedSlots(row.team, row.asker, noon); got != row.slots {
			t.Errorf("%q in %s faces %d slots, want %d", row.asker, row.team, got, row.slots)
		}
		if got := p.OtherReservedUSD(row.team, row.asker, noon); got != row.usd {
			t.Errorf("%q in %s faces %s, want %s", row.asker, row.team, got, row.usd)
		}
	}
	mine, _ := p.ReservationOf(review)
	theirs, _ := p.ReservationOf(acmeReview)
	if mine.ConcurrentRuns != 2 || theirs.ConcurrentRuns != 5 {
		t.Errorf("the platform's holds %d and the team's %d, want 2 and 5", mine.ConcurrentRuns, theirs.ConcurrentRuns)
	}
	if _, any := p.ReservationOf(holdfast.TeamBot("other", "review-pr")); any {
		t.Error("another team's bot of that name has a reservation")
	}
}

func TestWindowCeiling(t *testing.T) {
	p := decode(t, `{"reservations":[{"bot":"review-pr","five_hour_percent":20},{"bot":"feature-dev","five_hour_percent":10}]}`)
	whole := decode(t, `{"reservations":[{"bot":"review-pr","five_hour_percent":80}]}`)
	ordinary := holdfast.PlatformBot("docs-writer")
	for _, row := range []struct {
		name    string
		policy  budgetfloor.Policy
		asker   holdfast.Identity
		cap     holdfast.BasisPoints
		ceiling holdfast.BasisPoints
		held    bool
	}{
		{"ordinary work stops below both", p, ordinary, 8000, 5000, false},
		{"a holder stops below the other", p, review, 8000, 7000, false},
		{"and so does the other holder", p, feature, 8000, 6000, false},
		{"nobody is ordinary", p, holdfast.Identity{}, 8000, 5000, false},
		{"a team's homonym is ordinary", p, acmeReview, 8000, 5000, false},
		{"an unenforced window stays so", p, ordinary, 0, 0, false},
		{"and a negative cap is unenforced", p, ordinary, -1, -1, false},
		{"a cap that others reserved whole is held", whole, ordinary, 8000, 0, true},
		{"a cap below what others reserved is held", whole, ordinary, 7000, 0, true},
		{"one point is left", whole, ordinary, 8100, 100, false},
		{"its own reserve holds nothing from the holder", whole, review, 8000, 8000, false},
		{"without a policy the cap is the cap", budgetfloor.Policy{}, ordinary, 8000, 8000, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			ceiling, held := row.policy.WindowCeiling(row.asker, holdfast.AxisFiveHour, row.cap, noon)
			if ceiling != row.ceiling || held != row.held {
				t.Errorf("ceiling %d, held %t; want %d, %t", ceiling, held, row.ceiling, row.held)
			}
		})
	}
}

func TestRepoCap(t *testing.T) {
	p := decode(t, `{"reservations":[{"bot":"review-pr","monthly_usd":300,"suspended_until":"2027-01-01T00:00:00Z"},{"bot":"review-pr","tier":"team","team":"acme","monthly_usd":"0.000009"}],
		"repo_quotas":[
		{"repo":"acme/plain","monthly_usd":50},
		{"repo":"acme/share","reserve_share_percent":10,"share_of":{"bot":"review-pr"}},
		{"repo":"acme/both","monthly_usd":20,"reserve_share_percent":10,"share_of":{"bot":"review-pr"}},
		{"repo":"acme/both2","monthly_usd":40,"reserve_share_percent":10,"share_of":{"bot":"review-pr"}},
		{"repo":"acme/team","reserve_share_percent":50,"share_of":{"bot":"review-pr","tier":"team","team":"acme"}},
		{"repo":"acme/none","monthly_usd":0}]}`)
	usd := func(micro holdfast.MicroUSD) holdfast.Limit { return holdfast.AtMost(holdfast.USDAmount(micro)) }
	for repo, want := range map[string]holdfast.Limit{
		"acme/plain": usd(50_000_000), "https://github.com/Acme/Plain.git": usd(50_000_000), "acme/share": usd(30_000_000),
		"acme/both": usd(20_000_000), "acme/both2": usd(30_000_000), "acme/team": usd(4), "acme/none": usd(0),
		"acme/other": holdfast.NoLimit, "": holdfast.NoLimit,
	} {
		if got := p.RepoCap(repo); got != want {
			t.Errorf("%q may spend %s, want %s", repo, got, want)
		}
	}
	// A share never reads as unlimited, also of a reservation that is gone.
	p.Reservations = nil
	if got := p.RepoCap("acme/share"); got != usd(0) {
		t.Errorf("a share of nothing is %s, want nothing", got)
	}
}

// terms are what the ledger judges an ask by under a policy.
func terms(p budgetfloor.Policy, s holdfast.Subject, limit holdfast.Limit) capacityledger.Terms {
	t := capacityledger.Terms{Cap: limit}
	for _, share := range p.Reserved(s, noon) {
		t.Reserved = append(t.Reserved, capacityledger.Reserved{Holder: share.Holder, Amount: share.Amount})
	}
	return t
}

// The two laws, over every mix of two reservations, cap and use that is small
// enough to be counted through.
func TestAReservationNeverCreatesACapAndNeverLetsItsHolderPastIt(t *testing.T) {
	s := holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	one := holdfast.SlotAmount(1)
	askers := []holdfast.Identity{review, feature, holdfast.PlatformBot("docs-writer")}
	for a := range 4 {
		for b := range 4 {
			p := budgetfloor.Policy{Reservations: []budgetfloor.Reservation{
				{Bot: "review-pr", ConcurrentRuns: holdfast.Slots(a)}, {Bot: "feature-dev", ConcurrentRuns: holdfast.Slots(b)},
			}}
			for used := range int64(6) {
				for _, asker := range askers {
					for _, user := range askers {
						before := capacityledger.Excluding{Balance: capacityledger.Balance{
							Outstanding: used, Holders: []capacityledger.Holding{{Holder: user, Outstanding: used}},
						}}
						run := holdfast.RunID("01JD0000000000000000000000")
						ask := capacityledger.Ask{ID: holdfast.NewAllocationID(run, s, 0), Run: run, Holder: asker, Requested: one, Minimum: one}
						ask.Terms = terms(p, s, holdfast.NoLimit)
						if v := capacityledger.Judge(before.Plus(asker, one), ask); v.Refused {
							t.Fatalf("reserves %d and %d, %d used, no cap: %s is refused", a, b, used, asker)
						}
						limit := holdfast.AtMost(holdfast.SlotAmount(holdfast.Slots(used)))
						ask.Terms = terms(p, s, limit)
						if v := capacityledger.Judge(before.Plus(asker, one), ask); !v.Refused {
							t.Fatalf("reserves %d and %d, cap %d used up: %s is admitted", a, b, used, asker)
						}
					}
				}
			}
		}
	}
}

// Fault B7: what nobody configured withholds nothing, not even a default share.
func TestAPolicyThatSaysNothingWithholdsNothing(t *testing.T) {
	for name, p := range map[string]budgetfloor.Policy{
		"the zero policy":          {},
		"a reservation of nothing": decode(t, `{"reservations":[{"bot":"review-pr","pool_eligible":true}]}`),
		"a repository's quota":     decode(t, `{"repo_quotas":[{"repo":"a/b","monthly_usd":1}]}`),
	} {
		for _, text := range []string{"team/acme/slots", "team/acme/usd@2026-11", "platform/all/slots", "account/f00/week", "org/eu/usd@2026-11"} {
			s, err := holdfast.ParseSubject(text)
			if err != nil {
				t.Fatal(err)
			}
			if shares := p.Reserved(s, noon, "acme"); len(shares) != 0 || !p.OtherReserved(s, holdfast.Identity{}, noon).IsZero() {
				t.Errorf("%s withholds %v on %s", name, texts(shares), s)
			}
		}
	}
}
