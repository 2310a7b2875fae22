package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	goparser "go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Uses is what a program uses of Even Keel or controller-runtime, and the size of the program.
type Uses struct {
	Title string
	// Names are the exported types, functions, methods and other names of the library that the program has in its code,
	// each once. Fields are the fields of the library's structs, in literals and elsewhere.
	Names, Fields []string
	Packages      int // that the names and fields are from
	Lines         int // of code: see Program.Count
}

// UsesTable returns the content of a block with a uses marker: the Uses of each program in a line. Text is the present
// content, whose lines are kept for programs in modules that make test does not compile, unless all is true.
func UsesTable(root string, programs []Program, text string, all bool) (string, error) {
	var counted []Program
	kept := map[string]string{} // by title
	for _, p := range programs {
		if all || slices.Contains(compiledModules(), moduleOf(root, p.Paths[0])) {
			counted = append(counted, p)
			continue
		}
		for line := range strings.Lines(text) {
			if strings.HasSuffix(line, "  "+p.Title+"\n") {
				kept[p.Title] = line
			}
		}
		if kept[p.Title] == "" {
			return "", fmt.Errorf("the line of %s is missing: run EVENKEEL_LONG=1 make docs, which compiles it",
				p.Title)
		}
	}
	uses, err := CountUses(root, counted)
	if err != nil {
		return "", err
	}
	for _, u := range uses {
		kept[u.Title] = fmt.Sprintf("%5d %9d %7d %6d  %s\n", len(u.Names), u.Packages, len(u.Fields), u.Lines, u.Title)
	}
	lines := []string{"names  packages  fields  lines\n"}
	for _, p := range programs {
		lines = append(lines, kept[p.Title])
	}
	return strings.Join(lines, ""), nil
}

// CountUses returns the Uses of programs, each of which is in one module.
func CountUses(root string, programs []Program) ([]Uses, error) {
	checkers := map[string]*checker{} // by module
	uses, files := make([]Uses, len(programs)), make([][]string, len(programs))
	for i, p := range programs {
		var err error
		if files[i], uses[i].Lines, err = filesOf(root, p); err != nil {
			return nil, err
		}
		module := moduleOf(root, p.Paths[0])
		if checkers[module] == nil {
			checkers[module] = &checker{dir: filepath.Join(root, filepath.FromSlash(module))}
		}
		checkers[module].files = append(checkers[module].files, files[i]...)
	}
	for module, c := range checkers {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("counting the names that programs in module %s use: %w", module, err)
		}
	}
	for i, p := range programs {
		uses[i].Title = p.Title
		checkers[moduleOf(root, p.Paths[0])].count(files[i], &uses[i])
	}
	return uses, nil
}

// moduleOf returns the folder of the module of a file or folder, relative to root, which is a module.
func moduleOf(root, name string) string {
	for name != "." {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name), "go.mod")); err == nil {
			break
		}
		name = path.Dir(name)
	}
	return name
}

// filesOf returns the absolute paths of the program's files, and their lines of code.
func filesOf(root string, p Program) (files []string, lines int, err error) {
	counted, err := p.Count(root)
	if err != nil {
		return nil, 0, err
	}
	for _, file := range counted {
		name, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(file.Path)))
		if err != nil {
			return nil, 0, err
		}
		files, lines = append(files, name), lines+file.Lines
	}
	return files, lines, nil
}

// checker type-checks the packages of some files of a module. The types of their imports are those that the compiler
// has exported, from the build cache.
type checker struct {
	dir   string   // of the module
	files []string // absolute paths

	packages map[string]goPackage
	checked  map[string]*ast.File // by the absolute path
	info     types.Info
}

type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
	Module                  *struct{ Path string }
}

func (c *checker) check() error {
	if err := c.list(); err != nil {
		return err
	}
	c.checked = map[string]*ast.File{}
	c.info = types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(name string) (io.ReadCloser, error) {
		return os.Open(c.packages[name].Export)
	})
	for _, p := range c.packages {
		if p.DepOnly {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			name = filepath.Join(p.Dir, name)
			file, err := goparser.ParseFile(set, name, nil, goparser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, file)
			c.checked[name] = file
		}
		if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, set, files, &c.info); err != nil {
			return err
		}
	}
	return nil
}

// list lists the packages of the files and all that they depend on.
func (c *checker) list() error {
	dirs := map[string]bool{}
	for _, file := range c.files {
		dirs[filepath.Dir(file)] = true
	}
	cmd := exec.Command("go", append([]string{
		"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module",
	}, slices.Sorted(maps.Keys(dirs))...)...)
	cmd.Dir = c.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, stderr.String())
	}
	c.packages = map[string]goPackage{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		c.packages[p.ImportPath] = p
	}
}

// count sets what the files use.
func (c *checker) count(files []string, u *Uses) {
	used, packages := map[types.Object]bool{}, map[*types.Package]bool{}
	add := func(o types.Object) {
		switch generic := o.(type) { // each instance has objects of its own
		case *types.Func:
			o = generic.Origin()
		case *types.Var:
			o = generic.Origin()
		}
		if c.isCounted(o) {
			used[o], packages[o.Pkg()] = true, true
		}
	}
	for _, file := range files {
		ast.Inspect(c.checked[file], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				add(c.info.Uses[n])
			case *ast.CompositeLit:
				for _, field := range positional(c.info.TypeOf(n), n.Elts) {
					add(field)
				}
			}
			return true
		})
	}
	u.Packages = len(packages)
	for o := range used {
		name := o.Pkg().Name() + "." + o.Name()
		if v, ok := o.(*types.Var); ok && v.IsField() {
			u.Fields = append(u.Fields, name)
			continue
		}
		if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
			name = types.TypeString(f.Signature().Recv().Type(), (*types.Package).Name) + "." + o.Name()
		}
		u.Names = append(u.Names, name)
	}
	slices.Sort(u.Names)
	slices.Sort(u.Fields)
}

// isCounted reports whether an object is an exported name of a package of Even Keel or controller-runtime.
func (c *checker) isCounted(o types.Object) bool {
	if o == nil || o.Pkg() == nil || !o.Exported() {
		return false
	}
	module := c.packages[o.Pkg().Path()].Module
	return module != nil &&
		(module.Path == "github.com/evenkeel-go/evenkeel" || module.Path == "sigs.k8s.io/controller-runtime")
}

// positional returns the fields that a struct literal sets without their names.
func positional(literal types.Type, values []ast.Expr) []types.Object {
	if pointer, ok := literal.Underlying().(*types.Pointer); ok { // of an element &T{} without its type
		literal = pointer.Elem()
	}
	fields, ok := literal.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	var set []types.Object
	for i, value := range values {
		if _, named := value.(*ast.KeyValueExpr); !named {
			set = append(set, fields.Field(i))
		}
	}
	return set
}
