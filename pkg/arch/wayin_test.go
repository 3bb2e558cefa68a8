package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A door is a piece of code that makes somebody a run's identity, makes a run, or
// takes capacity. Each stands where the gate is or says here why it may stand
// elsewhere; everything else that starts work goes through launch.Service (ADR-155 §11).
type door struct {
	what string
	// literal is a type, as package.Name; call and set are the name of a method or
	// function, or of a field that is written.
	literal, call, set string
	where              []string // package, or package:function
}

var doors = []door{
	{what: "the gate's subject", literal: "pkg/launch.Workload", where: []string{"pkg/launch:WorkloadOf"}},
	{what: "what is judged behind the resolution", literal: "pkg/launch.candidate", where: []string{"pkg/launch:candidate", "pkg/launch:continuation"}},
	{what: "an identity inside the gate", set: "identity", where: []string{"pkg/launch:none"}},
	{what: "a resolution", literal: "pkg/botsource.Resolved", where: []string{"pkg/botsource:Resolve", "pkg/botsource:List", "pkg/server:writeBot"}}, // the answer to a write of a bot
	{what: "a run document", literal: "pkg/runs.Run", where: []string{"pkg/launch:document"}},
	{what: "a run's message", literal: "pkg/queue.RunMessage", where: []string{"pkg/launch:messageOf"}},
	{what: "an allocation", call: "Reserve", where: []string{
		"pkg/launch:adopt",             // of what runs already, unjudged
		"pkg/orgusage", "pkg/simulate", // an adapter of the ledger; a replay on a ledger of its own
	}},
	{what: "an allocation", call: "ReserveJudged", where: []string{"pkg/launch:reserveOne", "pkg/capacityledger:Reserve", "pkg/orgusage:AllowRun"}},
	{what: "an identity", call: "PlatformBot", where: identityMakers},
	{what: "an identity", call: "TeamBot", where: identityMakers},
}

// identityMakers make identities of what is stored or written in a policy; for a
// launch only the resolver and a stored run do.
var identityMakers = []string{
	".", "pkg/botsource", "pkg/budgetfloor", "pkg/launch:WorkloadOf",
	"pkg/server:identityOf", // the key of a stored bot
	"pkg/simulate",          // of a trace's rows
	"cmd/holdfast:identity", // an argument of policy commands
}

// unlocked lists what a file does at a door that is not its own.
func unlocked(pkg string, file *ast.File, fset *token.FileSet) []string {
	var found []string
	for _, decl := range file.Decls {
		name := ""
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			for _, d := range doors {
				if n != nil && d.opens(pkg, n) && !slices.Contains(d.where, pkg) && !slices.Contains(d.where, pkg+":"+name) {
					found = append(found, fmt.Sprintf("%s: %s makes %s; only %s may", fset.Position(n.Pos()), name, d.what, strings.Join(d.where, ", ")))
				}
			}
			return true
		})
	}
	return found
}

func (d door) opens(pkg string, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CompositeLit:
		return d.literal != "" && len(n.Elts) > 0 && typeName(pkg, n.Type) == d.literal
	case *ast.CallExpr:
		return d.call != "" && called(n.Fun) == d.call
	case *ast.AssignStmt:
		return d.set != "" && slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool {
			field, ok := e.(*ast.SelectorExpr)
			return ok && pkg == "pkg/launch" && field.Sel.Name == d.set
		})
	}
	return false
}

// typeName is a literal's type as package.Name. Packages are imported under their
// own names here, and the last part of a path is the name.
func typeName(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return pkg + "." + e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return "pkg/" + x.Name + "." + e.Sel.Name
		}
	}
	return ""
}

func called(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// No production code makes a run, its identity or its allocation but the gate.
func TestNobodyPassesBesideTheGate(t *testing.T) {
	fset := token.NewFileSet()
	files := 0
	for _, p := range load(t) {
		if slices.Contains(TestSupport, p.name()) {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			path := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files++
			for _, finding := range unlocked(p.name(), file, fset) {
				t.Error(finding)
			}
		}
	}
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}

// The sweep itself is tested on code that does what it refuses.
func TestTheSweepSeesEveryOtherWayIn(t *testing.T) {
	for name, c := range map[string]struct {
		pkg, body string
		findings  int
	}{
		"a subject of its own":         {"pkg/webhook", `launch.Workload{identity: i}`, 1},
		"a candidate of its own":       {"pkg/launch", `candidate{ask: 1}`, 1},
		"a resolution of its own":      {"pkg/schedule", `botsource.Resolved{Identity: i}`, 1},
		"a run document of its own":    {"pkg/board", `runs.Run{ID: "x"}`, 1},
		"a message of its own":         {"pkg/retry", `q.Publish(ctx, queue.RunMessage{Run: "x"})`, 1},
		"an allocation of its own":     {"pkg/server", `s.ledger.Reserve(ctx, ask)`, 1},
		"a label as an identity":       {"pkg/webhook", `holdfast.PlatformBot(holdfast.BotID(label))`, 1},
		"a team's label":               {"pkg/webhook", `holdfast.TeamBot(team, bot)`, 1},
		"an identity that is replaced": {"pkg/launch", `func() { c.identity = other }`, 1},
		"an empty value":               {"pkg/board", `runs.Run{}`, 0},
		"a launch":                     {"pkg/board", `s.launch.Launch(ctx, who, launch.Request{Team: "t"})`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "x.go", "package x\nfunc f() { _ = "+c.body+" }", parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if found := unlocked(c.pkg, file, fset); len(found) != c.findings {
				t.Errorf("found %q, want %d", found, c.findings)
			}
		})
	}
}
