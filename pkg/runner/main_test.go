package runner_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// The test binary is also the child wrapper, the bots' program and the runner that
// is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if code, hidden := runner.HiddenMain(os.Args[1:]); hidden {
			os.Exit(code)
		}
		switch os.Args[1] {
		case "agent":
			os.Exit(agent(os.Args[2:]))
		case "doomed-runner":
			doomedRunner(os.Args[2])
		case "doomed-busy":
			doomedBusy(os.Args[2])
		case "doomed-start":
			doomedStart(os.Args[2], os.Args[3])
		case "doomed-watched":
			doomedWatched(os.Args[2], os.Args[3])
		}
	}
	goleak.VerifyTestMain(m)
}

// agent is what the bots of these tests run: words that are done in order.
func agent(words []string) int {
	for _, word := range words {
		verb, value, _ := strings.Cut(word, "=")
		switch verb {
		case "print":
			fmt.Println(value)
		case "report":
			file, err := os.OpenFile(os.Getenv("HOLDFAST_REPORT"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
			if err != nil {
				return 99
			}
			fmt.Fprint(file, value)
			file.Close()
		case "exit":
			code, _ := strconv.Atoi(value)
			return code
		case "touch":
			if os.WriteFile(value, nil, 0o600) != nil {
				return 99
			}
		case "ignore-term":
			signal.Ignore(syscall.SIGTERM)
		case "on-term-exit": // from now on; the code is only seen when the signal came
			code, _ := strconv.Atoi(value)
			terms := make(chan os.Signal, 1)
			signal.Notify(terms, syscall.SIGTERM)
			go func() { <-terms; os.Exit(code) }()
		case "grandchild": // in the same group, ignoring TERM; its pid is written to a file
			if !spawn(value, nil) {
				return 99
			}
		case "stray": // in a session of its own
			if !spawn(value, &syscall.SysProcAttr{Setsid: true}) {
				return 99
			}
		case "pid":
			if os.WriteFile(value+".new", []byte(strconv.Itoa(os.Getpid())), 0o600) != nil || os.Rename(value+".new", value) != nil {
				return 99
			}
		case "spew":
			n, _ := strconv.Atoi(value)
			out := bufio.NewWriter(os.Stdout)
			for i := range n {
				fmt.Fprintf(out, "line %07d\n", i)
			}
			out.Flush()
		case "environment":
			descriptors, _ := os.ReadDir("/proc/self/fd")
			var open []string
			for _, d := range descriptors { // the Go runtime has some of its own
				target, err := os.Readlink("/proc/self/fd/" + d.Name())
				own := strings.HasPrefix(target, "anon_inode") || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/fs/cgroup/")
				if err == nil && !own {
					open = append(open, d.Name())
				}
			}
			folder, _ := os.Getwd()
			content, _ := os.ReadDir(folder)
			body, _ := json.Marshal(map[string]any{"env": os.Environ(), "open": open, "dir": folder, "content": len(content), "args": words})
			fmt.Println(string(body))
		case "read-only":
			if os.MkdirAll("locked/inner", 0o700) != nil || os.WriteFile("locked/inner/file", nil, 0o400) != nil ||
				os.Chmod("locked/inner", 0o500) != nil || os.Chmod("locked", 0o500) != nil {
				return 99
			}
		case "cat":
			text, _ := bufio.NewReader(os.Stdin).ReadString('\n')
			fmt.Print(text)
		case "hold":
			time.Sleep(time.Hour)
		}
	}
	return 0
}

func spawn(pidFile string, attributes *syscall.SysProcAttr) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	command := exec.Command(self, "agent", "ignore-term", "pid="+pidFile, "hold")
	command.SysProcAttr = attributes
	command.Stdout = os.Stdout // holds the log's pipe open
	return command.Start() == nil
}

// doomedRunner is a runner whose process a test kills: every claim is granted.
func doomedRunner(dir string) {
	q := newFake()
	r, err := runner.New(q, runner.Options{DataDir: dir, Heartbeat: 50 * time.Millisecond, ReportEvery: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	q.deliver(queue.RunMessage{
		Run: "R1", Team: "acme",
		Bot: holdfast.Bot{Name: "b", Lane: holdfast.LaneCommand, Command: []string{
			"holdfast", "agent", "ignore-term", "report={\"cost_usd\": 0.25}\n",
			"grandchild=" + filepath.Join(dir, "grandchild"), "stray=" + filepath.Join(dir, "stray"), "pid=" + filepath.Join(dir, "leader"), "hold",
		}},
	})
	go func() {
		for range q.reports {
		}
	}()
	panic(r.Run(context.Background()))
}

// doomedBusy starts and ends children all the time, until it is killed.
func doomedBusy(dir string) {
	q := newFake()
	r, err := runner.New(q, runner.Options{DataDir: dir, Heartbeat: 5 * time.Millisecond, ReportEvery: 5 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	for _, forever := range []func(int){
		func(n int) {
			command := []string{"sleep", []string{"0", "0.05", "3600"}[n%3]}
			q.deliver(queue.RunMessage{Run: holdfast.RunID("R" + strconv.Itoa(n)), Bot: holdfast.Bot{Name: "b", Lane: holdfast.LaneCommand, Command: command}})
		},
		func(int) { <-q.ended },
		func(int) { <-q.reports },
	} {
		go func() {
			for n := 0; ; n++ {
				forever(n)
			}
		}()
	}
	panic(r.Run(context.Background()))
}

// doomedStart dies between the start of a child's process and the release of its
// command, which would touch the file.
func doomedStart(pidFile, touched string) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	_, err = runner.StartChild(runner.Spec{
		Argv: []string{self, "agent", "touch=" + touched, "hold"}, Wrapper: self,
		Started: func(p runner.Process) error {
			if err := os.WriteFile(pidFile, []byte(strconv.Itoa(p.PID)), 0o600); err != nil {
				panic(err)
			}
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		},
	})
	panic(err)
}
