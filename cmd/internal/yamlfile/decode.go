package yamlfile

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/holdfast-io/holdfast"
)

// Decode reads the document into a pointer to a struct, by the structs' json tags.
// Fields that the document does not name keep their value.
func (d Document) Decode(into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		panic("yamlfile: Decode needs a pointer")
	}
	return decoder{d}.value(d.body, target.Elem(), "", 0)
}

type decoder struct{ doc Document }

func (d decoder) bad(node ast.Node, path, problem, allowed string) error {
	return &holdfast.InvalidError{Field: place(d.doc.file, d.doc.line(node), path), Problem: problem, Allowed: allowed}
}

// value decodes one node. A type that reads JSON or text itself is given the node's
// own characters.
func (d decoder) value(node ast.Node, target reflect.Value, path string, depth int) error {
	if depth > maxDepth {
		return d.bad(node, path, "it nests too deep", fmt.Sprintf("at most %d levels", maxDepth))
	}
	switch node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		return d.bad(node, path, "anchors, aliases and tags are not read", "the value itself")
	}
	if handled, err := d.own(node, target, path); handled {
		return err
	}
	switch target.Kind() {
	case reflect.Pointer:
		if _, null := node.(*ast.NullNode); null {
			return nil
		}
		fresh := reflect.New(target.Type().Elem())
		if err := d.value(node, fresh.Elem(), path, depth+1); err != nil {
			return err
		}
		target.Set(fresh)
		return nil
	case reflect.Struct:
		return d.structure(node, target, path, depth)
	case reflect.Slice:
		return d.list(node, target, path, depth)
	case reflect.Map:
		return d.mapping(node, target, path, depth)
	default:
		return d.scalar(node, target, path)
	}
}

// own lets a type that unmarshals itself do so.
func (d decoder) own(node ast.Node, target reflect.Value, path string) (handled bool, err error) {
	if target.Kind() == reflect.Pointer || !target.CanAddr() {
		return false, nil
	}
	switch reader := target.Addr().Interface().(type) {
	case json.Unmarshaler:
		text, ok := literal(node)
		if !ok {
			return true, d.bad(node, path, "it is not a single value", "a number, a text or null")
		}
		err = reader.UnmarshalJSON([]byte(text))
	case encoding.TextUnmarshaler:
		text, ok := scalarText(node)
		if !ok {
			return true, d.bad(node, path, "it is not a text", "a single text")
		}
		err = reader.UnmarshalText([]byte(text))
	default:
		return false, nil
	}
	var invalid *holdfast.InvalidError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &invalid):
		return true, d.bad(node, path, invalid.Problem, invalid.Allowed)
	}
	return true, d.bad(node, path, holdfast.Clip(err.Error(), 200), allowedText(target.Type()))
}

// allowedText says what a type of the standard library reads.
func allowedText(t reflect.Type) string {
	if t.String() == "time.Time" {
		return "a time such as 2026-12-01T08:00:00Z"
	}
	return "a " + t.String()
}

func (d decoder) structure(node ast.Node, target reflect.Value, path string, depth int) error {
	pairs, ok := members(node)
	if !ok {
		return d.bad(node, path, "it is not a mapping", "the fields "+strings.Join(fieldNames(target.Type()), ", "))
	}
	seen := map[string]bool{}
	for _, pair := range pairs {
		name := keyText(pair.Key)
		inner := join(path, name)
		field, known := fieldNamed(target, name)
		switch {
		case !known:
			return d.bad(pair.Key, inner, "unknown field", strings.Join(fieldNames(target.Type()), ", "))
		case seen[name]:
			return d.bad(pair.Key, inner, "the field stands there twice", "each field once")
		}
		seen[name] = true
		if err := d.value(pair.Value, field, inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (d decoder) list(node ast.Node, target reflect.Value, path string, depth int) error {
	if _, null := node.(*ast.NullNode); null {
		return nil
	}
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		return d.bad(node, path, "it is not a list", "a list")
	}
	out := reflect.MakeSlice(target.Type(), len(sequence.Values), len(sequence.Values))
	for i, item := range sequence.Values {
		if err := d.value(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
			return err
		}
	}
	target.Set(out)
	return nil
}

func (d decoder) mapping(node ast.Node, target reflect.Value, path string, depth int) error {
	pairs, ok := members(node)
	if !ok {
		return d.bad(node, path, "it is not a mapping", "names with a value each")
	}
	out := reflect.MakeMapWithSize(target.Type(), len(pairs))
	for _, pair := range pairs {
		name := keyText(pair.Key)
		inner := join(path, name)
		key := reflect.ValueOf(name).Convert(target.Type().Key())
		if out.MapIndex(key).IsValid() {
			return d.bad(pair.Key, inner, "the name stands there twice", "each name once")
		}
		value := reflect.New(target.Type().Elem()).Elem()
		if err := d.value(pair.Value, value, inner, depth+1); err != nil {
			return err
		}
		out.SetMapIndex(key, value)
	}
	target.Set(out)
	return nil
}

func (d decoder) scalar(node ast.Node, target reflect.Value, path string) error {
	text, ok := scalarText(node)
	switch target.Kind() {
	case reflect.String:
		if !ok {
			return d.bad(node, path, "it is not a text", "a single text")
		}
		target.SetString(text)
		return nil
	case reflect.Bool:
		if boolean, isBool := node.(*ast.BoolNode); isBool {
			target.SetBool(boolean.Value)
			return nil
		}
		return d.bad(node, path, describe(text)+" is neither true nor false", "true, false")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if _, isNumber := node.(*ast.IntegerNode); !isNumber || err != nil {
			return d.bad(node, path, describe(text)+" is not a whole number", "a whole number")
		}
		target.SetInt(n)
		return nil
	default:
		panic("yamlfile: cannot decode into " + target.Type().String())
	}
}

func describe(text string) string { return strconv.Quote(holdfast.Clip(text, 60)) }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// members are the pairs of a mapping; the parser has two shapes for one.
func members(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	case *ast.NullNode:
		return nil, true
	}
	return nil, false
}

// keyText is a key as it was written.
func keyText(key ast.Node) string {
	if text, ok := scalarText(key); ok {
		return text
	}
	return key.GetToken().Value
}

// scalarText is the text of a single value as it was written, without its quotes.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.NullNode:
		return "", true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	}
	return "", false
}

// literal is a single value as JSON: a number as it was written, null, true, false,
// or a quoted text.
func literal(node ast.Node) (string, bool) {
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, true
	case *ast.NullNode:
		return "null", true
	}
	text, ok := scalarText(node)
	if !ok {
		return "", false
	}
	quoted, err := json.Marshal(text)
	return string(quoted), err == nil
}

// fieldNamed finds a field by its json name, in embedded structs too.
func fieldNamed(target reflect.Value, name string) (reflect.Value, bool) {
	for i := range target.NumField() {
		field := target.Type().Field(i)
		if field.Anonymous && jsonName(field) == "" && field.Type.Kind() == reflect.Struct {
			if inner, found := fieldNamed(target.Field(i), name); found {
				return inner, true
			}
			continue
		}
		if field.IsExported() && jsonName(field) == name {
			return target.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// fieldNames are the fields that a file may set, for people. What an answer has and a
// write ignores is read, so that an answer can be sent back, and not offered.
func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		field := t.Field(i)
		name := jsonName(field)
		switch {
		case field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct:
			names = append(names, fieldNames(field.Type)...)
		case strings.HasSuffix(field.Tag.Get("doc"), "ignored in a write"):
		case field.IsExported() && name != "" && name != "-" && !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return names
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
