package section

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 24) // 119 columns without the last blank
	for name, test := range map[string]struct{ text, want string }{
		"short lines are joined":      {"one\ntwo\n\nthree\n", "one two\n\nthree\n"},
		"a paragraph":                 {long + "end\n", strings.TrimSpace(long) + "\nend\n"},
		"a list item":                 {"- " + long + "\n  end\n- next\n", "- " + strings.Repeat("word ", 22) + "word\n  word end\n- next\n"},
		"a numbered item":             {"1. " + long + "\n", "1. " + strings.Repeat("word ", 22) + "word\n   word\n"},
		"bold text is no list item":   {"text\n**bold** text\n", "text **bold** text\n"},
		"tables and headings stay":    {"# " + long + "\n| " + long + "|\n", "# " + long + "\n| " + long + "|\n"},
		"code stays":                  {"```\na\n  b\n```\nc\nd\n", "```\na\n  b\n```\nc d\n"},
		"columns are characters":      {strings.Repeat("µ", 118) + " a b\n", strings.Repeat("µ", 118) + " a\nb\n"},
		"a word longer than the line": {strings.Repeat("a", 130) + " b\n", strings.Repeat("a", 130) + "\nb\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, Wrap(test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
