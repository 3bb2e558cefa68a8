package mongo_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

func TestAServerThatIsNotThereIsNamedWithoutItsPassword(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = mongo.Open(t.Context(), "mongodb://somebody:hunter2@"+address+"/", mongo.Options{ConnectTimeout: 300 * time.Millisecond})
	if !errors.Is(err, capacityledger.ErrUnavailable) || !strings.Contains(err.Error(), address) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is: %v", err)
	}
}

func TestAnAddressOrADatabaseThatCannotBeMeantIsBadInput(t *testing.T) {
	for field, open := range map[string]func() error{
		"uri": func() error { _, err := mongo.Open(t.Context(), "http://user:hunter2@x", mongo.Options{}); return err },
		"database": func() error {
			_, err := mongo.Open(t.Context(), "mongodb://x", mongo.Options{Database: "a.b$"})
			return err
		},
	} {
		var bad *holdfast.InvalidError
		if err := open(); !errors.As(err, &bad) || bad.Field != field || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// old answers as a server of MongoDB 5.0 does, as far as an opening asks it.
func old(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return "mongodb://" + listener.Addr().String() + "/?directConnection=true"
}

func answer(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	reply, err := bson.Marshal(bson.D{
		{Key: "ok", Value: 1}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 13},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48 << 20}, {Key: "maxWriteBatchSize", Value: 100_000}, {Key: "version", Value: "5.0.1"},
	})
	if err != nil {
		return
	}
	for {
		head := make([]byte, 16)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		if _, err := in.Discard(int(binary.LittleEndian.Uint32(head)) - 16); err != nil {
			return
		}
		var body []byte
		opcode := uint32(2013)
		if binary.LittleEndian.Uint32(head[12:]) == 2004 { // the first greeting of an old kind
			opcode = 1
			body = append(make([]byte, 16), 1, 0, 0, 0)
		} else {
			body = make([]byte, 5)
		}
		message := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)+len(reply)))
		message = binary.LittleEndian.AppendUint32(message, 1)
		message = append(message, head[4:8]...)
		message = binary.LittleEndian.AppendUint32(message, opcode)
		if _, err := conn.Write(append(append(message, body...), reply...)); err != nil {
			return
		}
	}
}

func TestAServerThatIsTooOldIsRefusedWithBothVersions(t *testing.T) {
	_, err := mongo.Open(t.Context(), old(t), mongo.Options{ConnectTimeout: 5 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "MongoDB 5.0.1") || !strings.Contains(err.Error(), "6.0") {
		t.Errorf("the error is: %v", err)
	}
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	d := newDatabases(t)
	store, err := d.fresh()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	ledger := capacityledger.New(store.Ledger(), capacityledger.Options{})
	if _, denial, err := ledger.Reserve(t.Context(), ask(1, slots, feature, 1, 1)); !errors.Is(err, capacityledger.ErrUnavailable) || denial.Denied() {
		t.Errorf("reserve: %v", err)
	}
	if _, err := ledger.Outstanding(t.Context(), slots); !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Errorf("read: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// TestTheEngineScriptsStartOnceAndEndWhatTheyStarted runs the scripts on an instance of
// its own, where the suite was asked to use them.
func TestTheEngineScriptsStartOnceAndEndWhatTheyStarted(t *testing.T) {
	server(t)
	if os.Getenv(envRequire) != "1" {
		t.Skipf("NOT TESTED: scripts/mongo-up and mongo-down. Set %s=1", envRequire)
	}
	name := "selftest"
	script := func(which string, args ...string) string {
		t.Helper()
		cmd := exec.Command("../../../scripts/"+which, append(args, name)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", which, err)
		}
		return string(out)
	}
	defer script("mongo-down", "--purge")
	script("mongo-down", "--purge")
	first := script("mongo-up")
	if strings.Count(first, "\n") != 1 || !strings.HasPrefix(first, "mongodb://127.0.0.1:") {
		t.Fatalf("it printed %q, want an address alone", first)
	}
	if again := script("mongo-up"); again != first {
		t.Errorf("started again it is at %q, was at %q", again, first)
	}
	uri := strings.TrimSpace(first)
	kept := func(uri string) bool {
		store, err := mongo.Open(t.Context(), uri, mongo.Options{Database: "kept"})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		ledger := capacityledger.New(store.Ledger(), capacityledger.Options{})
		b, err := ledger.Outstanding(t.Context(), slots)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ledger.Reserve(t.Context(), ask(1, slots, feature, 1, 1)); err != nil {
			t.Fatal(err)
		}
		return b.Outstanding == 1
	}
	if kept(uri) {
		t.Error("the instance did not begin empty")
	}
	script("mongo-down")
	if out := script("mongo-down"); out != "" {
		t.Errorf("ending what does not run printed %q", out)
	}
	if !kept(strings.TrimSpace(script("mongo-up", "--keep"))) {
		t.Error("--keep lost the data")
	}
	script("mongo-down")
	if kept(strings.TrimSpace(script("mongo-up", "--fresh"))) {
		t.Error("--fresh kept the data")
	}
}
