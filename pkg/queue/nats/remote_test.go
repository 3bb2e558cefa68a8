package nats_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

// elsewhere is a NATS that listens on loopback and knows nothing of Holdfast.
func elsewhere(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("NATS is not ready")
	}
	return s
}

func dial(t *testing.T, r nats.Remote, o nats.Options) *nats.Bus {
	t.Helper()
	bus, err := nats.Dial(t.Context(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	return bus
}

func TestSeveralServersPrepareOneQueueAtOnceAndKeepWhatIsInIt(t *testing.T) {
	s := elsewhere(t, nil)
	r := nats.Remote{URL: s.ClientURL()}
	o := nats.Options{LogBytes: 1 << 20}
	var servers []*nats.Bus
	for range 5 {
		servers = append(servers, dial(t, r, o))
	}
	var all sync.WaitGroup
	for _, bus := range servers {
		all.Go(func() {
			if err := bus.Prepare(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	publish(t, servers[0], message("R1", 1))
	o.Lease = time.Minute // a server of another setting changes the consumer, not the messages
	changed := dial(t, r, o)
	if err := changed.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !queued(t, servers[1], "R1") {
		t.Error("preparing again lost a message")
	}
	if got := changed.Consumer(t).Config.AckWait; got != 30*time.Second {
		t.Errorf("the ack wait is %v, want that of the last setting", got)
	}
	if skew, err := changed.Check(t.Context(), clock.System{}); err != nil || skew > time.Second || skew < -time.Second {
		t.Errorf("the queue is there and its clock is this one: %v, %v", skew, err)
	}
}

func TestAClockThatIsAheadOfNATSIsSeen(t *testing.T) {
	bus := dial(t, nats.Remote{URL: elsewhere(t, nil).ClientURL()}, nats.Options{})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		skew, err := bus.Check(t.Context(), shifted(ahead))
		if err != nil || (skew+ahead).Abs() > time.Second {
			t.Errorf("this clock is %v ahead: NATS is %v ahead of it (%v)", ahead, skew, err)
		}
	}
}

type shifted time.Duration

func (s shifted) Now() time.Time { return time.Now().Add(time.Duration(s)) }

func TestAQueueThatLostItsDataIsMissingUntilAServerMakesItAgain(t *testing.T) {
	dir := t.TempDir()
	first := elsewhere(t, func(o *server.Options) { o.StoreDir = dir })
	address := first.Addr().(*net.TCPAddr)
	var mu sync.Mutex
	lost, back := 0, 0
	count := func(n *int) func() { return func() { mu.Lock(); *n++; mu.Unlock() } }
	bus := dial(t, nats.Remote{URL: first.ClientURL(), Lost: count(&lost), Back: count(&back)}, nats.Options{Lease: 2 * time.Second})
	if _, err := bus.Check(t.Context(), clock.System{}); !errors.Is(err, nats.ErrMissing) {
		t.Errorf("nothing was prepared: %v", err)
	}
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	handled := make(chan holdfast.RunID, 10)
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(_ context.Context, d queue.Delivery) queue.Disposition {
			handled <- d.Message.Run
			return queue.Done
		})
	})
	publish(t, bus, message("R1", 1))
	if got := next(t, handled); got != "R1" {
		t.Errorf("got %s", got)
	}

	first.Shutdown()
	first.WaitForShutdown()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is noticed", func() bool { mu.Lock(); defer mu.Unlock(); return lost == 1 })
	elsewhere(t, func(o *server.Options) { o.Port = address.Port })
	eventually(t, "the connection comes back by itself", func() bool { mu.Lock(); defer mu.Unlock(); return back == 1 && bus.Connected() })
	if _, err := bus.Check(t.Context(), clock.System{}); !errors.Is(err, nats.ErrMissing) {
		t.Errorf("the streams are gone: %v", err)
	}
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, bus, message("R2", 1))
	if got := next(t, handled); got != "R2" {
		t.Errorf("the worker did not come back to the new queue: got %s", got)
	}
}

func TestARunnerWaitsForTheQueueAndRefusesALeaseThatIsLongerThanTheServers(t *testing.T) {
	s := elsewhere(t, nil)
	r := nats.Remote{URL: s.ClientURL()}
	runner := dial(t, r, nats.Options{Lease: time.Minute})
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := runner.Attach(soon); err == nil {
		t.Error("there is no queue to attach to")
	}
	attached := make(chan error, 1)
	go func() { attached <- runner.Attach(t.Context()) }()
	if err := dial(t, r, nats.Options{Lease: time.Minute}).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := next(t, attached); err != nil {
		t.Error(err)
	}
	var bad *holdfast.InvalidError
	if err := dial(t, r, nats.Options{Lease: time.Minute + time.Second}).Attach(t.Context()); !errors.As(err, &bad) || bad.Field != "lease" {
		t.Errorf("a runner that believes longer than the servers: %v", err)
	}
	if err := dial(t, r, nats.Options{Lease: 30 * time.Second}).Attach(t.Context()); err != nil {
		t.Errorf("a shorter lease is safe: %v", err)
	}
}

func TestCredentialsAndCertificatesAreUsedAndBadOnesAreNamed(t *testing.T) {
	dir := t.TempDir()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := user.Seed()
	public, _ := user.PublicKey()
	other, _ := nkeys.CreateUser()
	otherSeed, _ := other.Seed()
	ca, pair := certificates(t, dir)
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := elsewhere(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public}}
		o.Users = []*server.User{{Username: "ana", Password: "swordfish"}}
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		o.TLS = true
	})
	host := s.Addr().String()
	good := nats.Remote{URL: "tls://" + host, CA: ca, NKey: file("seed", seed)}
	bus := dial(t, good, nats.Options{})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Error(err)
	}
	dial(t, nats.Remote{URL: "tls://ana:swordfish@" + host, CA: ca}, nats.Options{})

	rows := []struct {
		name   string
		change func(*nats.Remote)
		want   string
	}{
		{"a seed that NATS does not know", func(r *nats.Remote) { r.NKey = file("other", otherSeed) }, "does not accept the credentials"},
		{"a wrong password", func(r *nats.Remote) { r.NKey, r.URL = "", "tls://ana:hunter2@"+host }, "does not accept the credentials"},
		{"a file that is no seed", func(r *nats.Remote) { r.NKey = file("nonsense", []byte("x")) }, "nats_nkey"},
		{"a file that is not there", func(r *nats.Remote) { r.Creds = filepath.Join(dir, "none") }, "nats_creds"},
		{"a certificate without its key", func(r *nats.Remote) { r.Cert = ca }, "nats_cert"},
		{"no address", func(r *nats.Remote) { r.URL = " " }, "nats_url"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := good
			row.change(&r)
			_, err := nats.Dial(t.Context(), r, nats.Options{})
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want it to say %q", err, row.want)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ana:")) {
				t.Errorf("a password is printed: %v", err)
			}
		})
	}
}

func TestATryThatNobodyAnswersEndsWithItsContextAndPrintsNoPassword(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var log bytes.Buffer
	_, err = nats.Dial(ctx, nats.Remote{URL: "nats://ana:swordfish@" + nobody + ", nats://" + nobody}, nats.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err == nil || !strings.Contains(err.Error(), nobody) || strings.Contains(err.Error()+log.String(), "swordfish") {
		t.Errorf("error %v, log %s", err, log.String())
	}
}

// certificates are a CA's file and a pair for 127.0.0.1 that it signed.
func certificates(t *testing.T, dir string) (ca string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nats"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return ca, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTheOutputOfARunIsReadAsItWasAppendedAndGoesOn(t *testing.T) {
	bus := dial(t, nats.Remote{URL: elsewhere(t, nil).ClientURL()}, nats.Options{LogBytes: 1 << 20})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	add := func(attempt int, offset int64, text string) {
		t.Helper()
		if err := bus.AppendLog(t.Context(), "R1", attempt, offset, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bus.OpenLog(t.Context(), "R1", 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was appended yet: %v", err)
	}
	add(1, 0, "first attempt\n")
	add(2, 0, "one\n")
	add(2, 0, "one\n")                          // its acknowledgement was lost
	add(2, 0, "one\ntwo\n")                     // and again, with more
	add(2, 18, "four\n")                        // what was between is not kept any more
	l, err := bus.OpenLog(t.Context(), "R1", 3) // the third attempt printed nothing
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(l)
	if want := "one\ntwo\n\n[holdfast: 10 bytes of the output are not kept any more]\nfour\n"; err != nil || string(text) != want {
		t.Errorf("read %q (%v), want %q", text, err, want)
	}
	add(2, 23, "five\n")
	if more, err := io.ReadAll(l); err != nil || string(more) != "five\n" {
		t.Errorf("what came later reads %q (%v)", more, err)
	}
	if at, err := l.Seek(-5, io.SeekEnd); err != nil || at < 5 {
		t.Errorf("seek: %d, %v", at, err)
	}
	if more, _ := io.ReadAll(l); string(more) != "five\n" {
		t.Errorf("the end reads %q", more)
	}
	if _, err := l.Seek(0, io.SeekStart); err != nil {
		t.Error(err)
	}
	if all, _ := io.ReadAll(l); !strings.HasPrefix(string(all), "one\n") {
		t.Errorf("from the start it reads %q", all)
	}
}

func TestTheQueueKeepsTheNewestOutputOnly(t *testing.T) {
	bus := dial(t, nats.Remote{URL: elsewhere(t, nil).ClientURL()}, nats.Options{LogBytes: 64 << 10})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	chunk := bytes.Repeat([]byte("x"), 8<<10)
	for i := range int64(20) {
		if err := bus.AppendLog(t.Context(), "R1", 1, i*int64(len(chunk)), chunk); err != nil {
			t.Fatal(err)
		}
	}
	l, err := bus.OpenLog(t.Context(), "R1", 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(l)
	if err != nil || len(text) > 65<<10 || len(text) < 40<<10 || !bytes.Contains(text[:200], []byte("are not kept any more")) {
		t.Errorf("%d bytes are kept of 160 KiB (%v), beginning %.80q", len(text), err, text)
	}
}

func TestANoticeReachesEveryListenerOfItsTopic(t *testing.T) {
	r := nats.Remote{URL: elsewhere(t, nil).ClientURL()}
	a, b := dial(t, r, nats.Options{}), dial(t, r, nats.Options{})
	heard := make(chan string, 10)
	for name, bus := range map[string]*nats.Bus{"a": a, "b": b} {
		stop, err := bus.Hear("events", func(body []byte) { heard <- name + string(body) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	if err := a.Tell("other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := a.Tell("events", []byte("1")); err != nil {
		t.Fatal(err)
	}
	got := []string{next(t, heard), next(t, heard)}
	if !(got[0] == "a1" && got[1] == "b1" || got[0] == "b1" && got[1] == "a1") {
		t.Errorf("heard %v", got)
	}
	if _, err := a.Hear("a.>", func([]byte) {}); err == nil {
		t.Error("a topic that is a wildcard was accepted")
	}
}

func TestAnEmbeddedQueueListensOnlyWhenItIsTold(t *testing.T) {
	open, err := nats.Start(nats.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(open.Close)
	dial(t, nats.Remote{URL: open.URL()}, nats.Options{})
	shut, err := nats.Start(nats.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shut.Close)
	if shut.URL() != "" {
		t.Errorf("it listens at %s", shut.URL())
	}
	if _, err := nats.Start(nats.Options{Dir: t.TempDir(), Listen: "somewhere"}); err == nil {
		t.Error("an address without a port was accepted")
	}
}
