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

const locationPath, bodyPath = "Location", "body"

// facts are what a response says, by place.
type facts map[string]string

func factsOf(r *ask.Response) facts {
	all := facts{}
	if location := r.Header.Get("Location"); location != "" {
		all[locationPath] = location
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.UseNumber()
	if decoder.Decode(&value) == nil {
		all.flatten("body", value)
	} else if len(r.Body) > 0 {
		all[bodyPath] = string(r.Body)
	}
	return all
}

func (all facts) flatten(path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			all.flatten(path+"."+name, member)
		}
	case []any:
		for i, member := range v {
			all.flatten(path+"."+strconv.Itoa(i), member)
		}
	default:
		all[path] = fmt.Sprint(v)
	}
}

// findIDs returns the places whose values differ between each two of the responses, which come from runs that differ in
// their key alone.
func findIDs(exchanges []ask.Exchange) (paths idPaths) {
	values := map[string]map[string]bool{} // by place
	for _, e := range exchanges {
		for path, value := range factsOf(e.Response) {
			if values[path] == nil {
				values[path] = map[string]bool{}
			}
			values[path][value] = true
		}
	}
	for path, different := range values {
		if len(different) > 1 && len(different) == len(exchanges) {
			paths = append(paths, path)
		}
	}
	return paths
}

// areIn reports whether the response has one of the places, so that a second run could be seen in it.
func (p idPaths) areIn(r *ask.Response) bool {
	common, _, _ := p.compare(factsOf(r), factsOf(r))
	return common > 0
}

// compare returns how many places of ids two responses have in common, how many of these have the same value, and whether
// one has the beginning of the other's body.
func (p idPaths) compare(a, b facts) (common, equal int, isCut bool) {
	for _, path := range p {
		x, ok := a[path]
		y, also := b[path]
		if !ok || !also {
			continue
		}
		common++
		if x == y {
			equal++
		}
		isCut = isCut || path == bodyPath && (strings.HasPrefix(x, y) || strings.HasPrefix(y, x))
	}
	return common, equal, isCut
}

// same reports whether two responses come from one run: they have places of ids in common, and every value there is the
// same. One of them may have lost the rest, such as its Location; a time alone may be the same in two runs.
func (p idPaths) same(a, b *ask.Response) bool {
	common, equal, _ := p.compare(factsOf(a), factsOf(b))
	return common > 0 && common == equal
}

// runs returns how many different runs the successes among the exchanges come from: two that have places of ids in common,
// and no value there is the same. A response without ids, such as an empty one, comes from no run that could be told.
func (p idPaths) runs(exchanges []ask.Exchange) int {
	var known []facts
	for _, e := range exchanges {
		if !e.Success() {
			continue
		}
		says := factsOf(e.Response)
		isKnown := func(k facts) bool {
			common, equal, isCut := p.compare(k, says)
			return common == 0 || equal > 0 || isCut
		}
		if !slices.ContainsFunc(known, isKnown) {
			known = append(known, says)
		}
	}
	return len(known)
}
