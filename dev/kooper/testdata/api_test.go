package programs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packages are those of Kooper that compat/kooper has.
var packages = []string{
	"controller", "controller/controllermock", "controller/leaderelection", "log", "log/logrus", "metrics/prometheus",
}

// TestPublicNamesAreThoseOfKooper compares the exported names, with their types, in the sources of both.
func TestPublicNamesAreThoseOfKooper(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/spotahome/kooper/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range packages {
		want := exported(t, filepath.Join(strings.TrimSpace(string(dir)), pkg))
		got := exported(t, filepath.Join(os.Getenv("COMPAT_KOOPER"), pkg))
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s has\n\t%s\nKooper has\n\t%s", pkg, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}

// exported returns the exported declarations of a package, without the names of parameters.
func exported(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			names = append(names, declared(decl)...)
		}
	}
	slices.Sort(names)
	return names
}

// declared returns the exported names of a declaration.
func declared(decl ast.Decl) (names []string) {
	if f, ok := decl.(*ast.FuncDecl); ok {
		receiver := ""
		if f.Recv != nil {
			receiver = "(" + text(f.Recv.List[0].Type) + ") "
			if !ast.IsExported(strings.Trim(receiver, "(*) ")) {
				return nil
			}
		}
		if f.Name.IsExported() {
			names = append(names, "func "+receiver+f.Name.Name+text(f.Type))
		}
		return names
	}
	group := decl.(*ast.GenDecl)
	for _, spec := range group.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				names = append(names, members(spec)...)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() {
					names = append(names, group.Tok.String()+" "+name.Name)
				}
			}
		}
	}
	return names
}

// members returns a type and its exported fields or methods.
func members(spec *ast.TypeSpec) (names []string) {
	name := "type " + spec.Name.Name
	var fields *ast.FieldList
	switch of := spec.Type.(type) {
	case *ast.StructType:
		name, fields = name+" struct", of.Fields
	case *ast.InterfaceType:
		name, fields = name+" interface", of.Methods
	default:
		return []string{name + " " + text(of)}
	}
	names = append(names, name)
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			names = append(names, name+" embeds "+text(field.Type))
		}
		for _, member := range field.Names {
			if member.IsExported() {
				names = append(names, fmt.Sprintf("%s: %s %s", name, member.Name, text(field.Type)))
			}
		}
	}
	return names
}

// text returns a type without the names of parameters.
func text(of ast.Expr) string {
	ast.Inspect(of, func(n ast.Node) bool {
		f, ok := n.(*ast.FuncType)
		if !ok {
			return true
		}
		for _, list := range []*ast.FieldList{f.Params, f.Results} {
			if list == nil {
				continue
			}
			var unnamed []*ast.Field
			for _, field := range list.List {
				for range max(len(field.Names), 1) {
					unnamed = append(unnamed, &ast.Field{Type: field.Type})
				}
			}
			list.List = unnamed
		}
		return true
	})
	return strings.ReplaceAll(types.ExprString(of), "interface{}", "any")
}
