package embedded

import (
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// Bounds of what is kept of one collection: when it is full it begins anew.
const (
	maxCachedRows = 4_096
	maxCachedBody = 16 << 10
)

// rowCache keeps rows of a collection that every launch reads, and that a row is not
// there. It is exact: this process alone writes the file, and while a write of a row
// is under way nobody keeps or is served that row from here, so that a reader sees
// what the file has. A nil cache keeps nothing.
type rowCache struct {
	mu   sync.Mutex
	rows map[string]records.Record // of revision 0: there is none
	busy map[string]struct{}       // ids that the batch under way writes
	// generation counts the begun and the ended writes: what was read across one of
	// them is not kept.
	generation uint64
}

func newRowCache() *rowCache {
	return &rowCache{rows: map[string]records.Record{}, busy: map[string]struct{}{}}
}

// find is what is kept under an id, and the generation to keep it under where nothing
// is.
func (c *rowCache) find(id string) (r records.Record, kept bool, generation uint64) {
	if c == nil {
		return records.Record{}, false, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, kept = c.rows[id]
	return own(r), kept, c.generation
}

// keep keeps a row as it was read, unless a write came in between. The zero record
// says that there is none.
func (c *rowCache) keep(id string, r records.Record, generation uint64) {
	if c == nil || len(r.Body) > maxCachedBody {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, busy := c.busy[id]; busy || c.generation != generation {
		return
	}
	if len(c.rows) >= maxCachedRows {
		clear(c.rows)
	}
	c.rows[id] = own(r)
}

// begin is told by the writer that it writes a row, before it does.
func (c *rowCache) begin(id string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	delete(c.rows, id)
	c.busy[id] = struct{}{}
}

// end is told by the writer that its batch is durable, or was rolled back.
func (c *rowCache) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	clear(c.busy)
}

// written ends the writes of every cache; it runs on the writer's goroutine.
func (r *Records) written() {
	r.mu.Lock()
	caches := slices.Collect(maps.Values(r.caches))
	r.mu.Unlock()
	for _, cache := range caches {
		cache.end()
	}
}

// cacheOf is the cache of a collection, one for all who open it; nil unless it is hot.
// The lock is held.
func (r *Records) cacheOf(schema records.Schema) *rowCache {
	if !schema.Hot && r.caches[schema.Name] == nil {
		return nil
	}
	if r.caches[schema.Name] == nil {
		r.caches[schema.Name] = newRowCache()
	}
	return r.caches[schema.Name]
}
