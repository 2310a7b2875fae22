package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// checkFile returns the problems of a Go file, one sentence each. name is its path in the module. The rules:
//
//   - No init: importing a package has no effect.
//   - No package variables but errors (Err...), defaults (Default...), interface assertions (_) and embedded files: two
//     controllers in one process share no state. Tests may have them.
//   - No alias.go: a thing has one name, in the package that it belongs to.
//   - Tests sleep only in a synctest bubble, where time is virtual. (forbidigo forbids Sleep in all other code; it
//     cannot detect a bubble.)
func checkFile(name string, text []byte) []string {
	var problems []string
	fail := func(at, format string, args ...any) {
		problems = append(problems, at+": "+fmt.Sprintf(format, args...))
	}
	if path.Base(name) == "alias.go" {
		fail(name, "no file is for aliases: let users import the package that has the name")
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		fail(name, "reading the file: %v", err)
		return problems
	}
	isTest := strings.HasSuffix(name, "_test.go")
	for _, decl := range file.Decls {
		at := files.Position(decl.Pos()).String()
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil && decl.Name.Name == "init" {
				fail(at, "no init functions: do it in New, or in main")
			}
		case *ast.GenDecl:
			if decl.Tok != token.VAR || isTest {
				continue
			}
			for _, variable := range globals(decl) {
				fail(at, "package variable %s is state that all users of the package share: "+
					"make it a constant, a function or a field", variable)
			}
		}
	}
	if isTest && !imports(file, "testing/synctest") {
		for _, at := range sleeps(file) {
			fail(files.Position(at).String(), "a test sleeps in real time: wait for the event itself, poll with a ticker and "+
				"a deadline, or run it in a synctest bubble")
		}
	}
	return problems
}

// globals returns the names in a var declaration that are not allowed.
func globals(decl *ast.GenDecl) []string {
	var names []string
	for _, spec := range decl.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || embedded(decl.Doc) || embedded(value.Doc) {
			continue
		}
		for _, name := range value.Names {
			if !allowedGlobal(name.Name) {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

func allowedGlobal(name string) bool {
	for _, prefix := range []string{"Err", "err", "Default", "default"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != strings.ToLower(rest) {
			return true
		}
	}
	return name == "_"
}

func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, comment := range doc.List {
		if strings.HasPrefix(comment.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

func imports(file *ast.File, importPath string) bool {
	for _, spec := range file.Imports {
		if spec.Path.Value == `"`+importPath+`"` {
			return true
		}
	}
	return false
}

// sleeps returns where time.Sleep is named, called or not.
func sleeps(file *ast.File) []token.Pos {
	if !imports(file, "time") {
		return nil
	}
	var found []token.Pos
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != "Sleep" {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == "time" {
			found = append(found, selector.Pos())
		}
		return true
	})
	return found
}
