package system_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// pages returns the Markdown files of the root and of docs, and llms.txt, which is Markdown too.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "llms.txt"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			names = append(names, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
		}
	}
	return names
}

// Every relative link and picture of a page leads to a file or a folder, and its anchor to a heading there.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"\s]+)"`)
	checked := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(withoutCode(readPage(t, page)), -1) {
			target := m[1] + m[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(target, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
				t.Errorf("%s: %s: %v", page, target, err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(readPage(t, file)), anchor) {
				t.Errorf("%s: %s has no heading for #%s", page, file, anchor)
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d links found, want more", checked)
	}
}

// llms.txt names every page and every package.
func TestMachinesFindEverything(t *testing.T) {
	t.Parallel()
	index := readPage(t, "llms.txt")
	for _, page := range pages(t) {
		if page != "llms.txt" && !strings.Contains(index, "]("+page+")") {
			t.Errorf("llms.txt does not name %s", page)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^pkg ([^,]+),`).FindAllStringSubmatch(readPage(t, "api.txt"), -1) {
		if !strings.Contains(index, "`"+m[1]+"`") {
			t.Errorf("llms.txt does not name package %s", m[1])
		}
	}
}

// withoutCode takes out blocks of code, where brackets are no links.
func withoutCode(page string) string {
	return regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(page, "")
}

// anchors returns what GitHub makes of a page's headings: lower case, spaces as hyphens, without other punctuation. A
// heading that occurs again would get a number; no page links to one.
func anchors(page string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutCode(page), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		names = append(names, name)
	}
	return names
}
