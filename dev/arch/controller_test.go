package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// controllerFiles returns the files of package controller without its tests, by their names.
func controllerFiles(t *testing.T, files *token.FileSet) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "controller", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if parsed[filepath.Base(path)], err = parser.ParseFile(files, path, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return parsed
}

// TestOneFileKnowsControllersWithoutObject checks that only noobject.go names NoObject and what takes the place of its
// objects: the rest of the controller works with the interface objects and the value primary.
func TestOneFileKnowsControllersWithoutObject(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	for name, file := range controllerFiles(t, files) {
		found := usesOf(files, file, "NoObject", "listedKeys", "newListedKeys", "noInformer")
		switch {
		case name == "noobject.go" && len(found) == 0:
			t.Error("noobject.go does not name NoObject: the test does not find it")
		case name != "noobject.go" && len(found) > 0:
			t.Errorf("only controller/noobject.go may ask for NoObject: %s", strings.Join(found, ", "))
		}
	}
}

// usesOf returns where a file names one of names, outside of comments.
func usesOf(files *token.FileSet, file *ast.File, names ...string) (uses []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		if ident, ok := node.(*ast.Ident); ok && slices.Contains(names, ident.Name) {
			uses = append(uses, fmt.Sprintf("%s at %s", ident.Name, files.Position(ident.Pos())))
		}
		return true
	})
	return uses
}
