package section

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSet(t *testing.T) {
	t.Parallel()
	const a, b = "<!-- begin: a -->\none\n<!-- end: a -->\n", "<!-- begin: b -->\ntwo\n<!-- end: b -->\n"
	for name, test := range map[string]struct{ document, want string }{
		"document without the section":  {"# Title\n", "# Title\n\n<!-- begin: a -->\nnew\n<!-- end: a -->\n"},
		"section in the middle":         {"# Title\n" + a + "rest\n", "# Title\n<!-- begin: a -->\nnew\n<!-- end: a -->\nrest\n"},
		"two sections":                  {a + b, "<!-- begin: a -->\nnew\n<!-- end: a -->\n" + b},
		"section without its end":       {"<!-- begin: a -->\none\n", "<!-- begin: a -->\none\n\n<!-- begin: a -->\nnew\n<!-- end: a -->\n"},
		"content with blanks around it": {"<!-- begin: a -->\n\n\none\n\n<!-- end: a -->\n", "<!-- begin: a -->\nnew\n<!-- end: a -->\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, Set(test.document, "a", "\nnew\n\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := Get("before\n"+a+b, "b"); got != b {
		t.Errorf("section b is %q", got)
	}
	if got := Get(a, "b"); got != "" {
		t.Errorf("a section that does not exist is %q", got)
	}
}
