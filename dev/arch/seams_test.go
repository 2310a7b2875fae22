package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// composition returns the declarations of package controller that may name the parts behind the loop's seams, gate and
// observer, without being one: they create, start, end and read the parts.
func composition() []string {
	return []string{
		"Controller", "New", "Controller.work", // the history and the problems outlive a term
		"loop", "newLoop", "loop.follow", "loop.run", "loop.startWork", "loop.collectKeys",
		"Controller.RecentRuns", "Controller.Problems", "Controller.explain", "Controller.Stats", "Controller.stuck",
		"running", // what observers keep of a run
	}
}

// TestLoopReachesPartsThroughSeams checks that the loop of package controller neither holds nor calls what is behind its
// gates and observers: own writes, interrupted keys, hot loops, history, problems, watchdog, metrics, logs, simulation.
func TestLoopReachesPartsThroughSeams(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	problems, parts := checkSeams(files, slices.Collect(maps.Values(controllerFiles(t, files))), composition())
	for _, problem := range problems {
		t.Error(problem)
	}
	want := []string{
		"history", "hotLoops", "interrupted", "meter", "ownWrites", "problems", "runLog", "simulated", "watchdog",
	}
	if !slices.Equal(parts, want) {
		t.Errorf("the observers and gates are %q, want %q", parts, want)
	}
}

// The checker itself: the loop breaks the rule in several ways.
func TestCheckSeams(t *testing.T) {
	t.Parallel()
	const seams = `package controller
type ignore struct{}
type gate interface{ hold() }
type hotLoops struct { ignore; problems *problems }
func newHotLoops(p *problems) *hotLoops { return &hotLoops{problems: p} }
func (h *hotLoops) hold() { h.problems.begin() }
type problems struct{ ignore }
func (p *problems) begin() {}
type loop[T any] struct { hot *hotLoops; gates []gate }
func (l *loop[T]) follow() { l.hot = newHotLoops(&problems{}); l.gates = []gate{l.hot} }
func (l *loop[T]) held() { for _, g := range l.gates { g.hold() } }
`
	for name, tc := range map[string]struct {
		code string
		want string // empty: allowed
	}{
		"gates and observers":     {"", ""},
		"a variable of that name": {"func text(problems []string) int { return len(problems) }", ""},
		"a field":                 {"type intake struct{ hot *hotLoops }", "intake uses hotLoops"},
		"a field of several":      {"type intake struct{ hot map[string][]hotLoops }", "intake uses hotLoops"},
		"an embedded field":       {"type intake struct{ *hotLoops }", "intake uses hotLoops"},
		"a parameter":             {"func run(h *hotLoops) {}", "run uses hotLoops"},
		"a call through the loop": {"type intake struct{ l *loop[int] }; func (i *intake) add() { i.l.hot.hold() }", "intake.add uses hotLoops"},
		"a call of a method":      {"func (l *loop[T]) handle() { l.hot.hold() }", "loop.handle uses hotLoops"},
		"a part of a part":        {"func (l *loop[T]) handle() { l.hot.problems.begin() }", "loop.handle uses hotLoops, problems"},
		"a type assertion":        {"func (l *loop[T]) handle() { l.gates[0].(*hotLoops).hold() }", "loop.handle uses hotLoops"},
		"a variable":              {"func (l *loop[T]) handle() { g := l.follow; g(); h := newHotLoops(nil); _ = h }", "loop.handle uses hotLoops"},
		"the package of own writes": {
			"import \"x/ownwrites\"\ntype intake struct{ own *ownwrites.Tracker }",
			"intake uses ownwrites.Tracker",
		},
		"an event of own writes": {"import \"x/ownwrites\"\ntype intake struct{ e ownwrites.Event }", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := token.NewFileSet()
			var parsed []*ast.File
			for _, text := range []string{seams, "package controller\n" + tc.code} {
				file, err := parser.ParseFile(files, "", text, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				parsed = append(parsed, file)
			}
			problems, _ := checkSeams(files, parsed, []string{"loop", "loop.follow"})
			expectProblem(t, problems, tc.want)
		})
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", seams, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	problems, _ := checkSeams(files, []*ast.File{file}, []string{"loop", "loop.follow", "loop.run"})
	expectProblem(t, problems, "loop.run is permitted, but uses no part")
}

// checkSeams returns where the declarations of a package use its parts, the types that embed ignore, without being part
// of one. permitted are further declarations that may: each must use one.
func checkSeams(files *token.FileSet, parsed []*ast.File, permitted []string) (problems, parts []string) {
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check("controller", files, parsed, info) // the errors are those of the imports
	for _, name := range pkg.Scope().Names() {
		if object, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok && isPart(object) {
			parts = append(parts, name)
		}
	}
	used := map[string]bool{}
	for _, file := range parsed {
		for name, decl := range declarations(file) {
			receiver, _, _ := strings.Cut(name, ".")
			constructs := strings.ToLower(strings.TrimPrefix(name, "new"))
			if slices.ContainsFunc(parts, func(part string) bool {
				return part == receiver || strings.ToLower(part) == constructs
			}) {
				continue
			}
			uses := partsIn(decl, info)
			switch {
			case slices.Contains(permitted, name):
				used[name] = used[name] || len(uses) > 0
			case len(uses) > 0:
				problems = append(problems, fmt.Sprintf("%s: %s uses %s: only gates and observers may", files.Position(decl.Pos()),
					name, strings.Join(uses, ", ")))
			}
		}
	}
	for _, name := range permitted {
		if !used[name] {
			problems = append(problems, name+" is permitted, but uses no part")
		}
	}
	return problems, parts
}

// declarations returns the types, functions and variables that a file declares, by name; methods with their receivers.
func declarations(file *ast.File) map[string]ast.Node {
	all := map[string]ast.Node{}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name := decl.Name.Name
			if decl.Recv != nil {
				name = receiverOf(decl.Recv.List[0].Type) + "." + name
			}
			all[name] = decl
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					all[spec.Name.Name] = spec
				case *ast.ValueSpec:
					all[spec.Names[0].Name] = spec
				}
			}
		}
	}
	return all
}

func receiverOf(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiverOf(expr.X)
	case *ast.IndexExpr:
		return receiverOf(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}

// partsIn returns the names of the parts that node uses: their types, variables and methods.
func partsIn(node ast.Node, info *types.Info) []string {
	found := map[string]bool{}
	ast.Inspect(node, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			pkg, _ := node.X.(*ast.Ident)
			if pkg == nil {
				break
			}
			if name := pkg.Name + "." + node.Sel.Name; slices.Contains(
				[]string{"ownwrites.Tracker", "ownwrites.Run", "ownwrites.New", "detect.HotLoops", "interruptions.File"}, name,
			) {
				found[name] = true
			}
		case *ast.Ident:
			object := info.Uses[node]
			if object == nil {
				object = info.Defs[node]
			}
			if name := partOf(object); name != "" {
				found[name] = true
			}
		}
		return true
	})
	return slices.Sorted(maps.Keys(found))
}

// partOf returns the name of the part that an object is, has as its type, or belongs to.
func partOf(object types.Object) string {
	if object == nil {
		return ""
	}
	t := object.Type()
	if function, ok := object.(*types.Func); ok {
		if receiver := function.Signature().Recv(); receiver != nil {
			t = receiver.Type()
		} else if results := function.Signature().Results(); results.Len() > 0 {
			t = results.At(0).Type() // of a constructor
		}
	}
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if named, ok := t.(*types.Named); ok && isPart(named.Obj()) {
		return named.Obj().Name()
	}
	return ""
}

// isPart reports whether a type is an observer or a gate: it embeds ignore.
func isPart(object *types.TypeName) bool {
	structure, ok := object.Type().Underlying().(*types.Struct)
	if !ok {
		return false
	}
	for field := range structure.Fields() {
		if field.Embedded() && field.Name() == "ignore" {
			return true
		}
	}
	return false
}

// noImports is an importer that finds no package: the types of a package's own declarations are known without.
type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("not imported: %s", path)
}
