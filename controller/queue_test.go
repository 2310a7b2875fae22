package controller_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCommentNamesTheStatesOfKeys compares the states in the comment of QueueEntry.State with those of the queue.
func TestCommentNamesTheStatesOfKeys(t *testing.T) {
	t.Parallel()
	parse := func(file string) *ast.File {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	var documented, states []string
	ast.Inspect(parse("queue.go"), func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && len(field.Names) == 1 && field.Names[0].Name == "State" {
			for _, item := range field.Doc.List {
				if quoted := regexp.MustCompile(`- ("[^"]+"):`).FindStringSubmatch(item.Text); quoted != nil {
					documented = append(documented, quoted[1])
				}
			}
		}
		return true
	})
	ast.Inspect(parse("../internal/workqueue/state.go"), func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "KeyState" {
				states = append(states, spec.Values[0].(*ast.BasicLit).Value)
			}
		}
		return true
	})
	slices.Sort(documented)
	slices.Sort(states)
	if diff := cmp.Diff(states, documented); diff != "" || len(states) == 0 {
		t.Errorf("the states of keys (-queue +comment of QueueEntry.State):\n%s", diff)
	}
}
