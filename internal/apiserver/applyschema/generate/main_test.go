package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver/applyschema"
)

func TestGeneratedFileIsCurrent(t *testing.T) {
	t.Parallel()
	text, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("../types.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(file), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("run go generate ./internal/apiserver/applyschema:\n%s", diff)
	}
}

func TestTypesEqualClientGo(t *testing.T) {
	t.Parallel()
	expected, err := source()
	if err != nil {
		t.Fatal(err)
	}
	types := applyschema.Types(roots()...)
	byName := func(a, b smd.TypeDef) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(expected, byName)
	slices.SortFunc(types, byName)
	if diff := cmp.Diff(expected, types, cmpopts.IgnoreUnexported(smd.Map{})); diff != "" {
		t.Errorf("(-client-go +applyschema)\n%s", diff)
	}
	if len(types) < 200 {
		t.Errorf("%d types, expected at least 200", len(types))
	}
}
