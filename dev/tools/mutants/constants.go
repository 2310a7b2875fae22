package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// literal replaces a number by its neighbours, but not where no test can see it: capacities and sizes of make, and iota
// expressions, where all constants would move together.
func (f *finder) literal(n *ast.BasicLit) {
	if n.Kind != token.INT && n.Kind != token.FLOAT || f.isCapacity(n) || f.isTypeOrIota(n) {
		return
	}
	number, err := strconv.ParseInt(n.Value, 0, 64)
	if err != nil {
		if n.Kind == token.FLOAT {
			f.note(opConstant, n, "("+n.Value+"+1)")
		}
		return
	}
	if f.isDuration(n) && number >= 5 {
		// One more second of thirty is a change that no contract forbids.
		f.note(opConstant, n, strconv.FormatInt(2*number, 10))
		return
	}
	f.note(opConstant, n, strconv.FormatInt(number+1, 10))
	if number > 0 {
		f.note(opConstant, n, strconv.FormatInt(number-1, 10))
	}
}

func (f *finder) isDuration(n ast.Expr) bool {
	value := f.pkg.info.Types[n]
	return value.Type != nil && types.TypeString(value.Type, nil) == "time.Duration"
}

func (f *finder) isCapacity(n ast.Expr) bool {
	call, ok := f.parent(0).(*ast.CallExpr)
	if !ok {
		return false
	}
	switch f.text(call.Fun) {
	case "make":
		_, isMap := f.pkg.info.Types[call.Args[0]].Type.Underlying().(*types.Map)
		return isMap || len(call.Args) == 3 && call.Args[2] == n
	case "slices.Grow":
		return true
	}
	return false
}

func (f *finder) isTypeOrIota(ast.Node) bool {
	for _, node := range f.stack {
		switch n := node.(type) {
		case *ast.ArrayType:
			return true
		case *ast.ValueSpec:
			for _, value := range n.Values {
				if strings.Contains(f.text(value), "iota") {
					return true
				}
			}
		}
	}
	return false
}

// isConstant reports whether the name is a constant of a named type.
func (f *finder) isConstant(name *ast.Ident) bool {
	object, ok := f.pkg.info.Uses[name].(*types.Const)
	if !ok {
		return false
	}
	_, named := object.Type().(*types.Named)
	return named
}

// constant replaces true by false and the reverse, and a constant of a named type by the next one of that type.
func (f *finder) constant(n ast.Expr, name *ast.Ident) {
	object, ok := f.pkg.info.Uses[name].(*types.Const)
	if !ok || f.inCase() {
		return
	}
	if object.Parent() == types.Universe {
		switch name.Name {
		case "true":
			f.note(opBoolean, n, "false")
		case "false":
			f.note(opBoolean, n, "true")
		}
		return
	}
	next := f.nextConstant(object)
	if next == "" {
		return
	}
	text := next
	if selector, ok := n.(*ast.SelectorExpr); ok {
		text = f.text(selector.X) + "." + next
	}
	f.note(opConstant, n, text)
}

// inCase reports whether the node is an expression of a case, where a duplicate does not compile.
func (f *finder) inCase() bool {
	clause, ok := f.parent(0).(*ast.CaseClause)
	return ok && clause != nil
}

// nextConstant returns the name of the constant with the next value of the same named type, or of the first one after
// the last. It returns "" if there is no other.
func (f *finder) nextConstant(object *types.Const) string {
	if _, named := object.Type().(*types.Named); !named || object.Pkg() == nil ||
		object.Parent() != object.Pkg().Scope() {
		return ""
	}
	var all []*types.Const
	for _, name := range object.Pkg().Scope().Names() {
		other, ok := object.Pkg().Scope().Lookup(name).(*types.Const)
		if ok && types.Identical(other.Type(), object.Type()) && (other.Exported() || other.Pkg() == f.pkg.types) {
			all = append(all, other)
		}
	}
	slices.SortStableFunc(all, func(a, b *types.Const) int {
		switch {
		case constant.Compare(a.Val(), token.LSS, b.Val()):
			return -1
		case constant.Compare(a.Val(), token.GTR, b.Val()):
			return 1
		}
		return 0
	})
	at := slices.Index(all, object)
	for i := range all {
		other := all[(at+1+i)%len(all)]
		if at >= 0 && constant.Compare(other.Val(), token.NEQ, object.Val()) {
			return other.Name()
		}
	}
	return ""
}
