package secrets_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

func keyring(t *testing.T, keys ...string) *secrets.Keyring {
	t.Helper()
	k, err := secrets.ParseKeyring(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func seal(t *testing.T, k *secrets.Keyring, about, plain string) string {
	t.Helper()
	sealed, err := k.Seal(about, []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestASealedTextOpensUnderItsKeyAndForWhatItIsAboutOnly(t *testing.T) {
	first, other := secrets.NewKey(), secrets.NewKey()
	k := keyring(t, first)
	sealed := seal(t, k, "team/web/forge-token", "open sesame")
	if strings.Contains(sealed, "sesame") {
		t.Fatalf("the sealed text shows the value: %s", sealed)
	}
	if plain, err := k.Open("team/web/forge-token", sealed); err != nil || string(plain) != "open sesame" {
		t.Fatalf("opened as %q, %v", plain, err)
	}
	changed := []byte(sealed)
	changed[len(changed)-2] ^= 1
	for name, try := range map[string]struct {
		keys          *secrets.Keyring
		about, sealed string
	}{
		"another team":   {k, "team/shop/forge-token", sealed},
		"another key":    {keyring(t, other), "team/web/forge-token", sealed},
		"a changed text": {k, "team/web/forge-token", string(changed)},
		"half a text":    {k, "team/web/forge-token", sealed[:len(sealed)/2]},
		"another format": {k, "team/web/forge-token", "v2" + strings.TrimPrefix(sealed, "v1")},
		"no text":        {k, "team/web/forge-token", ""},
	} {
		if plain, err := try.keys.Open(try.about, try.sealed); !errors.Is(err, secrets.ErrSealed) {
			t.Errorf("%s: opened as %q, %v", name, plain, err)
		}
	}
}

func TestTheSameValueSealedTwiceLooksDifferent(t *testing.T) {
	k := keyring(t, secrets.NewKey())
	if once, again := seal(t, k, "x", "value"), seal(t, k, "x", "value"); once == again {
		t.Error("whoever reads the database can tell that two values are the same")
	}
}

func TestTheFirstKeySealsAndEveryKeyOpens(t *testing.T) {
	old, young := secrets.NewKey(), secrets.NewKey()
	before := seal(t, keyring(t, old), "x", "value")
	rotated := keyring(t, young, old)
	if plain, err := rotated.Open("x", before); err != nil || string(plain) != "value" {
		t.Fatalf("after the rotation: %q, %v", plain, err)
	}
	if !rotated.Stale(before) {
		t.Error("nobody is told to seal again what the old key sealed")
	}
	after := seal(t, rotated, "x", "value")
	if rotated.Stale(after) {
		t.Error("what the first key sealed counts as old")
	}
	if _, err := keyring(t, young).Open("x", after); err != nil {
		t.Errorf("what was sealed after the rotation still needs the old key: %v", err)
	}
}

func TestWithoutAKeyNothingIsSealedOrOpened(t *testing.T) {
	k := keyring(t, " \n")
	if k != nil {
		t.Fatal("no key made a keyring")
	}
	if sealed, err := k.Seal("x", []byte("value")); !errors.Is(err, secrets.ErrNoKey) || sealed != "" {
		t.Errorf("sealed as %q, %v", sealed, err)
	}
	if _, err := k.Open("x", "v1.00000000.AAAA"); !errors.Is(err, secrets.ErrNoKey) {
		t.Errorf("opened: %v", err)
	}
}

func TestABadKeyIsRefusedWithoutBeingPrinted(t *testing.T) {
	for name, text := range map[string]string{
		"too short":  "abcdef0123",
		"not hex":    strings.Repeat("zz", 32),
		"one is bad": secrets.NewKey() + "," + strings.Repeat("ab", 31),
		"too many":   strings.Repeat(secrets.NewKey()+" ", 17),
	} {
		_, err := secrets.ParseKeyring(text)
		var invalid *holdfast.InvalidError
		if !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error prints the key: %v", name, err)
			}
		}
	}
}

func TestWhatIsSealedToARecipientIsOfUseToNobodyElse(t *testing.T) {
	mine, theirs := recipient(t), recipient(t)
	if bytes.Equal(mine.PublicKey(), theirs.PublicKey()) {
		t.Fatal("two recipients have one key")
	}
	sealed, err := secrets.SealTo(mine.PublicKey(), "run R1 attempt 1", []byte("open sesame"))
	if err != nil || bytes.Contains(sealed, []byte("sesame")) {
		t.Fatalf("sealed as %q, %v", sealed, err)
	}
	if plain, err := mine.Open("run R1 attempt 1", sealed); err != nil || string(plain) != "open sesame" {
		t.Errorf("the recipient reads %q, %v", plain, err)
	}
	if plain, err := theirs.Open("run R1 attempt 1", sealed); err == nil {
		t.Errorf("another recipient reads %q", plain)
	}
	if plain, err := mine.Open("run R1 attempt 2", sealed); err == nil {
		t.Errorf("it opens as the answer to another question: %q", plain)
	}
	var invalid *holdfast.InvalidError
	for _, bad := range [][]byte{nil, []byte("short"), make([]byte, 33)} {
		if _, err := secrets.SealTo(bad, "x", nil); !errors.As(err, &invalid) {
			t.Errorf("a key of %d bytes: %v", len(bad), err)
		}
	}
}

func recipient(t *testing.T) *secrets.Recipient {
	t.Helper()
	r, err := secrets.NewRecipient()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
