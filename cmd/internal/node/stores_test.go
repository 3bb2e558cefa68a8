package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

var op = auth.Principal{Name: "op", Operator: true}

func openNode(ctx context.Context, dir string, log *slog.Logger) (*Node, error) {
	settings := config.Defaults()
	settings.Data, settings.Addr, settings.Runners = dir, "127.0.0.1:0", 0
	return Open(ctx, Options{Settings: settings, Version: "test", Log: log})
}

// spend has a team spend a dollar and a quarter of this month.
func spend(ctx context.Context, n *Node) error {
	if _, err := n.parts.teams.Create(ctx, teams.Team{ID: "acme", CreatedAt: n.parts.clock.Now()}); err != nil {
		return err
	}
	run, denial, err := n.parts.launch.Launch(ctx, op, launch.Request{Team: "acme", Bot: "probe", External: true, Surface: "exec"})
	if err != nil || denial.Denied() {
		return fmt.Errorf("launch: %s %w", denial.Public, err)
	}
	_, err = n.parts.launch.Settle(ctx, op, run.ID, holdfast.OneUSD+holdfast.OneUSD/4, "finished")
	return err
}

func TestAStartWithoutItsLedgerSaysSo(t *testing.T) {
	dir := t.TempDir()
	n, err := openNode(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := spend(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for _, lose := range []bool{false, true} {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if lose {
			for _, end := range []string{"", "-wal", "-shm"} {
				if err := os.RemoveAll(filepath.Join(dir, embedded.LedgerFile+end)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n, err = openNode(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if !lose && (len(n.warned()) != 0 || strings.Contains(log.String(), "level=ERROR")) {
			t.Fatalf("a whole store is warned of: %q\n%s", n.warned(), log.String())
		}
	}
	defer n.Close()
	month := holdfast.MonthPeriod(n.parts.clock.Now())
	for _, want := range []string{"level=ERROR", "team/acme/usd@" + month, "team/acme/runs@" + month, "1.25", "ledger.db"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
	if w := n.warned(); len(w) != 1 || strings.Contains(w[0], "acme") {
		t.Errorf("anybody is told %q", w)
	}
	page := httptest.NewRecorder()
	n.parts.watcher.metrics.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if want := `holdfast_store_disagreements_total{lost="ledger"} 2`; !strings.Contains(page.Body.String(), want) {
		t.Errorf("the metrics have no %s", want)
	}
}

// fullDiskDir makes the test binary the child that runs on a full disk.
const fullDiskDir = "HOLDFAST_TEST_FULL_DISK_DIR"

// TestAFullDiskIsNotReadyUntilThereIsRoom runs itself in a process whose files may
// grow no further, because that holds for a whole process.
func TestAFullDiskIsNotReadyUntilThereIsRoom(t *testing.T) {
	if dir := os.Getenv(fullDiskDir); dir != "" {
		if err := onAFullDisk(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^TestAFullDiskIsNotReadyUntilThereIsRoom$", "-test.v")
	child.Env = append(os.Environ(), fullDiskDir+"="+t.TempDir())
	if out, err := child.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Fatalf("%v\n%s", err, out)
	}
}

func onAFullDisk(ctx context.Context, dir string) error {
	signal.Ignore(syscall.SIGXFSZ) // the write is answered with an error then
	n, err := openNode(ctx, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer n.Close()
	ctx, cancel := context.WithCancel(ctx)
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- n.Run(ctx, func() { close(begun) }) }()
	<-begun
	defer func() { cancel(); <-ended }()
	if err := spend(ctx, n); err != nil {
		return err
	}
	if code, health, err := readyz(n); err != nil || code != http.StatusOK {
		return fmt.Errorf("with room: %d %v %w", code, health, err)
	}
	if err := growTo(1); err != nil {
		return err
	}
	_, _, err = n.parts.launch.Launch(ctx, op, launch.Request{Team: "acme", Bot: "probe", External: true, Surface: "exec"})
	if err == nil {
		return fmt.Errorf("a launch succeeded on a full disk")
	}
	code, health, err := readyz(n)
	if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(health.Checks["ledger"]+health.Checks["records"], "the last write failed") {
		return fmt.Errorf("on a full disk: %d %v %w", code, health, err)
	}
	if err := growTo(1 << 40); err != nil {
		return err
	}
	for code != http.StatusOK { // it is tried once a second, and nobody else writes
		if code, health, err = readyz(n); err != nil {
			return err
		}
	}
	return nil
}

// growTo bounds how large a file of this process may become.
func growTo(bytes uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(bytes, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

func readyz(n *Node) (int, api.Health, error) {
	var health api.Health
	response, err := http.Get(n.URL() + "/readyz")
	if err != nil {
		return 0, health, err
	}
	defer response.Body.Close()
	return response.StatusCode, health, json.NewDecoder(response.Body).Decode(&health)
}
