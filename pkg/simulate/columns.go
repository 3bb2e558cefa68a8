package simulate

import (
	"fmt"
	"strings"
	"unicode"
)

// Column is one column that a trace may have. All are optional.
type Column struct {
	Name    string
	Aliases []string // other names, the first present counts; case and punctuation do not
	Meaning string
}

// Columns is the one table of the columns that a trace may have, CSV and JSONL
// alike. A name that ends in _ms counts milliseconds, in _s seconds. Nested JSON is
// reached with dots; of a list of objects first and last can be reached.
func Columns() []Column {
	return []Column{
		{"submitted_at", []string{"timestamp", "time", "created_at", "started_at", "start_time", "arrived_at", "date", "submitted_s", "timestamp_s", "arrival_s", "window_start_s", "timestamp_ms", "timing_events.first.timestamp"}, "when it was asked for: RFC 3339, a date and time (UTC), an epoch, or a number of seconds or milliseconds since the trace's start"},
		{"offset_s", []string{"t_s", "offset_ms"}, "when a request was made, counted from its run's own start"},
		{"ended_at", []string{"end_time", "finished_at", "completed_at", "timing_events.last.timestamp"}, "when it ended; the duration, where no column has it"},
		{"tenant", []string{"team", "client", "organisation", "organization", "org", "customer", "project", "group", "user"}, "the team"},
		{"bot", []string{"workload", "workflow", "job", "bot_id", "app"}, "the bot"},
		{"tier", nil, "platform (as when absent) or team"},
		{"repo", []string{"repository"}, "the repository"},
		{"run", []string{"run_id", "session", "session_id", "conversation_id"}, "the run; several rows of one run in one file are its requests and become one row"},
		{"model", []string{"main_model", "model_name"}, "the model"},
		{"duration_s", []string{"duration_ms", "duration", "unattended_s", "elapsed_s", "elapsed_time", "api_s", "latency_s", "latency_ms", "wall_s"}, "how long it worked"},
		{"requests", []string{"num_requests", "api_calls"}, "how many answers the tokens are the sum of"},
		{"input_tokens", []string{"input_tokens_total", "context_tokens", "prompt_tokens", "request_tokens", "tokens_sent", "input_length", "mean_input_tokens"}, "all input, cached tokens included"},
		{"cached_input_tokens", []string{"cache_read_input_tokens", "cached_tokens", "prefix_tokens", "cached_prefix_tokens"}, "the part of the input that was read from a cache"},
		{"cache_write_5m", []string{"cache_write_tokens", "cache_creation_input_tokens", "claude_cache_creation_input_tokens"}, "the part of the input that was written to a five-minute cache"},
		{"cache_write_1h", nil, "the part of the input that was written to a one-hour cache"},
		{"output_tokens", []string{"generated_tokens", "completion_tokens", "response_tokens", "tokens_received", "output_length", "mean_output_tokens"}, "the output"},
		{"cost_usd", []string{"cost", "cost_usd_est", "spend_usd", "instance_cost"}, "what it cost, in dollars"},
		{"ask_usd", []string{"budget_usd", "max_budget_usd"}, "what it asks for, in dollars"},
	}
}

// columnIndex is a column's place in [Columns].
type columnIndex int

const (
	colAt columnIndex = iota
	colOffset
	colEnd
	colTenant
	colBot
	colTier
	colRepo
	colRun
	colModel
	colDuration
	colRequests
	colInput
	colCached
	colWrite5m
	colWrite1h
	colOutput
	colCost
	colAsk
	columnCount
)

func columnNames() []string {
	var names []string
	for _, c := range Columns() {
		names = append(names, c.Name)
	}
	return names
}

func columnNamed(name string) (columnIndex, bool) {
	for i, c := range Columns() {
		if c.Name == name {
			return columnIndex(i), true
		}
	}
	return 0, false
}

// plain is a column's name without case and punctuation: ContextTokens and
// context_tokens are one name.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

// inMilliseconds says whether a column counts milliseconds, by its name.
func inMilliseconds(name string) bool { return strings.HasSuffix(plain(name), "ms") }

// spelling is a name under which a column may appear.
type spelling struct {
	plain string
	ms    bool
}

// spellings has, for each column, its names in their order of precedence. A column
// that was mapped has only that one.
func spellings(mapped map[string]string) [columnCount][]spelling {
	var all [columnCount][]spelling
	for i, c := range Columns() {
		if theirs, ok := mapped[c.Name]; ok {
			all[i] = []spelling{{plain(theirs), inMilliseconds(theirs)}}
			continue
		}
		for _, name := range append([]string{c.Name}, c.Aliases...) {
			all[i] = append(all[i], spelling{plain(name), inMilliseconds(name)})
		}
	}
	return all
}

// record is one row of a file as text, by column.
type record struct {
	text [columnCount]string
	ms   [columnCount]bool
}

// where names a place in a file for people.
func where(file string, line int) string { return fmt.Sprintf("%s line %d", file, line) }
