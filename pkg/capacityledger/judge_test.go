package capacityledger_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

var (
	slots   = holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	dollars = holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03")
	review  = holdfast.PlatformBot("review-pr")
	feature = holdfast.PlatformBot("feature-dev")
	docs    = holdfast.TeamBot("acme", "docs-writer")
)

// row is one judgement over a total that already contains the ask.
type row struct {
	name      string
	subject   holdfast.Subject
	holder    holdfast.Identity
	limit     int64 // the cap; -1 is none
	reserved  []capacityledger.Reserved
	settled   int64
	post      int64 // outstanding, the ask included
	holders   []capacityledger.Holding
	requested int64
	minimum   int64
	unjudged  bool
	want      capacityledger.Verdict
}

// verdict is what is wanted, with the state that the judge must have seen.
func (r row) verdict() capacityledger.Verdict {
	v := r.want
	v.Settled, v.Outstanding = r.settled, r.post-r.requested
	return v
}

func reserved(subject holdfast.Subject, holder holdfast.Identity, n int64) capacityledger.Reserved {
	return capacityledger.Reserved{Holder: holder, Amount: holdfast.AmountOf(subject.Axis.Unit(), n)}
}

func grants(allowance, withheld, remaining int64) capacityledger.Verdict {
	return capacityledger.Verdict{Allowance: allowance, Withheld: withheld, Remaining: remaining, PlainRemaining: remaining + withheld}
}

func refuses(withheld, remaining int64, held, hopeless bool) capacityledger.Verdict {
	return capacityledger.Verdict{Refused: true, Withheld: withheld, Remaining: remaining, PlainRemaining: remaining + withheld, Held: held, Hopeless: hopeless}
}

func judgeRows() []row {
	two := []capacityledger.Reserved{reserved(slots, review, 2)}
	thirty := []capacityledger.Reserved{reserved(dollars, review, 30)}
	return []row{
		{name: "the first of one", subject: slots, limit: 1, post: 1, requested: 1, want: grants(1, 0, 1)},
		{name: "the second of one", subject: slots, limit: 1, post: 2, requested: 1, want: refuses(0, 0, false, false)},
		{name: "the last of three", subject: slots, limit: 3, post: 3, requested: 1, want: grants(1, 0, 1)},
		{name: "one above three", subject: slots, limit: 3, post: 4, requested: 1, want: refuses(0, 0, false, false)},
		{name: "settled counts too", subject: slots, limit: 3, settled: 2, post: 2, requested: 1, want: refuses(0, 0, false, false)},
		{name: "three at once of three", subject: slots, limit: 3, post: 3, requested: 3, want: grants(3, 0, 3)},
		{name: "countable axes are never cut", subject: slots, limit: 3, post: 4, requested: 3, want: refuses(0, 2, false, false)},
		{name: "more than the cap never fits", subject: slots, limit: 3, post: 4, requested: 4, want: refuses(0, 3, false, true)},
		{name: "a cap of zero", subject: slots, limit: 0, post: 1, requested: 1, want: refuses(0, 0, false, true)},
		{name: "no cap", subject: slots, limit: -1, post: 99, requested: 1, reserved: two, want: capacityledger.Verdict{Allowance: 1}},
		{name: "above a lowered cap", subject: slots, limit: 3, post: 6, requested: 1, want: refuses(0, -2, false, false)},
		{name: "unjudged above the cap", subject: slots, limit: 3, post: 6, requested: 1, unjudged: true, want: capacityledger.Verdict{Allowance: 1}},

		{name: "dollars in full", subject: dollars, limit: 50, post: 30, requested: 30, want: grants(30, 0, 50)},
		{name: "dollars in part", subject: dollars, limit: 50, post: 60, requested: 30, want: grants(20, 0, 20)},
		{name: "dollars to the last one", subject: dollars, limit: 50, settled: 20, post: 30, requested: 30, want: grants(30, 0, 30)},
		{name: "no dollars left", subject: dollars, limit: 50, settled: 50, post: 30, requested: 30, want: refuses(0, 0, false, false)},
		{name: "dollars overspent", subject: dollars, limit: 50, settled: 60, post: 30, requested: 30, want: refuses(0, -10, false, false)},
		{name: "less than the minimum", subject: dollars, limit: 50, settled: 45, post: 30, requested: 30, minimum: 6, want: refuses(0, 5, false, false)},
		{name: "exactly the minimum", subject: dollars, limit: 50, settled: 45, post: 30, requested: 30, minimum: 5, want: grants(5, 0, 5)},
		{name: "a minimum above the cap", subject: dollars, limit: 50, post: 60, requested: 60, minimum: 51, want: refuses(0, 50, false, true)},
		{name: "a resume: nothing asked, something left", subject: dollars, limit: 50, settled: 49, requested: 0, want: grants(0, 0, 1)},
		{name: "a resume at equality", subject: dollars, limit: 50, settled: 50, requested: 0, want: refuses(0, 0, false, false)},

		{name: "reserve 2 of 3: ordinary work gets one", subject: slots, holder: feature, limit: 3, reserved: two, post: 1, requested: 1, want: grants(1, 2, 1)},
		{name: "reserve 2 of 3: and no second", subject: slots, holder: feature, limit: 3, reserved: two, post: 2, requested: 1, want: refuses(2, 0, true, false)},
		{name: "reserve 2 of 3: the holder gets three", subject: slots, holder: review, limit: 3, reserved: two, post: 3, requested: 1,
			holders: []capacityledger.Holding{{Holder: review, Outstanding: 3}}, want: grants(1, 0, 1)},
		{name: "a holder is not judged against its own reserve", subject: slots, holder: review, limit: 3, reserved: two, post: 3, requested: 1,
			holders: []capacityledger.Holding{{Holder: feature, Outstanding: 2}, {Holder: review, Outstanding: 1}}, want: grants(1, 0, 1)},
		{name: "nor on dollars", subject: dollars, holder: review, limit: 50, reserved: thirty, post: 45, requested: 20,
			holders: []capacityledger.Holding{{Holder: feature, Outstanding: 25}, {Holder: review, Outstanding: 20}}, want: grants(20, 0, 25)},
		{name: "the exact rule: what the holder holds is not withheld again", subject: slots, holder: feature, limit: 3, reserved: two, post: 3, requested: 1,
			holders: []capacityledger.Holding{{Holder: review, Outstanding: 2}, {Holder: feature, Outstanding: 1}}, want: grants(1, 0, 1)},
		{name: "the holder above its reserve withholds nothing", subject: slots, holder: feature, limit: 4, reserved: two, post: 4, requested: 1,
			holders: []capacityledger.Holding{{Holder: review, Outstanding: 3}, {Holder: feature, Outstanding: 1}}, want: grants(1, 0, 1)},
		{name: "settled slots do not count as held", subject: slots, holder: feature, limit: 3, reserved: two, post: 2, requested: 1,
			holders: []capacityledger.Holding{{Holder: review, Settled: 2}}, want: refuses(2, 0, true, false)},
		{name: "all reserved: ordinary work never fits", subject: slots, holder: feature, limit: 2, reserved: two, post: 1, requested: 1, want: refuses(2, 0, true, true)},
		{name: "a reserve above the cap is cut to it", subject: slots, holder: feature, limit: 1, reserved: two, post: 1, requested: 1, want: refuses(1, 0, true, true)},
		{name: "A and B above the cap: A first", subject: slots, holder: review, limit: 3, reserved: append(two, reserved(slots, docs, 2)), post: 2, requested: 1,
			holders: []capacityledger.Holding{{Holder: review, Outstanding: 2}}, want: grants(1, 1, 1)},
		{name: "A and B above the cap: B gets the rest", subject: slots, holder: docs, limit: 3, reserved: append(two, reserved(slots, docs, 2)), post: 2, requested: 1,
			holders: []capacityledger.Holding{{Holder: docs, Outstanding: 2}}, want: refuses(2, 0, true, false)},

		{name: "30 of 50 reserved and spent: ordinary up to 20", subject: dollars, holder: feature, limit: 50, reserved: thirty, settled: 30, post: 40, requested: 40,
			holders: []capacityledger.Holding{{Holder: review, Settled: 30}, {Holder: feature, Outstanding: 40}}, want: grants(20, 0, 20)},
		{name: "the holder spent 45: ordinary up to 5", subject: dollars, holder: feature, limit: 50, reserved: thirty, settled: 45, post: 40, requested: 40,
			holders: []capacityledger.Holding{{Holder: review, Settled: 45}, {Holder: feature, Outstanding: 40}}, want: grants(5, 0, 5)},
		{name: "the holder spent 10 and holds 5: 15 are withheld", subject: dollars, holder: feature, limit: 50, reserved: thirty, settled: 10, post: 45, requested: 40,
			holders: []capacityledger.Holding{{Holder: review, Settled: 10, Outstanding: 5}, {Holder: feature, Outstanding: 40}}, want: grants(20, 15, 20)},
		{name: "a reserve is no cap", subject: dollars, holder: feature, limit: -1, reserved: thirty, post: 90, requested: 90, want: capacityledger.Verdict{Allowance: 90}},
		{name: "numbers at the edge do not overflow", subject: dollars, holder: feature, limit: math.MaxInt64, reserved: []capacityledger.Reserved{reserved(dollars, review, math.MaxInt64), reserved(dollars, docs, math.MaxInt64)},
			settled: math.MaxInt64 / 8, post: 1, requested: 1, want: refuses(math.MaxInt64, -math.MaxInt64/8, true, true)},
	}
}

func TestJudgeOverThePostAdmitTotal(t *testing.T) {
	for _, r := range judgeRows() {
		t.Run(r.name, func(t *testing.T) {
			ask := askFor(t, r)
			post := capacityledger.PostAdmit{Settled: r.settled, Outstanding: r.post, Holders: r.holders}
			if diff := cmp.Diff(r.verdict(), capacityledger.Judge(post, ask)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func askFor(t *testing.T, r row) capacityledger.Ask {
	t.Helper()
	limit := holdfast.NoLimit
	if r.limit >= 0 {
		limit = holdfast.AtMost(holdfast.AmountOf(r.subject.Axis.Unit(), r.limit))
	}
	holder := r.holder
	if holder.IsZero() {
		holder = feature
	}
	return capacityledger.JudgedAsk(r.subject, capacityledger.Ask{
		Terms: capacityledger.Terms{Cap: limit, Reserved: r.reserved}, Holder: holder,
		Requested: holdfast.AmountOf(r.subject.Axis.Unit(), r.requested), Minimum: holdfast.AmountOf(r.subject.Axis.Unit(), r.minimum), Unjudged: r.unjudged,
	})
}

// Deriving the state from a reading without the asker and moving first give the same
// verdict: neither road adds the ask a second time.
func TestBothRoadsToThePostAdmitStateAgree(t *testing.T) {
	for _, r := range judgeRows() {
		ask := askFor(t, r)
		before := capacityledger.Balance{Settled: r.settled, Outstanding: r.post - r.requested}
		for _, h := range r.holders {
			if h.Holder == ask.Holder {
				h.Outstanding -= r.requested
			}
			before.Holders = append(before.Holders, h)
		}
		got := capacityledger.Judge(capacityledger.Excluding{Balance: before}.Plus(ask.Holder, ask.Requested), ask)
		if diff := cmp.Diff(r.verdict(), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.name, diff)
		}
	}
}

// Whatever is asked of whatever state, a capped subject never grants zero, more than
// was asked, or more than what remains.
func TestJudgeNeverGrantsZeroNorMoreThanRemains(t *testing.T) {
	for limit := int64(0); limit < 6; limit++ {
		for settled := int64(0); settled < 4; settled++ {
			for others := int64(0); others < 4; others++ {
				for requested := int64(1); requested < 6; requested++ {
					for _, subject := range []holdfast.Subject{slots, dollars} {
						ask := askFor(t, row{subject: subject, limit: limit, requested: requested, reserved: []capacityledger.Reserved{reserved(subject, review, 2)}})
						v := capacityledger.Judge(capacityledger.PostAdmit{Settled: settled, Outstanding: others + requested}, ask)
						total := settled + others + v.Allowance
						if v.Refused != (v.Allowance == 0) || v.Allowance > requested || (!v.Refused && total > limit) || v.Allowance > max(0, v.Remaining) {
							t.Fatalf("cap %d, %d settled, %d of others, %d asked on %s: %+v", limit, settled, others, requested, subject, v)
						}
					}
				}
			}
		}
	}
}
