package auth_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func create(t *testing.T, accounts *auth.Accounts, a auth.Account) auth.Account {
	t.Helper()
	if a.Kind == "" {
		a.Kind = auth.User
	}
	made, err := accounts.Create(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func whose(t *testing.T, tokens *auth.Tokens, bearer string) auth.Principal {
	t.Helper()
	who, err := tokens.Authenticate(t.Context(), bearer)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func TestAPersonalTokenMayWhatItsAccountMayNowAndNoMoreThanItWasMadeFor(t *testing.T) {
	tokens := open(t, memory.NewRecords(), clocktest.New())
	accounts := tokens.Accounts()
	create(t, accounts, auth.Account{ID: "ann", Memberships: []auth.Membership{{Team: "web", Role: auth.Admin}, {Team: "acme", Role: auth.Viewer}}})
	create(t, accounts, auth.Account{ID: "root", Operator: true})
	for _, row := range []struct {
		name  string
		issue auth.Issue
		want  auth.Principal
	}{
		{"all of it", auth.Issue{Account: "ann"}, auth.Principal{Name: "ann", Account: "ann", Memberships: []auth.Membership{{Team: "acme", Role: auth.Viewer}, {Team: "web", Role: auth.Admin}}}},
		{"one team", auth.Issue{Account: "ann", Team: "web"}, auth.Principal{Name: "ann", Account: "ann", Team: "web", Role: auth.Admin, Restricted: true}},
		{"one team and a lower role", auth.Issue{Account: "ann", Team: "web", Role: auth.Viewer}, auth.Principal{Name: "ann", Account: "ann", Team: "web", Role: auth.Viewer, Restricted: true}},
		{"a role above its own", auth.Issue{Account: "ann", Team: "acme", Role: auth.Admin}, auth.Principal{Name: "ann", Account: "ann", Team: "acme", Role: auth.Viewer, Restricted: true}},
		{"an operator's", auth.Issue{Account: "root"}, auth.Principal{Name: "root", Account: "root", Operator: true}},
		{"an operator's for one team", auth.Issue{Account: "root", Team: "web", Role: auth.Member}, auth.Principal{Name: "root", Account: "root", Team: "web", Role: auth.Member, Restricted: true}},
		{"an operator's with a role and no team", auth.Issue{Account: "root", Role: auth.Member}, auth.Principal{Name: "root", Account: "root", Restricted: true}},
	} {
		row.issue.Name = row.name
		token, bearer := issue(t, tokens, row.issue)
		row.want.TokenID = token.ID
		if diff := cmp.Diff(row.want, whose(t, tokens, bearer)); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
	if list, _, err := tokens.List(t.Context(), "web", 0, ""); err != nil || len(list) != 0 {
		t.Errorf("personal tokens stand in a team's list: %v, %v", list, err)
	}
	if list, _, err := tokens.ListOf(t.Context(), "ann", 0, ""); err != nil || len(list) != 4 {
		t.Errorf("ann has %d tokens, %v; want 4", len(list), err)
	}
	var bad *holdfast.InvalidError
	if _, _, err := tokens.Issue(t.Context(), auth.Issue{Account: "ann", Team: "other", Name: "x"}); !errors.As(err, &bad) || bad.Field != "team" {
		t.Errorf("a token for a team that the account is not in: %v", err)
	}
	if _, _, err := tokens.Issue(t.Context(), auth.Issue{Account: "nobody", Name: "x"}); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("a token of nobody: %v", err)
	}
}

func TestWhatAnAccountLosesItsTokensLoseWithTheNextRequest(t *testing.T) {
	tokens := open(t, memory.NewRecords(), clocktest.New())
	accounts := tokens.Accounts()
	create(t, accounts, auth.Account{ID: "ann", Memberships: []auth.Membership{{Team: "web", Role: auth.Admin}}})
	_, bearer := issue(t, tokens, auth.Issue{Account: "ann", Name: "laptop"})
	if _, err := accounts.SetMember(t.Context(), "ann", "web", auth.Viewer); err != nil {
		t.Fatal(err)
	}
	if who := whose(t, tokens, bearer); who.Role != auth.Viewer {
		t.Errorf("the role is %q, want viewer", who.Role)
	}
	set := func(disabled bool) {
		if _, err := accounts.Update(t.Context(), "ann", false, func(a *auth.Account) error { a.Disabled = disabled; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	set(true)
	refused(t, tokens, bearer, "disabled")
	set(false)
	whose(t, tokens, bearer)
	if _, err := accounts.Delete(t.Context(), "ann", false); err != nil {
		t.Fatal(err)
	}
	refused(t, tokens, bearer, "removed")
	create(t, accounts, auth.Account{ID: "ann", Memberships: []auth.Membership{{Team: "web", Role: auth.Admin}}})
	refused(t, tokens, bearer, "another account under the same id")
}

func TestOnlyItsAccountRevokesAPersonalToken(t *testing.T) {
	tokens := open(t, memory.NewRecords(), clocktest.New())
	for _, id := range []string{"ann", "bob"} {
		create(t, tokens.Accounts(), auth.Account{ID: id, Memberships: []auth.Membership{{Team: "web", Role: auth.Admin}}})
	}
	token, bearer := issue(t, tokens, auth.Issue{Account: "ann", Team: "web", Name: "laptop"})
	for name, revoke := range map[string]func() (auth.Token, error){
		"another":  func() (auth.Token, error) { return tokens.RevokeOf(t.Context(), "bob", token.ID) },
		"nobody":   func() (auth.Token, error) { return tokens.RevokeOf(t.Context(), "", token.ID) },
		"the team": func() (auth.Token, error) { return tokens.Revoke(t.Context(), "web", token.ID) },
	} {
		if _, err := revoke(); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("%s revoked it: %v", name, err)
		}
	}
	whose(t, tokens, bearer)
	if _, err := tokens.RevokeOf(t.Context(), "ann", token.ID); err != nil {
		t.Fatal(err)
	}
	refused(t, tokens, bearer, "revoked")
}

func TestTheLastOperatorsAccountStays(t *testing.T) {
	accounts := open(t, memory.NewRecords(), clocktest.New()).Accounts()
	create(t, accounts, auth.Account{ID: "one", Operator: true})
	ways := map[string]func(id string, spare bool) error{
		"demoted": func(id string, spare bool) error {
			_, err := accounts.Update(t.Context(), id, spare, func(a *auth.Account) error { a.Operator = false; return nil })
			return err
		},
		"disabled": func(id string, spare bool) error {
			_, err := accounts.Update(t.Context(), id, spare, func(a *auth.Account) error { a.Disabled = true; return nil })
			return err
		},
		"removed": func(id string, spare bool) error {
			_, err := accounts.Delete(t.Context(), id, spare)
			return err
		},
	}
	for name, way := range ways {
		if err := way("one", false); !errors.Is(err, auth.ErrLastOperator) {
			t.Errorf("the last operator was %s: %v", name, err)
		}
	}
	if a, err := accounts.Get(t.Context(), "one"); err != nil || !a.Operator || a.Disabled {
		t.Fatalf("%+v, %v", a, err)
	}
	for name, way := range ways {
		id := "two-" + name
		create(t, accounts, auth.Account{ID: id, Operator: true})
		if err := way(id, false); err != nil {
			t.Errorf("one of two could not be %s: %v", name, err)
		}
	}
	if err := ways["demoted"]("one", true); err != nil {
		t.Errorf("with another way in: %v", err)
	}
}

func TestTwoOperatorsThatRemoveOneAnotherLeaveOne(t *testing.T) {
	for round := range 50 {
		accounts := open(t, memory.NewRecords(), clocktest.New()).Accounts()
		var group sync.WaitGroup
		errs := make([]error, 2)
		for i := range 2 {
			create(t, accounts, auth.Account{ID: fmt.Sprint("op", i), Operator: true})
		}
		for i := range 2 {
			group.Go(func() { _, errs[i] = accounts.Delete(t.Context(), fmt.Sprint("op", i), false) })
		}
		group.Wait()
		left, _, err := accounts.List(t.Context(), 0, "")
		if err != nil || len(left) != 1 || errors.Is(errs[0], auth.ErrLastOperator) == errors.Is(errs[1], auth.ErrLastOperator) {
			t.Fatalf("round %d: %d are left, %v", round, len(left), errs)
		}
	}
}

func TestMembersAreThoseOfATeamWhoeverGaveThemTheRole(t *testing.T) {
	accounts := open(t, memory.NewRecords(), clocktest.New()).Accounts()
	create(t, accounts, auth.Account{ID: "ann", Memberships: []auth.Membership{{Team: "web", Role: auth.Viewer}}, Granted: []auth.Membership{{Team: "web", Role: auth.Admin}, {Team: "pay", Role: auth.Member}}})
	create(t, accounts, auth.Account{ID: "bob", Memberships: []auth.Membership{{Team: "web", Role: auth.Member}}})
	create(t, accounts, auth.Account{ID: "cy"})
	list, _, err := accounts.Members(t.Context(), "web", 0, "")
	if err != nil || len(list) != 2 || list[0].RoleIn("web") != auth.Admin || list[1].RoleIn("web") != auth.Member {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := accounts.SetMember(t.Context(), "ann", "pay", ""); !errors.Is(err, auth.ErrGranted) {
		t.Errorf("what a group granted was taken: %v", err)
	}
	if _, err := accounts.SetMember(t.Context(), "ann", "web", auth.Member); !errors.Is(err, auth.ErrGranted) {
		t.Errorf("what a group granted was lowered: %v", err)
	}
	if _, err := accounts.SetMember(t.Context(), "cy", "web", ""); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("who is no member was removed: %v", err)
	}
	if _, err := accounts.SetMember(t.Context(), "bob", "web", ""); err != nil {
		t.Error(err)
	}
	if list, _, _ := accounts.Members(t.Context(), "web", 0, ""); len(list) != 1 {
		t.Errorf("%d members are left", len(list))
	}
}

func TestAnAccountThatCannotBeMeantIsRefusedAtItsField(t *testing.T) {
	accounts := open(t, memory.NewRecords(), clocktest.New()).Accounts()
	for _, row := range []struct {
		field  string
		change func(*auth.Account)
	}{
		{"id", func(a *auth.Account) { a.ID = "a/b" }},
		{"kind", func(a *auth.Account) { a.Kind = "robot" }},
		{"name", func(a *auth.Account) { a.Name = "a\nb" }},
		{"email", func(a *auth.Account) { a.Email = "Ann <ann@example.com>" }},
		{"email", func(a *auth.Account) { a.Email = "ann" }},
		{"memberships[0].team", func(a *auth.Account) { a.Memberships = []auth.Membership{{Team: "A B", Role: auth.Viewer}} }},
		{"memberships[0].role", func(a *auth.Account) { a.Memberships = []auth.Membership{{Team: "web", Role: "owner"}} }},
		{"memberships[1].team", func(a *auth.Account) {
			a.Memberships = []auth.Membership{{Team: "web", Role: auth.Viewer}, {Team: "web", Role: auth.Admin}}
		}},
		{"memberships", func(a *auth.Account) {
			a.Memberships = slices.Repeat([]auth.Membership{{Team: "web", Role: auth.Viewer}}, 201)
		}},
	} {
		a := auth.Account{ID: "ann", Kind: auth.User}
		row.change(&a)
		_, err := accounts.Create(t.Context(), a)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != row.field || bad.Allowed == "" {
			t.Errorf("%s: %v", row.field, err)
		}
	}
	create(t, accounts, auth.Account{ID: "Ann B", Email: "Ann@Example.com"})
	if _, err := accounts.Create(t.Context(), auth.Account{ID: "other", Kind: auth.User, Email: "ann@example.com"}); !errors.Is(err, records.ErrExists) {
		t.Errorf("an address twice: %v", err)
	}
	if a, err := accounts.ByEmail(t.Context(), "ANN@example.com"); err != nil || a.ID != "ann-b" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestAnUnreadableAccountIsNoAnswerAboutItsToken(t *testing.T) {
	db, c := recordstest.NewFaults(memory.NewRecords()), clocktest.New()
	tokens := open(t, db, c)
	create(t, tokens.Accounts(), auth.Account{ID: "ann", Memberships: []auth.Membership{{Team: "web", Role: auth.Admin}}})
	_, bearer := issue(t, tokens, auth.Issue{Account: "ann", Name: "laptop"})
	db.Before(func(_ context.Context, op recordstest.Operation) error {
		if op.Verb == "get" {
			return records.ErrUnavailable
		}
		return nil
	})
	if _, err := tokens.Authenticate(t.Context(), bearer); !errors.Is(err, records.ErrUnavailable) || errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("%v, want unavailable", err)
	}
	db.Before(nil)
	c.Advance(time.Hour)
	whose(t, tokens, bearer)
	if a, _ := tokens.Accounts().Get(t.Context(), "ann"); !a.LastSeenAt.Equal(c.Now()) {
		t.Errorf("last seen %s, want %s", a.LastSeenAt, c.Now())
	}
}
