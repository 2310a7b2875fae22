package section

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns is the maximum length of a line of prose in the documents.
const columns = 120

var listItem = regexp.MustCompile(`^([-*]|\d+\.) `)

// Wrap wraps the paragraphs and list items of a Markdown text at 120 columns. Tables, headings, images, comments and
// code blocks keep their lines.
func Wrap(text string) string {
	var b strings.Builder
	var words []string
	indent := ""
	flush := func() {
		line := 0
		for i, word := range words {
			n := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case line+1+n > columns:
				b.WriteString("\n" + indent)
				line = len(indent)
			default:
				b.WriteByte(' ')
				line++
			}
			b.WriteString(word)
			line += n
		}
		if len(words) > 0 {
			b.WriteByte('\n')
		}
		words, indent = nil, ""
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		fence := strings.HasPrefix(line, "```")
		if code || fence || line == "" || strings.ContainsRune("|#!<", rune(line[0])) {
			flush()
			b.WriteString(line + "\n")
			code = code != fence
			continue
		}
		if marker := listItem.FindString(line); marker != "" {
			flush()
			indent = strings.Repeat(" ", len(marker))
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return b.String()
}
