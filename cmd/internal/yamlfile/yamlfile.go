// Package yamlfile reads the YAML (and JSON, which is YAML) that operators write,
// into the structs of the API. It is strict: an unknown field, a field that stands
// there twice and a value of the wrong type are refused with file, line, field and
// what is allowed. Numbers never pass through a float, so that 0.1 dollars are
// exactly 0.1 dollars.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"github.com/holdfast-io/holdfast"
)

// MaxBytes is the largest file that is read.
const MaxBytes = 4 << 20

// Document is one document of a file; a file has several when lines of `---`
// part them.
type Document struct {
	file   string
	before int // lines of the file that stand before it
	body   ast.Node
}

// Parse reads a file's documents; empty ones are left out. name stands in errors. What is
// no YAML is an *holdfast.InvalidError with the line.
func Parse(name string, text []byte) ([]Document, error) {
	if len(text) > MaxBytes {
		return nil, &holdfast.InvalidError{Field: name, Problem: "the file is too large", Allowed: fmt.Sprintf("at most %d bytes", MaxBytes)}
	}
	if err := emptyLines(name, text); err != nil {
		return nil, err
	}
	var docs []Document
	for _, part := range split(text) {
		tokens := lexer.Tokenize(part.text)
		if err := part.bounded(name, tokens); err != nil {
			return nil, err
		}
		file, err := parser.Parse(tokens, 0)
		if err != nil {
			return nil, part.notYAML(name, err)
		}
		for _, doc := range file.Docs {
			switch doc.Body.(type) {
			case nil, *ast.NullNode, *ast.CommentGroupNode:
				continue
			}
			docs = append(docs, Document{name, part.before, doc.Body})
		}
	}
	return docs, nil
}

// part is the text of one document and the number of lines before it.
type part struct {
	text   string
	before int
}

// split parts a file at its document markers, which YAML knows by their place at the
// beginning of a line alone. (The parser drops what follows an empty document.)
func split(text []byte) []part {
	var parts []part
	now := part{}
	var kept []byte
	for i, line := range bytes.SplitAfter(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), []byte("\n")) {
		rest, marker := bytes.CutPrefix(line, []byte("---"))
		if marker && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			now.text = string(kept)
			parts = append(parts, now)
			now, kept = part{before: i}, []byte("   ")
			line = rest
		}
		kept = append(kept, line...)
	}
	now.text = string(kept)
	return append(parts, now)
}

// Decode reads a file that holds exactly one document into a pointer to a struct.
func Decode(name string, text []byte, into any) error {
	docs, err := Parse(name, text)
	if err != nil {
		return err
	}
	if len(docs) != 1 {
		return &holdfast.InvalidError{Field: name, Problem: fmt.Sprintf("the file holds %d documents", len(docs)), Allowed: "exactly one"}
	}
	return docs[0].Decode(into)
}

// Keys are the names at the top of the document, in their order.
func (d Document) Keys() []string {
	var keys []string
	pairs, _ := members(d.body)
	for _, pair := range pairs {
		keys = append(keys, keyText(pair.Key))
	}
	return keys
}

// Name is the file that the document stands in.
func (d Document) Name() string { return d.file }

// Error is an *holdfast.InvalidError for the place of a top-level key in the file.
func (d Document) Error(key, problem, allowed string) error {
	line := 1 + d.before
	pairs, _ := members(d.body)
	for _, pair := range pairs {
		if keyText(pair.Key) == key {
			line = d.line(pair.Key)
		}
	}
	return &holdfast.InvalidError{Field: place(d.file, line, key), Problem: problem, Allowed: allowed}
}

func place(file string, line int, path string) string {
	if file == "-" {
		file = "standard input"
	}
	if path == "" {
		return fmt.Sprintf("%s line %d", file, line)
	}
	return fmt.Sprintf("%s line %d: %s", file, line, path)
}

// line is the line of the file that a node stands in.
func (d Document) line(node ast.Node) int { return d.before + node.GetToken().Position.Line }

// notYAML says what the parser disliked. Its error draws the whole file when it is
// asked for a text, so it is asked for its message and its place.
func (p part) notYAML(name string, err error) error {
	field := name
	var problem string
	var located yaml.Error
	if errors.As(err, &located) {
		problem = located.GetMessage()
		if token := located.GetToken(); token != nil {
			field = place(name, p.before+token.Position.Line, "")
		}
	} else {
		problem = err.Error()
	}
	return &holdfast.InvalidError{Field: field, Problem: "this is not YAML: " + holdfast.Clip(problem, 200), Allowed: "YAML or JSON"}
}
