package prometheus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/controller"
)

// A constant that is added to an enumeration gets a label value.
func TestLabelValuesAreThoseOfTheConstants(t *testing.T) {
	t.Parallel()
	for typ, got := range map[string][]string{
		"controller.CauseType": texts(causeTypes()), "controller.SkipReason": texts(skipReasons()),
		"controller.ProblemType": append(texts(problemTypes()),
			string(controller.ProblemInformer), string(controller.ProblemSource)),
		"controller.Outcome": texts(outcomes()), "controller.Phase": texts(phases()), "retry.Class": texts(classes()),
	} {
		dir, name, _ := strings.Cut(typ, ".")
		want := constants(t, filepath.Join("..", "..", dir), name)
		slices.Sort(got)
		if slices.Sort(want); len(want) < 3 || !slices.Equal(got, want) {
			t.Errorf("label values of %s are %q, its constants are %q", typ, got, want)
		}
	}
}

func texts[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// constants returns the values of the constants of a type.
func constants(t *testing.T, dir, typ string) (values []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) == 0 {
				return true
			}
			of, typed := spec.Type.(*ast.Ident)
			text, isText := spec.Values[0].(*ast.BasicLit)
			if typed && isText && of.Name == typ {
				value, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return true
		})
	}
	return values
}
