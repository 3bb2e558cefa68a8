// Command witness shows that the tests notice when a rule is removed. Each entry of
// mutations.yaml takes one rule out of the source, with `go test -overlay` and so
// without touching the work tree, and names the test that must fail then. The
// command fails when that test passes, does not run, does not build, or does not
// pass without the mutation.
//
//	go run ./tools/witness                  # all of them
//	go run ./tools/witness -only judge      # those whose name holds the word
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	file := flag.String("file", "tools/witness/mutations.yaml", "the `list` of mutations")
	only := flag.String("only", "", "run the mutations whose name holds this `word`")
	recorded := flag.Bool("recorded", false, "run only those that the decision record asks for by number")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *file, *only, *recorded); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, only string, recorded bool) error {
	mutations, err := load(file)
	if err != nil {
		return err
	}
	began := time.Now()
	var chosen []mutation
	for _, m := range mutations {
		if !strings.Contains(m.Name, only) || recorded && len(m.Checks) == 0 {
			continue
		}
		if name, value, _ := strings.Cut(m.Needs, "="); name != "" && os.Getenv(name) != value {
			fmt.Printf("LEFT  %-44s it needs %s\n", m.Name, m.Needs)
			continue
		}
		chosen = append(chosen, m)
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutation in %s matches %q", file, only)
	}
	fmt.Printf("%d mutations; first their tests without any of them\n", len(chosen))
	before, err := unchanged(ctx, ".", chosen)
	if err != nil {
		return err
	}
	failures, err := each(ctx, chosen, before)
	switch {
	case err != nil:
		return err
	case len(failures) > 0:
		return fmt.Errorf("%d of %d mutations were not noticed: %s", len(failures), len(chosen), strings.Join(failures, ", "))
	}
	fmt.Printf("%d mutations, each noticed by its test, in %s\n", len(chosen), time.Since(began).Round(time.Second))
	return nil
}

// atOnce is how many mutants are built and tested at a time: while one links, another
// compiles.
const atOnce = 2

// each tries every mutation and answers the names of those that were not noticed.
func each(ctx context.Context, chosen []mutation, before map[string]verdict) (failures []string, err error) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, m := range chosen {
		group.Go(func() error {
			err := witness(ctx, ".", m, before[m.Name])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, m.Name)
				fmt.Printf("FAIL  %-44s %v\n", m.Name, err)
			} else {
				fmt.Printf("ok    %-44s %s reddens\n", m.Name, m.Test)
			}
			return ctx.Err()
		})
	}
	err = group.Wait()
	return failures, err
}
