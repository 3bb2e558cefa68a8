package server_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/openapi.json anew")

func TestTheOpenAPIDocumentIsTheOneThatWasReviewed(t *testing.T) {
	const path = "testdata/openapi.json"
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, must(build(t, nil).server.OpenAPI()), "", "  "); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, pretty.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reviewed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(reviewed, pretty.Bytes()) {
		t.Errorf("the API changed: read the difference after `go test ./pkg/server -run OpenAPIDocumentIs -update`, and keep it if it is meant")
	}
}
