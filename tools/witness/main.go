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
	"time"
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
	began, ran := time.Now(), 0
	var failures []string
	for _, m := range mutations {
		if !strings.Contains(m.Name, only) || recorded && len(m.Checks) == 0 {
			continue
		}
		if name, value, _ := strings.Cut(m.Needs, "="); name != "" && os.Getenv(name) != value {
			fmt.Printf("LEFT  %-44s it needs %s\n", m.Name, m.Needs)
			continue
		}
		ran++
		if err := witness(ctx, ".", m); err != nil {
			failures = append(failures, m.Name)
			fmt.Printf("FAIL  %-44s %v\n", m.Name, err)
			continue
		}
		fmt.Printf("ok    %-44s %s reddens\n", m.Name, m.Test)
	}
	switch {
	case ran == 0:
		return fmt.Errorf("no mutation in %s matches %q", file, only)
	case len(failures) > 0:
		return fmt.Errorf("%d of %d mutations were not noticed: %s", len(failures), ran, strings.Join(failures, ", "))
	}
	fmt.Printf("%d mutations, each noticed by its test, in %s\n", ran, time.Since(began).Round(time.Second))
	return nil
}
