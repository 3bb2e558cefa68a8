package runner

import (
	"maps"
	"path/filepath"
	"slices"
)

// ProcessOf looks up a living process of this machine, as the journal records it.
func ProcessOf(pid int) (Process, error) {
	p, _, err := processOf(pid)
	if err != nil {
		return Process{}, err
	}
	p.Boot, err = bootID()
	return p, err
}

// Survivors are the living processes that were started as children of this folder.
func Survivors(dir string) ([]int, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	found, err := match(nil, []byte("\x00"+reportVariable+"="+filepath.Join(dir, workFolder)))
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(found)), nil
}

// Marked are the living processes that were started with this report file.
func Marked(report string) ([]int, error) {
	found, err := match(nil, []byte("\x00"+reportVariable+"="+report+"\x00"))
	return slices.Collect(maps.Keys(found)), err
}

// PID is the watcher's process.
func (w *Watcher) PID() int { return w.pid }
