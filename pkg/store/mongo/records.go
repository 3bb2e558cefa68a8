package mongo

import (
	"context"

	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// Records is
type Records struct{ db *driver.Database }

func openRecords(db *driver.Database) *Records { return &Records{db: db} }

// Collection is
func (r *Records) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	return nil, nil
}
