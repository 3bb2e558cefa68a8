// Package nats carries the queue's messages over NATS JetStream. The server of one
// machine is embedded: the real NATS server as a library, reachable from inside the
// process only.
package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
)

// Options are the settings of an embedded queue; a zero field has the stated
// default.
type Options struct {
	Dir string // the data folder; the queue is its folder "queue"; required
	// Sync writes every message to the disk before it is acknowledged. Without it a
	// power loss may forget the last messages; the sweep makes run messages again.
	Sync          bool
	Lease         time.Duration // an unextended message is delivered again after half of it: 120 s
	MaxAckPending int           // messages in the hands of runners at a time: 256
	MaxDeliver    int           // deliveries of one message before it is dropped: 8
	MaxAge        time.Duration // of a run message: 24 h
	ReportAge     time.Duration // of a report that no server could apply: 7 days
	// LaterDelay is the wait before a message that was handed back is delivered again;
	// it grows with the deliveries to at most LaterMost: 1 s and 30 s.
	LaterDelay, LaterMost time.Duration
	Log                   *slog.Logger // nil: nothing is logged
	Events                Events
}

// Events are told what happens to messages; nil fields are not called.
type Events struct {
	// Ended is called with the disposition of every delivery.
	Ended func(disposition string)
	// PoisonReport is called for a report that can never be read; it was removed.
	PoisonReport func()
	// ReportFailed is called for a report that could not be applied and comes again.
	ReportFailed func()
}

func (o *Options) fill() error {
	if o.Dir == "" {
		return &holdfast.InvalidError{Field: "dir", Problem: "is empty", Allowed: "a folder"}
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"lease", int64(o.Lease)}, {"max_ack_pending", int64(o.MaxAckPending)}, {"max_deliver", int64(o.MaxDeliver)}, {"max_age", int64(o.MaxAge)},
		{"report_age", int64(o.ReportAge)}, {"later_delay", int64(o.LaterDelay)}, {"later_most", int64(o.LaterMost)},
	} {
		if n.value < 0 {
			return &holdfast.InvalidError{Field: n.field, Problem: "is negative", Allowed: "0 for the default, or more"}
		}
	}
	orElse(&o.Lease, 2*time.Minute)
	orElse(&o.MaxAckPending, 256)
	orElse(&o.MaxDeliver, 8)
	orElse(&o.MaxAge, 24*time.Hour)
	orElse(&o.ReportAge, 7*24*time.Hour)
	orElse(&o.LaterDelay, time.Second)
	orElse(&o.LaterMost, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server is an embedded NATS server that listens nowhere.
type Server struct {
	options Options
	server  *server.Server
}

const (
	startWithin = 20 * time.Second
	// maxStore bounds the queue's folder. Reaching it makes Publish fail, which
	// refuses launches, instead of filling the disk that the ledger needs as well.
	maxStore = 2 << 30
	// maxMemory is what JetStream may keep in memory; all streams are on disk.
	maxMemory = 64 << 20
)

// Start opens the queue in o.Dir and makes its streams where they are missing: a
// queue folder that was lost begins empty. What was in the hands of workers and
// unacknowledged is delivered again at once, because a server that nobody else can
// reach has no living worker when it starts.
func Start(o Options) (*Server, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, "queue")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("queue folder: %w", err)
	}
	inner, err := server.NewServer(&server.Options{
		ServerName: "holdfast", DontListen: true,
		JetStream: true, StoreDir: dir, SyncAlways: o.Sync,
		JetStreamMaxMemory: maxMemory, JetStreamMaxStore: maxStore,
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, fmt.Errorf("queue server: %w", err)
	}
	inner.SetLoggerV2(serverLog{o.Log}, false, false, false)
	s := &Server{options: o, server: inner}
	inner.Start()
	if !inner.ReadyForConnections(startWithin) {
		s.Close()
		return nil, fmt.Errorf("queue server: not ready after %s", startWithin)
	}
	if err := s.prepare(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// prepare makes the streams and gives both consumers a fresh start.
func (s *Server) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	b, err := s.Connect("holdfast-start")
	if err != nil {
		return err
	}
	defer b.Close()
	for _, c := range streams(s.options) {
		if _, err := b.js.CreateOrUpdateStream(ctx, c); err != nil {
			return fmt.Errorf("queue stream %s: %w", c.Name, err)
		}
	}
	for stream, c := range consumers(s.options) {
		if err := b.js.DeleteConsumer(ctx, stream, c.Durable); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("queue consumer %s: %w", c.Durable, err)
		}
		if _, err := b.js.CreateConsumer(ctx, stream, c); err != nil {
			return fmt.Errorf("queue consumer %s: %w", c.Durable, err)
		}
	}
	return nil
}

// Connect opens a connection of its own to the server, for a part of the program
// that is called name in the server's logs. It must be closed before the server.
func (s *Server) Connect(name string) (*Bus, error) {
	nc, err := natsgo.Connect("", natsgo.InProcessServer(s.server), natsgo.Name(name), natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("queue connection: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("queue connection: %w", err)
	}
	return &Bus{nc: nc, js: js, options: s.options}, nil
}

// Close stops the server and returns when its files are closed.
func (s *Server) Close() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// The names on the wire.
const (
	runStream      = "HOLDFAST_RUNS"
	reportStream   = "HOLDFAST_REPORTS"
	runSubjects    = "holdfast.queue.runs."
	reportSubjects = "holdfast.reports."
	cancelSubjects = "holdfast.cancel."
	claimSubject   = "holdfast.claims"
	runnerGroup    = "holdfast-runners"
	serverGroup    = "holdfast-servers"
)

// dedupWindow is how long a repeated message id is acknowledged and dropped.
const dedupWindow = 5 * time.Minute

func streams(o Options) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			Name: runStream, Description: "runs to execute", Subjects: []string{runSubjects + ">"},
			Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Duplicates: dedupWindow, MaxAge: o.MaxAge,
			// A new publication of a run takes the place of the former one, so that a run
			// has one message at most.
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld,
		},
		{
			Name: reportStream, Description: "what runners say of attempts", Subjects: []string{reportSubjects + ">"},
			Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Duplicates: dedupWindow, MaxAge: o.ReportAge,
		},
	}
}

// consumers are the durable consumers by stream. The server bounds deliveries
// itself never (MaxDeliver -1): a message that reached the consumer's bound would
// stay in the stream and be delivered to nobody, so [Bus.Work] removes it instead.
func consumers(o Options) map[string]jetstream.ConsumerConfig {
	return map[string]jetstream.ConsumerConfig{
		runStream: {
			Durable: runnerGroup, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
			AckWait: o.Lease / 2, MaxAckPending: o.MaxAckPending, MaxDeliver: -1,
		},
		reportStream: {
			Durable: serverGroup, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
			AckWait: reportAckWait, MaxAckPending: 1024, MaxDeliver: -1,
		},
	}
}

// serverLog passes the NATS server's warnings and errors on; its notices are of no
// use to an operator of one binary.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(string, ...any) {}
func (l serverLog) Debugf(string, ...any)  {}
func (l serverLog) Tracef(string, ...any)  {}
func (l serverLog) Warnf(format string, v ...any) {
	l.log.Warn("queue server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Errorf(format string, v ...any) {
	l.log.Error("queue server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Fatalf(format string, v ...any) {
	l.log.Error("queue server", "text", fmt.Sprintf(format, v...))
}
