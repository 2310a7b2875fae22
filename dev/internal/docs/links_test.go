package docs

import (
	"strings"
	"testing"
)

func TestCheckLinks(t *testing.T) {
	t.Parallel()
	root := repositoryWith(t, map[string]string{
		"README.md":      "# Top\n",
		"docs/a.md":      "# Getting started: `go` & more\n\n## Same\n\n## Same\n\n```\n# not a heading\n```\n<a id=\"here\"></a>\n",
		"docs/image.png": "",
	})
	for name, tc := range map[string]struct{ text, want string }{
		"a file":                    {"[x](a.md) and ![y](image.png)", ""},
		"a folder":                  {"[x](..)", ""},
		"up":                        {"[x](../README.md#top)", ""},
		"with a title":              {`[x](a.md "A title")`, ""},
		"code as text":              {"[`x`](a.md)", ""},
		"a heading":                 {"[x](a.md#getting-started-go--more)", ""},
		"the second of two":         {"[x](a.md#same-1)", ""},
		"an explicit anchor":        {"[x](a.md#here)", ""},
		"the page itself":           {"# Own heading\n\n[x](#own-heading)", ""},
		"a line of a file":          {"[x](../go.mod#L3)", ""},
		"another site":              {"[x](https://example.com/a.md) <https://example.com> [m](mailto:a@example.com)", ""},
		"in code":                   {"`[x](gone.md)`\n```\n[x](gone.md)\n```\n", ""},
		"in a comment":              {"<!-- [x](gone.md) -->", ""},
		"no file":                   {"a\n\n[x](gone.md)", "line 3: the link to gone.md: docs/gone.md does not exist"},
		"no file behind a label":    {"[x]: gone.md", "docs/gone.md does not exist"},
		"no image":                  {`<img src="gone.png">`, "docs/gone.png does not exist"},
		"no heading":                {"[x](a.md#gone)", "docs/a.md has no heading for #gone"},
		"a heading in code":         {"[x](a.md#not-a-heading)", "has no heading for #not-a-heading"},
		"no heading here":           {"[x](#gone)", "docs/page.md has no heading for #gone"},
		"outside":                   {"[x](../../other.md)", "it is outside of the repository"},
		"from the root of a site":   {"[x](/docs/a.md)", "it starts with a slash"},
		"one right and one wrong":   {"[x](a.md) [y](gone.md)", "docs/gone.md does not exist"},
		"below a fenced block":      {"```\nx\n```\n[y](gone.md)", "line 4:"},
		"a heading with other case": {"[x](a.md#Same)", "no heading for #Same"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The page is written too, for links to itself.
			root := root
			if strings.Contains(tc.text, "](#") {
				root = repositoryWith(t, map[string]string{"docs/page.md": tc.text})
			}
			page, err := Parse(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			got := CheckLinks(root, "docs/page.md", page)
			if tc.want == "" {
				if len(got) > 0 {
					t.Errorf("refused, though it is right: %q", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tc.want) {
				t.Errorf("want one problem about %q, got %q", tc.want, got)
			}
		})
	}
}
