package main

import (
	"go/ast"
	"go/token"
	"go/types"
)

// negate inverts a condition. Comparisons and negations are inverted in place, which reads better in a diff.
func (f *finder) negate(condition ast.Expr) {
	switch c := ast.Unparen(condition).(type) {
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			f.note(opNegate, condition, f.text(c.X))
			return
		}
	case *ast.BinaryExpr:
		if c.Op == token.EQL || c.Op == token.NEQ {
			f.equality(c)
			return
		}
	}
	switch ast.Unparen(condition).(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.CallExpr, *ast.IndexExpr:
		f.note(opNegate, condition, "!"+f.text(condition))
	default:
		f.note(opNegate, condition, "!("+f.text(condition)+")")
	}
}

func (f *finder) equality(b *ast.BinaryExpr) {
	other := map[token.Token]string{token.EQL: "!=", token.NEQ: "=="}[b.Op]
	f.operator(opNegate, b, other)
}

func (f *finder) binary(b *ast.BinaryExpr) {
	switch b.Op {
	case token.LAND:
		f.operator(opLogic, b, "||")
	case token.LOR:
		f.operator(opLogic, b, "&&")
	case token.EQL, token.NEQ:
		if !f.isCondition(b) {
			f.equality(b)
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if !f.choosesOperand(b) {
			other := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[b.Op]
			f.operator(opBoundary, b, other)
		}
	case token.ADD, token.SUB, token.MUL, token.QUO:
		value := f.pkg.info.Types[b]
		basic, ok := types.Default(value.Type).Underlying().(*types.Basic)
		if ok && basic.Info()&types.IsNumeric != 0 && value.Value == nil {
			other := map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*"}[b.Op]
			f.operator(opArithmetic, b, other)
		}
	}
}

// isCondition reports whether n is the whole condition of an if or a for, which negate has handled.
func (f *finder) isCondition(n ast.Expr) bool {
	for above := 0; ; above++ {
		switch p := f.parent(above).(type) {
		case *ast.ParenExpr:
			continue
		case *ast.IfStmt:
			return ast.Unparen(p.Cond) == n
		case *ast.ForStmt:
			return p.Cond != nil && ast.Unparen(p.Cond) == n
		}
		return false
	}
}

// choosesOperand reports whether the comparison only selects the smaller or larger of its operands, as in
// "if a < b { a = b }" or "if a < b { return a }": for equal operands both sides are the same value.
func (f *finder) choosesOperand(b *ast.BinaryExpr) bool {
	branch, ok := f.parent(0).(*ast.IfStmt)
	if !ok || branch.Else != nil || len(branch.Body.List) != 1 {
		return false
	}
	x, y := f.text(b.X), f.text(b.Y)
	assign, ok := branch.Body.List[0].(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 1 || assign.Tok != token.ASSIGN {
		return false
	}
	to, from := f.text(assign.Lhs[0]), f.text(assign.Rhs[0])
	return to == x && from == y || to == y && from == x
}

// invert negates a boolean value that is assigned to a variable or a field. Comparisons, negations and literals have
// operators of their own.
func (f *finder) invert(e ast.Expr) {
	value := f.pkg.info.Types[e]
	if value.Type == nil || value.Value != nil {
		return
	}
	if basic, ok := value.Type.Underlying().(*types.Basic); !ok || basic.Info()&types.IsBoolean == 0 {
		return
	}
	switch ast.Unparen(e).(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.CallExpr, *ast.IndexExpr:
		f.note(opBoolean, e, "!"+f.text(e))
	}
}
