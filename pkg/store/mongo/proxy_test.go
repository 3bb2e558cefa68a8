package mongo_test

import (
	"encoding/binary"
	"errors"
	"io"
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

// proxy stands between the driver and the server. When it is told to, it lets the next
// write through, waits until the server has answered, and ends the connection without
// passing the answer on: the write is there and nobody was told.
type proxy struct {
	listener net.Listener
	to       string
	drop     atomic.Bool
	dropped  atomic.Int32
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	to := options.Client().ApplyURI(server(t)).Hosts[0]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &proxy{listener: listener, to: to}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *proxy) uri() string {
	return "mongodb://" + p.listener.Addr().String() + "/?directConnection=true"
}

// serve passes messages both ways until one side ends.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer server.Close()
	var lose atomic.Bool
	go func() {
		defer client.Close()
		for {
			answer, err := message(server)
			if err != nil {
				return
			}
			if lose.Load() {
				p.dropped.Add(1)
				return
			}
			if _, err := client.Write(answer); err != nil {
				return
			}
		}
	}()
	for {
		request, err := message(client)
		if err != nil {
			return
		}
		switch command(request) {
		case "findAndModify", "update", "insert", "delete":
			lose.Store(p.drop.CompareAndSwap(true, false))
		}
		if _, err := server.Write(request); err != nil {
			return
		}
	}
}

// message reads one message of the protocol: its first four bytes are its length.
func message(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	whole := make([]byte, binary.LittleEndian.Uint32(head))
	copy(whole, head)
	_, err := io.ReadFull(from, whole[4:])
	return whole, err
}

// TestAWriteWhoseReplyIsDroppedOnTheWayIsTheSameWhenItComesAgain commits each kind of
// write and drops the reply (C6): the caller is told that nothing is known, never that
// it was refused, and asking again comes to the same as if it had been told.
func TestAWriteWhoseReplyIsDroppedOnTheWayIsTheSameWhenItComesAgain(t *testing.T) {
	own := processes(t, 1)[0]
	between := newProxy(t)
	store, err := mongo.Open(t.Context(), between.uri(), mongo.Options{Database: mongo.DatabaseOf(own.store).Name(), KeepClosed: long, KeepRecords: long})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	clock := clocktest.New()
	p := &process{t, store, capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clock}), clock}
	p.gets(ask(1, dollars, review, 20, 5), 5)
	second := ask(2, dollars, feature, 20, 9)
	spent := func(n int64) holdfast.Amount { return holdfast.AmountOf(holdfast.UnitUSD, n) }
	for _, c := range []struct {
		name                 string
		call                 func() error
		settled, outstanding int64
	}{
		{"reserve", func() error {
			got, denial, err := p.ledger.Reserve(t.Context(), second)
			if denial.Denied() || err == nil && got.Amount.Int() != 9 {
				t.Errorf("it got %d (%s), want 9", got.Amount.Int(), denial.Public)
			}
			return err
		}, 0, 14},
		{"refused reserve", func() error {
			got, denial, err := p.ledger.Reserve(t.Context(), func() capacityledger.Ask { a := ask(3, dollars, feature, 20, 9); a.Minimum = spent(9); return a }())
			if got.ID != "" || err == nil && !denial.Denied() {
				t.Errorf("it got %d, %v", got.Amount.Int(), err)
			}
			return err
		}, 0, 14},
		{"renew", func() error {
			_, _, err := p.ledger.Renew(t.Context(), second.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Spent: spent(4), Expires: clock.Now().Add(time.Minute)})
			return err
		}, 4, 10},
		{"settle", func() error {
			_, err := p.ledger.Settle(t.Context(), second.ID, capacityledger.Report{Attempt: 1, Sequence: 2, Spent: spent(6)})
			return err
		}, 6, 5},
		{"release", func() error {
			_, err := p.ledger.Release(t.Context(), ask(1, dollars, review, 20, 5).ID)
			return err
		}, 6, 0},
	} {
		between.drop.Store(true)
		if err := c.call(); !errors.Is(err, capacityledger.ErrUnavailable) {
			t.Errorf("%s: without its reply it says %v, want that the store is unavailable", c.name, err)
		}
		if err := c.call(); err != nil {
			t.Errorf("%s again: %v", c.name, err)
		}
		own.holds(dollars, c.settled, c.outstanding)
	}
	if between.dropped.Load() != 5 {
		t.Errorf("%d replies were dropped, want 5", between.dropped.Load())
	}
}
