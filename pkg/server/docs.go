package server

import (
	"bytes"
	_ "embed" // for docs.html
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsText string

type docsGroup struct {
	Name   string
	Routes []docsRoute
}

type docsRoute struct {
	ID, Method, Path, Summary, Who, Body string
	Parameters                           []docsLine
	Answers                              []docsLine
}

// docsLine is a row of a table.
type docsLine struct{ Name, In, Type, Status, Schema, Text string }

type docsSchema struct {
	Name   string
	Fields []docsLine
}

// docsPage makes the page at /docs from the document, once: one file, without a
// script, that loads nothing from anywhere.
func docsPage(doc *huma.OpenAPI, routes []route) ([]byte, error) {
	data := struct {
		Version, Description string
		Groups               []docsGroup
		Schemas              []docsSchema
	}{Version: doc.Info.Version, Description: doc.Info.Description}
	for _, rt := range routes {
		i := slices.IndexFunc(data.Groups, func(g docsGroup) bool { return g.Name == rt.group })
		if i < 0 {
			i = len(data.Groups)
			data.Groups = append(data.Groups, docsGroup{Name: rt.group})
		}
		data.Groups[i].Routes = append(data.Groups[i].Routes, docsOf(doc, rt))
	}
	schemas := doc.Components.Schemas.Map()
	names := make([]string, 0, len(schemas))
	for name := range schemas {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		entry := docsSchema{Name: name}
		fields := make([]string, 0, len(schemas[name].Properties))
		for field := range schemas[name].Properties {
			fields = append(fields, field)
		}
		slices.Sort(fields)
		for _, field := range fields {
			property := schemas[name].Properties[field]
			text := property.Description
			if !slices.Contains(schemas[name].Required, field) {
				text = strings.TrimSpace("optional. " + text)
			}
			entry.Fields = append(entry.Fields, docsLine{Name: field, Type: typeWord(property), Text: text})
		}
		data.Schemas = append(data.Schemas, entry)
	}
	var page bytes.Buffer
	text, err := template.New("docs").Parse(docsText)
	if err == nil {
		err = text.Execute(&page, data)
	}
	if err != nil {
		return nil, fmt.Errorf("make the docs page: %w", err)
	}
	return page.Bytes(), nil
}

// operationOf finds a route's operation in the document.
func operationOf(doc *huma.OpenAPI, rt route) *huma.Operation {
	item := doc.Paths[rt.path]
	return map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete}[rt.method]
}

func docsOf(doc *huma.OpenAPI, rt route) docsRoute {
	operation := operationOf(doc, rt)
	out := docsRoute{ID: rt.id, Method: rt.method, Path: rt.path, Summary: rt.summary, Who: operation.Description}
	for _, p := range operation.Parameters {
		out.Parameters = append(out.Parameters, docsLine{Name: p.Name, In: p.In, Text: p.Description})
	}
	if operation.RequestBody != nil {
		out.Body = refName(operation.RequestBody.Content["application/json"].Schema)
	}
	statuses := make([]string, 0, len(operation.Responses))
	for status := range operation.Responses {
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	for _, status := range statuses {
		response := operation.Responses[status]
		line := docsLine{Status: status, Text: response.Description}
		for _, content := range response.Content {
			line.Schema = refName(content.Schema)
		}
		out.Answers = append(out.Answers, line)
	}
	return out
}

func refName(s *huma.Schema) string {
	if s == nil || s.Ref == "" {
		return ""
	}
	return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
}

func typeWord(s *huma.Schema) string {
	switch {
	case s.Ref != "":
		return refName(s)
	case s.Type == huma.TypeArray && s.Items != nil:
		return "list of " + typeWord(s.Items)
	case len(s.Enum) > 0:
		words := make([]string, 0, len(s.Enum))
		for _, word := range s.Enum {
			if text, ok := word.(string); ok {
				words = append(words, text)
			}
		}
		return strings.Join(words, " | ")
	case s.Format != "":
		return s.Format
	case len(s.OneOf) > 0:
		words := make([]string, 0, len(s.OneOf))
		for _, one := range s.OneOf {
			words = append(words, typeWord(one))
		}
		return strings.Join(words, " or ")
	}
	return s.Type
}
