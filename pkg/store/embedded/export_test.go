package embedded

import "context"

// HoldLedger makes the ledger's writer wait until release is called, so that what
// is asked meanwhile becomes one batch.
func HoldLedger(s *Store) (release func()) {
	held, free := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.ledger.file.do(context.Background(), func(*tx) error {
			close(held)
			<-free
			return nil
		})
	}()
	<-held
	return func() { close(free); <-done }
}

// Queued is how many callers wait for the ledger's writer.
func Queued(s *Store) int {
	s.ledger.file.mu.Lock()
	defer s.ledger.file.mu.Unlock()
	return len(s.ledger.file.queue)
}

// OnWriter runs a statement on the ledger's writing connection, outside of any
// transaction.
func OnWriter(s *Store, statement string) error { return s.ledger.file.onWriter(statement) }

// OnRecordsWriter is [OnWriter] for the records.
func OnRecordsWriter(s *Store, statement string) error { return s.records.file.onWriter(statement) }

func (f *file) onWriter(statement string) error {
	return f.do(context.Background(), func(t *tx) error {
		statement, err := t.conn.Prepare(statement)
		if err != nil {
			return err
		}
		defer statement.Close()      // a test's own statement
		_, err = statement.Exec(nil) //nolint:staticcheck // the driver implements both
		return err
	})
}

// Residents is how many subjects are in memory.
func Residents(s *Store) (n int) {
	_ = s.ledger.file.do(context.Background(), func(*tx) error {
		n = len(s.ledger.residents)
		return nil
	})
	return n
}

// Plan is how SQLite answers a query of the collection.
func Plan(s *Store, query string) (plan string, err error) {
	rows, err := s.records.file.readers.Query("EXPLAIN QUERY PLAN " + query)
	if err != nil {
		return "", err
	}
	defer rows.Close() // read only
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return "", err
		}
		plan += detail + "\n"
	}
	return plan, rows.Err()
}
