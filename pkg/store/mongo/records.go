package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// Records keeps each collection of records in a collection of the database, named
// "r_" and its own name; "schemas" has what indexes each declares. A document is
// {_id, rev, body, k: {index: value}}; its body is the JSON text, or binary where that
// text is not UTF-8.
type Records struct {
	db      *driver.Database
	schemas *driver.Collection
	owners  turns
}

var _ records.DB = (*Records)(nil)

func openRecords(db *driver.Database) *Records {
	return &Records{db: db, schemas: db.Collection("schemas"), owners: newTurns()}
}

// Collection implements [records.DB].
func (r *Records) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	if err := schema.Check(); err != nil {
		return nil, err
	}
	c := &collection{schema: records.Schema{Name: schema.Name, Indexes: slices.Clone(schema.Indexes)}, rows: r.db.Collection("r_" + schema.Name), owners: r.owners}
	if err := r.declare(ctx, c); err != nil {
		return nil, err
	}
	return c, nil
}

// declared is a document of "schemas".
type declared struct {
	Name    string `bson:"_id"`
	Indexes []struct {
		Name   string `bson:"name"`
		Unique bool   `bson:"unique"`
	} `bson:"indexes"`
}

// declare makes the server's indexes those of the schema. They are made before they
// are declared and dropped after: who reads the declaration finds them.
func (r *Records) declare(ctx context.Context, c *collection) error {
	var found declared
	err := r.schemas.FindOne(ctx, bson.D{{Key: "_id", Value: c.schema.Name}}).Decode(&found)
	if err != nil && !errors.Is(err, driver.ErrNoDocuments) {
		return recordsUnavailable(ctx, err)
	}
	older := records.Schema{Name: c.schema.Name}
	for _, index := range found.Indexes {
		older.Indexes = append(older.Indexes, records.Index{Name: index.Name, Unique: index.Unique})
	}
	if err == nil && slices.Equal(older.Indexes, c.schema.Indexes) {
		return nil
	}
	err = c.rows.FindOne(ctx, bson.D{}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	switch {
	case err == nil:
		if err := c.schema.Extends(older); err != nil {
			return err
		}
	case errors.Is(err, driver.ErrNoDocuments):
		if err := c.drop(ctx, older); err != nil {
			return recordsUnavailable(ctx, err)
		}
		older.Indexes = nil
	default:
		return recordsUnavailable(ctx, err)
	}
	return r.makeIndexes(ctx, c, older)
}

func (r *Records) makeIndexes(ctx context.Context, c *collection, older records.Schema) error {
	var models []driver.IndexModel
	list := bson.A{}
	for _, index := range c.schema.Indexes {
		list = append(list, bson.D{{Key: "name", Value: index.Name}, {Key: "unique", Value: index.Unique}})
		if slices.Contains(older.Indexes, index) {
			continue
		}
		key := "k." + index.Name
		keys := bson.D{{Key: key, Value: 1}}
		if !index.Unique { // with the id behind it a walk comes out of the index in its order
			keys = append(keys, bson.E{Key: "_id", Value: 1})
		}
		models = append(models, driver.IndexModel{Keys: keys, Options: options.Index().SetName(indexName(index)).SetUnique(index.Unique).
			SetPartialFilterExpression(bson.D{{Key: key, Value: bson.D{{Key: "$exists", Value: true}}}})})
	}
	if len(models) > 0 {
		if _, err := c.rows.Indexes().CreateMany(ctx, models); err != nil {
			return recordsUnavailable(ctx, err)
		}
	}
	_, err := r.schemas.UpdateOne(ctx, bson.D{{Key: "_id", Value: c.schema.Name}}, bson.D{{Key: "$set", Value: bson.D{{Key: "indexes", Value: list}}}}, options.UpdateOne().SetUpsert(true))
	if err != nil && !driver.IsDuplicateKeyError(err) { // another replica declares the same at this moment
		return recordsUnavailable(ctx, err)
	}
	return nil
}

// indexName tells a unique index from a plain one of the same name.
func indexName(index records.Index) string {
	if index.Unique {
		return "unique_" + index.Name
	}
	return "by_" + index.Name
}

// collection is one collection of records.
type collection struct {
	schema records.Schema
	rows   *driver.Collection
	owners turns
}

// drop removes the indexes of an empty collection that was declared otherwise.
func (c *collection) drop(ctx context.Context, older records.Schema) error {
	for _, index := range older.Indexes {
		if slices.Contains(c.schema.Indexes, index) {
			continue
		}
		if err := c.rows.Indexes().DropOne(ctx, indexName(index)); err != nil {
			return err
		}
	}
	return nil
}

// Get implements [records.Collection].
func (c *collection) Get(ctx context.Context, id string) (records.Record, error) {
	if !records.ValidID(id) {
		return records.Record{}, records.ErrNotFound
	}
	raw, err := c.rows.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
	switch {
	case errors.Is(err, driver.ErrNoDocuments):
		return records.Record{}, records.ErrNotFound
	case err != nil:
		return records.Record{}, recordsUnavailable(ctx, err)
	}
	return c.record(raw)
}

// Insert implements [records.Collection].
func (c *collection) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	if err := c.schema.CheckRecord(r); err != nil {
		return records.Record{}, err
	}
	r.Revision = 1
	err := c.write(ctx, r, func() error {
		_, err := c.rows.InsertOne(ctx, documentOf(r))
		return err
	})
	switch {
	case driver.IsDuplicateKeyError(err):
		return records.Record{}, records.ErrExists
	case err != nil:
		return records.Record{}, recordsUnavailable(ctx, err)
	}
	return own(r), nil
}

// Replace implements [records.Collection].
func (c *collection) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	if err := c.schema.CheckRecord(r); err != nil {
		return records.Record{}, err
	}
	before := bson.D{{Key: "_id", Value: r.ID}, {Key: "rev", Value: r.Revision}}
	r.Revision++
	var result *driver.UpdateResult
	err := c.write(ctx, r, func() (err error) {
		result, err = c.rows.ReplaceOne(ctx, before, documentOf(r))
		return err
	})
	switch {
	case driver.IsDuplicateKeyError(err):
		return records.Record{}, c.refused(ctx, r)
	case err != nil:
		return records.Record{}, recordsUnavailable(ctx, err)
	case result.MatchedCount == 0:
		return records.Record{}, c.missed(ctx, r.ID)
	}
	return own(r), nil
}

// write writes a record. Writers of one unique value take turns, as far as they are in
// this process: some servers let them wait for each other and end one after a second.
// A write that the server itself called off, so that nothing was written, is repeated.
func (c *collection) write(ctx context.Context, r records.Record, write func() error) error {
	leave, err := c.owners.enter(ctx, c.uniqueValues(r))
	if err != nil {
		return err
	}
	defer leave()
	err = write()
	for round := 0; round < 5 && calledOff(err); round++ {
		if sleep(ctx, pause(round)) != nil {
			break
		}
		err = write()
	}
	return err
}

// uniqueValues are what no other record may have.
func (c *collection) uniqueValues(r records.Record) []string {
	var out []string
	for _, index := range c.schema.Indexes {
		if value, ok := r.Keys[index.Name]; ok && index.Unique {
			out = append(out, c.schema.Name+"\x00"+index.Name+"\x00"+value)
		}
	}
	return out
}

// calledOff says whether the server refused the write, and not for a taken value.
func calledOff(err error) bool {
	var refused driver.WriteException
	return errors.As(err, &refused) && len(refused.WriteErrors) > 0 && refused.WriteConcernError == nil && !driver.IsDuplicateKeyError(err)
}

// refused tells a replace that met a taken value from one that would have lost
// anyway: a server may look at the values before it looks for the record.
func (c *collection) refused(ctx context.Context, r records.Record) error {
	stored, err := c.Get(ctx, r.ID)
	switch {
	case err != nil:
		return err
	case stored.Revision != r.Revision-1:
		return records.ErrRevision
	}
	return records.ErrExists
}

// Delete implements [records.Collection].
func (c *collection) Delete(ctx context.Context, id string, revision int64) error {
	if !records.ValidID(id) {
		return records.ErrNotFound
	}
	filter := bson.D{{Key: "_id", Value: id}}
	if revision != 0 {
		filter = append(filter, bson.E{Key: "rev", Value: revision})
	}
	result, err := c.rows.DeleteOne(ctx, filter)
	switch {
	case err != nil:
		return recordsUnavailable(ctx, err)
	case result.DeletedCount == 0:
		return c.missed(ctx, id)
	}
	return nil
}

// missed tells a write that found no record of its revision which of the two it was.
func (c *collection) missed(ctx context.Context, id string) error {
	err := c.rows.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	switch {
	case errors.Is(err, driver.ErrNoDocuments):
		return records.ErrNotFound
	case err != nil:
		return recordsUnavailable(ctx, err)
	}
	return records.ErrRevision
}

// List implements [records.Collection].
func (c *collection) List(ctx context.Context, q records.Query) (records.Page, error) {
	after, begun, err := c.schema.CheckQuery(q)
	if err != nil {
		return records.Page{}, err
	}
	filter, sort := walk(q, after, begun)
	rows, err := all[bson.Raw](ctx)(c.rows.Find(ctx, filter, options.Find().SetSort(sort).SetLimit(int64(q.Limit)+1)))
	if err != nil {
		return records.Page{}, recordsUnavailable(ctx, err)
	}
	var page records.Page
	for n, raw := range rows {
		if n == q.Limit {
			page.Next = c.schema.Cursor(q, page.Records[n-1])
			break
		}
		r, err := c.record(raw)
		if err != nil {
			return records.Page{}, err
		}
		page.Records = append(page.Records, r)
	}
	return page, nil
}

// Count implements [records.Collection].
func (c *collection) Count(ctx context.Context, index, value string) (int64, error) {
	if err := c.schema.CheckCount(index); err != nil {
		return 0, err
	}
	filter := bson.D{}
	if index != "" {
		filter = bson.D{{Key: "k." + index, Value: value}}
	}
	n, err := c.rows.CountDocuments(ctx, filter)
	if err != nil {
		return 0, recordsUnavailable(ctx, err)
	}
	return n, nil
}

// documentOf is the record's document.
func documentOf(r records.Record) bson.D {
	var body any = string(r.Body)
	if !utf8.Valid(r.Body) {
		body = bson.Binary{Data: r.Body}
	}
	keys := bson.D{}
	for name, value := range r.Keys {
		keys = append(keys, bson.E{Key: name, Value: value})
	}
	return bson.D{{Key: "_id", Value: r.ID}, {Key: "rev", Value: r.Revision}, {Key: "body", Value: body}, {Key: "k", Value: keys}}
}

// record reads a document.
func (c *collection) record(raw bson.Raw) (records.Record, error) {
	var doc struct {
		ID       string            `bson:"_id"`
		Revision int64             `bson:"rev"`
		Body     bson.RawValue     `bson:"body"`
		Keys     map[string]string `bson:"k"`
	}
	if err := bson.Unmarshal(raw, &doc); err != nil {
		return records.Record{}, fmt.Errorf("a record of %s is damaged: %w", c.schema.Name, err)
	}
	r := records.Record{ID: doc.ID, Revision: doc.Revision}
	if text, ok := doc.Body.StringValueOK(); ok {
		r.Body = []byte(text)
	} else if _, data, ok := doc.Body.BinaryOK(); ok {
		r.Body = slices.Clone(data)
	}
	if len(doc.Keys) > 0 {
		r.Keys = doc.Keys
	}
	return r, nil
}

// own copies what the caller may go on changing.
func own(r records.Record) records.Record {
	r.Body, r.Keys = slices.Clone(r.Body), maps.Clone(r.Keys)
	return r
}

// recordsUnavailable is what the store answers when it cannot: the caller's context's
// own error where that ended, else one that matches ErrUnavailable.
func recordsUnavailable(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("wait for the record store: %w", ended)
	}
	return fmt.Errorf("%w: %w", records.ErrUnavailable, plain(err))
}
