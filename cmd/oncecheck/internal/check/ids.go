package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// idPaths are the places in a response whose values differ from run to run: members of a JSON body, the Location, or the
// whole of a body that is not JSON.
type idPaths []string

const (
	locationPath = "Location"
	bodyPath     = "body"
)

// facts returns what a response says, by place.
func facts(r *ask.Response) map[string]string {
	all := map[string]string{}
	if location := r.Header.Get("Location"); location != "" {
		all[locationPath] = location
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.UseNumber()
	if decoder.Decode(&value) == nil {
		flatten(all, "body", value)
	} else if len(r.Body) > 0 {
		all[bodyPath] = string(r.Body)
	}
	return all
}

func flatten(into map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			flatten(into, path+"."+name, member)
		}
	case []any:
		for i, member := range v {
			flatten(into, path+"."+strconv.Itoa(i), member)
		}
	default:
		into[path] = fmt.Sprint(v)
	}
}

// findIDs returns the places whose values differ between each two of the responses, which come from runs that differ in
// their key alone.
func findIDs(responses []*ask.Response) (paths idPaths) {
	if len(responses) < 2 {
		return nil
	}
	var all []map[string]string
	for _, r := range responses {
		all = append(all, facts(r))
	}
	for path := range all[0] {
		values := map[string]bool{}
		for _, says := range all {
			if value, ok := says[path]; ok {
				values[value] = true
			}
		}
		if len(values) == len(responses) {
			paths = append(paths, path)
		}
	}
	return paths
}

// isID reports whether a place has an id by its name.
func isID(path string) bool {
	lower := strings.ToLower(path)
	return path == locationPath || strings.HasSuffix(lower, "id") || strings.HasSuffix(lower, "number")
}

// echoes reports whether the place has what the request had, so that it is no id of the run.
func echoes(path string, responses []*ask.Response, of []ask.Operation) bool {
	for i, r := range responses {
		value := facts(r)[path]
		if strings.Contains(value, strconv.FormatInt(of[i].N, 10)) || strings.Contains(value, of[i].UUID) || strings.Contains(value, of[i].Key) {
			return true
		}
	}
	return false
}

// areIn reports whether the response has one of the places, so that a second run could be seen in it.
func (p idPaths) areIn(r *ask.Response) bool {
	says := facts(r)
	return slices.ContainsFunc(p, func(path string) bool { _, ok := says[path]; return ok })
}

// inJSON returns the places that are members of a JSON body.
func (p idPaths) inJSON() idPaths {
	return slices.DeleteFunc(slices.Clone(p), func(path string) bool { return path == locationPath || path == bodyPath })
}

// differ reports whether the facts of two responses come from two runs: they have places of ids in common, and no value
// there is the same. A response without ids, such as an empty one, comes from no run that could be told.
func (p idPaths) differ(a, b map[string]string) bool {
	common := false
	for _, path := range p {
		x, ok := a[path]
		y, also := b[path]
		switch {
		case !ok || !also:
		case x == y, path == bodyPath && (strings.HasPrefix(x, y) || strings.HasPrefix(y, x)): // one of them is cut
			return false
		default:
			common = true
		}
	}
	return common
}

// same reports whether two responses come from one run: they have places of ids in common, and every value there is the
// same. One of them may have lost the rest, such as its Location; a time alone may be the same in two runs.
func (p idPaths) same(a, b *ask.Response) bool {
	one, other := facts(a), facts(b)
	common := false
	for _, path := range p {
		x, ok := one[path]
		y, also := other[path]
		if !ok || !also {
			continue
		}
		if x != y {
			return false
		}
		common = true
	}
	return common
}

// runs returns how many different runs the successes among the exchanges come from.
func (p idPaths) runs(exchanges []ask.Exchange) int {
	var known []map[string]string
	for _, e := range exchanges {
		if !e.Success() {
			continue
		}
		says := facts(e.Response)
		if !slices.ContainsFunc(known, func(k map[string]string) bool { return !p.differ(k, says) }) {
			known = append(known, says)
		}
	}
	return len(known)
}
