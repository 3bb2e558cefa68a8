package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// stream reads the events of a stream that is open.
type stream struct {
	t     testing.TB
	lines *bufio.Scanner
}

func (w *world) stream(who, path string, pairs ...string) stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	response := w.open(ctx, who, path, pairs...)
	w.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("status %d, %v", response.StatusCode, response.Header)
	}
	s := stream{w.t, bufio.NewScanner(response.Body)}
	s.line(": holdfast")
	return s
}

// line reads up to a line with that beginning.
func (s stream) line(prefix string) string {
	s.t.Helper()
	for s.lines.Scan() {
		if strings.HasPrefix(s.lines.Text(), prefix) {
			return s.lines.Text()
		}
	}
	s.t.Fatalf("the stream ended before %q: %v", prefix, s.lines.Err())
	return ""
}

// next reads the next event: its type, id and data.
func (s stream) next() (kind, id, data string) {
	s.t.Helper()
	for s.lines.Scan() {
		line := s.lines.Text()
		switch {
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "event: "):
			kind = line[7:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		case line == "" && data != "":
			return kind, id, data
		}
	}
	return "", "", ""
}

func TestAStreamShowsItsTeamsEventsInOrder(t *testing.T) {
	w := build(t, nil)
	acme, operator := w.stream("acme/viewer", "/api/events"), w.stream("operator", "/api/events")
	w.launched("rival/member", `{"team":"rival","bot":"probe"}`)
	run := w.launched("acme/member", probe)
	kind, id, data := acme.next()
	if kind != "run" || id == "" || !strings.Contains(data, run.ID) || !strings.Contains(data, `"team":"acme"`) {
		t.Errorf("the team saw %s %s %s", kind, id, data)
	}
	if kind, _, data := operator.next(); kind != "run" || !strings.Contains(data, `"team":"rival"`) {
		t.Errorf("the operator saw %s %s first", kind, data)
	}
	w.call("operator", "PUT", "/api/admin/settings/limits", `{"default_run_usd":1}`).want(200)
	operator.next()
	if kind, _, data := operator.next(); kind != "policy" || !strings.Contains(data, `"setting":"limits"`) {
		t.Errorf("the operator saw %s %s", kind, data)
	}
	w.call("acme/member", "POST", "/api/runs/"+run.ID+"/cancel", "").want(200)
	if kind, _, data := acme.next(); kind != "run" || !strings.Contains(data, `"cancelled"`) {
		t.Errorf("the team saw %s %s, and not what was not for it", kind, data)
	}
}

func TestAStreamGoesOnBehindTheLastEventThatWasSeen(t *testing.T) {
	w := build(t, nil)
	first := w.stream("acme/viewer", "/api/events")
	for i := range 3 {
		w.broker.Publish(api.Event{Type: server.EventRun, Team: "acme", Detail: fmt.Sprint(i)})
	}
	_, id, _ := first.next()
	for _, again := range []stream{w.stream("acme/viewer", "/api/events", "Last-Event-ID", id), w.stream("acme/viewer", "/api/events?after="+id)} {
		for _, want := range []string{`"detail":"1"`, `"detail":"2"`} {
			if _, _, data := again.next(); !strings.Contains(data, want) {
				t.Errorf("saw %s, want %s", data, want)
			}
		}
	}
	for _, lost := range []string{"another-1", "junk", "-", id + "9999999"} {
		if kind, _, _ := w.stream("acme/viewer", "/api/events", "Last-Event-ID", lost).next(); kind != "dropped" {
			t.Errorf("after %q the first event is %q", lost, kind)
		}
	}
}

func TestASlowSubscriberIsDroppedAndTheOthersAreNot(t *testing.T) {
	b := server.NewBroker(nil)
	slow, ok := b.Subscribe("slow", "acme")
	if !ok {
		t.Fatal("no subscription")
	}
	for range 300 {
		b.Publish(api.Event{Type: server.EventRun, Team: "acme"})
	}
	n := 0
	for range slow.Events() {
		n++
	}
	if n != 257 || slow.Last() != "dropped" || b.Subscribers() != 0 {
		t.Errorf("%d events, the last word is %q, %d streams are open", n, slow.Last(), b.Subscribers())
	}
}

func TestStreamsAreBoundedForEachToken(t *testing.T) {
	b := server.NewBroker(nil)
	for range 20 {
		if _, ok := b.Subscribe("one", ""); !ok {
			t.Fatal("refused too early")
		}
	}
	if _, ok := b.Subscribe("one", ""); ok {
		t.Error("a token has 21 streams")
	}
	other, ok := b.Subscribe("two", "")
	if !ok {
		t.Error("another token has none")
	}
	b.Leave(other)
	b.Leave(other)
	if b.Subscribers() != 20 {
		t.Errorf("%d streams", b.Subscribers())
	}
}

func TestAClosingBrokerSaysSoToEveryStream(t *testing.T) {
	w := build(t, nil)
	s := w.stream("operator", "/api/events")
	w.broker.Close()
	if kind, _, _ := s.next(); kind != "closing" {
		t.Errorf("the last event is %q", kind)
	}
	w.call("operator", "GET", "/api/events", "").problem(429)
}

func TestAnIdleStreamIsKeptAlive(t *testing.T) {
	w := build(t, func(_ *world, o *server.Options) { o.KeepAlive = time.Millisecond })
	w.stream("operator", "/api/events").line(": still here")
}

func TestTheClientReadsEventsUntilItsHandlerHasEnough(t *testing.T) {
	w := build(t, nil)
	c, err := client.New(w.http.URL, w.bearers["acme/viewer"], client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	own, _ := w.broker.Subscribe("test", "acme")
	for i := range 4 {
		w.broker.Publish(api.Event{Type: server.EventRun, Team: "acme", Detail: fmt.Sprint(i)})
	}
	var seen []string
	err = c.Events(t.Context(), "", (<-own.Events()).ID, func(e api.Event) error {
		seen = append(seen, e.Detail)
		if len(seen) == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || strings.Join(seen, "") != "123" {
		t.Errorf("saw %v, %v", seen, err)
	}
}

func TestACapacityFeedReadsOncePerBurstAndSaysNearOnceOnTheWayUp(t *testing.T) {
	b := server.NewBroker(nil)
	sub, _ := b.Subscribe("t", "acme")
	used, reads := "0", 0
	feed := server.NewCapacityFeed(b, func(_ context.Context, s holdfast.Subject) (api.SubjectCapacity, error) {
		reads++
		return api.SubjectCapacity{Subject: s.String(), Cap: slots(10), Settled: *slots(0), Outstanding: api.Amount{Value: used, Unit: "slots"}}, nil
	}, 0, nil)
	subject := holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	var told []string
	feed.Near = func(s holdfast.Subject, percent int) { told = append(told, fmt.Sprint(s, " ", percent)) }
	var kinds []string
	for _, used = range []string{"5", "8", "9", "10", "10", "7", "8"} {
		for range 5 {
			feed.Changed(subject)
		}
		feed.Flush(t.Context())
		for len(sub.Events()) > 0 {
			e := <-sub.Events()
			kinds = append(kinds, strings.TrimSpace(e.Type+" "+strings.TrimPrefix(fmt.Sprint(e.Percent), "0")))
		}
	}
	want := "capacity,capacity,capacity_near 80,capacity,capacity,capacity_near 95,capacity,capacity,capacity,capacity_near 80"
	if got := strings.Join(kinds, ","); got != want {
		t.Errorf("events\n%s, want\n%s", got, want)
	}
	if got := strings.Join(told, ","); got != "team/acme/slots 80,team/acme/slots 95,team/acme/slots 80" {
		t.Errorf("told %s", got)
	}
	if reads != 7 {
		t.Errorf("%d reads for 7 bursts", reads)
	}
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	w := build(t, func(_ *world, o *server.Options) { o.KeepAlive = 5 * time.Millisecond })
	s := w.stream("acme/viewer", "/api/events")
	s.line(": still here")
	var list api.Page[api.Token]
	w.call("acme/admin", "GET", "/api/teams/acme/tokens", "").want(200).into(&list)
	for _, token := range list.Items {
		if token.Role == "viewer" {
			w.call("acme/admin", "DELETE", "/api/teams/acme/tokens/"+token.ID, "").want(204)
		}
	}
	for s.lines.Scan() { // it ends
		if strings.HasPrefix(s.lines.Text(), "data:") {
			t.Errorf("a revoked token saw %s", s.lines.Text())
		}
	}
}

func TestAReaderThatTakesNothingIsCutOff(t *testing.T) {
	w := build(t, func(_ *world, o *server.Options) { o.Stall = 20 * time.Millisecond })
	returned := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.server.Handler().ServeHTTP(out, r)
		close(returned)
	}))
	defer front.Close()
	connection, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := fmt.Fprintf(connection, "GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", w.operator); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Read(make([]byte, 1)); err != nil { // the stream is open; nothing more is read
		t.Fatal(err)
	}
	huge := strings.Repeat("x", 1<<20)
	for range 100 { // more than the sockets of any system hold
		w.broker.Publish(api.Event{Type: server.EventRun, Detail: huge})
	}
	select {
	case <-returned:
	case <-time.After(30 * time.Second):
		t.Fatal("the handler still writes to a reader that takes nothing")
	}
}

func TestTheStreamOutlivesTheTimeoutOfARequest(t *testing.T) {
	w := build(t, func(_ *world, o *server.Options) {
		o.RequestTimeout = 50 * time.Millisecond
		o.KeepAlive = 20 * time.Millisecond
	})
	s := w.stream("operator", "/api/events")
	for range 10 { // 200 ms, four times the timeout
		s.line(": still here")
	}
}
