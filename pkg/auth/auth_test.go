package auth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func open(t *testing.T, db records.DB, c *clocktest.Manual) *auth.Tokens {
	t.Helper()
	tokens, err := auth.New(t.Context(), db, c)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func issue(t *testing.T, tokens *auth.Tokens, i auth.Issue) (auth.Token, string) {
	t.Helper()
	token, bearer, err := tokens.Issue(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	return token, bearer
}

func refused(t *testing.T, tokens *auth.Tokens, bearer, why string) {
	t.Helper()
	if who, err := tokens.Authenticate(t.Context(), bearer); !errors.Is(err, auth.ErrUnauthenticated) || !cmp.Equal(who, auth.Principal{}) {
		t.Errorf("%s: %+v, %v; want unauthenticated", why, who, err)
	}
}

func TestATokenOpensWhatItWasIssuedForAndTheStoreHasNoneOfItsText(t *testing.T) {
	db := memory.NewRecords()
	tokens := open(t, db, clocktest.New())
	token, bearer := issue(t, tokens, auth.Issue{Team: "acme", Name: "ci", Role: auth.Member, By: "operator"})
	if !strings.HasPrefix(bearer, "hf_") || len(bearer) < 46 {
		t.Errorf("the token is %q, want hf_ and 256 bits", bearer)
	}
	who, err := tokens.Authenticate(t.Context(), bearer)
	want := auth.Principal{Name: "ci", TokenID: token.ID, Team: "acme", Role: auth.Member}
	if diff := cmp.Diff(want, who); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	c, err := db.Collection(t.Context(), records.Schema{Name: "tokens", Indexes: []records.Index{{Name: "hash", Unique: true}, {Name: "team"}, {Name: "account"}}})
	if err != nil {
		t.Fatal(err)
	}
	row, err := c.Get(t.Context(), token.ID)
	if err != nil {
		t.Fatal(err)
	}
	if stored := string(row.Body) + fmt.Sprint(row.Keys); strings.Contains(stored, bearer) || strings.Contains(stored, strings.TrimPrefix(bearer, "hf_")) {
		t.Error("the store holds the token's text")
	}
	_, second := issue(t, tokens, auth.Issue{Team: "acme", Name: "ci", Role: auth.Member})
	if second == bearer {
		t.Error("two tokens are one")
	}
}

func TestATokenThatIsNotGoodOpensNothingAndDoesNotSayWhy(t *testing.T) {
	c := clocktest.New()
	tokens := open(t, memory.NewRecords(), c)
	expires := clocktest.T0.Add(time.Hour)
	_, bearer := issue(t, tokens, auth.Issue{Team: "acme", Name: "a", Role: auth.Admin, ExpiresAt: expires})
	for why, text := range map[string]string{
		"nothing": "", "no prefix": strings.TrimPrefix(bearer, "hf_"), "another": auth.NewBearer(), "a part": bearer[:len(bearer)-1],
		"more": bearer + "x", "other letters": "HF_" + bearer[3:], "a megabyte": "hf_" + strings.Repeat("x", 1<<20),
	} {
		refused(t, tokens, text, why)
	}
	c.Set(expires.Add(-time.Millisecond))
	if _, err := tokens.Authenticate(t.Context(), bearer); err != nil {
		t.Errorf("a moment before it expires: %v", err)
	}
	c.Set(expires)
	refused(t, tokens, bearer, "at the instant of its expiry")
}

func TestARevokedTokenIsDeadAtOnceAndOnlyItsTeamRevokesIt(t *testing.T) {
	tokens := open(t, memory.NewRecords(), clocktest.New())
	token, bearer := issue(t, tokens, auth.Issue{Team: "acme", Name: "a", Role: auth.Viewer})
	for _, other := range []struct {
		team holdfast.TeamID
		id   string
	}{{"web", token.ID}, {"", token.ID}, {"acme", "gone"}, {"acme", ""}, {"acme", "operator"}, {"acme", strings.Repeat("x", 300)}} {
		if _, err := tokens.Revoke(t.Context(), other.team, other.id); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("%q revokes %q: %v, want not found", other.team, other.id, err)
		}
	}
	if _, err := tokens.Authenticate(t.Context(), bearer); err != nil {
		t.Fatalf("another team revoked it: %v", err)
	}
	first, err := tokens.Revoke(t.Context(), "acme", token.ID)
	if err != nil || first.RevokedAt.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	refused(t, tokens, bearer, "revoked")
	if again, err := tokens.Revoke(t.Context(), "acme", token.ID); err != nil || !again.RevokedAt.Equal(first.RevokedAt) {
		t.Errorf("revoked again: %+v, %v; want the same", again, err)
	}
}

func TestATokenThatCannotBeMeantIsRefusedAtItsField(t *testing.T) {
	tokens := open(t, memory.NewRecords(), clocktest.New())
	for _, row := range []struct {
		field  string
		change func(*auth.Issue)
	}{
		{"team", func(i *auth.Issue) { i.Team = "" }},
		{"name", func(i *auth.Issue) { i.Name = " " }},
		{"name", func(i *auth.Issue) { i.Name = strings.Repeat("x", 101) }},
		{"name", func(i *auth.Issue) { i.Name = "a\tb" }},
		{"role", func(i *auth.Issue) { i.Role = "" }},
		{"role", func(i *auth.Issue) { i.Role = "owner" }},
		{"expires_at", func(i *auth.Issue) { i.ExpiresAt = clocktest.T0 }},
	} {
		i := auth.Issue{Team: "acme", Name: "a", Role: auth.Member}
		row.change(&i)
		_, bearer, err := tokens.Issue(t.Context(), i)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != row.field || bearer != "" {
			t.Errorf("%+v: %q, %v; want the field %s", i, bearer, err, row.field)
		}
	}
}

func TestRolesAreALadderAndWordsOffItOpenNothing(t *testing.T) {
	ladder := []auth.Role{auth.Viewer, auth.Member, auth.Admin}
	for i, mine := range ladder {
		for j, asked := range ladder {
			who := auth.Principal{Team: "acme", Role: mine}
			if got := who.May("acme", asked); got != (i >= j) {
				t.Errorf("a %s may what a %s may: %t", mine, asked, got)
			}
			if who.May("web", asked) || who.May("", asked) {
				t.Errorf("a %s of acme may act as %s elsewhere", mine, asked)
			}
		}
	}
	for _, role := range []auth.Role{"", "owner", "config_editor", "Admin"} {
		if (auth.Principal{Team: "acme", Role: role}).May("acme", auth.Viewer) || auth.Admin.AtLeast(role) {
			t.Errorf("%q is on the ladder", role)
		}
	}
	if !(auth.Principal{Operator: true}).May("acme", auth.Admin) || (auth.Principal{}).May("", auth.Viewer) {
		t.Error("the operator may everything and nobody nothing")
	}
}

func TestTheLastUseIsWrittenAtMostOnceAMinute(t *testing.T) {
	db, c := recordstest.NewFaults(memory.NewRecords()), clocktest.New()
	tokens := open(t, db, c)
	_, bearer := issue(t, tokens, auth.Issue{Team: "acme", Name: "a", Role: auth.Member})
	var mu sync.Mutex
	writes := 0
	db.Before(func(_ context.Context, op recordstest.Operation) error {
		if op.Verb == "replace" {
			mu.Lock()
			defer mu.Unlock()
			writes++
		}
		return nil
	})
	use := func() {
		if _, err := tokens.Authenticate(t.Context(), bearer); err != nil {
			t.Error(err)
		}
	}
	var group sync.WaitGroup
	for range 64 {
		group.Go(use)
	}
	group.Wait()
	c.Advance(time.Minute - time.Millisecond)
	use()
	if writes != 1 {
		t.Errorf("%d writes within a minute, want 1", writes)
	}
	c.Advance(time.Millisecond)
	use()
	list, _, err := tokens.List(t.Context(), "acme", 0, "")
	if err != nil || writes != 2 || !list[0].LastUsedAt.Equal(clocktest.T0.Add(time.Minute)) {
		t.Errorf("%d writes, last used %s, %v; want 2 and a minute later", writes, list[0].LastUsedAt, err)
	}
}

func TestALastUseThatCannotBeWrittenKeepsNobodyOut(t *testing.T) {
	db, c := recordstest.NewFaults(memory.NewRecords()), clocktest.New()
	tokens := open(t, db, c)
	_, bearer := issue(t, tokens, auth.Issue{Team: "acme", Name: "a", Role: auth.Member})
	db.Before(func(_ context.Context, op recordstest.Operation) error {
		if op.Verb == "replace" {
			return records.ErrUnavailable
		}
		return nil
	})
	if _, err := tokens.Authenticate(t.Context(), bearer); err != nil {
		t.Errorf("%v, want in", err)
	}
	db.Before(nil)
	if _, err := tokens.Authenticate(t.Context(), bearer); err != nil {
		t.Error(err)
	}
	if list, _, _ := tokens.List(t.Context(), "acme", 0, ""); list[0].LastUsedAt.IsZero() {
		t.Error("the next use did not write it")
	}
	db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
	if _, err := tokens.Authenticate(t.Context(), bearer); !errors.Is(err, records.ErrUnavailable) || errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("an unreachable store says %v, want unavailable: it is no answer about the token", err)
	}
}

func TestTheOperatorsTokenIsOneAndANewOneReplacesIt(t *testing.T) {
	tokens := open(t, memory.NewRecords(), clocktest.New())
	first, second := auth.NewBearer(), auth.NewBearer()
	for range 2 { // the same text again, as after a restart
		if err := tokens.EnsureOperator(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		who, err := tokens.Authenticate(t.Context(), first)
		if err != nil || !who.Operator || who.Team != "" || who.Name != "operator" {
			t.Fatalf("%+v, %v", who, err)
		}
	}
	if err := tokens.EnsureOperator(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	refused(t, tokens, first, "replaced")
	if who, err := tokens.Authenticate(t.Context(), second); err != nil || !who.Operator {
		t.Errorf("%+v, %v", who, err)
	}
	for _, weak := range []string{"", "hf_", "hf_short", "secret-secret-secret-secret-secret-secret",
		"hf_" + strings.Repeat("a", 40) + "\x01", "hf_" + strings.Repeat("a b", 20), "hf_" + strings.Repeat("\xff", 40)} {
		var bad *holdfast.InvalidError
		if err := tokens.EnsureOperator(t.Context(), weak); !errors.As(err, &bad) {
			t.Errorf("%q: %v, want an InvalidError", weak, err)
		}
	}
}

func TestListShowsATeamsTokensOnlyTheNewestFirst(t *testing.T) {
	c := clocktest.New()
	tokens := open(t, memory.NewRecords(), c)
	if err := tokens.EnsureOperator(t.Context(), auth.NewBearer()); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		issue(t, tokens, auth.Issue{Team: "acme", Name: fmt.Sprint("t", i), Role: auth.Member})
		issue(t, tokens, auth.Issue{Team: "web", Name: "other", Role: auth.Member})
		c.Advance(time.Second)
	}
	var got []string
	for cursor := ""; ; {
		page, next, err := tokens.List(t.Context(), "acme", 2, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range page {
			got = append(got, token.Name)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"t4", "t3", "t2", "t1", "t0"}, got); diff != "" {
		t.Error(diff)
	}
	if list, _, err := tokens.List(t.Context(), "", 0, ""); len(list) != 0 || err != nil {
		t.Errorf("no team has %d tokens, %v", len(list), err)
	}
}
