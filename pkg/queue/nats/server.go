// Package nats carries the queue's messages over NATS JetStream. The server of one
// machine is embedded: the real NATS server as a library, reachable from inside the
// process only. Many machines share a NATS of their own, see [Dial].
//
// Reading order: server.go (the embedded server, what the streams are), remote.go
// (a NATS elsewhere), prepare.go (streams and consumers, made and looked after),
// bus.go, work.go, reports.go, claims.go (the verbs), logs.go (the output of runs),
// tell.go (what servers tell each other).
package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
)

// Options are the settings of a queue; a zero field has the stated default.
type Options struct {
	Dir string // of [Start]: the data folder; the queue is its folder "queue"; required
	// Sync writes every message to the disk before it is acknowledged. Without it a
	// power loss may forget the last messages; the sweep makes run messages again. It is
	// for [Start]; a NATS elsewhere has its own.
	Sync bool
	// Listen is a host:port at which [Start] lets others in; port 0 takes a free one.
	// Empty: the queue is for this process alone.
	Listen string
	// Bare leaves the streams to whoever connects, as a NATS of one's own does.
	Bare bool
	// Pool is the pool whose runs [Bus.Work] takes; empty is the default one. OnePool has
	// whoever works take the runs of every pool, on a machine that has one runner.
	Pool          string
	OnePool       bool
	Replicas      int           // how many NATS servers keep each stream: 1
	Lease         time.Duration // an unextended message is delivered again after half of it: 120 s
	MaxAckPending int           // messages in the hands of runners at a time: 256
	MaxDeliver    int           // deliveries of one message before it is dropped: 8
	MaxAge        time.Duration // of a run message: 24 h
	ReportAge     time.Duration // of a report that no server could apply: 7 days
	// LaterDelay is the wait before a message that was handed back is delivered again;
	// it grows with the deliveries to at most LaterMost: 1 s and 30 s.
	LaterDelay, LaterMost time.Duration
	// LogBytes is how much output of runs the queue keeps, the newest of it, for
	// servers that do not share a disk with the runners; 0 keeps none. LogAge is how
	// long: 7 days.
	LogBytes int64
	LogAge   time.Duration
	Log      *slog.Logger // nil: nothing is logged
	Events   Events
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
	for _, n := range []struct {
		field string
		value int64
	}{
		{"lease", int64(o.Lease)}, {"max_ack_pending", int64(o.MaxAckPending)}, {"max_deliver", int64(o.MaxDeliver)}, {"max_age", int64(o.MaxAge)},
		{"report_age", int64(o.ReportAge)}, {"later_delay", int64(o.LaterDelay)}, {"later_most", int64(o.LaterMost)},
		{"replicas", int64(o.Replicas)}, {"log_bytes", o.LogBytes}, {"log_age", int64(o.LogAge)},
	} {
		if n.value < 0 {
			return &holdfast.InvalidError{Field: n.field, Problem: "is negative", Allowed: "0 for the default, or more"}
		}
	}
	if err := checkPool(o.Pool); err != nil {
		return err
	}
	orElse(&o.Lease, 2*time.Minute)
	orElse(&o.MaxAckPending, 256)
	orElse(&o.MaxDeliver, 8)
	orElse(&o.MaxAge, 24*time.Hour)
	orElse(&o.ReportAge, 7*24*time.Hour)
	orElse(&o.LaterDelay, time.Second)
	orElse(&o.LaterMost, 30*time.Second)
	orElse(&o.Replicas, 1)
	orElse(&o.LogAge, 7*24*time.Hour)
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

// Server is an embedded NATS server. It listens nowhere unless [Options.Listen] says
// so.
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
	if o.Dir == "" {
		return nil, &holdfast.InvalidError{Field: "dir", Problem: "is empty", Allowed: "a folder"}
	}
	if err := o.fill(); err != nil {
		return nil, err
	}
	host, port, err := listenAt(o.Listen)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, "queue")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("queue folder: %w", err)
	}
	if !o.Bare {
		if err := dropConsumers(dir); err != nil {
			return nil, err
		}
	}
	inner, err := server.NewServer(&server.Options{
		ServerName: "holdfast", DontListen: o.Listen == "", Host: host, Port: port,
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
	if o.Bare {
		return s, nil
	}
	if err := s.prepare(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// dropConsumers removes what the server keeps of its consumers, which are made anew
// at every start. NATS does not start a consumer whose file a power cut has torn, and
// makes no other one in its place; their messages are the streams' and stay.
func dropConsumers(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "HOLDFAST_*", "obs"))
	if err != nil {
		return fmt.Errorf("queue consumers: %w", err)
	}
	for _, folder := range found {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("queue consumers: %w", err)
		}
	}
	return nil
}

// listenAt reads a host:port; port 0 becomes the server's own word for a free one.
func listenAt(address string) (host string, port int, err error) {
	if address == "" {
		return "", 0, nil
	}
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, &holdfast.InvalidError{Field: "listen", Problem: fmt.Sprintf("%q is not an address", holdfast.Clip(address, 60)), Allowed: "host:port with a port from 0 to 65535"}
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// URL is where the server lets others in; empty when it listens nowhere.
func (s *Server) URL() string {
	if s.options.Listen == "" {
		return ""
	}
	return s.server.ClientURL()
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
	for stream, c := range consumers(s.options) {
		err := b.js.DeleteConsumer(ctx, stream, c.Durable)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("queue consumer %s: %w", c.Durable, err)
		}
	}
	return b.Prepare(ctx)
}

// Connect opens a connection of its own to the server, for a part of the program
// that is called name in the server's logs. It must be closed before the server.
func (s *Server) Connect(name string) (*Bus, error) {
	nc, err := natsgo.Connect("", natsgo.InProcessServer(s.server), natsgo.Name(name), natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("queue connection: %w", err)
	}
	return newBus(nc, s.options)
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
	logStream      = "HOLDFAST_LOGS"
	runSubjects    = "holdfast.queue.runs."
	reportSubjects = "holdfast.reports."
	logSubjects    = "holdfast.logs."
	tellSubjects   = "holdfast.tell."
	cancelSubjects = "holdfast.cancel."
	claimSubject   = "holdfast.claims"
	secretSubject  = "holdfast.secrets"
	runnerGroup    = "holdfast-runners"
	serverGroup    = "holdfast-servers"
)

// dedupWindow is how long a repeated message id is acknowledged and dropped.
const dedupWindow = 5 * time.Minute

func streams(o Options) []jetstream.StreamConfig {
	list := []jetstream.StreamConfig{
		o.runStreamConfig(""),
		{
			Name: reportStream, Description: "what runners say of attempts", Subjects: []string{reportSubjects + ">"},
			Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Duplicates: dedupWindow, MaxAge: o.ReportAge, Replicas: o.Replicas,
		},
		deadStreamConfig(o),
	}
	if o.LogBytes > 0 {
		list = append(list, jetstream.StreamConfig{
			Name: logStream, Description: "the output of runs, the newest of it", Subjects: []string{logSubjects + ">"},
			Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Duplicates: dedupWindow, MaxAge: o.LogAge,
			MaxBytes: o.LogBytes, Discard: jetstream.DiscardOld, AllowDirect: true, Replicas: o.Replicas,
		})
	}
	return list
}

// consumers are the durable consumers by stream. The server bounds deliveries
// itself never (MaxDeliver -1): a message that reached the consumer's bound would
// stay in the stream and be delivered to nobody, so [Bus.Work] removes it instead.
func consumers(o Options) map[string]jetstream.ConsumerConfig {
	return map[string]jetstream.ConsumerConfig{
		runStream: o.runConsumerConfig(Pool{}),
		reportStream: {
			Durable: serverGroup, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
			AckWait: reportAckWait(o), MaxAckPending: 1024, MaxDeliver: -1,
		},
		deadStream: deadConsumerConfig(o),
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
