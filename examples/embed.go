// Package examples has an authored day of three teams, with a policy and caps to
// replay it against and a fleet to apply to a server. `holdfast dev --example`, the
// tests and the documentation use the same files.
package examples

import "embed"

// Files are trace.csv, policy.yaml, caps.yaml and fleet.yaml.
//
//go:embed trace.csv policy.yaml caps.yaml fleet.yaml
var Files embed.FS
