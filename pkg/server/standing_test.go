package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
)

// A policy that cannot be read is shown where an operator looks: on the capacity page,
// in readiness (which doctor prints), and to others without its inside.
func TestAPolicyInDoubtIsShown(t *testing.T) {
	w := build(t, nil)
	standing := func(who string) api.PolicyStanding {
		t.Helper()
		var c api.Capacity
		w.call(who, "GET", "/api/capacity", "").want(200).into(&c)
		return c.Policy
	}
	warnings := func() string {
		var h api.Health
		w.call("", "GET", "/readyz", "").want(200).into(&h)
		return strings.Join(h.Warnings, "; ")
	}
	if p := standing("operator"); p.State != "absent" || !p.AsOf.Equal(w.clock.Now()) || p.Reason != "" {
		t.Errorf("without a policy it is %+v", p)
	}
	w.call("operator", "PUT", "/api/admin/settings/budget-floor", `{"reservations":[{"bot":"review-pr","concurrent_runs":1}]}`).want(200)
	if p := standing("operator"); p.State != "fresh" || warnings() != "" {
		t.Errorf("once written it is %+v, warned %q", p, warnings())
	}
	since := w.clock.Now()
	w.clock.Advance(time.Minute)
	w.faults.Before(func(_ context.Context, o recordstest.Operation) error {
		if o.Collection == "settings" {
			return errors.New("disk on fire")
		}
		return nil
	})
	p := standing("operator")
	if p.State != "stale" || !p.AsOf.Equal(since) || !strings.Contains(p.Reason, "disk on fire") {
		t.Errorf("when it cannot be read it is %+v", p)
	}
	if p := standing("acme/viewer"); p.State != "stale" || p.Reason != "" {
		t.Errorf("a viewer is shown %+v", p)
	}
	if text := warnings(); !strings.Contains(text, "stays reserved") || !strings.Contains(text, since.Format(time.RFC3339)) || strings.Contains(text, "fire") {
		t.Errorf("readiness warns %q", text)
	}
	w.faults.Before(nil)
	w.clock.Advance(time.Minute)
	if p := standing("operator"); p.State != "fresh" || warnings() != "" {
		t.Errorf("when it is back it is %+v, warned %q", p, warnings())
	}
}
