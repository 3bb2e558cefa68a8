package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example is one call of a page of docs/api and what the page says that it answers.
type example struct {
	page   string
	line   int
	method string
	url    string
	header []string
	body   string
	save   string // the variable that takes a field of the answer
	field  string
	status int
	answer string
}

var fence = regexp.MustCompile("(?s)\n```(sh|json [0-9]+)\n(.*?)```")

// examplesOf reads a page: each `curl` of a block of sh, and the block of json with its
// status that follows.
func examplesOf(t *testing.T, page string) []example {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var list []example
	open := false
	for _, at := range fence.FindAllSubmatchIndex(text, -1) {
		kind, block := string(text[at[2]:at[3]]), string(text[at[4]:at[5]])
		line := strings.Count(string(text[:at[4]]), "\n") + 1
		if status, ok := strings.CutPrefix(kind, "json "); ok {
			if !open {
				t.Fatalf("%s:%d: an answer without a call", page, line)
			}
			last := &list[len(list)-1]
			last.status, _ = strconv.Atoi(status)
			last.answer, open = block, false
			continue
		}
		for _, command := range strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n") {
			if !strings.Contains(command, "curl ") {
				continue
			}
			if open {
				t.Fatalf("%s:%d: a call without its answer stands before this one", page, line)
			}
			list = append(list, callOf(t, page, line, command))
			open = list[len(list)-1].save == "" // what is saved needs no answer shown
		}
	}
	if open {
		t.Fatalf("%s: the last call has no answer", page)
	}
	return list
}

// contentTypes is what curl says that a body is, so that a page which works here works
// when it is pasted.
var contentTypes = map[string]string{"--json": "application/json", "-d": "application/x-www-form-urlencoded"}

var saved = regexp.MustCompile(`^([A-Z]+)=\$\((.*) \| jq -r \.([a-z_.0-9\[\]]+)\)$`)

// callOf reads one command line; variables stay as they are until it is run.
func callOf(t *testing.T, page string, line int, command string) example {
	t.Helper()
	e := example{page: page, line: line, method: http.MethodGet}
	if m := saved.FindStringSubmatch(strings.TrimSpace(command)); m != nil {
		e.save, command, e.field = m[1], m[2], m[3]
	}
	words := shellWords(command)
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-s", "-N":
		case "-X":
			i++
			e.method = words[i]
		case "-H":
			i++
			e.header = append(e.header, words[i])
		case "--json", "-d":
			e.header = append(e.header, "Content-Type: "+contentTypes[words[i]])
			i++
			e.body = words[i]
			if e.method == http.MethodGet {
				e.method = http.MethodPost
			}
		default:
			if strings.HasPrefix(words[i], "-") || e.url != "" {
				t.Fatalf("%s:%d: what is %q?", page, line, words[i])
			}
			e.url = words[i]
		}
	}
	return e
}

// shellWords splits a line into words as a shell does: single quotes keep what is in
// them, double quotes its blanks. The dollar of a variable in single quotes is marked.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	begun, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'' && c == '$':
			word.WriteString("\x00")
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ' || c == '\t':
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

func expand(text string, variables map[string]string) string {
	return strings.ReplaceAll(os.Expand(text, func(name string) string { return variables[name] }), "\x00", "$")
}

// run sends a call and compares the answer: the status, and every field that the page
// shows. "…" stands for any value, and ends a list that goes on.
func (e example) run(t *testing.T, variables map[string]string) {
	t.Helper()
	at := fmt.Sprintf("%s:%d: %s %s", e.page, e.line, e.method, e.url)
	request, err := http.NewRequestWithContext(t.Context(), e.method, expand(e.url, variables), strings.NewReader(expand(e.body, variables)))
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	for _, header := range e.header {
		name, value, _ := strings.Cut(expand(header, variables), ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	var got any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v in %s", at, err, text)
		}
	}
	if e.save != "" {
		value, _ := pick(got, e.field).(string)
		if response.StatusCode >= 500 || value == "" {
			t.Fatalf("%s: %d %s", at, response.StatusCode, text)
		}
		variables[e.save] = value
		return
	}
	if response.StatusCode != e.status {
		t.Fatalf("%s is answered %d, the page says %d: %s", at, response.StatusCode, e.status, text)
	}
	if strings.TrimSpace(e.answer) == "" {
		if len(text) > 0 {
			t.Errorf("%s answers %s, the page says nothing", at, text)
		}
		return
	}
	var want any
	if err := json.Unmarshal([]byte(expand(e.answer, variables)), &want); err != nil {
		t.Fatalf("%s: the answer in the page is no JSON: %v", at, err)
	}
	if shown := seen(want, got); !cmp.Equal(want, shown) {
		t.Errorf("%s is not as the page says: %s", at, cmp.Diff(want, shown))
	}
}

// pick is the field of an answer under a path such as items[0].id.
func pick(from any, path string) any {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		switch at := from.(type) {
		case map[string]any:
			from = at[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(at) {
				return nil
			}
			from = at[n]
		default:
			return nil
		}
	}
	return from
}

// seen is the part of an answer that a page shows.
func seen(want, got any) any {
	switch want := want.(type) {
	case string:
		if want == "…" && got != nil {
			return want
		}
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			return got
		}
		shown := map[string]any{}
		for name := range want {
			if value, there := fields[name]; there {
				shown[name] = seen(want[name], value)
			}
		}
		return shown
	case []any:
		items, ok := got.([]any)
		if !ok {
			return got
		}
		goesOn := len(want) > 0 && want[len(want)-1] == "…"
		var shown []any
		for i, item := range items {
			if goesOn && i >= len(want)-1 {
				return append(shown, "…")
			}
			if i < len(want) {
				item = seen(want[i], item)
			}
			shown = append(shown, item)
		}
		if goesOn {
			shown = append(shown, "…")
		}
		if shown == nil {
			return []any{}
		}
		return shown
	}
	return got
}

// unshown are the routes that no page shows by a call: streams, and what needs more
// than one machine.
var unshown = []string{
	"GET /api/events", "GET /api/runs/{run}/logs",
}

// TestThePagesOfTheAPISayWhatItDoes runs every call of docs/api, page by page, against
// a fresh deployment for each page, and demands that every route is shown.
func TestThePagesOfTheAPISayWhatItDoes(t *testing.T) {
	pages, err := filepath.Glob("../docs/api/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatal(pages, err)
	}
	patterns := map[string]*regexp.Regexp{}
	called := map[string]bool{}
	for _, page := range pages {
		examples := examplesOf(t, page)
		if len(examples) == 0 {
			continue
		}
		d := start(t, t.TempDir())
		if len(patterns) == 0 {
			patterns = routePatterns(t, d.url)
		}
		variables := map[string]string{"HOLDFAST_URL": d.url, "API": d.url + "/api", "AUTH": "Authorization: Bearer " + d.token}
		for _, e := range examples {
			e.run(t, variables)
			path, _, _ := strings.Cut(strings.TrimPrefix(expand(e.url, variables), d.url), "?")
			for route, pattern := range patterns {
				if method, _, _ := strings.Cut(route, " "); method == e.method && pattern.MatchString(path) {
					called[route] = true
				}
			}
		}
		d.stop(t, syscall.SIGTERM)
	}
	for route := range patterns {
		if !called[route] && !slices.Contains(unshown, route) {
			t.Errorf("no page of docs/api shows %s", route)
		}
	}
}

// routePatterns are the routes of the OpenAPI document.
func routePatterns(t *testing.T, url string) map[string]*regexp.Regexp {
	t.Helper()
	response, err := http.Get(url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.NewDecoder(response.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	patterns := map[string]*regexp.Regexp{}
	for path, methods := range document.Paths {
		for method := range methods {
			patterns[strings.ToUpper(method)+" "+path] = regexp.MustCompile("^" + regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(path, "[^/]+") + "$")
		}
	}
	return patterns
}
