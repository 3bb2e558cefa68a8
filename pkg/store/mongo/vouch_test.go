package mongo_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// muted dials connections over which nothing is sent any more once it is set: nobody
// answers, and nobody says so.
type muted struct{ atomic.Bool }

func (m *muted) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return mutedConn{conn, m}, nil
}

type mutedConn struct {
	net.Conn
	by *muted
}

func (c mutedConn) Write(p []byte) (int, error) {
	if c.by.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A store that granted on many subjects and is closed while its server does not answer
// waits for it once, and not once for each of them.
func TestAStoreIsClosedSoonAlsoWhenNobodyAnswers(t *testing.T) {
	t.Parallel() // it waits more than it works
	const subjects, timeout = 16, 2 * time.Second
	m := &muted{}
	d := newDatabases(t)
	first, err := d.fresh()
	if err != nil {
		t.Fatal(err)
	}
	store, err := mongo.OpenWith(t.Context(), server(t), mongo.Options{Database: mongo.DatabaseOf(first).Name(), Timeout: timeout, VouchAfter: time.Hour},
		func(o *options.ClientOptions) { o.SetDialer(m) })
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktest.New()
	p := &process{t, store, capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clock}), clock}
	for n := range subjects {
		p.gets(ask(n, holdfast.TeamSubject(holdfast.TeamID("t-"+string(rune('a'+n))), holdfast.AxisSlots, ""), feature, 9, 1), 1)
	}
	m.Store(true)
	began := time.Now()
	_ = store.Close() // it may say that the server is gone
	if took := time.Since(began); took > subjects/2*timeout {
		t.Errorf("it took %s, and one operation may take %s", took, timeout)
	}
}
