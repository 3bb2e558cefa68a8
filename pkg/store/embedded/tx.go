package embedded

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// tx is the writer's connection with its prepared statements. A transaction begins
// with the first write.
type tx struct {
	conn       driver.Conn
	statements map[string]driver.Stmt
	args       []driver.NamedValue
	open       bool
}

// exec writes and says how many rows it changed.
func (t *tx) exec(query string, args ...driver.Value) (int64, error) {
	if !t.open {
		if _, err := t.run("BEGIN IMMEDIATE", nil); err != nil {
			return 0, err
		}
		t.open = true
	}
	result, err := t.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query reads rows and calls each for every one, with values that are its own.
func (t *tx) query(query string, each func([]driver.Value) error, args ...driver.Value) (err error) {
	statement, err := t.statement(query)
	if err != nil {
		return err
	}
	rows, err := statement.(driver.StmtQueryContext).QueryContext(context.Background(), t.bind(args))
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	values := make([]driver.Value, len(rows.Columns()))
	for err == nil {
		if err = rows.Next(values); err == nil {
			err = each(values)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, rows.Close()); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

// script runs statements that return nothing and have no arguments, one after another.
func (t *tx) script(statements ...string) error {
	for _, s := range statements {
		if _, err := t.exec(s); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) run(query string, args []driver.Value) (driver.Result, error) {
	statement, err := t.statement(query)
	if err != nil {
		return nil, err
	}
	result, err := statement.(driver.StmtExecContext).ExecContext(context.Background(), t.bind(args))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	return result, nil
}

func (t *tx) bind(args []driver.Value) []driver.NamedValue {
	t.args = t.args[:0]
	for i, value := range args {
		t.args = append(t.args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return t.args
}

func (t *tx) statement(query string) (driver.Stmt, error) {
	if s, ok := t.statements[query]; ok {
		return s, nil
	}
	s, err := t.conn.Prepare(query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	t.statements[query] = s
	return s, nil
}

func (t *tx) commit() error {
	if !t.open {
		return nil
	}
	if _, err := t.run("COMMIT", nil); err != nil {
		return err
	}
	t.open = false
	return nil
}

// rollback ends a transaction that failed. SQLite ends some failed ones by itself,
// which its answer to the ROLLBACK then says. Where neither ended it, it stays open
// and the next batch tries again before it does anything else.
func (t *tx) rollback() error {
	if !t.open {
		return nil
	}
	if _, err := t.run("ROLLBACK", nil); err != nil && t.inTransaction() {
		return err
	}
	t.open = false
	return nil
}

// inTransaction asks SQLite itself.
func (t *tx) inTransaction() bool {
	_, err := t.run("BEGIN", nil)
	if err != nil {
		return true
	}
	_, err = t.run("ROLLBACK", nil)
	return err != nil
}

func (t *tx) close() error {
	var errs []error
	for _, s := range t.statements {
		errs = append(errs, s.Close())
	}
	t.statements = nil
	return errors.Join(errs...)
}

// schemaVersion is what this build writes; a file of a newer build is refused.
const schemaVersion = 1

// migrate brings a new file to the schema and refuses one that this build cannot read.
func (t *tx) migrate(schema string) error {
	version := int64(-1)
	err := t.query("PRAGMA user_version", func(row []driver.Value) error {
		version, _ = row[0].(int64)
		return nil
	})
	switch {
	case err != nil:
		return err
	case version == schemaVersion:
		return nil
	case version != 0:
		return fmt.Errorf("the file has format %d and this build reads %d; use the build that wrote it", version, schemaVersion)
	}
	if _, err := t.exec(schema); err != nil {
		return errors.Join(err, t.rollback())
	}
	if err := t.stampVersion(); err != nil {
		return errors.Join(err, t.rollback())
	}
	return t.commit()
}

// stampVersion writes the file's format into its head.
func (t *tx) stampVersion() error {
	_, err := t.exec(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	return err
}

// taken says whether a statement failed on a value that must exist only once.
func taken(err error) bool {
	var failed *sqlite.Error
	return errors.As(err, &failed) && (failed.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || failed.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE)
}
