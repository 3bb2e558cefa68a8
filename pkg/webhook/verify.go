package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// ErrSignature: the delivery is not signed with the webhook's secret.
var ErrSignature = errors.New("the delivery is not signed with the webhook's secret")

// verify checks that a delivery comes from who knows the secret, over the bytes as
// they came, in constant time. A header that is there and wrong is not rescued by
// another one that is right.
func verify(forge Forge, header http.Header, body, secret []byte) error {
	ok := false
	switch forge {
	case GitHub:
		signature, prefixed := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
		ok = prefixed && signedBy(secret, body, signature)
	case Forgejo:
		if signature := first(header, "X-Forgejo-Signature", "X-Gitea-Signature"); signature != "" {
			ok = signedBy(secret, body, signature)
			break
		}
		signature, prefixed := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
		ok = prefixed && signedBy(secret, body, signature)
	case GitLab: // it sends the secret itself
		given, want := sha256.Sum256([]byte(header.Get("X-Gitlab-Token"))), sha256.Sum256(secret)
		ok = subtle.ConstantTimeCompare(given[:], want[:]) == 1
	}
	if !ok {
		return ErrSignature
	}
	return nil
}

func signedBy(secret, body []byte, signature string) bool {
	given, err := hex.DecodeString(signature)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return hmac.Equal(given, mac.Sum(nil))
}

// deliveryID is the forge's name of a delivery, the same when it is sent again. A
// forge that gives none is known by what it sent. GitLab's X-Gitlab-Event-UUID is
// none: an event that another one caused carries that one's.
func deliveryID(forge Forge, header http.Header, body []byte) string {
	id := ""
	switch forge {
	case GitHub:
		id = header.Get("X-Github-Delivery")
	case Forgejo:
		id = first(header, "X-Forgejo-Delivery", "X-Gitea-Delivery", "X-Github-Delivery")
	case GitLab:
		id = first(header, "Idempotency-Key", "X-Gitlab-Webhook-Uuid")
	}
	if plainID(id) {
		return id
	}
	sum := sha256.Sum256(append([]byte(id+"\x00"), body...))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// plainID says whether an id can be a part of a record's id as it is.
func plainID(id string) bool {
	ok := id != "" && len(id) <= 100
	for _, c := range []byte(id) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-')
	}
	return ok
}
