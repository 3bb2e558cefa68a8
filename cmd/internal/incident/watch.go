package incident

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// shared reads the subjects that all teams share.
func (p *play) shared(ctx context.Context) ([]api.SubjectCapacity, error) {
	capacity, err := p.c.Capacity(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("read the capacity: %w", err)
	}
	var shared []api.SubjectCapacity
	for _, s := range capacity.Subjects {
		if strings.HasPrefix(s.Subject, "platform/all/") {
			shared = append(shared, s)
		}
	}
	return shared, nil
}

// frames are how often the bars are drawn while runs run.
const sampleEvery, samplesPerFrame = 100 * time.Millisecond, 20

// watch samples the shared subjects until ctx ends, remembers the peaks, and draws
// the bars now and then.
func (p *play) watch(ctx context.Context) error {
	ticks := time.NewTicker(sampleEvery)
	defer ticks.Stop()
	began := time.Now()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		subjects, err := p.shared(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		p.sample(subjects)
		if n%samplesPerFrame == samplesPerFrame/2 {
			fmt.Fprintf(p.out, "%.1f s into the storm:\n", time.Since(began).Seconds())
			if err := p.o.Bars(p.out, subjects); err != nil {
				return err
			}
			fmt.Fprintln(p.out)
		}
	}
}

// sample remembers the most slots that were held at once, by all and by those
// without a reservation.
func (p *play) sample(subjects []api.SubjectCapacity) {
	slots := find(subjects, "platform/all/slots")
	all := number(slots.Outstanding)
	ordinary := all
	for _, h := range slots.Holders {
		if h.Holder == "platform/"+reviewBot {
			ordinary -= number(h.Outstanding)
		}
	}
	p.peak.samples++
	p.peak.all = max(p.peak.all, all)
	p.peak.ordinary = max(p.peak.ordinary, ordinary)
}

// returned waits until nothing is outstanding on the shared subjects and gives
// their last state.
func (p *play) returned(ctx context.Context) ([]api.SubjectCapacity, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		subjects, err := p.shared(ctx)
		if err != nil {
			return nil, err
		}
		outstanding := int64(0)
		for _, s := range subjects {
			outstanding += number(s.Outstanding)
		}
		if outstanding == 0 && len(subjects) > 0 {
			return subjects, nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return subjects, nil // the promise that it came back is judged on this
		}
	}
}
