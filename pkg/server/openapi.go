package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// The OpenAPI document is made by huma from the types that the handlers decode and
// encode. huma does not serve the requests: its hooks for errors are variables of
// its package, and its validation loses the field of an error that a type's own
// decoding finds. silentAdapter is how it is told to describe only.
type silentAdapter struct{}

// Handle implements huma.Adapter: the route is served by the table of routes.
func (silentAdapter) Handle(*huma.Operation, func(huma.Context)) {}

// ServeHTTP implements huma.Adapter; nothing is routed to it.
func (silentAdapter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotFound)
}

// newDocument begins the OpenAPI document.
func newDocument(version string) huma.API {
	config := huma.DefaultConfig("Holdfast", version)
	config.CreateHooks, config.SchemasPath, config.DocsPath, config.OpenAPIPath = nil, "", "", ""
	config.Info.Description = "Reserved capacity for fleets of AI agents. Every answer that is not a success is application/problem+json."
	config.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer", Description: "a token as POST /api/teams/{team}/tokens shows it once, or the operator's"}}
	config.Security = []map[string][]string{{"bearer": {}}}
	registry := config.Components.Schemas
	for _, alias := range []struct{ of, as reflect.Type }{
		{reflect.TypeFor[holdfast.MicroUSD](), reflect.TypeFor[usdSchema]()},
		{reflect.TypeFor[holdfast.USDLimit](), reflect.TypeFor[usdLimitSchema]()},
		{reflect.TypeFor[holdfast.CountLimit](), reflect.TypeFor[countLimitSchema]()},
		{reflect.TypeFor[holdfast.Duration](), reflect.TypeFor[durationSchema]()},
	} {
		registry.RegisterTypeAlias(alias.of, alias.as)
	}
	return huma.NewAPI(config, silentAdapter{})
}

type (
	usdSchema        struct{}
	usdLimitSchema   struct{}
	countLimitSchema struct{}
	durationSchema   struct{}
)

func usdKinds() []*huma.Schema {
	least, most := 0.0, float64(holdfast.MaxUSD/holdfast.OneUSD)
	return []*huma.Schema{
		{Type: huma.TypeNumber, Minimum: &least, Maximum: &most},
		{Type: huma.TypeString, Pattern: `^[0-9]+(\.[0-9]{1,6})?$`},
	}
}

// Schema implements huma.SchemaProvider.
func (usdSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "US dollars with at most 6 decimals; a number, or a decimal string", OneOf: usdKinds()}
}

// Schema implements huma.SchemaProvider.
func (usdLimitSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "US dollars, or null for unlimited; absent inherits the default, 0 lets nothing launch", OneOf: append(usdKinds(), &huma.Schema{Type: "null"})}
}

// Schema implements huma.SchemaProvider.
func (countLimitSchema) Schema(huma.Registry) *huma.Schema {
	least, most := 0.0, float64(holdfast.MaxSlots)
	return &huma.Schema{
		Description: "a whole number, or null for unlimited; absent inherits the default, 0 lets nothing launch",
		OneOf:       []*huma.Schema{{Type: huma.TypeInteger, Minimum: &least, Maximum: &most}, {Type: "null"}},
	}
}

// Schema implements huma.SchemaProvider.
func (durationSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "such as 30s, 15m or 2h"}
}

// document writes a route into the OpenAPI document.
func document[I, O any](s *Server, rt route) {
	type output struct{ Body O }
	operation := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Summary: rt.summary,
		Tags: []string{rt.group}, DefaultStatus: rt.status, Responses: map[string]*huma.Response{},
		Description: "Who may call it: " + rt.who.String() + ".",
	}
	problem := s.document.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
	for _, status := range problemStatuses(rt) {
		operation.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content:     map[string]*huma.MediaType{api.ProblemType: {Schema: problem}},
		}
	}
	if rt.writes() {
		operation.Parameters = append(operation.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Description: "the same key and body again within 24 h is answered with the first acceptance",
			Schema: &huma.Schema{Type: huma.TypeString, MaxLength: ptr(maxKey)},
		})
	}
	switch {
	case rt.text != "":
		operation.Responses["200"] = &huma.Response{Description: "OK", Content: map[string]*huma.MediaType{rt.text: {Schema: &huma.Schema{Type: huma.TypeString}}}}
		huma.Register(s.document, operation, func(context.Context, *I) (*struct{}, error) { return &struct{}{}, nil })
	case reflect.TypeFor[O]() == reflect.TypeFor[done]():
		operation.DefaultStatus = http.StatusNoContent
		huma.Register(s.document, operation, func(context.Context, *I) (*struct{}, error) { return &struct{}{}, nil })
	default:
		huma.Register(s.document, operation, func(context.Context, *I) (*output, error) { return &output{}, nil })
		for _, status := range rt.also {
			operation.Responses[strconv.Itoa(status)] = &huma.Response{
				Description: http.StatusText(status),
				Content:     operation.Responses[strconv.Itoa(rt.status)].Content,
			}
		}
	}
}

func problemStatuses(rt route) []int {
	statuses := append([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError, http.StatusServiceUnavailable}, rt.problems...)
	if rt.writes() {
		statuses = append(statuses, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
	}
	slices.Sort(statuses)
	return slices.Compact(statuses)
}

func ptr[T any](v T) *T { return &v }

// reference is what the server says of itself.
type reference struct{ openapi, docs []byte }

// describe encodes the document and the page, once: they are the same text at every
// request.
func (s *Server) describe() (reference, error) {
	delete(s.document.OpenAPI().Components.Schemas.Map(), "ErrorModel") // huma's own, which nothing here answers
	delete(s.document.OpenAPI().Components.Schemas.Map(), "ErrorDetail")
	allowNull(s.document.OpenAPI().Components.Schemas)
	text, err := json.Marshal(s.document.OpenAPI())
	if err != nil {
		return reference{}, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	page, err := docsPage(s.document.OpenAPI(), s.routes)
	return reference{text, page}, err
}

// allowNull writes into the document what huma does not: a pointer that is always
// there is null when it points at nothing.
func allowNull(registry huma.Registry) {
	for name, schema := range registry.Map() {
		t := registry.TypeFromRef("#/components/schemas/" + name)
		if t == nil || t.Kind() != reflect.Struct {
			continue
		}
		for name, field := range fieldsOf(t).byName {
			property := schema.Properties[name]
			if field.optional || t.FieldByIndex(field.index).Type.Kind() != reflect.Pointer || property == nil {
				continue
			}
			if len(property.OneOf) > 0 {
				property.OneOf = append(property.OneOf, &huma.Schema{Type: "null"})
			}
			if property.Ref == "" {
				continue
			}
			schema.Properties[name] = &huma.Schema{
				Description: field.tag.Get("doc"),
				OneOf:       []*huma.Schema{{Ref: property.Ref}, {Type: "null"}},
			}
		}
	}
}

// pathOrder sorts routes as people look for them.
func pathOrder(a, b route) int {
	if c := strings.Compare(a.path, b.path); c != 0 {
		return c
	}
	return strings.Compare(a.method, b.method)
}
