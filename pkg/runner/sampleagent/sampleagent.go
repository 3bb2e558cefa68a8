// Package sampleagent is a program that behaves like an agent and needs nothing: it
// works for some seconds, prints progress and reports spend. The bots of the baked
// catalog run it until they run real agents.
package sampleagent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast"
)

// most bounds how long it works.
const most = 24 * time.Hour

// stepEvery is the longest time between two lines of progress.
const stepEvery = time.Second

type settings struct {
	name  string
	lasts time.Duration
	spend holdfast.MicroUSD
	fail  int
}

// Main runs the agent and returns its exit code: 0, what --fail says, 2 for bad
// arguments, 1 when its report cannot be written, 143 when a TERM or INT ended it
// before its time. getenv looks a variable up; the spend is reported as increments
// to the file that HOLDFAST_REPORT names, when it is set.
func Main(args []string, stdout io.Writer, getenv func(string) string) int {
	s, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stdout, "sample-agent: %v\n", err)
		return 2
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(stop)
	return s.work(stdout, getenv("HOLDFAST_REPORT"), stop)
}

func parse(args []string, stdout io.Writer) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("sample-agent", flag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.StringVar(&s.name, "name", "sample-agent", "who it says it is")
	seconds := flags.String("seconds", "3", "how long it works, such as 0.5")
	spend := flags.String("spend", "0", "how many dollars it says it spent in all, such as 0.25")
	flags.IntVar(&s.fail, "fail", 0, "the exit code to end with")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	if flags.NArg() > 0 {
		return settings{}, fmt.Errorf("%q is not understood", flags.Arg(0))
	}
	var err error
	if s.lasts, err = time.ParseDuration(*seconds + "s"); err != nil || s.lasts < 0 || s.lasts > most {
		return settings{}, fmt.Errorf("--seconds %q is not a number of seconds from 0 to %.0f", *seconds, most.Seconds())
	}
	if s.spend, err = holdfast.ParseUSD(*spend); err != nil {
		return settings{}, fmt.Errorf("--spend: %w", err)
	}
	if s.fail < 0 || s.fail > 125 {
		return settings{}, fmt.Errorf("--fail %d is not an exit code from 0 to 125", s.fail)
	}
	return s, nil
}

// work goes through the steps: each waits its part of the time, spends its part of
// the money and prints a line. The parts add up exactly.
func (s settings) work(stdout io.Writer, report string, stop <-chan os.Signal) int {
	steps := max(1, min(int(s.lasts/stepEvery), 1000))
	if s.lasts > 0 && steps < 4 {
		steps = 4
	}
	fmt.Fprintf(stdout, "%s: starting, %s of work\n", s.name, s.lasts)
	spent := holdfast.MicroUSD(0)
	for i := 1; i <= steps; i++ {
		timer := time.NewTimer(s.lasts / time.Duration(steps))
		select {
		case <-stop:
			timer.Stop()
			fmt.Fprintf(stdout, "%s: told to stop after step %d of %d, spent %s\n", s.name, i-1, steps, spent.Dollars())
			return 128 + int(syscall.SIGTERM)
		case <-timer.C:
		}
		part := s.spend/holdfast.MicroUSD(steps)*holdfast.MicroUSD(i) + s.spend%holdfast.MicroUSD(steps)*holdfast.MicroUSD(i)/holdfast.MicroUSD(steps) - spent
		if err := tell(report, part); err != nil {
			fmt.Fprintf(stdout, "%s: cannot report spend: %v\n", s.name, err)
			return 1
		}
		spent += part
		fmt.Fprintf(stdout, "%s: step %d of %d, spent %s\n", s.name, i, steps, spent.Dollars())
	}
	if s.fail != 0 {
		fmt.Fprintf(stdout, "%s: failing with exit code %d, as asked\n", s.name, s.fail)
		return s.fail
	}
	fmt.Fprintf(stdout, "%s: done\n", s.name)
	return 0
}

// tell appends one increment; nothing spent or no file is nothing to tell.
func tell(report string, part holdfast.MicroUSD) error {
	if report == "" || part == 0 {
		return nil
	}
	file, err := os.OpenFile(report, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "{\"cost_usd\": %s}\n", part)
	return errors.Join(err, file.Close())
}
