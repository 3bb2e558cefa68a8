package embedded

import (
	"database/sql/driver"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// openTable makes the collection's table equal its schema; refused says why that
// cannot be.
func openTable(t *tx, schema records.Schema) (refused, err error) {
	older, known, err := storedSchema(t, schema.Name)
	if err != nil || (known && slices.Equal(older.Indexes, schema.Indexes)) {
		return nil, err
	}
	table := "r_" + schema.Name
	empty := true
	if known {
		if err := t.query("SELECT 1 FROM "+table+" LIMIT 1", func([]driver.Value) error { empty = false; return nil }); err != nil {
			return nil, err
		}
	}
	var statements []string
	gained := schema.Indexes
	switch {
	case !empty:
		if refused := schema.Extends(older); refused != nil {
			return refused, nil
		}
		gained = nil
		for _, index := range schema.Indexes {
			if !slices.Contains(older.Indexes, index) {
				gained = append(gained, index)
			}
		}
	case known:
		statements = append(statements, "DROP TABLE "+table)
		fallthrough
	default:
		statements = append(statements, "CREATE TABLE "+table+" (id TEXT PRIMARY KEY NOT NULL, revision INTEGER NOT NULL, body TEXT NOT NULL)")
	}
	for _, index := range gained {
		column, unique := "k_"+index.Name, ""
		if index.Unique {
			unique = "UNIQUE "
		}
		// A unique index needs the value alone; the others carry the id, so that a walk
		// comes out of the index in its order.
		on := column
		if !index.Unique {
			on += ", id"
		}
		statements = append(statements,
			"ALTER TABLE "+table+" ADD COLUMN "+column+" TEXT",
			"CREATE "+unique+"INDEX "+table+"_"+column+" ON "+table+" ("+on+") WHERE "+column+" IS NOT NULL")
	}
	if err := t.script(statements...); err != nil {
		return nil, err
	}
	text, err := json.Marshal(schema.Indexes)
	if err != nil {
		return nil, err
	}
	_, err = t.exec("INSERT INTO collections (name, indexes) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET indexes = excluded.indexes", schema.Name, string(text))
	return nil, err
}

func storedSchema(t *tx, name string) (schema records.Schema, known bool, err error) {
	err = t.query("SELECT indexes FROM collections WHERE name = ?", func(row []driver.Value) error {
		known = true
		return json.Unmarshal([]byte(row[0].(string)), &schema.Indexes)
	}, name)
	schema.Name = name
	return schema, known, err
}

// walk words a checked query, with one record more than a page to see whether
// there is another. Each shape of a query is one text, so that it is prepared once.
func (c *collection) walk(q records.Query, after records.Position, begun bool) (string, []any) {
	var where []string
	var args []any
	filter := func(text string, values ...any) {
		where = append(where, text)
		args = append(args, values...)
	}
	column, behind, direction := "k_"+q.Index, ">", ""
	if q.Descending {
		behind, direction = "<", " DESC"
	}
	order := "id" + direction
	if q.Index != "" {
		filter(column + " IS NOT NULL")
		order = column + direction
		if !slices.Contains(c.schema.Indexes, records.Index{Name: q.Index, Unique: true}) {
			order += ", id" + direction
		}
	}
	switch {
	case q.Equal != "":
		filter(column+" = ?", q.Equal)
	case q.Prefix != "":
		filter(column+" >= ?", q.Prefix)
		if end, ok := prefixEnd(q.Prefix); ok {
			filter(column+" < ?", end)
		}
	case q.AtMost != "":
		filter(column+" <= ?", q.AtMost)
	}
	if q.IDFrom != "" {
		filter("id >= ?", q.IDFrom)
	}
	switch {
	case begun && q.Index != "" && q.Equal == "":
		filter("("+column+", id) "+behind+" (?, ?)", after.Value, after.ID)
	case begun:
		filter("id "+behind+" ?", after.ID)
	}
	query := c.get
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	return query + " ORDER BY " + order + " LIMIT ?", append(args, q.Limit+1)
}

// prefixEnd is the smallest text above all that begin with the prefix.
func prefixEnd(prefix string) (string, bool) {
	end := []byte(prefix)
	for len(end) > 0 {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return string(end), true
		}
		end = end[:len(end)-1]
	}
	return "", false
}
