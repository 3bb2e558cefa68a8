package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// ChildArgument is the first argument of the hidden command that waits to become a
// child; a program that is a [Spec.Wrapper] calls [ChildMain] when it sees it.
const ChildArgument = "__exec-child"

// The wrapper's descriptors beyond the three streams.
const (
	goDescriptor     = 3 // a byte arrives: go; it closes: the parent is gone
	statusDescriptor = 4 // the reason why the command could not be executed; closed by success
)

// ChildMain waits for the parent's word and then becomes the command in args (the
// arguments after [ChildArgument]). It is the answer to a parent that is killed
// between starting a process and writing down that it did: nothing of the command
// runs before the parent has recorded it, and when the parent dies first, the pipe
// closes and the wrapper ends. It returns the exit code for the cases in which the
// command does not take its place.
func ChildMain(args []string) int {
	closeOnExec()
	word, status := os.NewFile(goDescriptor, "go"), os.NewFile(statusDescriptor, "status")
	if word == nil || status == nil || len(args) == 0 {
		fmt.Fprintln(os.Stderr, "holdfast: "+ChildArgument+" is for holdfast itself")
		return 2
	}
	if n, _ := word.Read(make([]byte, 1)); n != 1 {
		return 1
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	if _, lost := fmt.Fprint(status, err); lost != nil {
		return 126
	}
	return 127
}

// closeOnExec keeps every descriptor beyond the three streams from the command: the
// two pipes, and what whoever started this program left open for it.
func closeOnExec() {
	for _, fd := range descriptors() {
		syscall.CloseOnExec(fd)
	}
}

// descriptors are those beyond the three streams that are open, or may be.
func descriptors() []int {
	var open []int
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		for fd := goDescriptor; fd < 1024; fd++ {
			open = append(open, fd)
		}
		return open
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= goDescriptor {
			open = append(open, fd)
		}
	}
	return open
}

// gate is the parent's side of the two pipes.
type gate struct {
	goRead, goWrite         *os.File
	statusRead, statusWrite *os.File
}

func newGate() (*gate, error) {
	g := &gate{}
	var err error
	if g.goRead, g.goWrite, err = os.Pipe(); err != nil {
		return nil, err
	}
	if g.statusRead, g.statusWrite, err = os.Pipe(); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *gate) childSide() []*os.File { return []*os.File{g.goRead, g.statusWrite} }

// handedOver closes what only the child needs, so that the child's end is seen.
func (g *gate) handedOver() {
	g.goRead.Close()
	g.statusWrite.Close()
}

// statusLimit bounds what is read of a reason.
const statusLimit = 4096

// open lets the child run and returns nil when the command has taken its place.
func (g *gate) open() error {
	if _, err := g.goWrite.Write([]byte{1}); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("release the child: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(g.statusRead, statusLimit))
	switch {
	case err != nil:
		return fmt.Errorf("release the child: %w", err)
	case len(text) > 0:
		return &StartError{Text: string(text)}
	}
	return nil
}

// close closes everything; closing twice is harmless.
func (g *gate) close() {
	for _, f := range []*os.File{g.goRead, g.goWrite, g.statusRead, g.statusWrite} {
		if f != nil {
			f.Close()
		}
	}
}
