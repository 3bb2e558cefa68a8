package mongo_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

var errCut = errors.New("the wire was cut")

// wire dials connections that count the commands of the ledger and can be cut at one
// of them: before it is sent, or after the server has done it and before its answer
// is read.
type wire struct {
	mu       sync.Mutex
	commands []string
	started  []started
	at       int // the command to cut at, counted from 1; 0 is none
	after    bool
}

// started is a command as the driver's monitor tells it.
type started struct {
	name, collection string
	command          bson.Raw
}

// monitor notes the commands that the driver starts.
func (w *wire) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		collection, ok := e.Command.Lookup(e.CommandName).StringValueOK()
		if !ok {
			return // of no collection: a greeting, or a session's end
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.started = append(w.started, started{e.CommandName, collection, bytes.Clone(e.Command)})
	}}
}

// told lists what the driver's monitor told since begin or cut.
func (w *wire) told() []started {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.started)
}

// begin forgets what was counted.
func (w *wire) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commands, w.started, w.at = nil, nil, 0
}

// cut cuts at the n-th command from now.
func (w *wire) cut(n int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commands, w.started, w.at, w.after = nil, nil, n, after
}

// seen lists the commands since begin or cut.
func (w *wire) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commands)
}

// DialContext implements the driver's dialer.
func (w *wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &cable{Conn: conn, wire: w}, nil
}

type cable struct {
	net.Conn
	wire *wire
	lose bool // the answer that comes next
}

// Write implements [net.Conn]; the driver writes one message at a time.
func (c *cable) Write(p []byte) (int, error) {
	c.lose = false
	name := command(p)
	switch name {
	case "findAndModify", "update", "insert", "find", "aggregate", "delete", "getMore":
	default:
		return c.Conn.Write(p)
	}
	c.wire.mu.Lock()
	c.wire.commands = append(c.wire.commands, name)
	hit, after := len(c.wire.commands) == c.wire.at, c.wire.after
	c.wire.mu.Unlock()
	if hit && !after {
		return 0, errors.Join(errCut, c.Conn.Close())
	}
	c.lose = hit
	return c.Conn.Write(p)
}

// Read implements [net.Conn].
func (c *cable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lose && err == nil {
		return 0, errors.Join(errCut, c.Conn.Close())
	}
	return n, err
}

// command is the name of the command in a message: behind the header, the flags, the
// kind of the section, the document's length and the first element's type.
func command(p []byte) string {
	const at = 16 + 4 + 1 + 4 + 1
	if len(p) <= at {
		return ""
	}
	end := bytes.IndexByte(p[at:], 0)
	if end < 0 {
		return ""
	}
	return string(p[at : at+end])
}
