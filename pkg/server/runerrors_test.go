package server_test

import (
	"strings"
	"testing"
)

func TestARunThatIsNotThereIsSaidToBeARun(t *testing.T) {
	w := build(t, nil)
	for path, body := range map[string]string{"cancel": "", "resume": "", "heartbeat": `{"spent_usd":0}`, "settle": `{"spent_usd":0,"outcome":"finished"}`} {
		if p := w.call("acme/member", "POST", "/api/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/"+path, body).problem(404); p.Detail != "there is no such run" {
			t.Errorf("%s says %q", path, p.Detail)
		}
	}
}

func TestAConflictSaysWhatItIsAndEndsThere(t *testing.T) {
	w := build(t, nil)
	id := w.launched("acme/member", `{"team":"acme","bot":"probe"}`).ID
	p := w.call("acme/member", "POST", "/api/runs/"+id+"/resume", "").problem(409)
	if !strings.Contains(p.Detail, id) || strings.Contains(p.Detail, "does not allow") {
		t.Errorf("it says %q", p.Detail)
	}
}
