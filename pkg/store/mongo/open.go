package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// oldestWire is the protocol of MongoDB 6.0, the oldest server that this package is
// written for.
const oldestWire = 17

// Options configure a [Store]; the zero value is the documented default. Replicas
// that share a database are given the same.
type Options struct {
	// Database is the database's name; empty is "holdfast".
	Database string
	// Timeout bounds one operation on the server; 0 is 10 s.
	Timeout time.Duration
	// ConnectTimeout is how long Open, and later an operation, looks for a server;
	// 0 is 5 s.
	ConnectTimeout time.Duration
	// Pool is how many connections there are at most; 0 is 100.
	Pool int
	// KeepClosed is how long a closed allocation stays answerable; 0 is 90 days.
	KeepClosed time.Duration
	// KeepRecords is how long the record of a month or a window stays after the
	// month or the window began; 0 is 400 days.
	KeepRecords time.Duration
	// LaunchLease is how long an allocation lives before its run first renews it; 0
	// is 30 s.
	LaunchLease time.Duration
	// AskAgainFor is how long a refusal that rests on asks in flight elsewhere is
	// asked again; 0 is 250 ms, less is not at all.
	AskAgainFor time.Duration
	// VouchAfter is how soon after a grant other processes can tell from the record
	// that it is one, if its run has not renewed it before; 0 is 100 ms, less is never.
	VouchAfter time.Duration
}

func (o Options) withDefaults() Options {
	if o.Database == "" {
		o.Database = "holdfast"
	}
	if o.Pool <= 0 {
		o.Pool = 100
	}
	o.Timeout = fallback(o.Timeout, 10*time.Second)
	o.ConnectTimeout = fallback(o.ConnectTimeout, 5*time.Second)
	o.KeepClosed = fallback(o.KeepClosed, 90*24*time.Hour)
	o.KeepRecords = fallback(o.KeepRecords, 400*24*time.Hour)
	o.LaunchLease = fallback(o.LaunchLease, 30*time.Second)
	o.AskAgainFor = fallback(o.AskAgainFor, 250*time.Millisecond)
	o.VouchAfter = fallback(o.VouchAfter, 100*time.Millisecond)
	return o
}

func fallback(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// Store is a connected database. All its parts may be used from any number of
// goroutines, and any number of processes may have the same database open.
type Store struct {
	client  *driver.Client
	timeout time.Duration
	ledger  *Ledger
	records *Records
}

// Open connects to the server that the URI names and creates what is missing in the
// database. ctx bounds the opening only. A server that cannot be reached, or is too
// old, is an error that says which one and what would help; the URI's password is
// never part of it.
func Open(ctx context.Context, uri string, o Options) (*Store, error) {
	return open(ctx, uri, o, func(*options.ClientOptions) {})
}

// open is Open with a last word on the driver's options, which is what tests need.
func open(ctx context.Context, uri string, o Options, last func(*options.ClientOptions)) (*Store, error) {
	o = o.withDefaults()
	if err := checkDatabase(o.Database); err != nil {
		return nil, err
	}
	settings := options.Client().ApplyURI(uri)
	if err := settings.Validate(); err != nil {
		return nil, &holdfast.InvalidError{Field: "uri", Problem: "it is not the address of a MongoDB", Allowed: "mongodb://[USER:PASSWORD@]HOST[:PORT][,HOST…]/[?OPTIONS] or mongodb+srv://…"}
	}
	settings.SetAppName("holdfast").
		SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetMaxPoolSize(uint64(o.Pool)).
		SetConnectTimeout(o.ConnectTimeout).
		SetServerSelectionTimeout(o.ConnectTimeout).
		SetTimeout(o.Timeout)
	last(settings)
	hosts := strings.Join(settings.Hosts, ", ")
	client, err := driver.Connect(settings)
	if err != nil {
		return nil, fmt.Errorf("connect to the MongoDB at %s: %w", hosts, err)
	}
	s := &Store{client: client, timeout: o.Timeout}
	if err := s.prepare(ctx, hosts, o); err != nil {
		return nil, errors.Join(err, s.disconnect(ctx))
	}
	return s, nil
}

// prepare looks at the server and at the database.
func (s *Store) prepare(ctx context.Context, hosts string, o Options) error {
	if err := checkServer(ctx, s.client, hosts, o.ConnectTimeout); err != nil {
		return err
	}
	db := s.client.Database(o.Database)
	ledger, err := openLedger(ctx, db, o)
	if err != nil {
		return fmt.Errorf("open the ledger in the database %s at %s: %w", o.Database, hosts, err)
	}
	s.ledger, s.records = ledger, openRecords(db)
	return nil
}

// checkDatabase refuses a name that a server would misread.
func checkDatabase(name string) error {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' || len(name) > 60 {
			return &holdfast.InvalidError{Field: "database", Problem: fmt.Sprintf("%q is not a database's name", holdfast.Clip(name, 60)), Allowed: "at most 60 letters, digits, dashes and underscores"}
		}
	}
	return nil
}

// checkServer demands a server that answers and is new enough.
func checkServer(ctx context.Context, client *driver.Client, hosts string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var hello struct {
		Wire int32 `bson:"maxWireVersion"`
	}
	admin := client.Database("admin")
	if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return fmt.Errorf("no MongoDB answers at %s within %s (is the address right, does the server run, do user and password fit?): %w: %w", hosts, patience, capacityledger.ErrUnavailable, plain(err))
	}
	if hello.Wire >= oldestWire {
		return nil
	}
	var build struct {
		Version string `bson:"version"`
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		build.Version = "of an unknown version"
	}
	return fmt.Errorf("the server at %s is MongoDB %s (wire version %d), which is too old: 6.0 or newer is needed (wire version %d)", hosts, build.Version, hello.Wire, oldestWire)
}

// Ledger is the ledger's store.
func (s *Store) Ledger() capacityledger.Store { return s.ledger }

// Records is the records' store.
func (s *Store) Records() records.DB { return s.records }

// Close waits for the writes under way, refuses later ones as unavailable, and
// disconnects. Closing again does nothing.
func (s *Store) Close() error {
	s.ledger.stop()
	return s.disconnect(context.Background())
}

func (s *Store) disconnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	if err := s.client.Disconnect(ctx); err != nil && !errors.Is(err, driver.ErrClientDisconnected) {
		return fmt.Errorf("disconnect from the MongoDB: %w", err)
	}
	return nil
}

// unavailable is what the ledger answers when it cannot tell; the cause stays visible
// to errors.Is.
func unavailable(err error) error {
	if errors.Is(err, capacityledger.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", capacityledger.ErrUnavailable, plain(err))
}
