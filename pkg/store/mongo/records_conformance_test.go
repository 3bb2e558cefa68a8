package mongo_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

func TestRecordsConform(t *testing.T) {
	harness := func(t *testing.T) recordstest.Harness {
		d := newDatabases(t)
		stores := map[records.DB]*mongo.Store{}
		keep := func(store *mongo.Store, err error) (records.DB, error) {
			if err != nil {
				return nil, err
			}
			stores[store.Records()] = store
			return store.Records(), nil
		}
		return recordstest.Harness{
			Open:   func() (records.DB, error) { return keep(d.fresh()) },
			Reopen: func(db records.DB) (records.DB, error) { return keep(d.again(db)) },
			Close:  func(db records.DB) error { return stores[db].Close() },
		}
	}
	rows := recordstest.Rows()
	besideEachOther(len(rows), func(i int) {
		t.Run(rows[i].Name, func(t *testing.T) {
			if err := rows[i].Run(t.Context(), harness(t)); err != nil {
				t.Error(err)
			}
		})
	})
}
