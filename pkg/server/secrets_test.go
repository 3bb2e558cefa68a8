package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/api"
)

func TestASecretIsSetListedAndRemovedAndItsValueIsNeverAnsweredOrLogged(t *testing.T) {
	w := build(t, nil)
	const path = "/api/teams/acme/secrets/forge-token"
	answers := []reply{
		w.call("acme/admin", "PUT", path, `{"value":"open sesame"}`, "Idempotency-Key", "one").want(http.StatusCreated),
		w.call("acme/admin", "PUT", path, `{"value":"close sesame"}`).want(http.StatusOK),
		w.call("acme/admin", "GET", "/api/teams/acme/secrets", "").want(http.StatusOK),
		w.call("operator", "GET", "/api/audit?action=secret.set", "").want(http.StatusOK),
	}
	for _, r := range answers {
		if strings.Contains(r.body, "sesame") {
			t.Errorf("an answer has the value: %s", r.body)
		}
	}
	if log := w.log.String(); strings.Contains(log, "sesame") {
		t.Errorf("the log has the value: %s", log)
	}
	var list api.Page[api.Secret]
	answers[2].into(&list)
	if len(list.Items) != 1 || list.Items[0].Name != "forge-token" || list.Items[0].UpdatedBy == "" || list.Items[0].UpdatedAt.IsZero() {
		t.Errorf("listed as %+v", list)
	}
	var trail api.Page[api.AuditEntry]
	answers[3].into(&trail)
	if len(trail.Items) != 2 || trail.Items[0].Target != "acme/forge-token" || trail.Items[0].Team != "acme" {
		t.Errorf("the audit trail has %+v", trail.Items)
	}
	w.call("acme/admin", "DELETE", path, "").want(http.StatusNoContent)
	w.call("acme/admin", "DELETE", path, "").problem(http.StatusNotFound)
	w.call("acme/admin", "PUT", "/api/teams/acme/secrets/Not%20A%20Name", `{"value":"x"}`).problem(http.StatusBadRequest)
	w.call("acme/admin", "PUT", path, `{"value":""}`).problem(http.StatusBadRequest)
	w.call("acme/member", "GET", "/api/teams/acme/secrets", "").problem(http.StatusForbidden)
	w.call("rival/admin", "GET", "/api/teams/acme/secrets", "").problem(http.StatusNotFound)
}
