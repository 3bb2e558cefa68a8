package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
)

// Remote says how to reach a NATS that runs elsewhere. Files are read when the
// connection is made, so that a wrong one is an error at the start.
type Remote struct {
	URL  string // one server or several, separated by commas; required. It may hold a password and is never printed
	Name string // what the connection is called in the lists of NATS: "holdfast"
	// Inbox is the subject under which answers come to this side, so that a user of NATS
	// may hear its own answers and nobody else's: [RunnerInbox] of a runner; empty is
	// [ServerInbox].
	Inbox string
	Creds string // a file with a user's JWT and seed
	NKey  string // a file with an nkey seed
	// CA is a file of certificates to trust instead of the machine's; Cert and Key are
	// this side's own. All are PEM.
	CA, Cert, Key string
	// Lost and Back are told that the connection went and came back; nil is not called.
	Lost, Back func()
}

// The subjects under which answers come, see [Remote.Inbox].
const (
	ServerInbox = "_INBOX.holdfast-server"
	RunnerInbox = "_INBOX.holdfast-runner"
)

// What a connection does while it is cut: it goes on trying for ever, and keeps at
// most maxHeld of what is to be sent; beyond that sending is an error at once.
const (
	dialWithin    = 5 * time.Second
	reconnectWait = 250 * time.Millisecond
	maxHeld       = 1 << 20
)

// ErrAway: NATS could not be reached while there was time.
var ErrAway = errors.New("NATS does not answer")

// Away says whether an error of [Dial] or [Bus.Prepare] is one that ends by itself: NATS
// is not there, or not ready yet.
func Away(err error) bool {
	var answered *jetstream.APIError
	if errors.As(err, &answered) {
		return answered.Code == 503
	}
	for _, away := range []error{ErrAway, context.DeadlineExceeded, natsgo.ErrNoResponders, natsgo.ErrTimeout, natsgo.ErrConnectionReconnecting, natsgo.ErrDisconnected} {
		if errors.Is(err, away) {
			return true
		}
	}
	return false
}

// Dial connects to a NATS elsewhere. It tries until ctx ends, because NATS may start
// later than this process; but what will not get better by itself (a file that cannot
// be read, credentials that are refused) is an error at once. Once made, the
// connection is made again whenever it is lost, for ever. The queue's streams are
// made by [Bus.Prepare].
func Dial(ctx context.Context, r Remote, o Options) (*Bus, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	settings, err := r.settings(o)
	if err != nil {
		return nil, err
	}
	for failures := uint64(0); ; failures++ {
		nc, err := natsgo.Connect(r.URL, settings...)
		if err == nil {
			return newBus(nc, o)
		}
		if errors.Is(err, natsgo.ErrAuthorization) || errors.Is(err, natsgo.ErrAuthExpired) || errors.Is(err, natsgo.ErrAuthRevoked) {
			return nil, fmt.Errorf("connect to NATS at %s: it does not accept the credentials: %w", r.where(), err)
		}
		o.Log.Warn("cannot reach NATS yet", "at", r.where(), "err", err)
		if !pause(ctx, grow(reconnectWait, pullRetryMost, failures)) {
			return nil, fmt.Errorf("connect to NATS at %s: %w: %w", r.where(), ErrAway, err)
		}
	}
}

func newBus(nc *natsgo.Conn, o Options) (*Bus, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("queue connection: %w", err)
	}
	return &Bus{nc: nc, js: js, options: o, pools: map[string]Pool{}}, nil
}

// where is the URL without what is secret in it.
func (r Remote) where() string {
	var hosts []string
	for part := range strings.SplitSeq(r.URL, ",") {
		part = strings.TrimSpace(part)
		if at := strings.LastIndexByte(part, '@'); at >= 0 {
			scheme, _, found := strings.Cut(part[:at], "://")
			part = part[at+1:]
			if found {
				part = scheme + "://" + part
			}
		}
		hosts = append(hosts, part)
	}
	return strings.Join(hosts, ",")
}

// settings are the options of the connection.
func (r Remote) settings(o Options) ([]natsgo.Option, error) {
	if strings.TrimSpace(r.URL) == "" {
		return nil, &holdfast.InvalidError{Field: "nats_url", Problem: "is empty", Allowed: "nats://host:4222, or several separated by commas"}
	}
	name, inbox := r.Name, r.Inbox
	orElse(&name, "holdfast")
	orElse(&inbox, ServerInbox)
	settings := []natsgo.Option{
		natsgo.Name(name), natsgo.CustomInboxPrefix(inbox), natsgo.Timeout(dialWithin),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(reconnectWait), natsgo.ReconnectJitter(reconnectWait, reconnectWait),
		natsgo.ReconnectBufSize(maxHeld),
		// A refusal while credentials are being changed must not end the connection.
		natsgo.IgnoreAuthErrorAbort(),
		// A peer that is gone without a word is noticed well within a lease.
		natsgo.PingInterval(min(10*time.Second, o.Lease/8)), natsgo.MaxPingsOutstanding(2),
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) { r.lost(o.Log, err) }),
		natsgo.ReconnectHandler(func(*natsgo.Conn) { r.back(o.Log) }),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { o.Log.Warn("NATS says", "err", err) }),
	}
	secured, err := r.secured()
	return append(settings, secured...), err
}

// secured are the options that say who this side is and whom it trusts.
func (r Remote) secured() ([]natsgo.Option, error) {
	var settings []natsgo.Option
	for _, f := range []struct{ field, path string }{{"nats_creds", r.Creds}, {"nats_nkey", r.NKey}, {"nats_ca", r.CA}, {"nats_cert", r.Cert}, {"nats_key", r.Key}} {
		if f.path == "" {
			continue
		}
		if _, err := os.ReadFile(f.path); err != nil {
			return nil, &holdfast.InvalidError{Field: f.field, Problem: err.Error(), Allowed: "a file that can be read"}
		}
	}
	if r.Creds != "" {
		settings = append(settings, natsgo.UserCredentials(r.Creds))
	}
	if r.NKey != "" {
		option, err := natsgo.NkeyOptionFromSeed(r.NKey)
		if err != nil {
			return nil, &holdfast.InvalidError{Field: "nats_nkey", Problem: "it is not an nkey seed", Allowed: "a file with one seed of a user"}
		}
		settings = append(settings, option)
	}
	if r.CA != "" {
		settings = append(settings, natsgo.RootCAs(r.CA))
	}
	if (r.Cert == "") != (r.Key == "") {
		return nil, &holdfast.InvalidError{Field: "nats_cert", Problem: "a certificate and its key belong together", Allowed: "both, or neither"}
	}
	if r.Cert != "" {
		settings = append(settings, natsgo.ClientCert(r.Cert, r.Key))
	}
	return settings, nil
}

func (r Remote) lost(log *slog.Logger, err error) {
	if err == nil { // this side closed it
		return
	}
	log.Warn("the connection to NATS is lost; trying to have it back", "at", r.where(), "err", err)
	if r.Lost != nil {
		r.Lost()
	}
}

func (r Remote) back(log *slog.Logger) {
	log.Info("the connection to NATS is back", "at", r.where())
	if r.Back != nil {
		r.Back()
	}
}
