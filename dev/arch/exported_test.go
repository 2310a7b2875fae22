package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExportedDeclarationsHaveNoInternalTypes checks the exported declarations of the library: programs cannot name a
// type of an internal package.
func TestExportedDeclarationsHaveNoInternalTypes(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, p := range listPackages(t) {
		if name := relative(p.ImportPath); !isLibrary(name) || p.Name == "main" {
			continue
		}
		checked++
		for _, problem := range checkExported(sourcesOf(t, relative(p.ImportPath))) {
			t.Error(problem)
		}
	}
	if checked < 20 {
		t.Errorf("only %d packages were checked", checked)
	}
}

// isLibrary reports whether programs import a package of the main module.
func isLibrary(name string) bool {
	return !strings.Contains("/"+name+"/", "/internal/") && !matchAny([]string{"dev/...", "examples/...", "localcluster/cmd/..."}, name)
}

// sourcesOf returns the Go files of a package without its tests, by their paths.
func sourcesOf(t *testing.T, name string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(name), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(filepath.ToSlash(path), root+"/")] = string(text)
	}
	return files
}

// exported looks for internal types in the exported declarations of a package.
type exported struct {
	set      *token.FileSet
	files    map[string]*ast.File
	types    map[string]declared   // by name
	methods  map[string][]declared // exported methods, by the name of their type
	seen     map[string]bool       // unexported types
	within   string                // the current declaration
	imports  map[string]string     // the internal packages that its file imports, by name
	problems []string
}

// declared is a declaration and its file.
type declared struct {
	file string
	node ast.Expr
}

func checkExported(files map[string]string) []string {
	c := &exported{
		types: map[string]declared{}, methods: map[string][]declared{}, seen: map[string]bool{}, set: token.NewFileSet(),
		files: map[string]*ast.File{},
	}
	for name, text := range files {
		file, err := parser.ParseFile(c.set, name, text, 0)
		if err != nil {
			return []string{err.Error()}
		}
		c.files[name] = file
	}
	for name, file := range c.files {
		for _, decl := range file.Decls {
			c.collect(name, decl)
		}
	}
	for name, file := range c.files {
		for _, decl := range file.Decls {
			c.declaration(name, decl)
		}
	}
	return c.problems
}

func (c *exported) collect(file string, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv != nil && decl.Name.IsExported() {
			name := receiver(decl.Recv.List[0].Type)
			c.methods[name] = append(c.methods[name], declared{file, decl.Type})
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok {
				c.types[spec.Name.Name] = declared{file, spec.Type}
			}
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(t ast.Expr) string {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// declaration checks a declaration if it is exported.
func (c *exported) declaration(file string, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil && decl.Name.IsExported() {
			c.check(file, decl.Name.Name, decl.Type)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					c.check(file, spec.Name.Name, &ast.FuncType{TypeParams: spec.TypeParams})
					c.check(file, spec.Name.Name, spec.Type)
					c.methodsOf(spec.Name.Name)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && spec.Type != nil {
						c.check(file, name.Name, spec.Type)
					}
				}
			}
		}
	}
}

func (c *exported) methodsOf(name string) {
	for _, method := range c.methods[name] {
		c.check(method.file, name, method.node)
	}
}

// check checks an expression in a file.
func (c *exported) check(file, within string, e ast.Expr) {
	imports, before := c.imports, c.within
	defer func() { c.imports, c.within = imports, before }()
	c.within, c.imports = within, map[string]string{}
	for _, spec := range c.files[file].Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		if !strings.Contains("/"+path+"/", "/internal/") {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		c.imports[name] = path
	}
	c.walk(e)
}

// walk looks for internal types in a type, as far as programs can see it.
func (c *exported) walk(e ast.Expr) {
	switch e := e.(type) {
	case *ast.Ident:
		if here, ok := c.types[e.Name]; ok && !e.IsExported() && !c.seen[e.Name] {
			c.seen[e.Name] = true
			c.check(here.file, c.within, here.node)
			c.methodsOf(e.Name)
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && c.imports[x.Name] != "" {
			c.problems = append(c.problems, fmt.Sprintf("%s: the exported %s mentions %s.%s of %s: programs cannot name it",
				c.set.Position(e.Pos()), c.within, x.Name, e.Sel.Name, c.imports[x.Name]))
		}
	case *ast.StarExpr:
		c.walk(e.X)
	case *ast.ParenExpr:
		c.walk(e.X)
	case *ast.Ellipsis:
		c.walk(e.Elt)
	case *ast.ArrayType:
		c.walk(e.Elt)
	case *ast.ChanType:
		c.walk(e.Value)
	case *ast.MapType:
		c.walk(e.Key)
		c.walk(e.Value)
	case *ast.IndexExpr:
		c.walk(e.X)
		c.walk(e.Index)
	case *ast.IndexListExpr:
		c.walk(e.X)
		for _, index := range e.Indices {
			c.walk(index)
		}
	case *ast.BinaryExpr: // a union
		c.walk(e.X)
		c.walk(e.Y)
	case *ast.UnaryExpr:
		c.walk(e.X)
	case *ast.FuncType:
		c.fields(e.TypeParams, true)
		c.fields(e.Params, true)
		c.fields(e.Results, true)
	case *ast.StructType:
		c.fields(e.Fields, false)
	case *ast.InterfaceType:
		c.fields(e.Methods, false)
	}
}

// fields walks parameters, or the exported fields and methods of a type. What a type embeds under an unexported alias of
// a type of internal/cache has no exported fields and methods: its tests check it.
func (c *exported) fields(list *ast.FieldList, all bool) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		visible := all || len(field.Names) == 0
		for _, name := range field.Names {
			visible = visible || name.IsExported()
		}
		if visible && (all || len(field.Names) > 0 || !c.isSealed(field.Type)) {
			c.walk(field.Type)
		}
	}
}

// isSealed reports whether an embedded type is an unexported alias of cache.Holder or cache.Untyped.
func (c *exported) isSealed(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	if !ok || name.IsExported() {
		return false
	}
	node := c.types[name.Name].node
	if index, ok := node.(*ast.IndexExpr); ok {
		node = index.X
	}
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == "cache" && (selector.Sel.Name == "Holder" || selector.Sel.Name == "Untyped")
}

func TestCheckExported(t *testing.T) {
	t.Parallel()
	const head = "package a\nimport \"example.com/a/internal/cache\"\nimport other \"example.com/internal/x\"\n"
	for name, test := range map[string]struct {
		text string
		want string // empty: allowed
	}{
		"a result":                    {"func F() cache.X { panic(1) }", "the exported F mentions cache.X of example.com/a/internal/cache"},
		"a parameter":                 {"func F(...*other.X) {}", "mentions other.X"},
		"a parameter of a type":       {"func F(map[string]G[cache.X]) {}", "mentions cache.X"},
		"a function":                  {"func F(func(cache.X)) {}", "mentions cache.X"},
		"a constraint":                {"func F[T interface{ ~[]cache.X }]() {}", "mentions cache.X"},
		"a constraint of a type":      {"type T[V cache.X] struct{}", "mentions cache.X"},
		"a method":                    {"type T struct{}\nfunc (*T) M() cache.X { panic(1) }", "the exported T mentions cache.X"},
		"a method of a generic type":  {"type T[V any] struct{}\nfunc (*T[V]) M() cache.X { panic(1) }", "mentions cache.X"},
		"a method of an interface":    {"type T interface { M() cache.X }", "mentions cache.X"},
		"a field":                     {"type T struct { F []cache.X }", "mentions cache.X"},
		"an embedded type":            {"type T struct { *cache.X }", "mentions cache.X"},
		"an alias":                    {"type T = cache.X", "mentions cache.X"},
		"an unexported alias":         {"type t = cache.X\nfunc F() t { panic(1) }", "mentions cache.X"},
		"an embedded alias":           {"type t = cache.X\ntype T struct { t }", "mentions cache.X"},
		"an unexported type":          {"type t struct { F cache.X }\nfunc F() t { panic(1) }", "mentions cache.X"},
		"its method":                  {"type t struct{}\nfunc (t) M(cache.X) {}\nfunc F() *t { panic(1) }", "mentions cache.X"},
		"a variable":                  {"var ErrX cache.X", "mentions cache.X"},
		"a holder as a result":        {"type t = cache.Holder[int]\nfunc F() t { panic(1) }", "mentions cache.Holder"},
		"an embedded holder":          {"type t = cache.Holder[cache.X]\ntype T struct { t }", ""},
		"an embedded sealed":          {"type t = cache.Untyped\ntype T interface { t }", ""},
		"an unexported field":         {"type T struct { f cache.X }", ""},
		"an unexported method":        {"type T struct{}\nfunc (T) m() cache.X { panic(1) }", ""},
		"an unexported function":      {"func f() cache.X { panic(1) }", ""},
		"a method of an unused type":  {"type t struct{}\nfunc (t) M() cache.X { panic(1) }", ""},
		"a body":                      {"func F() { var x cache.X; _ = x }", ""},
		"a recursive unexported type": {"type t struct { T *t }\nfunc F() t { panic(1) }", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectProblem(t, checkExported(map[string]string{"a.go": head + test.text}), test.want)
		})
	}
}
