package server

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
)

// badRequest collects what is wrong with a request. It is never empty.
type badRequest []holdfast.InvalidError

// Error joins the problems.
func (b badRequest) Error() string {
	var text []string
	for i := range b {
		text = append(text, b[i].Error())
	}
	return strings.Join(text, "; ")
}

// maxFieldErrors bounds how many bad fields one answer names.
const maxFieldErrors = 20

// decodeBody reads one JSON document into target, a pointer to a struct of pkg/api,
// and refuses what encoding/json lets pass: unknown fields at every depth, names in
// another case, missing required fields, nulls where nothing can be nothing, text
// behind the document, and a name that comes twice (two readers of such a body, one in front of
// the other, may each take another value). Every bad field is named with its path and
// with what is allowed. A field without `omitempty` or `omitzero` is required.
func decodeBody(text []byte, target any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return badRequest{{Field: "body", Problem: "the request has no body", Allowed: "one JSON object"}}
	}
	if !utf8.Valid(text) {
		return badRequest{{Field: "body", Problem: "the body is not UTF-8 text", Allowed: "JSON in UTF-8"}}
	}
	var probe json.RawMessage
	if err := json.Unmarshal(text, &probe); err != nil {
		return badRequest{syntaxProblem(text, err)}
	}
	d := &decoder{}
	d.value("", text, reflect.ValueOf(target).Elem(), "")
	if len(d.bad) > 0 {
		return d.bad
	}
	return nil
}

// syntaxProblem says where a document breaks.
func syntaxProblem(text []byte, err error) holdfast.InvalidError {
	at := int64(len(text))
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at = min(syntax.Offset, at)
	}
	before := text[:max(0, at-1)]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return holdfast.InvalidError{Field: "body", Problem: fmt.Sprintf("the body is not JSON: %s at line %d, column %d", err, line, column), Allowed: "one JSON object"}
}

type decoder struct{ bad badRequest }

func (d *decoder) refuse(path, problem, allowed string) {
	if len(d.bad) < maxFieldErrors {
		if path == "" {
			path = "body"
		}
		d.bad = append(d.bad, holdfast.InvalidError{Field: path, Problem: problem, Allowed: allowed})
	}
}

// value decodes one value. The text is valid JSON. tag is that of the field.
func (d *decoder) value(path string, text []byte, v reflect.Value, tag reflect.StructTag) {
	text = bytes.TrimSpace(text)
	if custom, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		if _, isTime := v.Interface().(interface{ UnixMilli() int64 }); !isTime {
			d.custom(path, custom.UnmarshalJSON(text))
			return
		}
	}
	if string(text) == "null" {
		if v.Kind() != reflect.Pointer {
			d.refuse(path, "null is not allowed here", "a value, or leave the field out")
		}
		return
	}
	if custom, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if s, ok := d.text(path, text); ok {
			d.custom(path, textProblem(v, s, custom.UnmarshalText([]byte(s))))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, text, v.Elem(), tag)
	case reflect.Struct:
		d.object(path, text, v)
	case reflect.Slice:
		d.list(path, text, v, tag)
	case reflect.Map:
		d.dictionary(path, text, v)
	case reflect.String:
		if s, ok := d.text(path, text); ok {
			v.SetString(s)
			d.limits(path, s, tag)
		}
	case reflect.Bool:
		if string(text) != "true" && string(text) != "false" {
			d.refuse(path, excerpt(text)+" is neither true nor false", "true or false")
			return
		}
		v.SetBool(string(text) == "true")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(string(text), 10, v.Type().Bits())
		if err != nil {
			d.refuse(path, excerpt(text)+" is not a whole number in range", "a whole number")
			return
		}
		v.SetInt(n)
	default:
		panic("server: a wire struct has a field of kind " + v.Kind().String())
	}
}

// custom takes the error of a type that decodes itself.
func (d *decoder) custom(path string, err error) {
	var bad *holdfast.InvalidError
	switch {
	case err == nil:
	case errors.As(err, &bad):
		if bad.Field != "" {
			path = join(path, bad.Field)
		}
		d.refuse(path, bad.Problem, bad.Allowed)
	default:
		d.refuse(path, holdfast.Clip(err.Error(), 200), "")
	}
}

func textProblem(v reflect.Value, s string, err error) error {
	if err == nil {
		return nil
	}
	if v.Type().String() == "time.Time" {
		return &holdfast.InvalidError{Problem: fmt.Sprintf("%q is not a time", holdfast.Clip(s, 60)), Allowed: "RFC 3339, such as 2026-12-01T08:00:00Z"}
	}
	return err
}

func (d *decoder) text(path string, text []byte) (string, bool) {
	if text[0] != '"' {
		d.refuse(path, excerpt(text)+" is not a text", "a text in double quotes")
		return "", false
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		d.refuse(path, "the text cannot be read", "a text in double quotes")
		return "", false
	}
	return s, true
}

// limits checks the tags enum, minLength and maxLength, which are also what the
// OpenAPI document says.
func (d *decoder) limits(path, s string, tag reflect.StructTag) {
	if list := tag.Get("enum"); list != "" && !slices.Contains(strings.Split(list, ","), s) {
		d.refuse(path, fmt.Sprintf("%q is not one of them", holdfast.Clip(s, 60)), strings.ReplaceAll(list, ",", ", "))
	}
	if most, err := strconv.Atoi(tag.Get("maxLength")); err == nil && utf8.RuneCountInString(s) > most {
		d.refuse(path, "the text is too long", fmt.Sprintf("at most %d characters", most))
	}
	if least, err := strconv.Atoi(tag.Get("minLength")); err == nil && utf8.RuneCountInString(strings.TrimSpace(s)) < least {
		d.refuse(path, "the text is empty", "some text")
	}
}

func (d *decoder) object(path string, text []byte, v reflect.Value) {
	members, ok := d.members(path, text)
	if !ok {
		return
	}
	fields := fieldsOf(v.Type())
	var names []string
	for name := range members {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if _, known := fields.byName[name]; !known {
			d.refuse(join(path, holdfast.Clip(name, 60)), "there is no such field", "one of: "+strings.Join(fields.names, ", "))
		}
	}
	for _, name := range fields.names {
		field := fields.byName[name]
		member, given := members[name]
		switch {
		case given && string(member) == "null" && field.optional && !field.nullable:
		case given:
			d.value(join(path, name), member, v.FieldByIndex(field.index), field.tag)
		case !field.optional:
			d.refuse(join(path, name), "the field is required", "")
		}
	}
}

// members are the members of an object. The text is valid JSON.
func (d *decoder) members(path string, text []byte) (map[string]json.RawMessage, bool) {
	if text[0] != '{' {
		d.refuse(path, excerpt(text)+" is not an object", "a JSON object")
		return nil, false
	}
	members := map[string]json.RawMessage{}
	reader := json.NewDecoder(bytes.NewReader(text))
	_, err := reader.Token() // the brace
	for err == nil && reader.More() {
		var name json.Token
		var member json.RawMessage
		if name, err = reader.Token(); err != nil {
			break
		}
		key, _ := name.(string)
		if err = reader.Decode(&member); err != nil {
			break
		}
		if _, twice := members[key]; twice {
			d.refuse(join(path, holdfast.Clip(key, 60)), "it stands there twice", "each name once")
		}
		members[key] = member
	}
	if err != nil {
		d.refuse(path, excerpt(text)+" is not an object", "a JSON object")
	}
	return members, err == nil
}

// maxMembers bounds a list or a map of a request.
const maxMembers = 10_000

func (d *decoder) list(path string, text []byte, v reflect.Value, tag reflect.StructTag) {
	var items []json.RawMessage
	if text[0] != '[' || json.Unmarshal(text, &items) != nil {
		d.refuse(path, excerpt(text)+" is not a list", "a JSON list")
		return
	}
	if len(items) > maxMembers {
		d.refuse(path, "the list is too long", fmt.Sprintf("at most %d items", maxMembers))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(fmt.Sprintf("%s[%d]", path, i), item, list.Index(i), tag)
	}
	v.Set(list)
}

func (d *decoder) dictionary(path string, text []byte, v reflect.Value) {
	members, ok := d.members(path, text)
	if !ok {
		return
	}
	if len(members) > maxMembers {
		d.refuse(path, "the map has too many members", fmt.Sprintf("at most %d", maxMembers))
		return
	}
	dictionary := reflect.MakeMapWithSize(v.Type(), len(members))
	for name, member := range members {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(join(path, holdfast.Clip(name, 60)), member, item, "")
		dictionary.SetMapIndex(reflect.ValueOf(name), item)
	}
	v.Set(dictionary)
}

// wireField is one field of a wire struct.
type wireField struct {
	index              []int
	tag                reflect.StructTag
	optional, nullable bool
}

type wireFields struct {
	names  []string // in the order of the struct
	byName map[string]wireField
}

// fieldsOf lists a wire struct's fields, those of embedded structs among them.
func fieldsOf(t reflect.Type) wireFields {
	fields := wireFields{byName: map[string]wireField{}}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" || name == "" {
			continue
		}
		_, decodes := reflect.New(f.Type).Interface().(json.Unmarshaler)
		fields.names = append(fields.names, name)
		fields.byName[name] = wireField{
			index: f.Index, tag: f.Tag,
			optional: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"),
			nullable: f.Type.Kind() == reflect.Struct && decodes && f.Type.String() != "time.Time",
		}
	}
	return fields
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// excerpt shows a value of a request in a message.
func excerpt(text []byte) string { return holdfast.Clip(string(text), 40) }
