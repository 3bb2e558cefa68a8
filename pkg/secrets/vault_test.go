package secrets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func vault(t *testing.T, db records.DB, keys *secrets.Keyring) *secrets.Vault {
	t.Helper()
	v, err := secrets.NewVault(t.Context(), db, clocktest.New(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func put(t *testing.T, v *secrets.Vault, team holdfast.TeamID, name, value string) {
	t.Helper()
	if _, _, err := v.Put(t.Context(), team, name, []byte(value), "ada"); err != nil {
		t.Fatal(err)
	}
}

func reveal(t *testing.T, v *secrets.Vault, team holdfast.TeamID, names ...string) map[string]string {
	t.Helper()
	values, err := v.Reveal(t.Context(), team, names)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for name, value := range values {
		texts[name] = string(value)
	}
	return texts
}

// spy keeps every body that is written.
type spy struct {
	records.DB
	bodies [][]byte
}

func (s *spy) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	c, err := s.DB.Collection(ctx, schema)
	return spied{c, s}, err
}

type spied struct {
	records.Collection
	spy *spy
}

func (s spied) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	s.spy.bodies = append(s.spy.bodies, r.Body)
	return s.Collection.Insert(ctx, r)
}

func (s spied) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	s.spy.bodies = append(s.spy.bodies, r.Body)
	return s.Collection.Replace(ctx, r)
}

func TestASecretIsKeptSealedAndReadBackForItsOwnTeamOnly(t *testing.T) {
	db := &spy{DB: memory.NewRecords()}
	v := vault(t, db, keyring(t, secrets.NewKey()))
	put(t, v, "web", secrets.ForgeToken, "old sesame")
	put(t, v, "web", secrets.ForgeToken, "open sesame")
	put(t, v, "shop", secrets.ForgeToken, "another sesame")
	if len(db.bodies) != 3 {
		t.Fatalf("%d bodies were written, want 3", len(db.bodies))
	}
	for _, body := range db.bodies {
		if bytes.Contains(body, []byte("sesame")) {
			t.Errorf("the store was given the value: %s", body)
		}
	}
	if got, want := reveal(t, v, "web", secrets.ForgeToken, "absent"), (map[string]string{secrets.ForgeToken: "open sesame"}); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if got := reveal(t, v, "payments", secrets.ForgeToken); len(got) != 0 {
		t.Errorf("a team without secrets has %v", got)
	}
	list, next, err := v.List(t.Context(), "web", 0, "")
	if err != nil || next != "" || len(list) != 1 || list[0].Name != secrets.ForgeToken || list[0].UpdatedBy != "ada" || list[0].UpdatedAt.IsZero() {
		t.Errorf("listed as %+v, %q, %v", list, next, err)
	}
	if err := v.Delete(t.Context(), "web", secrets.ForgeToken); err != nil {
		t.Fatal(err)
	}
	if err := v.Delete(t.Context(), "web", secrets.ForgeToken); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if got := reveal(t, v, "web", secrets.ForgeToken); len(got) != 0 {
		t.Errorf("a removed secret is read back as %v", got)
	}
}

func TestASealedSecretThatIsMovedToAnotherTeamOpensNothing(t *testing.T) {
	db := memory.NewRecords()
	v := vault(t, db, keyring(t, secrets.NewKey()))
	put(t, v, "web", secrets.ForgeToken, "open sesame")
	put(t, v, "shop", secrets.ForgeToken, "another sesame")
	c, err := db.Collection(t.Context(), records.Schema{Name: "secrets", Indexes: []records.Index{{Name: "team"}}})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := c.Get(t.Context(), "web/"+secrets.ForgeToken)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := c.Get(t.Context(), "shop/"+secrets.ForgeToken)
	if err != nil {
		t.Fatal(err)
	}
	mine.Body = bytes.ReplaceAll(theirs.Body, []byte(`"web"`), []byte(`"shop"`))
	if _, err := c.Replace(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if values, err := v.Reveal(t.Context(), "shop", []string{secrets.ForgeToken}); !errors.Is(err, secrets.ErrSealed) {
		t.Errorf("whoever can write the database reads another team's secret: %q, %v", values, err)
	}
}

func TestAWriteSealsAgainUnderTheNewKey(t *testing.T) {
	db, old, young := memory.NewRecords(), secrets.NewKey(), secrets.NewKey()
	put(t, vault(t, db, keyring(t, old)), "web", "a", "one")
	rotated := vault(t, db, keyring(t, young, old))
	if got := reveal(t, rotated, "web", "a"); got["a"] != "one" {
		t.Fatalf("after the rotation it reads %v", got)
	}
	put(t, rotated, "web", "a", "two")
	if got := reveal(t, vault(t, db, keyring(t, young)), "web", "a"); got["a"] != "two" {
		t.Errorf("without the old key it reads %v", got)
	}
}

func TestWithoutAKeyNamesAreThereAndValuesAreNot(t *testing.T) {
	db := memory.NewRecords()
	put(t, vault(t, db, keyring(t, secrets.NewKey())), "web", "a", "one")
	bare := vault(t, db, nil)
	if _, _, err := bare.Put(t.Context(), "web", "b", []byte("two"), "ada"); !errors.Is(err, secrets.ErrNoKey) {
		t.Errorf("kept without a key: %v", err)
	}
	if values, err := bare.Reveal(t.Context(), "web", []string{"a"}); !errors.Is(err, secrets.ErrNoKey) {
		t.Errorf("revealed %q, %v", values, err)
	}
	if got := reveal(t, bare, "web", "absent"); len(got) != 0 {
		t.Errorf("a team that has none needs no key, got %v", got)
	}
	if list, _, err := bare.List(t.Context(), "web", 0, ""); err != nil || len(list) != 1 {
		t.Errorf("listed as %v, %v", list, err)
	}
}

func TestWhatCannotBeASecretIsRefusedAndSaysWhatIsAllowed(t *testing.T) {
	v := vault(t, memory.NewRecords(), keyring(t, secrets.NewKey()))
	for name, try := range map[string]struct {
		name  string
		value []byte
	}{
		"no name": {"", []byte("x")}, "a path": {"a/b", []byte("x")}, "capitals": {"Forge", []byte("x")},
		"no value": {"a", nil}, "a long value": {"a", make([]byte, secrets.MaxValue+1)},
	} {
		_, _, err := v.Put(t.Context(), "web", try.name, try.value, "ada")
		var invalid *holdfast.InvalidError
		if !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range secrets.MaxPerTeam {
		put(t, v, "web", fmt.Sprintf("s%d", i), "x")
	}
	var invalid *holdfast.InvalidError
	if _, _, err := v.Put(t.Context(), "web", "more", []byte("x"), "ada"); !errors.As(err, &invalid) {
		t.Errorf("one more than there may be: %v", err)
	}
	if _, created, err := v.Put(t.Context(), "web", "s0", []byte("y"), "ada"); err != nil || created {
		t.Errorf("a full team cannot change a secret that it has: %v", err)
	}
}
