package holdfast

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// DecodeJSON reads one JSON value into what `into` points at, strictly: an unknown or
// repeated field, a value of the wrong type and anything behind the value are an
// *InvalidError that names the path of the field ("reservations[1].monthly_usd") and
// what is allowed. Field names are matched as they are written. null leaves a field
// as it is, except where the field's own type reads it.
func DecodeJSON(data []byte, into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		panic(fmt.Sprintf("holdfast: cannot decode into %T", into))
	}
	if !json.Valid(data) {
		var anything any
		problem := "it is not JSON"
		if err := json.Unmarshal(data, &anything); err != nil {
			problem += ": " + Clip(err.Error(), 120)
		}
		return &InvalidError{Problem: problem, Allowed: "one JSON value"}
	}
	return decodeValue("", bytes.TrimSpace(data), target.Elem())
}

func decodeValue(path string, data []byte, v reflect.Value) error {
	if _, own := v.Addr().Interface().(json.Unmarshaler); own {
		return decodeLeaf(path, data, v)
	}
	if _, own := v.Addr().Interface().(encoding.TextUnmarshaler); own {
		return decodeLeaf(path, data, v)
	}
	if string(data) == "null" {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		inner := reflect.New(v.Type().Elem())
		if err := decodeValue(path, data, inner.Elem()); err != nil {
			return err
		}
		v.Set(inner)
		return nil
	case reflect.Struct:
		return decodeStruct(path, data, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // base64 text
			return decodeLeaf(path, data, v)
		}
		return decodeSlice(path, data, v)
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return decodeLeaf(path, data, v)
		}
		return decodeMap(path, data, v)
	default:
		return decodeLeaf(path, data, v)
	}
}

func decodeStruct(path string, data []byte, v reflect.Value) error {
	fields := jsonFields(v.Type())
	seen := map[string]bool{}
	return members(path, data, func(name string, raw []byte) error {
		index, known := fields[name]
		if !known {
			names := make([]string, 0, len(fields))
			for field := range fields {
				names = append(names, field)
			}
			slices.Sort(names)
			return &InvalidError{Field: join(path, Clip(name, 60)), Problem: "it is not a field", Allowed: strings.Join(names, ", ")}
		}
		if seen[name] {
			return &InvalidError{Field: join(path, name), Problem: "it is written twice", Allowed: "each field once"}
		}
		seen[name] = true
		return decodeValue(join(path, name), raw, v.FieldByIndex(index))
	})
}

// jsonFields maps the names of a struct's fields to their index, embedded structs
// included as encoding/json does it.
func jsonFields(t reflect.Type) map[string][]int {
	fields := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case !f.IsExported(), name == "-", f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		if old, taken := fields[name]; !taken || len(f.Index) < len(old) {
			fields[name] = f.Index
		}
	}
	return fields
}

func decodeSlice(path string, data []byte, v reflect.Value) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return wrongType(path, data, "a list")
	}
	list := reflect.MakeSlice(v.Type(), len(raw), len(raw))
	for i, item := range raw {
		if err := decodeValue(fmt.Sprintf("%s[%d]", path, i), item, list.Index(i)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

func decodeMap(path string, data []byte, v reflect.Value) error {
	out := reflect.MakeMap(v.Type())
	err := members(path, data, func(name string, raw []byte) error {
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString(name)
		field := join(path, Clip(name, 60))
		if out.MapIndex(key).IsValid() {
			return &InvalidError{Field: field, Problem: "it is written twice", Allowed: "each name once"}
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if err := decodeValue(field, raw, value); err != nil {
			return err
		}
		out.SetMapIndex(key, value)
		return nil
	})
	if err == nil {
		v.Set(out)
	}
	return err
}

// members visits the members of an object in the order in which they are written.
func members(path string, data []byte, visit func(name string, raw []byte) error) error {
	if len(data) == 0 || data[0] != '{' {
		return wrongType(path, data, "an object")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if _, err := decoder.Token(); err != nil {
		return wrongType(path, data, "an object")
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return wrongType(path, data, "an object")
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return wrongType(path, data, "an object")
		}
		if err := visit(name.(string), raw); err != nil {
			return err
		}
	}
	return nil
}

func decodeLeaf(path string, data []byte, v reflect.Value) error {
	err := json.Unmarshal(data, v.Addr().Interface())
	if err == nil {
		return nil
	}
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return InField(path, &InvalidError{Field: invalid.Field, Problem: invalid.Problem, Allowed: invalid.Allowed})
	}
	return wrongType(path, data, kindWord(v.Type()))
}

func wrongType(path string, data []byte, allowed string) error {
	return &InvalidError{Field: path, Problem: Clip(string(data), 40) + " is not " + allowed, Allowed: allowed}
}

// kindWord says what a value of the type looks like in JSON.
func kindWord(t reflect.Type) string {
	if t.PkgPath() == "time" && t.Name() == "Time" {
		return "an instant such as 2026-12-01T08:00:00Z"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0 up"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a value of this field"
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
