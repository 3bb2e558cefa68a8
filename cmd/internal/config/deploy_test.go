package config_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// compose is the part of the compose file that is ours to check.
type compose struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Environment map[string]string `yaml:"environment"`
		StopGrace   string            `yaml:"stop_grace_period"`
		ReadOnly    bool              `yaml:"read_only"`
		Build       struct {
			Target string `yaml:"target"`
		} `yaml:"build"`
		Deploy struct {
			Replicas int `yaml:"replicas"`
		} `yaml:"deploy"`
		DependsOn map[string]any `yaml:"depends_on"`
	} `yaml:"services"`
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+)[^}]*\}`)

func TestTheComposeFileStartsServersAndRunnersWithSettingsThatTheyHave(t *testing.T) {
	var file compose
	if err := yaml.Unmarshal([]byte(read(t, "deploy/docker-compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	if n := file.Services["server"].Deploy.Replicas; n != 3 {
		t.Errorf("there are %d servers, want 3", n)
	}
	example := read(t, "deploy/example.env")
	for _, p := range []config.Process{config.Server, config.Runner} {
		service := file.Services[string(p)]
		if !service.ReadOnly || service.Build.Target != string(p) {
			t.Errorf("%s: %+v is not read-only or not built as its own target", p, service)
		}
		var environ []string
		for name, value := range service.Environment {
			if !slices.ContainsFunc(config.Of(p), func(s config.Setting) bool { return s.Env() == name }) {
				t.Errorf("%s has no setting %s", p, name)
			}
			value = variable.ReplaceAllStringFunc(value, func(use string) string {
				name := variable.FindStringSubmatch(use)[1]
				_, rest, found := strings.Cut("\n"+example, "\n"+name+"=")
				if !found {
					t.Errorf("%s is used and is not in deploy/example.env", name)
				}
				line, _, _ := strings.Cut(rest, "\n")
				return line
			})
			environ = append(environ, name+"="+value)
		}
		got, err := config.LoadFor(p, environ, nil)
		if err != nil || len(got.Unknown) > 0 {
			t.Errorf("%s would not start: %v, unknown %v", p, err, got.Unknown)
		}
		if span(t, service.StopGrace) <= got.Drain {
			t.Errorf("%s is killed after %s, before its drain of %v is over", p, service.StopGrace, got.Drain)
		}
	}
	if _, mongo := file.Services["runner"].Environment["HOLDFAST_MONGO_URI"]; mongo {
		t.Error("a runner is given the database")
	}
}

func TestTheImagesAreStaticAndNotRoot(t *testing.T) {
	text := read(t, "deploy/Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	if !strings.Contains(text, "FROM golang:"+version+"-") {
		t.Errorf("the image is not built with Go %s", version)
	}
	if !strings.Contains(text, "CGO_ENABLED=0 go build -trimpath") {
		t.Error("the binary is not built static")
	}
	stages := strings.Split(text, "\nFROM ")[1:]
	if len(stages) != 3 {
		t.Fatalf("there are %d stages, want build, server and runner", len(stages))
	}
	for _, stage := range stages[1:] {
		name, _, _ := strings.Cut(stage, "\n")
		user := regexp.MustCompile(`(?m)^USER (\d+):`).FindStringSubmatch(stage)
		if user == nil || user[1] == "0" || strings.Index(stage, "USER") > strings.Index(stage, "ENTRYPOINT") {
			t.Errorf("%s runs as root", name)
		}
		for _, env := range regexp.MustCompile(`(?m)^ENV (HOLDFAST_\w+)=`).FindAllStringSubmatch(stage, -1) {
			if !slices.ContainsFunc(config.Settings(), func(s config.Setting) bool { return s.Env() == env[1] }) {
				t.Errorf("%s sets %s, which is no setting", name, env[1])
			}
		}
	}
}

func TestTheOperationsPageListsEverySettingAsItIs(t *testing.T) {
	page := read(t, "docs/operations.md")
	var table strings.Builder
	for _, s := range config.Settings() {
		var values []string
		for _, p := range config.Processes() {
			value := ""
			if slices.Contains(s.For, p) {
				if value = s.Default(p); value == "" {
					value = "–"
				}
			}
			values = append(values, value)
		}
		meaning := s.Meaning
		if s.Secret {
			meaning += "; secret, no flag"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", s.Env(), meaning, strings.Join(values, " | "))
	}
	if !strings.Contains(page, table.String()) {
		t.Errorf("docs/operations.md does not have this table of settings:\n%s", table.String())
	}
}

func span(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Errorf("%q is not a duration", text)
	}
	return d
}
