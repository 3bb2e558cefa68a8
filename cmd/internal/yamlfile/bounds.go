package yamlfile

import (
	"fmt"

	"github.com/goccy/go-yaml/token"

	"github.com/holdfast-io/holdfast"
)

const (
	// maxDepth bounds how deep a document may nest.
	maxDepth = 32
	// maxEmptyLines bounds how many lines without anything may follow one another.
	maxEmptyLines = 100
	// maxMoves bounds what the parser moves to make room for values that were left
	// out: all tokens, for each of them.
	maxMoves = 500_000_000
)

// The parser's work grows with the square of four things that no file of an operator
// has many of: empty lines behind a block of text, brackets within brackets, list or
// key marks within one line, and values that were left out. They are bounded before
// it sees the file.

// emptyLines refuses a long row of empty lines.
func emptyLines(name string, text []byte) error {
	line, empty := 1, 0
	for i, c := range text {
		switch c {
		case '\n':
			line++
			empty++
		case '\r': // a line's end of its own unless \n follows
			if i+1 == len(text) || text[i+1] != '\n' {
				empty++
			}
		case ' ', '\t':
		default:
			empty = 0
		}
		if empty > maxEmptyLines+1 {
			return &holdfast.InvalidError{Field: place(name, line, ""), Problem: "too many empty lines follow one another", Allowed: fmt.Sprintf("at most %d", maxEmptyLines)}
		}
	}
	return nil
}

// bounded refuses what nests too deep, and too many values that were left out.
func (p part) bounded(name string, tokens token.Tokens) error {
	depth, marks, line, column, absent := 0, 0, 0, 0, 0
	for i, t := range tokens {
		if t.Position.Line != line {
			marks, line, column = 0, t.Position.Line, t.Position.Column
		}
		switch t.Type { //nolint:exhaustive // what opens, closes or marks; the rest costs nothing
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth = max(0, depth-1)
		case token.SequenceEntryType, token.MappingKeyType:
			marks++
		}
		if i+1 < len(tokens) && noValue(t, tokens[i+1], column) {
			absent++
		}
		switch {
		case depth > maxDepth, marks > maxDepth:
			return &holdfast.InvalidError{Field: place(name, p.before+line, ""), Problem: "it nests too deep", Allowed: fmt.Sprintf("at most %d levels", maxDepth)}
		case absent > maxMoves/len(tokens):
			return &holdfast.InvalidError{Field: place(name, p.before+line, ""), Problem: "too many values are left out for a file of this size", Allowed: "null where there is no value"}
		}
	}
	return nil
}

// noValue says whether nothing stands behind a mark: the next token begins a line
// that is not indented deeper than the mark's own. A list under a key may stand at
// the key's column.
func noValue(mark, next *token.Token, column int) bool {
	switch mark.Type {
	case token.SequenceEntryType, token.MappingValueType, token.MappingKeyType:
	default:
		return false
	}
	listUnderKey := mark.Type == token.MappingValueType && next.Type == token.SequenceEntryType && next.Position.Column == column
	return next.Position.Line != mark.Position.Line && next.Position.Column <= column && !listUnderKey
}
