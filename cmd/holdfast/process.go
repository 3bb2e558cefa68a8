package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
)

// settingFlags gives a command the flags of a process's settings. load reads the
// settings: the flags that were typed, the environment, the file.
func (c *cli) settingFlags(cmd *cobra.Command, p config.Process) (load func() (config.Options, error)) {
	flags := cmd.Flags()
	typed := map[string]*string{}
	for _, s := range config.Of(p) {
		if s.Secret {
			continue
		}
		meaning := s.Meaning
		if text := s.Default(p); text != "" {
			meaning += " (default " + text + ")"
		}
		typed[s.Key] = flags.String(s.Key, "", meaning)
	}
	typed[config.FileKey] = flags.String(config.FileKey, "", "read the settings from this YAML file")
	return func() (config.Options, error) {
		given := map[string]string{}
		for key, text := range typed {
			if flags.Changed(key) {
				given[key] = *text
			}
		}
		return config.LoadFor(p, c.environ, given)
	}
}

// logger is a process's log, on stderr. It warns of settings that mean nothing.
func (c *cli) logger(settings config.Options) *slog.Logger {
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: settings.LogLevel}))
	if len(settings.Unknown) > 0 {
		log.Warn("unknown settings in the environment are ignored", "names", strings.Join(settings.Unknown, " "))
	}
	return log
}

// draining gives the two contexts of a process that drains: taking ends with the
// first INT or TERM, last with a second one, or when the drain has lasted long
// enough. A third signal ends the process as if nobody listened.
func draining(ctx context.Context, most time.Duration, log *slog.Logger) (taking, last context.Context, stop func()) {
	taking, endTaking := context.WithCancel(ctx)
	last, endLast := context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer endLast()
		select {
		case <-signals:
			log.Info("draining; a second signal ends what is under way", "at_most", most)
		case <-ctx.Done():
		case <-done:
			return
		}
		endTaking()
		deadline := time.NewTimer(most)
		defer deadline.Stop()
		select {
		case <-signals:
			log.Info("ending what is under way")
		case <-deadline.C:
			log.Info("the drain is over, ending what is under way")
		case <-done:
		}
		signal.Stop(signals)
	}()
	return taking, last, sync.OnceFunc(func() {
		close(done)
		signal.Stop(signals)
		endTaking()
		endLast()
	})
}
