package botsource_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/botsource"
)

// read decodes a bot as an edge does, then checks it.
func read(text string) error {
	var bot holdfast.Bot
	if err := holdfast.DecodeJSON([]byte(text), &bot); err != nil {
		return err
	}
	return botsource.Check(bot)
}

func TestBotsThatCanBeMeantAreAccepted(t *testing.T) {
	for _, text := range []string{
		`{"bot":"a","lane":"command","command":["true"]}`,
		`{"bot":"a","lane":"command","command":["sh","-c","echo {{who}} {{who}}-{{n}}"],"inputs":{"who":{"required":true},"n":{"default":"3"}}}`,
		`{"bot":"a","lane":"claude_code","prompt":"review {{pr}}","inputs":{"pr":{}},"needs":["anthropic"],"model":"claude-sonnet-5"}`,
		`{"bot":"a","lane":"claw","prompt":"work","needs":["openai","anthropic"],"budget_usd":"2.5","min_budget_usd":0.1,"max_duration":"2h","env":{"A_1":"x"},"repo_url":"https://example.com/a/b.git","ref":"main"}`,
		`{"bot":"a","lane":"command","command":["echo","{ {not} } }}"],"repo_url":"ssh://git@example.com/a/b"}`,
	} {
		if err := read(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestABotThatCannotBeMeantIsRefusedAtItsField(t *testing.T) {
	with := func(more string) string { return `{"bot":"a","lane":"command","command":["echo","x"],` + more + `}` }
	many := func(format string, n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(format, i))
		}
		return strings.Join(parts, ",")
	}
	for _, row := range []struct{ name, text, field string }{
		{"an unknown field", with(`"cmd":"x"`), "cmd"},
		{"no name", `{"lane":"command","command":["x"]}`, "bot"},
		{"a name that is not folded", `{"bot":"A b","lane":"command","command":["x"]}`, "bot"},
		{"no lane", `{"bot":"a","command":["x"]}`, "lane"},
		{"a lane that is none", `{"bot":"a","lane":"shell","command":["x"]}`, "lane"},
		{"the command lane without a command", `{"bot":"a","lane":"command"}`, "command"},
		{"an empty program", `{"bot":"a","lane":"command","command":[" "]}`, "command"},
		{"a command as one text", `{"bot":"a","lane":"command","command":"echo x"}`, "command"},
		{"the command lane with a prompt", with(`"prompt":"x"`), "prompt"},
		{"the command lane with a model", with(`"model":"x"`), "model"},
		{"a prompt lane without a prompt", `{"bot":"a","lane":"claude_code"}`, "prompt"},
		{"a prompt lane with a command", `{"bot":"a","lane":"claw","prompt":"x","command":["x"]}`, "command"},
		{"a prompt without end", `{"bot":"a","lane":"claw","prompt":"` + strings.Repeat("x", 128<<10+1) + `"}`, "prompt"},
		{"too many arguments", `{"bot":"a","lane":"command","command":["x",` + many(`"%d"`, 256) + `]}`, "command"},
		{"an argument without end", `{"bot":"a","lane":"command","command":["x","` + strings.Repeat("x", 32<<10+1) + `"]}`, "command[1]"},
		{"a zero byte", `{"bot":"a","lane":"command","command":["x","a\u0000b"]}`, "command[1]"},
		{"the program as an input", `{"bot":"a","lane":"command","command":["{{p}}"],"inputs":{"p":{}}}`, "command[0]"},
		{"an input that is not declared", `{"bot":"a","lane":"command","command":["echo","{{who}}"],"inputs":{"whom":{}}}`, "command[1]"},
		{"an input with blanks", `{"bot":"a","lane":"command","command":["echo","{{ who }}"],"inputs":{"who":{}}}`, "command[1]"},
		{"a placeholder that is not closed", `{"bot":"a","lane":"command","command":["echo","{{who"],"inputs":{"who":{}}}`, "command[1]"},
		{"an undeclared input of a prompt", `{"bot":"a","lane":"claw","prompt":"do {{it}}"}`, "prompt"},
		{"an input that is no name", with(`"inputs":{"A":{}}`), "inputs.A"},
		{"an unknown field of an input", with(`"inputs":{"a":{"type":"int"}}`), "inputs.a.type"},
		{"too many inputs", with(`"inputs":{` + many(`"i%d":{}`, 65) + `}`), "inputs"},
		{"a provider that is none", with(`"needs":["anthropic","mistral"]`), "needs[1]"},
		{"a provider twice", with(`"needs":["openai","openai"]`), "needs[1]"},
		{"a budget of zero", with(`"budget_usd":0`), "budget_usd"},
		{"a negative budget", with(`"budget_usd":-1`), "budget_usd"},
		{"an absurd budget", with(`"budget_usd":1000000001`), "budget_usd"},
		{"a minimum of zero", with(`"min_budget_usd":0`), "min_budget_usd"},
		{"a minimum above the budget", with(`"budget_usd":1,"min_budget_usd":1.000001`), "min_budget_usd"},
		{"a duration that is none", with(`"max_duration":"long"`), "max_duration"},
		{"a duration as a number", with(`"max_duration":30`), "max_duration"},
		{"a duration of a blink", with(`"max_duration":"10ms"`), "max_duration"},
		{"a duration of a month", with(`"max_duration":"720h"`), "max_duration"},
		{"a variable that is no name", with(`"env":{"1A":"x"}`), "env.1A"},
		{"a variable of the runner's", with(`"env":{"HOLDFAST_REPORT":"x"}`), "env.HOLDFAST_REPORT"},
		{"a variable with a zero byte", with(`"env":{"A":"\u0000"}`), "env.A"},
		{"too many variables", with(`"env":{` + many(`"E%d":"x"`, 101) + `}`), "env"},
		{"a repository that is no URL", with(`"repo_url":"acme/widgets"`), "repo_url"},
		{"a repository with a password", with(`"repo_url":"https://u:p@example.com/a"`), "repo_url"},
		{"a repository with a token", with(`"repo_url":"https://ghp_x@example.com/a"`), "repo_url"},
		{"a repository on this disk", with(`"repo_url":"file:///etc"`), "repo_url"},
		{"a repository that runs a program", with(`"repo_url":"ext::sh -c x"`), "repo_url"},
		{"a reference that is an option", with(`"ref":"--upload-pack=x"`), "ref"},
		{"a model that is none", `{"bot":"a","lane":"claw","prompt":"x","model":"a b"}`, "model"},
		{"a description without end", with(`"description":"` + strings.Repeat("x", 2001) + `"`), "description"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := read(row.text)
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) {
				t.Fatalf("%v is not an InvalidError", err)
			}
			if bad.Field != row.field || bad.Problem == "" || bad.Allowed == "" {
				t.Errorf("field %q, problem %q, allowed %q; want the field %q and both texts", bad.Field, bad.Problem, bad.Allowed, row.field)
			}
		})
	}
}
