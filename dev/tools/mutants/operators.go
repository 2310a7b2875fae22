package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// The operators. Each has one method of finder, or shares one.
const (
	opNegate     = "negate"     // a condition, or == and !=
	opBoundary   = "boundary"   // < and <=, > and >=
	opLogic      = "logic"      // && and ||
	opArithmetic = "arithmetic" // + and -, * and /
	opRemove     = "remove"     // a call, an assignment, ++, a send, a go statement
	opReturn     = "return"     // zero values, or a nil error
	opConstant   = "constant"   // a number's neighbours, or the next constant of a type
	opJump       = "jump"       // drops continue, break, or a return without results
	opBoolean    = "boolean"    // true and false, or a boolean value that is assigned
)

// operator replaces a binary expression's operator.
func (f *finder) operator(name string, b *ast.BinaryExpr, text string) {
	f.note(name, span{b.OpPos, b.OpPos + token.Pos(len(b.Op.String()))}, text)
}

// span is a node that has a position only.
type span struct{ from, to token.Pos }

func (s span) Pos() token.Pos { return s.from }
func (s span) End() token.Pos { return s.to }

// remove drops a statement.
//
// Not dropped: a defer, Unlock, RUnlock and WaitGroup.Done (a test can only hang without them, and each hang costs a
// whole timeout), Lock and RLock (the Unlock that follows crashes), declarations, and parts of another statement's
// head.
func (f *finder) remove(s ast.Stmt) {
	switch f.parent(0).(type) {
	case *ast.BlockStmt, *ast.CaseClause:
	case *ast.CommClause:
		if clause, ok := f.parent(0).(*ast.CommClause); ok && clause.Comm == s {
			return
		}
	default:
		return
	}
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok || f.isLog(call) || f.onlyHangsWithout(call) {
			return
		}
	case *ast.AssignStmt:
		blank := func(e ast.Expr) bool { return f.text(e) == "_" }
		if s.Tok == token.DEFINE || !slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { return !blank(e) }) {
			return
		}
	}
	f.note(opRemove, s, "", s)
}

func (f *finder) onlyHangsWithout(call *ast.CallExpr) bool {
	function := f.callee(call)
	if function == nil || function.Pkg() == nil || function.Pkg().Path() != "sync" {
		return false
	}
	switch function.Name() {
	case "Lock", "Unlock", "RLock", "RUnlock", "Done":
		return true
	}
	return false
}

// returns replaces the results of a return by zero values, and its error by nil.
func (f *finder) returns(r *ast.ReturnStmt) {
	if len(r.Results) == 0 {
		if !f.fallsThrough(r, token.RETURN) {
			f.note(opJump, r, "")
		}
		return
	}
	kinds, signature := f.results()
	if len(kinds) == 0 {
		return
	}
	zeros := make([]string, len(kinds))
	for i, kind := range kinds {
		zeros[i] = f.zero(kind, signature.At(i).Type())
	}
	passesAll := len(r.Results) == 1 && len(kinds) > 1 // return f()
	removed := []ast.Node{}
	for i, result := range r.Results {
		if passesAll || !f.isZero(result, zeros[i]) {
			removed = append(removed, result)
		}
	}
	if len(removed) == 0 {
		return
	}
	if onlyTrue := len(removed) == 1 && f.text(removed[0]) == "true"; !onlyTrue { // the boolean operator has this one
		f.note(opReturn, r, "return "+strings.Join(zeros, ", "), removed...)
	}
	last := len(kinds) - 1
	onlyError := len(removed) == 1 // the mutant with zero values is the same
	if passesAll || onlyError || !isError(signature.At(last).Type()) || f.isZero(r.Results[last], "nil") {
		return
	}
	f.note(opReturn, r, "return "+string(f.file.text[f.offset(r.Results[0].Pos()):f.offset(r.Results[last].Pos())])+
		"nil", r.Results[last])
}

// results returns the types of the results of the innermost function around the visited node, as written and as
// checked.
func (f *finder) results() ([]ast.Expr, *types.Tuple) {
	for _, node := range slices.Backward(f.stack) {
		var kind *ast.FuncType
		var signature *types.Signature
		switch n := node.(type) {
		case *ast.FuncLit:
			kind = n.Type
			signature, _ = f.pkg.info.Types[n].Type.(*types.Signature)
		case *ast.FuncDecl:
			kind = n.Type
			if function, ok := f.pkg.info.Defs[n.Name].(*types.Func); ok {
				signature = function.Signature()
			}
		default:
			continue
		}
		if kind.Results == nil || signature == nil {
			return nil, nil
		}
		var written []ast.Expr
		for _, field := range kind.Results.List {
			for range max(1, len(field.Names)) {
				written = append(written, field.Type)
			}
		}
		return written, signature.Results()
	}
	return nil, nil
}

// zero returns an expression for the zero value of a type.
func (f *finder) zero(written ast.Expr, kind types.Type) string {
	if _, generic := kind.(*types.TypeParam); !generic {
		switch u := kind.Underlying().(type) {
		case *types.Pointer, *types.Slice, *types.Map, *types.Chan, *types.Signature, *types.Interface:
			return "nil"
		case *types.Basic:
			switch {
			case u.Info()&types.IsBoolean != 0:
				return "false"
			case u.Info()&types.IsString != 0:
				return `""`
			case u.Info()&types.IsNumeric != 0:
				return "0"
			}
		}
	}
	return "*new(" + f.text(written) + ")"
}

func (f *finder) isZero(e ast.Expr, zero string) bool {
	if literal, ok := e.(*ast.CompositeLit); ok && len(literal.Elts) == 0 {
		return zero != "nil"
	}
	return f.text(e) == zero
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// jump drops a continue, a break or a return without results, unless control would go to the same place without it.
func (f *finder) jump(b *ast.BranchStmt) {
	if b.Tok != token.BREAK && b.Tok != token.CONTINUE {
		return
	}
	if b.Label == nil && f.fallsThrough(b, b.Tok) {
		return
	}
	f.note(opJump, b, "")
}

// fallsThrough reports whether control reaches the place where the unlabeled break, continue or return goes without it.
func (f *finder) fallsThrough(n ast.Node, tok token.Token) bool {
	isLast := func(list []ast.Stmt) bool { return len(list) > 0 && list[len(list)-1] == n }
	for _, parent := range slices.Backward(f.stack) {
		switch p := parent.(type) {
		case *ast.BlockStmt:
			if !isLast(p.List) {
				if len(p.List) == 0 {
					return false
				}
				switch p.List[0].(type) {
				case *ast.CaseClause, *ast.CommClause: // the block of a switch: each clause is its end
				default:
					return false
				}
			}
		case *ast.CaseClause:
			if !isLast(p.Body) {
				return false
			}
		case *ast.CommClause:
			if !isLast(p.Body) {
				return false
			}
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			if tok == token.BREAK {
				return true
			}
		case *ast.IfStmt, *ast.LabeledStmt:
		case *ast.FuncDecl, *ast.FuncLit:
			return tok == token.RETURN
		case *ast.ForStmt, *ast.RangeStmt:
			return tok == token.CONTINUE
		default:
			return false
		}
		n = parent
	}
	return false
}

// isLog reports whether the call writes a log line, or builds an attribute of one.
func (f *finder) isLog(call *ast.CallExpr) bool {
	function := f.callee(call)
	if function == nil || function.Pkg() == nil {
		return false
	}
	switch function.Pkg().Path() {
	case "log", "log/slog", "github.com/go-logr/logr", "k8s.io/klog/v2":
		return true
	}
	return false
}

// callee returns the function or method that is called by name, or nil.
func (f *finder) callee(call *ast.CallExpr) *types.Func {
	name, _ := ast.Unparen(call.Fun).(*ast.Ident)
	if selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		name = selector.Sel
	}
	if name == nil {
		return nil
	}
	function, _ := f.pkg.info.Uses[name].(*types.Func)
	return function
}

// onlyLogs reports whether a block has nothing but log lines.
func (f *finder) onlyLogs(block *ast.BlockStmt) bool {
	isLine := func(s ast.Stmt) bool {
		expression, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := expression.X.(*ast.CallExpr)
		return ok && f.isLog(call)
	}
	return len(block.List) > 0 && !slices.ContainsFunc(block.List, func(s ast.Stmt) bool { return !isLine(s) })
}
