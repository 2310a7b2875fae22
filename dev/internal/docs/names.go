package docs

import (
	"errors"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Names are the exported names of the repository's packages, by the package's name: functions,
// types, constants, and "Type.Member" for methods and fields.
type Names map[string]map[string]bool

// ReadNames reads the names of all packages in folders, which are relative to root.
func ReadNames(root string, folders ...string) (Names, error) {
	names := Names{}
	var errs []error
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
		if err != nil || len(files) == 0 {
			errs = append(errs, fmt.Errorf("folder %s has no Go files", folder))
			continue
		}
		known := map[string]bool{}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := goparser.ParseFile(token.NewFileSet(), name, nil, goparser.SkipObjectResolution)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			for _, decl := range file.Decls {
				declared(decl, known)
			}
		}
		names[path.Base(folder)] = known
	}
	return names, errors.Join(errs...)
}

// PackageFolders returns the folders below root that hold packages of the root module which others
// can import.
func PackageFolders(root string) ([]string, error) {
	var folders []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || name == "." {
			return err
		}
		base := entry.Name()
		if strings.HasPrefix(base, ".") || base == "testdata" || base == "internal" || base == "integration" ||
			base == "cmd" {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name), "go.mod")); err == nil {
			return fs.SkipDir
		}
		if files, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(name), "*.go")); len(files) > 0 {
			folders = append(folders, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for packages: %w", err)
	}
	return folders, nil
}

// declared adds what a declaration declares.
func declared(decl ast.Decl, known map[string]bool) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name := decl.Name.Name
		if decl.Recv != nil && len(decl.Recv.List) == 1 {
			name = receiver(decl.Recv.List[0].Type) + "." + name
		}
		known[name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					known[name.Name] = true
				}
			case *ast.TypeSpec:
				known[spec.Name.Name] = true
				members(spec, known)
			}
		}
	}
}

// members adds the fields and methods of a type.
func members(spec *ast.TypeSpec, known map[string]bool) {
	var list *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			known[spec.Name.Name+"."+name.Name] = true
		}
	}
}

func receiver(expr ast.Expr) string {
	switch t := expr.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// CheckNames returns the problems of the names in a page's prose: each `package.Name` and
// `package.Type.Member` must exist, where the package is one of names.
func CheckNames(names Names, page Page) []string {
	code := regexp.MustCompile("`[^`]+`")
	qualified := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	var problems []string
	for i, line := range page.prose {
		for _, span := range code.FindAllString(line, -1) {
			for _, match := range qualified.FindAllStringSubmatch(span, -1) {
				known, isOurs := names[match[1]]
				if isOurs && !known[match[2]] {
					problems = append(problems, fmt.Sprintf("line %d: package %s has no %s", i+1, match[1], match[2]))
				}
			}
		}
	}
	return problems
}
