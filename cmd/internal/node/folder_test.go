package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
)

func TestANodeEndsWhenItsFolderIsRemovedUnderIt(t *testing.T) {
	settings := config.Defaults()
	settings.Data, settings.Addr = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0"
	n, err := Open(t.Context(), Options{Settings: settings, Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(t.Context(), func() {
			if err := os.Rename(settings.Data, settings.Data+".gone"); err != nil {
				t.Error(err)
			}
		})
	}()
	select {
	case err = <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("it serves on, and what it acknowledges is nowhere")
	}
	if !errors.Is(err, ErrFolderGone) {
		t.Errorf("it ended with %v, want ErrFolderGone", err)
	}
}

func TestAFolderThatIsThereIsNotGone(t *testing.T) {
	f, err := openFolder(t.TempDir(), config.Dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if now, err := os.Stat(f.lock.Path()); err != nil || !os.SameFile(now, f.locked) {
		t.Errorf("the lock does not know its own file: %v", err)
	}
}
