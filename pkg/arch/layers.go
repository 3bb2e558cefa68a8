// Package arch states who may import whom, as data, and enforces it with a test.
// A new package is added to [Layers]; a reader who wants to know what a line of
// code may touch looks here.
package arch

// Module is the path that package names are relative to.
const Module = "github.com/holdfast-io/holdfast"

// Layers lists the packages from the lowest layer up. A package imports strictly
// lower layers only: never its own, never a higher one.
var Layers = [][]string{
	{".", "pkg/clock"},
	{"pkg/capacityledger", "pkg/budgetfloor", "pkg/records", "pkg/pricing"},
	{
		"pkg/teams", "pkg/auth", "pkg/botsource", "pkg/platformcfg", "pkg/runs", "pkg/queue",
		"pkg/decisions", "pkg/audit", "pkg/orgusage", "pkg/api", "pkg/secrets",
	},
	{"pkg/launch", "pkg/login", "pkg/runner", "pkg/runner/sampleagent", "pkg/client", "pkg/store/internal/subject"},
	{"pkg/surface"},
	{"pkg/board", "pkg/retry", "pkg/schedule", "pkg/webhook"},
	{"pkg/store/memory", "pkg/store/embedded", "pkg/store/mongo", "pkg/queue/nats", "pkg/server", "pkg/metrics", "cmd/internal/yamlfile"},
	{"pkg/simulate", "cmd/internal/config", "cmd/internal/apply", "examples"},
	{"cmd/internal/node", "cmd/internal/incident", "cmd/internal/clusterdemo"},
	{"cmd/holdfast"},
}

// TestSupport lists packages that production code may not import. They may import
// anything below the top.
var TestSupport = []string{
	"pkg/clock/clocktest",
	"pkg/capacityledger/ledgertest",
	"pkg/capacityledger/ledgertest/history",
	"pkg/records/recordstest",
	"pkg/surface/surfacetest",
	"pkg/arch",
	"tools/witness",
	"e2e",
	"e2e/scripts",
}

// Pure lists the packages whose production code imports nothing but the standard
// library and what stands beside them: the rules that any gate may import without
// inverting the graph (ADR-155 §2).
var Pure = map[string][]string{
	".":                  {},
	"pkg/clock":          {},
	"pkg/capacityledger": {".", "pkg/clock"},
	"pkg/budgetfloor":    {"."},
	"pkg/records":        {"."},
}

// Outside names the only packages that may import a third-party module. A package
// path covers itself alone.
var Outside = map[string][]string{
	"modernc.org/sqlite":                  {"pkg/store/embedded"},
	"go.mongodb.org/mongo-driver/v2":      {"pkg/store/mongo"},
	"github.com/nats-io/nats-server/v2":   {"pkg/queue/nats"},
	"github.com/nats-io/nats.go":          {"pkg/queue/nats"},
	"github.com/prometheus/client_golang": {"pkg/metrics"},
	"github.com/danielgtaylor/huma/v2":    {"pkg/server"},
	"github.com/coreos/go-oidc/v3":        {"pkg/login"},
	"golang.org/x/oauth2":                 {"pkg/login"},
	"github.com/spf13/cobra":              {"cmd/holdfast"},
	"github.com/robfig/cron/v3":           {"pkg/schedule"},
}

// MaxFileLines is how long a file may grow before it must be split.
const MaxFileLines = 600
