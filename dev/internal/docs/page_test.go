package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want []Block
	}{
		"prose": {"hello `code`\n<!-- a note: nothing -->\n", nil},
		"a block with markers": {
			"a\n\n<!-- file: main.go -->\n<!-- code: x/y.go#z -->\n```go title\nx\n\n```\n",
			[]Block{{Line: 5, Lang: "go", Text: "x\n\n", Markers: []Marker{{3, "file", "main.go"}, {4, "code", "x/y.go#z"}}}},
		},
		"in a list":              {"- a\n\n  ```sh\n  x\n    y\n  ```\n", []Block{{Line: 3, Lang: "sh", Text: "x\n  y\n"}}},
		"a fence inside a block": {"````md\n```go\n```\n````\n", []Block{{Line: 1, Lang: "md", Text: "```go\n```\n"}}},
		"tildes":                 {"~~~\n```\n~~~~\n", []Block{{Line: 1, Text: "```\n"}}},
		"inside a comment":       {"<!-- not shown\n```go\n```\n-->\n```\n```\n", []Block{{Line: 5}}},
		"inline backticks":       {"```not a fence``` here\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := Parse(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, page.Blocks, cmpopts.IgnoreUnexported(Block{})); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			if got, want := len(page.prose), strings.Count(tc.text, "\n")+1; got != want {
				t.Errorf("%d lines of prose for a page of %d: line numbers are wrong", got, want)
			}
		})
	}
}

func TestParseRejectsInvalidPages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"a block without an end":      {"a\n```go\nx\n", "line 2: the block is not closed"},
		"a marker away from a block":  {"<!-- run: no, x -->\n\n```sh\n```\n", "line 1: the marker \"run\" is not directly above"},
		"a marker at the page's end":  {"```\n```\n<!-- code: x.go -->", "line 3: the marker \"code\" is not directly above"},
		"a marker above another note": {"<!-- file: x -->\n<!-- hm -->\n```\n```\n", "line 1: the marker \"file\" is not directly above"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Parse(tc.text); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("want an error %q, got %v", tc.want, err)
			}
		})
	}
}
