package server

import (
	"bytes"
	"html/template"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// docsTemplate is the page at /docs: one file, without a script, that loads nothing
// from anywhere.
var docsTemplate = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast API</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid; text-transform: capitalize; }
details { margin: .5rem 0; padding: .25rem .75rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: .4rem; }
summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; }
</style>
</head>
<body>
<h1>Holdfast API <small>{{.Version}}</small></h1>
<p>{{.Description}}</p>
<p>The same as a document for programs: <a href="/openapi.json">/openapi.json</a>. Send the token as <code>Authorization: Bearer hf_…</code>.</p>
{{range .Groups}}<h2 id="{{.Name}}">{{.Name}}</h2>
{{range .Routes}}<details id="{{.ID}}"><summary><code class="method">{{.Method}}</code> <code>{{.Path}}</code> &mdash; {{.Summary}}</summary>
<p>{{.Who}}</p>
{{if .Parameters}}<table><tr><th>Parameter</th><th>In</th><th></th></tr>
{{range .Parameters}}<tr><td><code>{{.Name}}</code></td><td>{{.In}}</td><td>{{.Text}}</td></tr>
{{end}}</table>{{end}}
{{if .Body}}<p>Body: <a href="#{{.Body}}"><code>{{.Body}}</code></a></p>{{end}}
<table><tr><th>Answer</th><th></th></tr>
{{range .Answers}}<tr><td><code>{{.Status}}</code></td><td>{{.Text}}{{if .Schema}} <a href="#{{.Schema}}"><code>{{.Schema}}</code></a>{{end}}</td></tr>
{{end}}</table></details>
{{end}}{{end}}
<h2 id="documents">documents</h2>
{{range .Schemas}}<details id="{{.Name}}"><summary><code>{{.Name}}</code></summary>
<table><tr><th>Field</th><th>Type</th><th></th></tr>
{{range .Fields}}<tr><td><code>{{.Name}}</code></td><td><code>{{.Type}}</code></td><td>{{.Text}}</td></tr>
{{end}}</table></details>
{{end}}
</body>
</html>
`))

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

// docsPage makes the page from the document, once.
func docsPage(doc *huma.OpenAPI, routes []route) []byte {
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
	if err := docsTemplate.Execute(&page, data); err != nil {
		panic("server: the docs page: " + err.Error())
	}
	return page.Bytes()
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
