package docs

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const program = `package main

func main() {
	// region greet
	if true {
		println("hello")

		println("again")
	}
	// endregion
}
`

// repositoryWith makes a small repository with a root module, examples and one other module.
func repositoryWith(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"go.mod": "", "examples/go.mod": "", "other/go.mod": "",
		"examples/hello/main.go": program, "wire/example_test.go": "package wire\n", "other/main.go": program,
		"examples/testdata/x.go": program, "examples/hello/ignored.go": "//go:build ignore\n\npackage main\n",
		"examples/hello/open.go": "package main\n// region a\n", "examples/hello/close.go": "package main\n// endregion\n",
		"examples/hello/x.yaml": "a: 1\n",
	}
	maps.Copy(all, files)
	for name, text := range all {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCheckCode(t *testing.T) {
	t.Parallel()
	region := "if true {\n\tprintln(\"hello\")\n\n\tprintln(\"again\")\n}\n"
	whole := strings.ReplaceAll(strings.ReplaceAll(program, "\t// region greet\n", ""), "\t// endregion\n", "")
	root := repositoryWith(t, nil)
	for name, tc := range map[string]struct{ marker, lang, text, want string }{
		"a region":              {"examples/hello/main.go#greet", "go", region, ""},
		"a whole file":          {"examples/hello/main.go", "go", whole, ""},
		"a test of the library": {"wire/example_test.go", "go", "package wire\n", ""},
		"another language":      {"examples/hello/x.yaml", "yaml", "a: 1\n", ""},
		"no Go":                 {"", "sh", "ls\n", ""},
		"no marker":             {"", "go", region, "line 2: a Go block must be code that is compiled"},
		"changed":               {"examples/hello/main.go#greet", "go", strings.ToUpper(region), `its line 1 is "IF TRUE {", the file has "if true {"`},
		"shorter":               {"examples/hello/main.go#greet", "go", "if true {\n", "it has 1 lines, the file has 5"},
		"no such region":        {"examples/hello/main.go#leave", "go", region, "it has no // region leave; its regions are: greet"},
		"no such file":          {"examples/gone.go", "go", region, "reading the file of a sample"},
		"outside":               {"../x.go", "go", region, "write a path from the repository's root"},
		"another module":        {"other/main.go", "go", whole, "in module other, whose packages make test does not compile"},
		"testdata":              {"examples/testdata/x.go", "go", whole, "in testdata, which the go command ignores"},
		"left out of the build": {"examples/hello/ignored.go", "go", "package main\n", "left out of the build"},
		"no Go file":            {"examples/hello/x.yaml", "go", "a: 1\n", "which is not a Go file"},
		"a region without end":  {"examples/hello/open.go", "go", "", "region a has no end"},
		"an end without region": {"examples/hello/close.go", "go", "", "an // endregion without a region"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			marker := "<!-- a note -->\n"
			if tc.marker != "" {
				marker = "<!-- code: " + tc.marker + " -->\n"
			}
			page, err := Parse(marker + "```" + tc.lang + "\n" + tc.text + "```\n")
			if err != nil {
				t.Fatal(err)
			}
			got := CheckCode(root, page)
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

func TestRewrite(t *testing.T) {
	t.Parallel()
	root := repositoryWith(t, nil)
	before := "# A\n\n<!-- code: examples/hello/main.go#greet -->\n```go\nold\n```\n\n- b\n\n" +
		"  <!-- code: wire/example_test.go -->\n  ```go\n  ```\n\n```sh\nls\n```\n"
	want := "# A\n\n<!-- code: examples/hello/main.go#greet -->\n```go\nif true {\n\tprintln(\"hello\")\n\n\tprintln(\"again\")\n}\n```\n\n- b\n\n" +
		"  <!-- code: wire/example_test.go -->\n  ```go\n  package wire\n  ```\n\n```sh\nls\n```\n"
	got, err := Rewrite(root, before)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	page, err := Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	if problems := CheckCode(root, page); len(problems) > 0 {
		t.Errorf("the rewritten page is refused: %q", problems)
	}
}
