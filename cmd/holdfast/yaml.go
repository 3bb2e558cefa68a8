package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// yamlOfJSON writes a JSON document as block YAML with its fields in their order and
// its numbers as they are written. (The YAML library reads numbers as floats and
// prints large amounts with an exponent, which no field named …_usd accepts.)
func yamlOfJSON(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	value, err := readOrdered(decoder)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	switch v := value.(type) {
	case object:
		writeYAML(&b, v, 0)
	case []any:
		writeYAML(&b, v, 0)
	default:
		b.WriteString(scalarYAML(v))
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

func readOrdered(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		return token, nil
	}
	var list []any
	var members object
	for decoder.More() {
		key := ""
		if delim == '{' {
			token, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			key = fmt.Sprint(token)
		}
		value, err := readOrdered(decoder)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
		members = append(members, member{key, value})
	}
	if _, err := decoder.Token(); err != nil && err != io.EOF {
		return nil, err
	}
	if delim == '{' {
		return members, nil
	}
	return list, nil
}

// writeYAML writes the members or items of a collection, each on lines of its own.
func writeYAML(b *bytes.Buffer, collection any, depth int) {
	indent := strings.Repeat("  ", depth)
	switch v := collection.(type) {
	case object:
		if len(v) == 0 {
			b.WriteString(indent + "{}\n")
		}
		for _, m := range v {
			b.WriteString(indent + plainOrQuoted(m.key) + ":")
			writeNested(b, m.value, depth)
		}
	case []any:
		if len(v) == 0 {
			b.WriteString(indent + "[]\n")
		}
		for _, item := range v {
			members, isObject := item.(object)
			if !isObject || len(members) == 0 {
				b.WriteString(indent + "-")
				writeNested(b, item, depth)
				continue
			}
			var inner bytes.Buffer
			writeYAML(&inner, members, depth+1)
			b.WriteString(indent + "- " + strings.TrimPrefix(inner.String(), indent+"  "))
		}
	}
}

// writeNested writes what follows "key:" or "-".
func writeNested(b *bytes.Buffer, value any, depth int) {
	switch v := value.(type) {
	case object:
		if len(v) > 0 {
			b.WriteByte('\n')
			writeYAML(b, v, depth+1)
			return
		}
		b.WriteString(" {}\n")
	case []any:
		if len(v) > 0 {
			b.WriteByte('\n')
			writeYAML(b, v, depth+1)
			return
		}
		b.WriteString(" []\n")
	default:
		b.WriteString(" " + scalarYAML(v) + "\n")
	}
}

func scalarYAML(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return plainOrQuoted(v)
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(value)
}

// plainText is what no YAML reader takes for anything but this text.
var plainText = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./@~+-]*$`)

// plainOrQuoted writes a text as it is where that is safe, else as a JSON string,
// which every YAML reader reads as the same text.
func plainOrQuoted(text string) string {
	switch strings.ToLower(text) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "~", ".inf", ".nan":
		return quotedYAML(text)
	}
	if plainText.MatchString(text) {
		return text
	}
	return quotedYAML(text)
}

func quotedYAML(text string) string {
	quoted, err := jsonText(text, "")
	if err != nil { // a string always encodes
		return `""`
	}
	return strings.TrimSpace(string(quoted))
}
