package records

import (
	"cmp"
	"sync"
)

// Each calls do for every item, that many at once, and returns the first error when all
// are done. The embedded store commits writes that come together in one go.
func Each[T any](items []T, atOnce int, do func(T) error) error {
	var (
		work  = make(chan T)
		group sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	for range min(atOnce, len(items)) {
		group.Go(func() {
			for item := range work {
				if err := do(item); err != nil {
					mu.Lock()
					first = cmp.Or(first, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, item := range items {
		work <- item
	}
	close(work)
	group.Wait()
	return first
}
