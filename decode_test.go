package holdfast_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
)

type inner struct {
	Cost  holdfast.MicroUSD  `json:"monthly_usd"`
	Slots int                `json:"slots,omitempty"`
	Least *holdfast.MicroUSD `json:"least,omitempty"`
	Until time.Time          `json:"until,omitzero"`
}

type token struct {
	Token string `json:"token,omitempty"`
}

type document struct {
	Name  string              `json:"name"`
	On    bool                `json:"on"`
	Items []inner             `json:"items"`
	ByKey map[string]inner    `json:"by_key"`
	Limit holdfast.CountLimit `json:"limit,omitzero"`
	token
	Hidden string `json:"-"`
}

type withToken struct {
	A int `json:"a"`
	Embedded
}

// Embedded is exported, so that its fields can be set.
type Embedded struct {
	Token string `json:"token,omitempty"`
}

func TestDecodeJSONReadsWhatEncodingJSONReads(t *testing.T) {
	var d document
	text := `{"name":"x","on":true,"items":[{"monthly_usd":2.5,"least":"0.25"},{"monthly_usd":"1","slots":3,"until":"2026-12-01T08:00:00Z"}],
		"by_key":{"a":{"monthly_usd":7}},"limit":null}`
	if err := holdfast.DecodeJSON([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	least := holdfast.MicroUSD(250_000)
	want := document{
		Name: "x", On: true,
		Items: []inner{
			{Cost: 2_500_000, Least: &least},
			{Cost: 1_000_000, Slots: 3, Until: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)},
		},
		ByKey: map[string]inner{"a": {Cost: 7_000_000}},
		Limit: holdfast.CountLimit{LimitSetting: holdfast.Unlimited},
	}
	compare := cmp.Comparer(func(a, b holdfast.CountLimit) bool { return a == b })
	if diff := cmp.Diff(want, d, compare, cmp.AllowUnexported(document{})); diff != "" {
		t.Error(diff)
	}
	var w withToken
	if err := holdfast.DecodeJSON([]byte(`{"a":1,"token":"t"}`), &w); err != nil || w.Token != "t" {
		t.Errorf("the field of an embedded struct: %+v, %v", w, err)
	}
}

func TestDecodeJSONNamesTheFieldThatIsWrong(t *testing.T) {
	for _, row := range []struct{ name, text, field string }{
		{"an unknown field", `{"nme":"x"}`, "nme"},
		{"a field in other letters", `{"Name":"x"}`, "Name"},
		{"a hidden field", `{"Hidden":"x"}`, "Hidden"},
		{"a field written twice", `{"name":"x","name":"y"}`, "name"},
		{"an unknown field of a list's item", `{"items":[{"monthly_usd":1},{"monthly":1}]}`, "items[1].monthly"},
		{"a negative amount in a list's item", `{"items":[{"monthly_usd":1},{"monthly_usd":-1}]}`, "items[1].monthly_usd"},
		{"an amount with an exponent", `{"items":[{"monthly_usd":"1e3"}]}`, "items[0].monthly_usd"},
		{"an amount with seven decimals", `{"items":[{"monthly_usd":0.0000001}]}`, "items[0].monthly_usd"},
		{"an amount that is null", `{"items":[{"monthly_usd":null}]}`, "items[0].monthly_usd"},
		{"a word for a number", `{"items":[{"slots":"three"}]}`, "items[0].slots"},
		{"a fraction for a whole number", `{"items":[{"slots":1.5}]}`, "items[0].slots"},
		{"a number beyond 64 bits", `{"items":[{"slots":99999999999999999999}]}`, "items[0].slots"},
		{"an object for a list", `{"items":{}}`, "items"},
		{"a list for an object", `{"by_key":[]}`, "by_key"},
		{"a bad value under a key", `{"by_key":{"a":{"slots":true}}}`, "by_key.a.slots"},
		{"a key written twice", `{"by_key":{"a":{"monthly_usd":1},"a":{"monthly_usd":1}}}`, "by_key.a"},
		{"a limit below zero", `{"limit":-1}`, "limit"},
		{"a time that is none", `{"items":[{"until":"tomorrow"}]}`, "items[0].until"},
		{"a number for the document", `7`, ""},
		{"broken JSON", `{"name":`, ""},
		{"something behind it", `{"name":"x"} {}`, ""},
		{"nothing", ``, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var d document
			err := holdfast.DecodeJSON([]byte(row.text), &d)
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) {
				t.Fatalf("%s: %v is not an InvalidError", row.text, err)
			}
			if bad.Field != row.field || bad.Problem == "" || bad.Allowed == "" {
				t.Errorf("field %q, problem %q, allowed %q; want the field %q and both texts", bad.Field, bad.Problem, bad.Allowed, row.field)
			}
		})
	}
}

func FuzzDecodeJSONRefusesOrDecodes(f *testing.F) {
	f.Add([]byte(`{"name":"x","items":[{"monthly_usd":2.5}],"by_key":{"a":{}},"limit":3}`))
	f.Add([]byte(`{"items":[null],"by_key":null}`))
	f.Add([]byte("[\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var d document
		err := holdfast.DecodeJSON(text, &d)
		var bad *holdfast.InvalidError
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("%q: %v is not an InvalidError", text, err)
		}
	})
}
