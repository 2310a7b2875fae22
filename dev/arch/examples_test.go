package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamplesPassTheirLogger checks that the flags for logs (--log-level, --log-format, --log-hide) of an example have
// an effect: each of its Configs with a Logger has one. Examples without flags, and the demo, which prints, are left
// out.
func TestExamplesPassTheirLogger(t *testing.T) {
	t.Parallel()
	withoutFlags := map[string]bool{"podprinter": true, "small": true, "demo": true, "internal": true}
	checked := 0
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && withoutFlags[entry.Name()]:
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if !ok || !hasLogger(literal.Type) {
				return true
			}
			checked++
			for _, element := range literal.Elts {
				if field, ok := element.(*ast.KeyValueExpr); ok {
					if name, ok := field.Key.(*ast.Ident); ok && name.Name == "Logger" {
						return true
					}
				}
			}
			t.Errorf("%s: a Config without Logger", set.Position(literal.Pos()))
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 10 {
		t.Errorf("checked %d Configs: the test does not find them", checked)
	}
}

// hasLogger reports whether a literal's type is a Config that has a Logger which no other part of the program sets.
func hasLogger(typed ast.Expr) bool {
	if generic, ok := typed.(*ast.IndexExpr); ok {
		typed = generic.X
	}
	selector, ok := typed.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Config" {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && (pkg.Name == "controller" || pkg.Name == "informer" || pkg.Name == "client" || pkg.Name == "event" ||
		pkg.Name == "webhook")
}
