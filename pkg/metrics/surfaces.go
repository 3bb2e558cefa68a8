package metrics

import "slices"

// Surface counts what became of a launch that something tried by itself.
func (m *Metrics) Surface(surface, outcome string) {
	if !slices.Contains([]string{"webhook", "schedule", "board", "retry"}, surface) {
		surface = other
	}
	known := []string{"launched", "refused", "given_up", "failed", "ignored", "duplicate", "invalid", "resumed", "abandoned"}
	if !slices.Contains(known, outcome) {
		outcome = other
	}
	m.surfaces.WithLabelValues(surface, outcome).Inc()
}

// Missed counts ticks of schedules that nobody launched.
func (m *Metrics) Missed(ticks int64) { m.missed.Add(float64(max(0, ticks))) }
