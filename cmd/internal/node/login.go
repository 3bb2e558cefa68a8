package node

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/login"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// openLogin is the login of browsers; nil where no provider is set.
func (c *core) openLogin(ctx context.Context, o Options, b base) (*login.Service, error) {
	s := o.Settings.Login
	if s.Issuer == "" {
		return nil, nil //nolint:nilnil // no provider, no login: the routes are not there
	}
	service, err := login.New(ctx, login.Deps{
		Records: b.stores.Records, Accounts: c.tokens.Accounts(),
		Rules: func(ctx context.Context) (platformcfg.LoginRules, error) {
			reading, err := c.settings.Login.Read(ctx)
			return reading.Value, err
		},
	}, login.Options{
		Issuer: s.Issuer, ClientID: s.ClientID, ClientSecret: s.ClientSecret, Scopes: s.Scopes, GroupsClaim: s.GroupsClaim, PublicURL: s.PublicURL, Clock: c.clock,
	})
	if err != nil {
		return nil, fmt.Errorf("the login of browsers: %w", err)
	}
	return service, nil
}
