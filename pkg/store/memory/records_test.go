package memory_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func TestRecordsConform(t *testing.T) {
	recordstest.Run(t, func(*testing.T) recordstest.Harness {
		return recordstest.Harness{Open: func() (records.DB, error) { return memory.NewRecords(), nil }}
	})
}
