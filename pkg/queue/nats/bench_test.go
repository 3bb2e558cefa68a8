package nats_test

import (
	"strconv"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

// BenchmarkPublish is one run message made durable, as dev does it (synced) and
// without.
func BenchmarkPublish(b *testing.B) {
	for name, sync := range map[string]bool{"synced": true, "unsynced": false} {
		b.Run(name, func(b *testing.B) {
			server, err := nats.Start(nats.Options{Dir: b.TempDir(), Sync: sync})
			if err != nil {
				b.Fatal(err)
			}
			defer server.Close()
			bus, err := server.Connect("bench")
			if err != nil {
				b.Fatal(err)
			}
			defer bus.Close()
			n := 0
			for b.Loop() {
				n++
				if err := bus.Publish(b.Context(), message("R"+strconv.Itoa(n), 1)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
