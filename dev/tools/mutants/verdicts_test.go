package main

import (
	"maps"
	"os"
	"path/filepath"
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
reason: x
`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readVerdicts(name)
	if want := map[string]string{"a-1": "first line second line", "b-2": "x"}; err != nil || !maps.Equal(got, want) {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestReadVerdictsRejects(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"two verdicts": "a-1\nreason: x\n\na-1\nreason: y\n", "no ID": "reason: x\n", "no reason": "a-1\nreason:\n",
	} {
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
	if got, err := readVerdicts(filepath.Join(t.TempDir(), "none")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
