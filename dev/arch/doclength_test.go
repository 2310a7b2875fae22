package arch

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// The limits of documentation in lines: a declaration's comment in the source, and what go doc prints for a package, on
// two screens.
const (
	maxComment = 25
	maxPackage = 100
)

func TestDocumentationIsShort(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		name := relative(p.ImportPath)
		if !isLibrary(name) || p.Name == "main" {
			continue
		}
		set := token.NewFileSet()
		var files []*ast.File
		for path, text := range sourcesOf(t, name) {
			file, err := parser.ParseFile(set, path, text, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, comment := range file.Comments {
				lines := set.Position(comment.End()).Line - set.Position(comment.Pos()).Line + 1
				if lines > maxComment && comment != file.Doc {
					t.Errorf("%s: a comment has %d lines, want at most %d: split it, or delete repetitions",
						set.Position(comment.Pos()), lines, maxComment)
				}
			}
			files = append(files, file)
		}
		documented, err := doc.NewFromFiles(set, files, p.ImportPath)
		if err != nil {
			t.Fatal(err)
		}
		if lines := summaryLines(documented); lines > maxPackage {
			t.Errorf("go doc prints about %d lines for package %s, want at most %d: shorten the package's comment", lines, name, maxPackage)
		}
	}
}

// summaryLines returns the number of lines that go doc prints for a package.
func summaryLines(p *doc.Package) int {
	printer := p.Printer()
	printer.TextWidth = 80
	lines := 2 + strings.Count(string(printer.Text(p.Parser().Parse(p.Doc))), "\n") + 1
	lines += len(p.Consts) + len(p.Vars) + len(p.Funcs)
	for _, t := range p.Types {
		lines += 1 + len(t.Funcs) + len(t.Consts) + len(t.Vars)
	}
	return lines
}
