package holdfast_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// refused demands that an error is bad input that says what is allowed, on one line.
func refused(t *testing.T, text string, err error) {
	t.Helper()
	var bad *holdfast.InvalidError
	if !errors.As(err, &bad) || bad.Allowed == "" || strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 1_000 {
		t.Fatalf("%q: an error that is no answer: %v", text, err)
	}
}

func FuzzASubjectIsReadAsItIsWrittenOrRefused(f *testing.F) {
	for _, text := range []string{"team/acme/slots", "team/acme/usd@2026-11", "account/ab/five_hour@1764547200", "donor/p/usd@2026-W49", "platform/all/usd@2026-11", "a//b", "@", "team/acme/slots@@", "/", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := holdfast.ParseSubject(text)
		if err != nil {
			refused(t, text, err)
			return
		}
		again, err := holdfast.ParseSubject(s.String())
		if err != nil || again != s {
			t.Fatalf("%q is %+v, and written again %+v, %v", text, s, again, err)
		}
	})
}

func FuzzAnIdentityIsReadAsItIsWrittenOrRefused(f *testing.F) {
	for _, text := range []string{"platform/review-pr", "team:acme/feature-dev", "review-pr", "team:/x", "team:a/", "platform/", "Team:A B/C_D", "/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := holdfast.ParseIdentity(text)
		if err != nil {
			refused(t, text, err)
			return
		}
		again, err := holdfast.ParseIdentity(id.String())
		if err != nil || again != id || id.IsZero() {
			t.Fatalf("%q is %v, and written again %v, %v", text, id, again, err)
		}
	})
}

func FuzzANameFoldsOnceOrIsRefused(f *testing.F) {
	for _, text := range []string{"Feature Dev", "a.b_c", "-", "ä", strings.Repeat("a", 64), "A--B", " x "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := holdfast.FoldName(text)
		if err != nil {
			refused(t, text, err)
			return
		}
		if !holdfast.ValidName(name) || len(name) > 63 {
			t.Fatalf("%q folds to %q, which is no name", text, name)
		}
	})
}

func FuzzDollarsAreExactOrRefused(f *testing.F) {
	for _, text := range []string{"0", "1.5", "0.000001", "0.0000001", "-1", "1e3", "1000000001", ".", "1.", "+1", "NaN"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		usd, err := holdfast.ParseUSD(text)
		if err != nil {
			refused(t, text, err)
			return
		}
		again, err := holdfast.ParseUSD(usd.String())
		if err != nil || again != usd || usd < 0 || usd > holdfast.MaxUSD {
			t.Fatalf("%q is %v, and written again %v, %v", text, usd, again, err)
		}
	})
}
