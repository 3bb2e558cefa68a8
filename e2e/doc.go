// Package e2e tests the real binary: real processes, real HTTP, kill -9. It has no
// production code.
package e2e
