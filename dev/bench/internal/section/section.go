// Package section reads and replaces generated parts of a document that several programs write, and wraps its prose.
package section

import "strings"

// Operator names the section of `make bench-operator` in docs/reference/benchmarks.md.
const Operator = "bench-operator"

// Webhooks names the section of `make bench-webhooks` in docs/reference/benchmarks.md.
const Webhooks = "bench-webhooks"

func begin(name string) string { return "<!-- begin: " + name + " -->\n" }
func end(name string) string   { return "<!-- end: " + name + " -->\n" }

// Cut returns the document without the sections of other programs, and these sections.
func Cut(document string) (rest, sections string) {
	rest = document
	for _, name := range []string{Operator, Webhooks} {
		if text := Get(rest, name); text != "" {
			rest = strings.Replace(rest, "\n"+text, "", 1)
			sections += "\n" + text
		}
	}
	return rest, sections
}

// Get returns the section with its two markers, or "" when the document has no such section.
func Get(document, name string) string {
	from, to, found := find(document, name)
	if !found {
		return ""
	}
	return document[from:to]
}

// Set returns the document with the text in place of the section's content. A document without the section gets it at
// its end. The text between other markers, and outside of markers, is kept.
func Set(document, name, text string) string {
	section := begin(name) + strings.TrimSpace(text) + "\n" + end(name)
	from, to, found := find(document, name)
	if !found {
		return strings.TrimRight(document, "\n") + "\n\n" + section
	}
	return document[:from] + section + document[to:]
}

func find(document, name string) (from, to int, found bool) {
	from = strings.Index(document, begin(name))
	if from < 0 {
		return 0, 0, false
	}
	length := strings.Index(document[from:], end(name))
	if length < 0 {
		return 0, 0, false
	}
	return from, from + length + len(end(name)), true
}
