package config

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast"
)

// Client is how a client command reaches the server.
type Client struct {
	URL   string
	Token string // empty: none was found; the server will say so
	// TokenFrom says where the token came from, for doctor and errors.
	TokenFrom string
	Data      string // the data folder that was looked into
}

// TokenFile is the file in the data folder in which `dev` leaves the operator's
// token.
const TokenFile = "operator.token"

// DefaultURL is where `dev` listens when nothing is said.
const DefaultURL = "http://127.0.0.1:7420"

// LoadClient reads HOLDFAST_URL, HOLDFAST_TOKEN and HOLDFAST_DATA from environ; a
// url or data that is not empty was typed as a flag and wins. Without a token in
// the environment the operator's token is read from the data folder, when it is
// there and readable.
func LoadClient(environ []string, typedURL, typedData string) (Client, error) {
	c := Client{URL: DefaultURL, Data: Defaults().Data}
	origin := "HOLDFAST_URL"
	if text := Env(environ, "HOLDFAST_URL"); text != "" {
		c.URL = text
	}
	if typedURL != "" {
		c.URL, origin = typedURL, "--url"
	}
	parsed, err := url.Parse(c.URL)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return Client{}, &holdfast.InvalidError{Field: origin, Problem: quoted(c.URL) + " is not the address of a server", Allowed: "http:// or https:// and a host, such as " + DefaultURL}
	}
	c.URL = strings.TrimRight(c.URL, "/")
	if text := Env(environ, "HOLDFAST_DATA"); text != "" {
		c.Data = text
	}
	if typedData != "" {
		c.Data = typedData
	}
	if text := strings.TrimSpace(Env(environ, "HOLDFAST_TOKEN")); text != "" {
		c.Token, c.TokenFrom = text, "HOLDFAST_TOKEN"
		return c, nil
	}
	path := filepath.Join(c.Data, TokenFile)
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		c.Token, c.TokenFrom = strings.TrimSpace(string(text)), path
	case errors.Is(err, fs.ErrNotExist):
	default:
		return Client{}, &holdfast.InvalidError{Field: path, Problem: plainFileError(err), Allowed: "a file that you may read, or HOLDFAST_TOKEN in the environment"}
	}
	return c, nil
}
