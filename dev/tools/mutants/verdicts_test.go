package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadVerdicts(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "verdicts.txt")
	text := `# Comments are ignored.

a-1 negate in f, f.go
- if x {
+ if !x {
reason: first line
  second line

b-2
test: TestX
`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := addVerdicts(name, []*mutant{{ID: "c-3", Operator: opLogic, Function: "g", File: "g.go", Before: "x", After: "y"}}); err != nil {
		t.Fatal(err)
	}
	got, err := readVerdicts(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].reason != "first line second line" || got[1].test != "TestX" || got[2].id != "c-3" {
		t.Fatalf("got %+v", got)
	}
	if strings.Join(got[0].change, "\n") != "- if x {\n+ if !x {" {
		t.Errorf("the change is %q", got[0].change)
	}
	if !got[0].explains() || got[1].explains() || got[2].explains() {
		t.Errorf("only a reason explains a survivor: %+v", got)
	}
}

func TestReadVerdictsRejects(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"two verdicts": "a-1\nreason: x\n\na-1\nreason: y\n", "no ID": "reason: x\n"} {
		file := filepath.Join(t.TempDir(), "verdicts.txt")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readVerdicts(file); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestMissingVerdictsFileIsEmpty(t *testing.T) {
	t.Parallel()
	if got, err := readVerdicts(filepath.Join(t.TempDir(), "none")); err != nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}
