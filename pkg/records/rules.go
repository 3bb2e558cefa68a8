package records

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
)

// The bounds that every twin keeps.
const (
	MaxID    = 256  // bytes of an id
	MaxKey   = 1024 // bytes of an index value
	MaxLimit = 1000 // records of one page
)

// This file has what the twins must agree on to the letter: which schemas, records
// and queries are accepted, and what a cursor is. A twin calls it first and stores
// afterwards.

// Check refuses a schema that a twin could not keep.
func (s Schema) Check() error {
	if !lowerName(s.Name) {
		return &holdfast.InvalidError{Field: "collection", Problem: fmt.Sprintf("%q is not a collection's name", holdfast.Clip(s.Name, 60)), Allowed: "small letters and underscores"}
	}
	seen := map[string]bool{}
	for _, index := range s.Indexes {
		if !lowerName(index.Name) || seen[index.Name] {
			return &holdfast.InvalidError{Field: "index", Problem: fmt.Sprintf("%q is not an index's name, or is there twice", holdfast.Clip(index.Name, 60)), Allowed: "small letters and underscores, each name once"}
		}
		seen[index.Name] = true
	}
	return nil
}

// Extends says whether a collection that holds records under the older schema may
// be opened as s: the same indexes, and at most further ones that are not unique.
// Records stored before an index was gained appear in it from their next replace on.
func (s Schema) Extends(older Schema) error {
	for _, was := range older.Indexes {
		now, ok := s.index(was.Name)
		if !ok || now.Unique != was.Unique {
			return &holdfast.InvalidError{Field: "index", Problem: fmt.Sprintf("%s has records under the index %q, which is now declared otherwise", s.Name, was.Name), Allowed: "the same indexes, or further ones that are not unique"}
		}
	}
	for _, now := range s.Indexes {
		if _, ok := older.index(now.Name); !ok && now.Unique {
			return &holdfast.InvalidError{Field: "index", Problem: fmt.Sprintf("%s has records, so it cannot gain the unique index %q", s.Name, now.Name), Allowed: "further indexes that are not unique"}
		}
	}
	return nil
}

// CheckRecord refuses a record that a twin could not keep.
func (s Schema) CheckRecord(r Record) error {
	switch {
	case !ValidID(r.ID):
		return &holdfast.InvalidError{Field: "id", Problem: fmt.Sprintf("%q cannot be a record's id", holdfast.Clip(r.ID, 60)), Allowed: "1 to 256 bytes of UTF-8 without control characters"}
	case len(r.Body) > MaxBody:
		return &holdfast.InvalidError{Field: "body", Problem: fmt.Sprintf("the record has %d bytes", len(r.Body)), Allowed: fmt.Sprintf("at most %d bytes", MaxBody)}
	case !json.Valid(r.Body):
		return &holdfast.InvalidError{Field: "body", Problem: "the record is not JSON"}
	}
	for name, value := range r.Keys {
		if _, ok := s.index(name); !ok {
			return &holdfast.InvalidError{Field: "keys", Problem: fmt.Sprintf("%s declares no index %q", s.Name, holdfast.Clip(name, 60))}
		}
		if len(value) > MaxKey || !utf8.ValidString(value) {
			return &holdfast.InvalidError{Field: "keys." + name, Problem: "the value cannot be indexed", Allowed: fmt.Sprintf("at most %d bytes of UTF-8", MaxKey)}
		}
	}
	return nil
}

// ValidID says whether a record can have the id; under any other there is none.
func ValidID(id string) bool {
	if id == "" || len(id) > MaxID || !utf8.ValidString(id) {
		return false
	}
	for _, r := range id {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}

// Position is a place in a walk: behind the record with this index value and id.
type Position struct{ Value, ID string }

type cursor struct {
	Query string `json:"q"`
	Value string `json:"v,omitempty"`
	ID    string `json:"i"`
}

// CheckQuery refuses a query that cannot be meant and takes its cursor apart; begun
// is false when the walk begins.
func (s Schema) CheckQuery(q Query) (after Position, begun bool, err error) {
	set := 0
	for _, filter := range []string{q.Equal, q.Prefix, q.AtMost} {
		if filter != "" {
			set++
		}
	}
	_, declared := s.index(q.Index)
	switch {
	case q.Index != "" && !declared:
		return after, false, s.noIndex(q.Index)
	case set > 1 || (set == 1 && q.Index == ""):
		return after, false, &holdfast.InvalidError{Field: "index", Problem: "the filters do not go together", Allowed: "one of equal, prefix and at-most, with an index"}
	case q.Limit < 1 || q.Limit > MaxLimit:
		return after, false, &holdfast.InvalidError{Field: "limit", Problem: fmt.Sprintf("%d records cannot be one page", q.Limit), Allowed: fmt.Sprintf("1 to %d", MaxLimit)}
	case q.After == "":
		return after, false, nil
	}
	var c cursor
	text, err := base64.RawURLEncoding.DecodeString(q.After)
	if err != nil || json.Unmarshal(text, &c) != nil || c.ID == "" || c.Query != s.fingerprint(q) {
		return after, false, &holdfast.InvalidError{Field: "cursor", Problem: "the cursor does not belong to this list", Allowed: "the next_cursor of the same list, with the same filters"}
	}
	return Position{c.Value, c.ID}, true, nil
}

// CheckCount refuses a count over an index that is not declared.
func (s Schema) CheckCount(index string) error {
	if _, ok := s.index(index); index != "" && !ok {
		return s.noIndex(index)
	}
	return nil
}

// Cursor is the text with which the walk of q goes on behind a record.
func (s Schema) Cursor(q Query, last Record) string {
	text, err := json.Marshal(cursor{Query: s.fingerprint(q), Value: last.Keys[q.Index], ID: last.ID})
	if err != nil {
		panic("records: a struct of strings always encodes: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// fingerprint names the query without its page size and place.
func (s Schema) fingerprint(q Query) string {
	h := fnv.New64a()
	for _, part := range []string{s.Name, q.Index, q.Equal, q.Prefix, q.AtMost, q.IDFrom, strconv.FormatBool(q.Descending)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

func (s Schema) noIndex(name string) error {
	return &holdfast.InvalidError{Field: "index", Problem: fmt.Sprintf("%s declares no index %q", s.Name, holdfast.Clip(name, 60))}
}

func (s Schema) index(name string) (Index, bool) {
	for _, index := range s.Indexes {
		if index.Name == name {
			return index, true
		}
	}
	return Index{}, false
}

func lowerName(s string) bool {
	for i, r := range s {
		if (r < 'a' || r > 'z') && (r != '_' || i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= 60
}
