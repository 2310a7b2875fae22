package docs

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExamplesUseFewNames limits what examples need of the library: the second step after a first controller must stay
// small. TestPages compares the table of the page, which has the counts, with the examples.
func TestExamplesUseFewNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "comparison.md"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(page.Blocks, func(b Block) bool { return len(b.Marked("uses")) == 1 })
	if i < 0 {
		t.Fatal("docs/comparison.md has no block with a uses marker")
	}
	programs, err := ParsePrograms(page.Blocks[i].Marked("uses")[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []struct {
		title, paths         string
		names, fields, lines int
	}{
		{"manager", "examples/manager", 6, 4, 30},
		{"webhook/small", "examples/webhook/small", 8, 5, 36},
		{"webapp without its webhooks", "examples/webapp/main.go examples/webapp/config examples/webapp/operator", 16, 10, 260},
		{"webapp", "examples/webapp", 30, 20, 430},
	} {
		program := Program{Title: limit.title, Paths: strings.Fields(limit.paths)}
		if !slices.ContainsFunc(programs, func(p Program) bool { return cmp.Equal(p, program) }) {
			t.Errorf("the uses marker of docs/comparison.md lacks %s = %s", limit.title, limit.paths)
			continue
		}
		var names, packages, fields, lines int
		for line := range strings.Lines(page.Blocks[i].Text) {
			if figures, ok := strings.CutSuffix(line, "  "+limit.title+"\n"); ok {
				if _, err := fmt.Sscan(figures, &names, &packages, &fields, &lines); err != nil {
					t.Errorf("line %q: %v", line, err)
				}
			}
		}
		if names > limit.names || fields > limit.fields || lines > limit.lines || names == 0 {
			uses, err := CountUses(repository, []Program{program})
			t.Errorf("%s uses %d names, %d fields and has %d lines of code, at most %d, %d, %d are allowed: %+v, %v",
				limit.title, names, fields, lines, limit.names, limit.fields, limit.lines, uses, err)
		}
	}
}

// main and run of an operator have at most 25 lines of code.
func TestMainOfOperatorStaysSmall(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "examples", "webapp", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	file, err := goparser.ParseFile(set, "main.go", text, goparser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	functions := "package main\n"
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			functions += string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset]) + "\n"
		}
	}
	if lines, err := CountLines("main.go", []byte(functions)); err != nil || lines-1 > 25 {
		t.Errorf("main and run of examples/webapp have %d lines of code, at most 25 are allowed (%v)", lines-1, err)
	}
}

// A name counts wherever it is written, and each once: functions, types, methods of embedded and of generic types,
// fields of literals with and without their names, of elided literals, and in assignments.
func TestCountUses(t *testing.T) {
	t.Parallel()
	dir := writeModules(t)
	program := Program{Title: "program", Paths: []string{"program/main.go", "program/part"}}
	uses, err := CountUses(dir, []Program{program, {Title: "main", Paths: []string{"program/main.go"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Uses{
		{
			Title: "program", Packages: 2, Lines: 31,
			Names:  []string{"*lib.Box[T].Get", "inner.Deep.Dive", "lib.Box", "lib.Default", "lib.Named", "lib.New", "lib.Pair"},
			Fields: []string{"inner.Level", "lib.A", "lib.B", "lib.Content", "lib.Name"},
		},
		{
			Title: "main", Packages: 2, Lines: 21,
			Names:  []string{"*lib.Box[T].Get", "inner.Deep.Dive", "lib.Box", "lib.New", "lib.Pair"},
			Fields: []string{"inner.Level", "lib.A", "lib.B", "lib.Content"},
		},
	}
	if diff := cmp.Diff(want, uses); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
}

// The line of a program in a module that make test does not compile is kept.
func TestUsesTableKeepsLines(t *testing.T) {
	t.Parallel()
	dir := writeModules(t)
	programs := []Program{{Title: "theirs", Paths: []string{"program/main.go"}}}
	const text = "names  packages  fields  lines\n    7         2       3     40  theirs\n"
	got, err := UsesTable(dir, programs, text, false)
	if err != nil || got != text {
		t.Errorf("the table is\n%s, %v", got, err)
	}
	if got, err = UsesTable(dir, programs, text, true); err != nil || !strings.HasSuffix(got, "\n    5         2       4     21  theirs\n") {
		t.Errorf("the table with all is\n%s, %v", got, err)
	}
	if _, err := UsesTable(dir, programs, "", false); err == nil || !strings.Contains(err.Error(), "EVENKEEL_LONG=1 make docs") {
		t.Errorf("without its line: %v", err)
	}
}

// writeModules writes a library with the name of Even Keel, and a program in folder program.
func writeModules(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"lib/go.mod": "module github.com/evenkeel-go/evenkeel\n\ngo 1.26.0\n",
		"lib/lib.go": `package lib

import "github.com/evenkeel-go/evenkeel/inner"

type Box[T any] struct {
	inner.Deep
	Content T
	Unused  int
}

func (b *Box[T]) Get() T { return b.Content }

type Pair struct{ A, B int }

type Named struct{ Name string }

const Default = 1

func New() *Box[int] { return &Box[int]{} }
`,
		"lib/inner/inner.go": "package inner\n\ntype Deep struct{ Level int }\n\nfunc (Deep) Dive() {}\n",
		"program/go.mod": "module example.com/program\n\ngo 1.26.0\n\nrequire github.com/evenkeel-go/evenkeel v0.0.0\n\n" +
			"replace github.com/evenkeel-go/evenkeel => ../lib\n",
		"program/main.go": `package main

import (
	"fmt"

	lib "github.com/evenkeel-go/evenkeel"

	"example.com/program/part"
)

// Own is not counted, nor is lib.Unused in a comment.
type Own struct{ *lib.Box[string] }

func main() {
	own := Own{Box: &lib.Box[string]{Content: "a"}}
	own.Dive()
	fmt.Println(own.Get(), lib.New().Get(), lib.New().Level)

	for _, pair := range []*lib.Pair{{A: 1}, {2, 3}} {
		pair.A = 4
		fmt.Println(pair.B)
	}
	pairs := map[string]lib.Pair{"a": {1, 2}}
	if part.Called(len(pairs)) {
		return
	}
	fmt.Println(pairs)
}
`,
		"program/part/part.go": `package part

import lib "github.com/evenkeel-go/evenkeel"

func Called(n int) bool {
	named := []lib.Named{{Name: "a"}}
	if n > lib.Default {
		return true
	}
	named[0].Name = "b"
	return len(named[0].Name) > n
}
`,
		"program/part/part_test.go": "package part\n\nimport lib \"github.com/evenkeel-go/evenkeel\"\n\nvar _ = lib.Box[int]{Unused: 1}\n",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
