package mongo_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

const (
	envURI     = "HOLDFAST_TEST_MONGO_URI"
	envRequire = "HOLDFAST_REQUIRE_MONGO"
)

// errNoServer says that these tests were not asked to run.
var errNoServer = fmt.Errorf("NOT TESTED: the MongoDB twin. Set %s to a server (mongodb://…), or %s=1 to let scripts/mongo-up start one", envURI, envRequire)

// address is the server that the tests run against: the one that is named, else one
// that scripts/mongo-up starts where a missing one must not go unnoticed.
var address = sync.OnceValues(func() (string, error) {
	if uri := os.Getenv(envURI); uri != "" {
		return uri, nil
	}
	if os.Getenv(envRequire) != "1" {
		return "", errNoServer
	}
	up := exec.Command("../../../scripts/mongo-up")
	up.Env = append(os.Environ(), "HOLDFAST_MONGO_INSTANCE="+cmp.Or(os.Getenv("HOLDFAST_MONGO_INSTANCE"), "test"))
	up.Stderr = os.Stderr
	uri, err := up.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/mongo-up: %w", err)
	}
	return strings.TrimSpace(string(uri)), nil
})

// server is the address; the test is skipped where nobody asked for it, and fails
// where there is none.
func server(t testing.TB) string {
	t.Helper()
	uri, err := address()
	switch {
	case errors.Is(err, errNoServer):
		fmt.Fprintln(os.Stderr, err)
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return uri
}

// housekeeper is a connection of the tests' own.
var housekeeper = sync.OnceValues(func() (*driver.Client, error) {
	uri, err := address()
	if err != nil {
		return nil, err
	}
	return driver.Connect(options.Client().ApplyURI(uri))
})

// drop removes a database.
func drop(t testing.TB, name string) {
	client, err := housekeeper()
	if err == nil {
		err = client.Database(name).Drop(context.Background())
	}
	if err != nil {
		t.Errorf("drop %s: %v", name, err)
	}
}

// long keeps what the tests write from being removed by the server: their clock is
// not of today.
const long = 200 * 365 * 24 * time.Hour

// patience is how long an operation may take on a busy machine: a test of what is
// answered must not meet the answer that the server was too slow.
const patience = 2 * time.Minute

// databases are the ones that a test made, each with the stores that have it open.
type databases struct {
	t   testing.TB
	mu  sync.Mutex
	of  map[any]string
	all []string

	vouchAfter time.Duration // of the ledgers that are opened
}

func newDatabases(t testing.TB) *databases {
	server(t)
	return &databases{t: t, of: map[any]string{}}
}

// fresh opens a new database, which is dropped at the end of the test.
func (d *databases) fresh() (*mongo.Store, error) {
	return d.open("hf_" + strings.ToLower(rand.Text()[:16]))
}

// open opens a database as one more process does.
func (d *databases) open(name string) (*mongo.Store, error) {
	store, err := mongo.Open(d.t.Context(), server(d.t), mongo.Options{Database: name, KeepClosed: long, KeepRecords: long, Pool: 40, Timeout: patience, VouchAfter: d.vouchAfter})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	first := true
	for _, known := range d.all {
		first = first && known != name
	}
	d.all = append(d.all, name)
	for _, part := range []any{store, store.Ledger(), store.Records()} {
		d.of[part] = name
	}
	d.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			d.t.Error(err)
		}
		if first {
			drop(d.t, name)
		}
	})
	return store, nil
}

// together opens one new database as so many processes do.
func (d *databases) together(processes int) ([]*mongo.Store, error) {
	first, err := d.fresh()
	if err != nil {
		return nil, err
	}
	out := []*mongo.Store{first}
	for len(out) < processes {
		next, err := d.again(first)
		if err != nil {
			return nil, err
		}
		out = append(out, next)
	}
	return out, nil
}

// again opens the database of a store, or of a part of it, as a new process does.
func (d *databases) again(part any) (*mongo.Store, error) {
	d.mu.Lock()
	name := d.of[part]
	d.mu.Unlock()
	return d.open(name)
}
