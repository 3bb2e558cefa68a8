//go:build !linux

package embedded_test

import "os"

func datasync(f *os.File) error { return f.Sync() }
