package config

import (
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
)

// Login says which provider of OpenID Connect lets people in with a browser. Without
// an issuer there are tokens only.
type Login struct {
	Issuer, ClientID, ClientSecret string
	Scopes                         []string // beside openid; nil: profile, email, groups
	GroupsClaim                    string
	PublicURL                      string // under which browsers reach the server
}

// loginSettings are those of a browser's login.
func loginSettings() []Setting {
	return slices.Concat(
		[]Setting{
			text("oidc-issuer", "address of the OpenID Connect provider that lets people in with a browser; without one there are tokens only", func(o *Options) *string { return &o.Login.Issuer }).of(Dev, Server),
			text("oidc-client-id", "this deployment's client id at the provider", func(o *Options) *string { return &o.Login.ClientID }).of(Dev, Server),
		},
		secret("oidc-client-secret", "this deployment's secret at the provider; without one it is a public client", func(o *Options) *string { return &o.Login.ClientSecret }, anyText, Dev, Server),
		[]Setting{
			Setting{Key: "oidc-scopes", Meaning: "what the provider is asked for beside openid, separated by blanks or commas (default: profile, email, groups)", set: func(o *Options, text string) error {
				o.Login.Scopes = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
				return nil
			}, show: func(o Options) string { return strings.Join(o.Login.Scopes, ",") }}.of(Dev, Server),
			text("oidc-groups-claim", "the claim that lists somebody's groups; the setting login says what they mean (default: groups)", func(o *Options) *string { return &o.Login.GroupsClaim }).of(Dev, Server),
			text("public-url", "address under which browsers reach this server, such as https://holdfast.example.com; behind a proxy a login needs it", func(o *Options) *string { return &o.Login.PublicURL }).of(Dev, Server),
		},
	)
}

// checkLogin: a provider and a client belong together.
func (o Options) checkLogin() error {
	if (o.Login.Issuer == "") != (o.Login.ClientID == "") {
		return &holdfast.InvalidError{
			Field: Setting{Key: "oidc-client-id"}.Env(), Problem: "an issuer and a client id belong together",
			Allowed: "both " + Setting{Key: "oidc-issuer"}.Env() + " and " + Setting{Key: "oidc-client-id"}.Env() + ", or neither",
		}
	}
	return nil
}
