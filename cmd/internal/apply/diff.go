package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// policyView is a policy with its entries under their names, so that a diff speaks
// of the reservation of a bot and not of the third one. The order of reservations
// matters above a cap, so it is a value of its own.
func policyView(policy api.BudgetFloor) map[string]any {
	reservations, quotas := map[string]api.Reservation{}, map[string]api.RepoQuota{}
	order := []string{}
	for _, r := range policy.Reservations {
		holder := api.Identity{Bot: r.Bot, Tier: r.Tier, Team: r.Team}.String()
		reservations[holder] = r
		order = append(order, holder)
	}
	for _, q := range policy.RepoQuotas {
		quotas[q.Repo] = q
	}
	return map[string]any{"reservation": reservations, "quota": quotas, "order of reservations": order}
}

// diff lists the values in which two documents differ, by path. nil is no document.
func diff(from, to any) ([]Field, error) {
	before, err := flatten(from)
	if err != nil {
		return nil, err
	}
	after, err := flatten(to)
	if err != nil {
		return nil, err
	}
	var paths []string
	for path := range before {
		paths = append(paths, path)
	}
	for path := range after {
		if _, both := before[path]; !both {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	var fields []Field
	for _, path := range paths {
		if before[path] != after[path] {
			fields = append(fields, Field{path, before[path], after[path]})
		}
	}
	return fields, nil
}

// flatten is every value of a document by its path. A list is one value.
func flatten(v any) (map[string]string, error) {
	out := map[string]string{}
	if v == nil {
		return out, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	walk(tree, "", out)
	return out, nil
}

func walk(tree any, path string, out map[string]string) {
	switch v := tree.(type) {
	case map[string]any:
		for name, value := range v {
			inner := name
			if path != "" {
				inner = path + "." + name
			}
			walk(value, inner, out)
		}
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, scalar(item))
		}
		if len(items) > 0 {
			out[path] = "[" + strings.Join(items, ", ") + "]"
		}
	default:
		if text := scalar(v); text != `""` {
			out[path] = text
		}
	}
}

// scalar is one value as JSON writes it, which is also how the files write it.
func scalar(v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
