package metrics_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/metrics"
)

func TestTriesAreCountedUnderWordsOfThisBuildAlone(t *testing.T) {
	m := metrics.New()
	m.Surface("webhook", "launched")
	m.Surface("webhook", "launched")
	m.Surface("acme", "their word")
	m.Missed(3)
	m.Missed(-1)
	got := series(t, m)
	for name, want := range map[string]float64{
		"surface_tries_total{outcome=launched,surface=webhook}": 2, "surface_tries_total{outcome=other,surface=other}": 1,
		"schedule_missed_ticks_total": 3, "queue_dead_letters": 0,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}
