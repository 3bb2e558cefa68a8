package mongo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// This file is about real processes: the test binary starts itself, and each part has
// half of the askers.

const (
	envPart   = "HOLDFAST_TEST_MONGO_PART"
	partSize  = 32
	partCount = 2
)

// TestMain plays the part of another process where it was started as one.
func TestMain(m *testing.M) {
	if name := os.Getenv(envPart); name != "" {
		if err := playPart(name, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// order is what a part is told to do: to let its askers race once, or to storm until it
// is told to stop.
type order struct {
	Team  holdfast.TeamID
	Cap   int64
	Run   int // of the first ask; in a storm the number of the first asker
	Storm bool
}

// outcome is what came of it.
type outcome struct {
	Granted int
	Errors  []string
	Storm   storm
}

// playPart does as it is told, line by line.
func playPart(database string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	store, err := mongo.Open(ctx, os.Getenv(envURI), mongo.Options{Database: database, KeepClosed: long, KeepRecords: long, Pool: 40})
	if err != nil {
		return err
	}
	defer store.Close()
	ledger := capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clocktest.New()})
	lines, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var next order
		if err := lines.Decode(&next); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var result outcome
		if next.Storm {
			ctx, stop := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				result.Storm = runStorm(ctx, ledger, partSize, next.Run)
			}()
			var stopped order
			err := lines.Decode(&stopped)
			stop()
			<-done
			if err != nil {
				return err
			}
		} else {
			result = race(ctx, ledger, next)
		}
		if err := answers.Encode(result); err != nil {
			return err
		}
	}
}

// race lets the askers of one process ask at once.
func race(ctx context.Context, ledger *capacityledger.Ledger, o order) outcome {
	var mu sync.Mutex
	var result outcome
	subject := holdfast.TeamSubject(o.Team, holdfast.AxisSlots, "")
	atOnce(partSize, func(i int) {
		a, denial, err := ledger.Reserve(ctx, ask(o.Run+i, subject, feature, o.Cap, 1))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			result.Errors = append(result.Errors, err.Error())
		case a.ID != "":
			result.Granted++
		case !denial.Denied():
			result.Errors = append(result.Errors, "neither granted nor refused")
		}
	})
	return result
}

// part is a process of its own.
type part struct {
	t       *testing.T
	orders  *json.Encoder
	answers *json.Decoder
}

func startParts(t *testing.T, database string) []*part {
	t.Helper()
	var parts []*part
	for range partCount {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envPart+"="+database, envURI+"="+server(t))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		})
		parts = append(parts, &part{t, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))})
	}
	return parts
}

func (p *part) order(o order) {
	p.t.Helper()
	if err := p.orders.Encode(o); err != nil {
		p.t.Fatal(err)
	}
}

func (p *part) answer() outcome {
	p.t.Helper()
	var result outcome
	if err := p.answers.Decode(&result); err != nil {
		p.t.Fatal(err)
	}
	for _, text := range result.Errors {
		p.t.Error(text)
	}
	return result
}

// TestTwoProcessesOf32 lets two processes of 32 askers race for a subject that nobody
// has asked before: for its one slot, and for one of several.
func TestTwoProcessesOf32(t *testing.T) {
	t.Parallel() // it waits more than it works
	own := processes(t, 1)[0]
	parts := startParts(t, mongo.DatabaseOf(own.store).Name())
	runs := 0
	for round := range rounds(t, 40) {
		limit := int64(1)
		if round%4 == 3 {
			limit = int64(1 + round*7%40)
		}
		team := holdfast.TeamID(fmt.Sprintf("p-%d", round))
		for _, p := range parts {
			p.order(order{Team: team, Cap: limit, Run: runs})
			runs += partSize
		}
		granted := 0
		for _, p := range parts {
			granted += p.answer().Granted
		}
		b, err := own.ledger.Outstanding(t.Context(), holdfast.TeamSubject(team, holdfast.AxisSlots, ""))
		if int64(granted) != limit || err != nil || b.Outstanding != limit {
			t.Fatalf("round %d: %d of a cap of %d were admitted, %d are outstanding, %v", round, granted, limit, b.Outstanding, err)
		}
	}
	if err := ledgertest.Invariants(t.Context(), own.store.Ledger()); err != nil {
		t.Error(err)
	}
}

// span is from when to when something took, in nanoseconds of the machine's clock.
type span struct{ From, To int64 }

// storm is what became of the asks of a storm: of each grant from its ask to its
// release, of each refusal from ask to answer.
type storm struct {
	Granted, Refused []span
	Errors           []string
}

// later numbers an asker's next run, so that later runs have larger numbers, also across
// processes, as the ids of runs are.
func later(asker int) int { return int(time.Now().UnixMicro()%1e14)*100 + asker }

// runStorm lets ordinary askers loop until the context ends: who gets the one slot that
// nobody has reserved gives it back at once.
func runStorm(ctx context.Context, ledger *capacityledger.Ledger, askers, first int) storm {
	var mu sync.Mutex
	var all storm
	atOnce(askers, func(i int) {
		for ctx.Err() == nil {
			a := ask(later(first+i), slots, feature, 3, 1, reserved(slots, review, 2))
			took := span{From: time.Now().UnixNano()}
			got, _, err := ledger.Reserve(context.WithoutCancel(ctx), a)
			if err == nil && got.ID != "" {
				_, err = ledger.Release(context.WithoutCancel(ctx), a.ID)
			}
			took.To = time.Now().UnixNano()
			mu.Lock()
			switch {
			case err != nil:
				all.Errors = append(all.Errors, err.Error())
			case got.ID != "":
				all.Granted = append(all.Granted, took)
			default:
				all.Refused = append(all.Refused, took)
			}
			mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return all
}
