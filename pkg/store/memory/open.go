// Package memory has the twins that keep everything in this process and nothing
// beyond it: for tests, simulations and trying things out. They follow the same
// rules as the durable ones and pass the same suites.
package memory
