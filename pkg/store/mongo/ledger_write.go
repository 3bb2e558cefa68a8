package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// This file has the conditions under which a record is written, by the stamps of its
// entries, and the write itself.

// stillOpen is the filter for a record in which all these entries are what they were.
func (n *lane) stillOpen(stamps bson.A) bson.D {
	if len(stamps) == 1 { // a server finds one by a plain comparison sooner than by an expression
		return bson.D{{Key: "_id", Value: n.key.String()}, {Key: fieldOpen + ".k", Value: stamps[0]}}
	}
	return bson.D{{Key: "_id", Value: n.key.String()}, {Key: "$expr", Value: stillIn(fieldOpen, stamps)}}
}

// stillIn holds while an array has entries with all these stamps. As a set it is a
// hundred times faster than $all with many stamps over many entries.
func stillIn(array string, stamps bson.A) bson.D {
	return bson.D{{Key: "$setIsSubset", Value: bson.A{stamps, "$" + array + ".k"}}}
}

func pulled(array string, stamps bson.A) bson.D {
	if len(stamps) == 1 {
		return bson.D{{Key: array, Value: bson.D{{Key: "k", Value: stamps[0]}}}}
	}
	return bson.D{{Key: array, Value: bson.D{{Key: "k", Value: bson.D{{Key: "$in", Value: stamps}}}}}}
}

// update writes on a condition and says whether it held.
func (n *lane) update(ctx context.Context, filter, update bson.D, more ...options.Lister[options.UpdateOneOptions]) (bool, error) {
	result, err := n.ledger.subjects.UpdateOne(ctx, filter, update, more...)
	switch {
	case err != nil:
		return false, unavailable(err)
	case !result.Acknowledged:
		return false, unavailable(errors.New("the server did not acknowledge a write"))
	}
	return result.MatchedCount == 1, nil
}
