package mongo

import (
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// walk words a checked query.
func walk(q records.Query, after records.Position, begun bool) (filter, sort bson.D) {
	direction, behind := 1, "$gt"
	if q.Descending {
		direction, behind = -1, "$lt"
	}
	var where bson.A
	if q.Index == "" {
		sort = bson.D{{Key: "_id", Value: direction}}
	} else {
		key := "k." + q.Index
		sort = bson.D{{Key: key, Value: direction}, {Key: "_id", Value: direction}}
		where = append(where, bson.D{{Key: key, Value: matching(q)}})
	}
	if q.IDFrom != "" {
		where = append(where, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: q.IDFrom}}}})
	}
	switch beyond := (bson.D{{Key: "_id", Value: bson.D{{Key: behind, Value: after.ID}}}}); {
	case begun && q.Index != "" && q.Equal == "":
		key := "k." + q.Index
		where = append(where, bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: key, Value: bson.D{{Key: behind, Value: after.Value}}}},
			append(bson.D{{Key: key, Value: after.Value}}, beyond...),
		}}})
	case begun:
		where = append(where, beyond)
	}
	if len(where) == 0 {
		return bson.D{}, sort
	}
	return bson.D{{Key: "$and", Value: where}}, sort
}

// matching is the condition on the value of a query's index.
func matching(q records.Query) any {
	switch {
	case q.Equal != "":
		return q.Equal
	case q.Prefix != "":
		from := bson.D{{Key: "$gte", Value: q.Prefix}}
		if end, ok := prefixEnd(q.Prefix); ok {
			from = append(from, bson.E{Key: "$lt", Value: end})
		}
		return from
	case q.AtMost != "":
		return bson.D{{Key: "$lte", Value: q.AtMost}}
	}
	return bson.D{{Key: "$exists", Value: true}}
}

// prefixEnd is a text above all that begin with the prefix and below all others that
// are above it; false when there is none. It is UTF-8, which a stored text must be.
func prefixEnd(prefix string) (string, bool) {
	runes := []rune(prefix)
	for last := len(runes) - 1; last >= 0; last-- {
		next := runes[last] + 1
		if next == 0xd800 { // no text has the half characters between
			next = 0xe000
		}
		if next <= utf8.MaxRune {
			return string(append(runes[:last], next)), true
		}
	}
	return "", false
}
