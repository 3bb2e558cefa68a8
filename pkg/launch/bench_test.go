package launch_test

import "testing"

// BenchmarkALaunchAndItsSettle is one external run from the gate to its end over the
// memory twins: everything but the disk.
func BenchmarkALaunchAndItsSettle(b *testing.B) {
	w := newWorldFor(b)
	for b.Loop() {
		run, denial, err := w.Launch(w.ctx, operator, external("feature-dev"))
		if err != nil || denial.Denied() {
			b.Fatalf("denied %q, error %v", denial.Reason, err)
		}
		if _, err := w.Settle(w.ctx, operator, run.ID, usd(1), "finished"); err != nil {
			b.Fatal(err)
		}
		w.clock.Advance(200e6) // ten launches a second are the default rate
	}
}
