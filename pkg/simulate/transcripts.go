package simulate

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/pricing"
)

// Claude Code keeps a folder per project and in it a file per session, with one
// JSON object a line: a tenant is a project, a run is a session. Sub-agents write
// lines of the same session, in its file or in files of their own below; they count
// into it. One reply is written as several lines that repeat its usage, and a
// resumed session repeats the lines of the one before: a message counts once.

// transcriptEntry is what is read of a line.
type transcriptEntry struct {
	Timestamp string      `json:"timestamp"`
	SessionID string      `json:"sessionId"`
	RequestID string      `json:"requestId"`
	CostUSD   json.Number `json:"costUSD"`
	Message   struct {
		ID    string          `json:"id"`
		Model string          `json:"model"`
		Usage transcriptUsage `json:"usage"`
	} `json:"message"`
}

type transcriptUsage struct {
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	Creation      struct {
		Short int64 `json:"ephemeral_5m_input_tokens"`
		Long  int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
}

func (u transcriptUsage) usage() pricing.Usage {
	long := min(u.Creation.Long, u.CacheCreation)
	return pricing.Usage{Input: u.Input, CacheRead: u.CacheRead, CacheWrite5m: u.CacheCreation - long, CacheWrite1h: long, Output: u.Output}
}

// isTranscript says whether a line is one of a transcript.
func isTranscript(line []byte) bool {
	var probe struct {
		SessionID string          `json:"sessionId"`
		Message   json.RawMessage `json:"message"`
		Type      string          `json:"type"`
	}
	if json.Unmarshal(line, &probe) != nil {
		return false
	}
	return (probe.SessionID != "" && (len(probe.Message) > 0 || probe.Type != "")) || (probe.Type == "summary")
}

// folder reads all transcripts under a folder.
func (c *collector) folder(root string) error {
	root = filepath.Clean(root)
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type().IsRegular() && strings.HasSuffix(path, ".jsonl") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return &holdfast.InvalidError{Field: root, Problem: "cannot be read: " + reason(err), Allowed: "a readable folder"}
	}
	if len(files) == 0 {
		return &holdfast.InvalidError{Field: root, Problem: "the folder has no transcript (*.jsonl) in it", Allowed: "a folder such as ~/.claude/projects, or files of " + formats}
	}
	slices.Sort(files)
	c.begin(root)
	for _, path := range files {
		if err := c.transcript(path, projectOf(root, path)); err != nil {
			return err
		}
	}
	return nil
}

// projectOf is the folder directly under the root, or the root when the sessions lie
// in it.
func projectOf(root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nameOf(filepath.Base(root))
	}
	first, _, deeper := strings.Cut(filepath.ToSlash(rel), "/")
	if !deeper {
		return nameOf(filepath.Base(root))
	}
	return nameOf(first)
}

func (c *collector) transcript(path, project string) error {
	f, err := os.Open(path)
	if err != nil {
		return &holdfast.InvalidError{Field: path, Problem: "cannot be read: " + reason(err), Allowed: "a readable file"}
	}
	defer f.Close()
	return lines(path, newLineReader(f), func(number int, line []byte, torn bool) error {
		c.transcriptLine(path, project, number, line, torn)
		return nil
	})
}

// session is one run while its lines are gathered.
type session struct {
	project, id string
	times       []span
	messages    []*message
	order       int
}

// message is one reply of a model.
type message struct {
	session *session
	at      time.Time
	model   string
	usage   pricing.Usage
	cost    holdfast.MicroUSD
	costed  bool
}

// transcriptLine takes one line. What is not a reply with its usage is passed over;
// what should be one and cannot be read is skipped and counted.
func (c *collector) transcriptLine(path, project string, number int, line []byte, torn bool) {
	c.transcripts = true
	if torn && !json.Valid(line) {
		c.skip(where(path, number), "the last line is torn")
		return
	}
	if !bytes.Contains(line, []byte(`"usage"`)) || !bytes.Contains(line, []byte(`"timestamp"`)) {
		return
	}
	var e transcriptEntry
	if err := json.Unmarshal(line, &e); err != nil {
		c.skip(where(path, number), "not a line of a transcript: "+holdfast.Clip(err.Error(), 100))
		return
	}
	u := e.Message.Usage.usage()
	if e.Message.Model == "" || e.Message.Model == "<synthetic>" || u.IsZero() {
		return
	}
	at, err := when(e.Timestamp, false)
	if err != nil || at.relative {
		c.skip(where(path, number), "its timestamp cannot be read")
		return
	}
	m := message{at: at.at, model: e.Message.Model, usage: u}
	if e.CostUSD != "" {
		if m.cost, err = dollars(e.CostUSD.String()); err != nil {
			c.skip(where(path, number), "its costUSD: "+err.Error())
			return
		}
		m.costed = true
	}
	if bad := checkUsage(u); bad != nil {
		c.skip(where(path, number), bad.Error())
		return
	}
	id := e.SessionID
	if id == "" {
		id = stem(path)
	}
	c.reply(project, id, e.Message.ID, e.RequestID, m)
}

// reply counts a message once, wherever it is written again: the line with the most
// output is the finished one.
func (c *collector) reply(project, id, messageID, requestID string, m message) {
	if messageID != "" {
		key := messageID + "\x00" + requestID
		if old, again := c.replies[key]; again {
			c.repeats++
			if m.usage.Output > old.usage.Output {
				old.usage, old.cost, old.costed = m.usage, m.cost, m.costed
			}
			old.session.times = append(old.session.times, span{m.at, m.at})
			return
		}
		defer func() { c.replies[key] = &m }()
	}
	key := project + "\x00" + id
	s := c.sessions[key]
	if s == nil {
		s = &session{project: project, id: id, order: len(c.sessions)}
		c.sessions[key] = s
	}
	m.session = s
	s.times = append(s.times, span{m.at, m.at})
	s.messages = append(s.messages, &m)
}

func checkUsage(u pricing.Usage) error {
	_, err := pricing.Price(DefaultModel, Origin, u)
	return err
}
