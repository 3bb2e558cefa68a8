package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/holdfast-io/holdfast"
)

// parseFile reads a file of `key: value` lines. Keys may be written with dashes or
// underscores. Unknown and repeated keys, those of another process, and anything
// nested, are refused with their line.
func parseFile(p Process, path string, text []byte) (map[string]value, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, yamlError(p, path, err)
	}
	layer := map[string]value{}
	for _, doc := range file.Docs {
		switch body := doc.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode:
		case *ast.MappingNode:
			for _, pair := range body.Values {
				if err := addPair(p, layer, path, pair); err != nil {
					return nil, err
				}
			}
		case *ast.MappingValueNode:
			if err := addPair(p, layer, path, body); err != nil {
				return nil, err
			}
		default:
			return nil, &holdfast.InvalidError{Field: path, Problem: "the file is not a list of settings", Allowed: "lines of key: value with the keys " + keys(p)}
		}
	}
	return layer, nil
}

func addPair(p Process, layer map[string]value, path string, pair *ast.MappingValueNode) error {
	token := pair.Key.GetToken()
	place := fmt.Sprintf("%s line %d", path, token.Position.Line)
	key := strings.ReplaceAll(token.Value, "_", "-")
	known := slices.ContainsFunc(Of(p), func(s Setting) bool { return s.Key == key })
	if !known {
		return &holdfast.InvalidError{Field: place, Problem: quoted(token.Value) + " is not a setting", Allowed: keys(p)}
	}
	if _, repeated := layer[key]; repeated {
		return &holdfast.InvalidError{Field: place, Problem: quoted(key) + " stands there twice", Allowed: "each setting once"}
	}
	if _, scalar := pair.Value.(ast.ScalarNode); !scalar {
		return &holdfast.InvalidError{Field: place, Problem: quoted(key) + " is not a plain value", Allowed: "one number, text or duration"}
	}
	layer[key] = value{pair.Value.GetToken().Value, place + " (" + key + ")"}
	return nil
}

func keys(p Process) string {
	var names []string
	for _, setting := range Of(p) {
		names = append(names, setting.Key)
	}
	return strings.Join(names, ", ")
}

// yamlError is the YAML library's complaint on one line, with the place.
func yamlError(p Process, path string, err error) error {
	place, problem := path, "the file is not YAML"
	var located yaml.Error
	if errors.As(err, &located) {
		problem = located.GetMessage()
		if token := located.GetToken(); token != nil {
			place = fmt.Sprintf("%s line %d", path, token.Position.Line)
		}
	}
	return &holdfast.InvalidError{Field: place, Problem: holdfast.Clip(problem, 200), Allowed: "lines of key: value with the keys " + keys(p)}
}
