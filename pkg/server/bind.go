package server

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
)

// maxParameter is the longest path segment, query parameter or header that is read,
// in bytes. Cursors are the longest of them.
const maxParameter = 4096

// bind fills the input of a handler: fields tagged `path` and `query` from the URL,
// and the field Body from the request's body. It refuses query parameters that the
// route does not have, and those that come twice.
func bind(r *http.Request, body []byte, input any) error {
	v := reflect.ValueOf(input).Elem()
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query", "the query cannot be read", "name=value pairs, percent-encoded")
	}
	known := map[string]bool{}
	var bad badRequest
	for _, field := range reflect.VisibleFields(v.Type()) {
		if name := field.Tag.Get("path"); name != "" {
			bad = append(bad, setParameter(name, r.PathValue(name), v.FieldByIndex(field.Index), field.Tag)...)
		}
		name := field.Tag.Get("query")
		if name == "" {
			continue
		}
		known[name] = true
		switch values := query[name]; {
		case len(values) == 0 && field.Tag.Get("required") == "true":
			bad = append(bad, holdfast.InvalidError{Field: name, Problem: "the parameter is required"})
		case len(values) > 1:
			bad = append(bad, holdfast.InvalidError{Field: name, Problem: "the parameter comes more than once", Allowed: "once"})
		case len(values) == 1 && values[0] != "":
			bad = append(bad, setParameter(name, values[0], v.FieldByIndex(field.Index), field.Tag)...)
		}
	}
	bad = append(bad, unknownParameters(query, known)...)
	if len(bad) > 0 {
		return bad[:min(len(bad), maxFieldErrors)]
	}
	if target := v.FieldByName("Body"); target.IsValid() {
		return decodeBody(body, target.Addr().Interface())
	}
	return nil
}

func unknownParameters(query url.Values, known map[string]bool) badRequest {
	var bad badRequest
	allowed := make([]string, 0, len(known))
	for name := range known {
		allowed = append(allowed, name)
	}
	sort.Strings(allowed)
	for name := range query {
		if !known[name] {
			bad = append(bad, holdfast.InvalidError{Field: cmp.Or(holdfast.Clip(name, 60), "query"), Problem: "there is no such parameter", Allowed: "one of: " + strings.Join(allowed, ", ")})
		}
	}
	sort.Slice(bad, func(i, j int) bool { return bad[i].Field < bad[j].Field })
	return bad
}

// setParameter sets one field from the URL's text.
func setParameter(name, text string, v reflect.Value, tag reflect.StructTag) badRequest {
	one := func(problem, allowed string) badRequest {
		return badRequest{{Field: name, Problem: problem, Allowed: allowed}}
	}
	if len(text) > maxParameter || !utf8.ValidString(text) || strings.ContainsFunc(text, holdfast.IsControl) {
		return one("it is too long or holds control characters", fmt.Sprintf("at most %d bytes of text", maxParameter))
	}
	if custom, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d := decoder{}
		d.custom(name, textProblem(v, text, custom.UnmarshalText([]byte(text))))
		return d.bad
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		d := decoder{}
		d.limits(name, text, tag)
		return d.bad
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return one(fmt.Sprintf("%q is neither true nor false", holdfast.Clip(text, 40)), "true or false")
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		least, most := tagNumber(tag, "minimum", 0), tagNumber(tag, "maximum", 1<<31-1)
		if err != nil || n < least || n > most {
			return one(fmt.Sprintf("%q is not such a number", holdfast.Clip(text, 40)), fmt.Sprintf("a whole number from %d to %d", least, most))
		}
		v.SetInt(n)
	default:
		panic("server: a parameter of kind " + v.Kind().String())
	}
	return nil
}

func tagNumber(tag reflect.StructTag, name string, fallback int64) int64 {
	n, err := strconv.ParseInt(tag.Get(name), 10, 64)
	if err != nil {
		return fallback
	}
	return n
}

// readBody reads a request's body up to the limit.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		base, _, _ := strings.Cut(kind, ";")
		if base = strings.ToLower(strings.TrimSpace(base)); base != "application/json" && !strings.HasSuffix(base, "+json") {
			f := fail(http.StatusUnsupportedMediaType, "media_type", fmt.Sprintf("the body is %q", holdfast.Clip(kind, 60)))
			f.problem.Errors = append(f.problem.Errors, fieldError("Content-Type", "the body is not declared as JSON", "application/json"))
			return nil, f
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		f := fail(http.StatusUnsupportedMediaType, "media_type", fmt.Sprintf("the body is encoded as %q", holdfast.Clip(coding, 60)))
		f.problem.Errors = append(f.problem.Errors, fieldError("Content-Encoding", "the body is encoded", "identity, or leave the header out"))
		return nil, f
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLong *http.MaxBytesError
	switch {
	case err == nil:
		return text, nil
	case errors.As(err, &tooLong):
		return nil, tooLong
	}
	return nil, invalid("body", "the body could not be read to its end", "a complete body")
}
