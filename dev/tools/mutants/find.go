package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// finder collects the mutants of one file.
type finder struct {
	pkg      *loadedPackage
	file     *sourceFile
	name     string // the file's, relative to the module's folder
	function string
	stack    []ast.Node // from the declaration to the visited node's parent
	found    []*mutant
	noted    map[edit]bool
}

// find returns all mutants of the packages, in the order of files and positions.
func find(packages []*loadedPackage) []*mutant {
	var found []*mutant
	for _, p := range packages {
		var ofPackage []*mutant
		for _, file := range p.files {
			if ast.IsGenerated(file.syntax) {
				continue
			}
			name, err := filepath.Rel(p.Module.Dir, file.path)
			if err != nil {
				name = file.path
			}
			f := &finder{pkg: p, file: file, name: filepath.ToSlash(name), noted: map[edit]bool{}}
			for _, decl := range file.syntax.Decls {
				f.declaration(decl)
			}
			ofPackage = append(ofPackage, f.found...)
		}
		identify(p.Module.Path, ofPackage)
		found = append(found, ofPackage...)
	}
	return found
}

func (f *finder) declaration(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		f.function = functionName(d)
		switch d.Name.Name {
		case "String", "GoString", "LogValue":
			return // texts for people
		}
		if d.Body != nil {
			f.walk(d, d.Body)
		}
	case *ast.GenDecl:
		if d.Tok != token.CONST && d.Tok != token.VAR {
			return
		}
		for _, spec := range d.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok {
				f.function = value.Names[0].Name
				f.walk(d, value)
			}
		}
	}
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	receiver, star := d.Recv.List[0].Type, ""
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver, star = pointer.X, "*"
	}
	switch generic := receiver.(type) {
	case *ast.IndexExpr:
		receiver = generic.X
	case *ast.IndexListExpr:
		receiver = generic.X
	}
	name := "?"
	if ident, ok := receiver.(*ast.Ident); ok {
		name = ident.Name
	}
	return "(" + star + name + ")." + d.Name.Name
}

// walk visits root's nodes with f.stack holding their ancestors, parent first in it.
func (f *finder) walk(parent, root ast.Node) {
	f.stack = append(f.stack[:0], parent)
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			f.stack = f.stack[:len(f.stack)-1]
			return true
		}
		if !f.visit(n) {
			return false
		}
		f.stack = append(f.stack, n)
		return true
	})
}

// visit adds the mutants of one node and reports whether its children have any.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if f.isLog(n) {
			return false
		}
	case *ast.IfStmt:
		if f.onlyLogs(n.Body) && n.Else == nil {
			return false
		}
		f.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.negate(n.Cond)
		}
	case *ast.CaseClause:
		if s, ok := f.parent(1).(*ast.SwitchStmt); ok && s.Tag == nil {
			for _, condition := range n.List {
				f.negate(condition)
			}
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT && !f.isCondition(n) {
			f.negate(n)
		}
	case *ast.ExprStmt, *ast.SendStmt, *ast.GoStmt, *ast.IncDecStmt, *ast.AssignStmt:
		f.remove(n.(ast.Stmt))
		if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == len(assign.Rhs) {
			for _, value := range assign.Rhs {
				f.invert(value)
			}
		}
	case *ast.ReturnStmt:
		f.returns(n)
	case *ast.BranchStmt:
		f.jump(n)
	case *ast.KeyValueExpr:
		f.invert(n.Value)
	case *ast.BasicLit:
		f.literal(n)
	case *ast.SelectorExpr:
		f.constant(n, n.Sel)
		return !f.isConstant(n.Sel)
	case *ast.Ident:
		f.constant(n, n)
	}
	return true
}

// note adds a mutant that replaces n's text. keep holds the nodes that the change removes: their variables and imports
// are kept in use, or the compiler would refuse the file.
func (f *finder) note(operator string, n ast.Node, text string, keep ...ast.Node) {
	start, end := f.offset(n.Pos()), f.offset(n.End())
	shown := text
	prelude, imports := f.keepUsed(keep)
	if prelude != "" {
		text = strings.TrimRight(prelude+text, "; ")
	}
	change := edit{start, end, text}
	if f.noted[change] {
		return
	}
	f.noted[change] = true
	position := f.pkg.fset.Position(n.Pos())
	m := &mutant{
		Package: f.pkg.ImportPath, File: f.name, Function: f.function, Operator: operator,
		Line: position.Line, column: position.Column, Statement: f.statement(n),
		pkg: f.pkg, file: f.file, edits: append([]edit{change}, imports...),
	}
	m.describe(shown)
	f.found = append(f.found, m)
}

func (f *finder) offset(p token.Pos) int { return f.pkg.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.file.text[f.offset(n.Pos()):f.offset(n.End())])
}

// keepUsed returns statements that use the local variables that occur in nodes, and edits that make those imports blank
// that only occur there.
func (f *finder) keepUsed(nodes []ast.Node) (prelude string, imports []edit) {
	var names []string
	inside := map[*types.PkgName]int{}
	for _, node := range nodes {
		ast.Inspect(node, func(n ast.Node) bool {
			ident, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			switch object := f.pkg.info.Uses[ident].(type) {
			case *types.Var:
				isLocal := !object.IsField() && object.Parent() != nil && object.Pkg() == f.pkg.types &&
					object.Parent() != f.pkg.types.Scope()
				outside := object.Pos() < node.Pos() || object.Pos() >= node.End()
				if isLocal && outside && !slices.Contains(names, ident.Name) {
					names = append(names, ident.Name)
				}
			case *types.PkgName:
				inside[object]++
			}
			return true
		})
	}
	for _, name := range names {
		prelude += "_ = " + name + "; "
	}
	for object, count := range inside {
		total := 0
		for ident, used := range f.pkg.info.Uses {
			if used == object && ident.Name == object.Name() {
				total++
			}
		}
		if total > count {
			continue
		}
		for _, spec := range f.file.syntax.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && path == object.Imported().Path() {
				imports = append(imports, edit{f.offset(spec.Pos()), f.offset(spec.End()), "_ " + spec.Path.Value})
			}
		}
	}
	return prelude, imports
}

// statement returns the text of the statement around n on one line: of an if, for, switch or case only the head, and of
// function literals only the signature.
func (f *finder) statement(n ast.Node) string {
	nodes := append(slices.Clone(f.stack), n)
	for _, node := range slices.Backward(nodes) {
		end := node.End()
		switch s := node.(type) {
		case *ast.IfStmt:
			end = s.Body.Lbrace
		case *ast.ForStmt:
			end = s.Body.Lbrace
		case *ast.RangeStmt:
			end = s.Body.Lbrace
		case *ast.SwitchStmt:
			end = s.Body.Lbrace
		case *ast.TypeSwitchStmt:
			end = s.Body.Lbrace
		case *ast.CaseClause:
			end = s.Colon
		case *ast.CommClause:
			end = s.Colon
		case ast.Stmt, *ast.ValueSpec:
		default:
			continue
		}
		return f.withoutBodies(node, end)
	}
	return oneLine([]byte(f.text(n)))
}

func (f *finder) withoutBodies(node ast.Node, end token.Pos) string {
	var text []byte
	from := f.offset(node.Pos())
	ast.Inspect(node, func(n ast.Node) bool {
		literal, ok := n.(*ast.FuncLit)
		if !ok {
			return true
		}
		if literal.Body.Lbrace < end {
			text = append(text, f.file.text[from:f.offset(literal.Body.Lbrace)]...)
			text = append(text, "{...}"...)
			from = f.offset(literal.Body.End())
		}
		return false
	})
	return oneLine(append(text, f.file.text[from:max(from, f.offset(end))]...))
}

// parent returns the ancestor that is above levels up; 0 is the direct parent.
func (f *finder) parent(above int) ast.Node {
	if i := len(f.stack) - 1 - above; i >= 0 {
		return f.stack[i]
	}
	return nil
}
