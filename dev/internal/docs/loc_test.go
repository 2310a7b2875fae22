package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCountLines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want int
	}{
		"nothing":               {"", 0},
		"one without an end":    {"package a", 1},
		"blank lines":           {"package a\n\n\t\n\nvar b int\n", 2},
		"comments":              {"// Package a is one.\npackage a // of many\n\n/* a\nb */\nvar b /* c */ int\n", 2},
		"code after a comment":  {"/* a\nb */ package a\n", 1},
		"imports and braces":    {"package a\n\nimport (\n\t\"fmt\"\n)\n\nfunc b() {\n\tfmt.Println()\n}\n", 7},
		"several on one line":   {"package a; var b, c int; var d int\n", 1},
		"a literal of lines":    {"package a\n\nvar b = `x\n\n// y\n` + `z\n`\n", 6},
		"a comment in a string": {"package a\n\nvar b = \"// c\"\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := CountLines("a.go", []byte(tc.text)); err != nil || got != tc.want {
				t.Errorf("%d, %v, want %d", got, err, tc.want)
			}
		})
	}
	if _, err := CountLines("a.go", []byte("package a\nvar b = \"c\n")); err == nil || !strings.Contains(err.Error(), "a.go:2") {
		t.Errorf("error %v, want one that names the line", err)
	}
}

func TestCodeTable(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"examples/a/main.go":           "package main\n\nfunc main() {\n}\n",
		"examples/a/operator/run.go":   "package operator\n",
		"examples/a/main_test.go":      "package main\n",
		"examples/a/api/v1/types.go":   "package v1\n",
		"examples/a/testdata/x.go":     "package x\n",
		"examples/a/atest/x.go":        "package atest\n",
		"examples/a/.hidden/x.go":      "package x\n",
		"examples/a/config/crd.yaml":   "a: b\n",
		"bench/b/main.go":              "package main\n",
		"bench/b/controller.go":        "package main\n\nvar a int\n",
		"bench/b/generated/deepcpy.go": "package generated\n",
		"empty/doc.txt":                "nothing\n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const marker = "<!-- loc: Even Keel = examples/a; another = bench/b/main.go bench/b/controller.go -->\n"
	const want = `Even Keel
     3  examples/a/main.go
     1  examples/a/operator/run.go
     4  in all

another
     1  bench/b/main.go
     2  bench/b/controller.go
     3  in all
`
	page, err := Rewrite(root, marker+"```text\nold\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(marker+"```text\n"+want+"```\n", page); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct{ marker, text, want string }{
		"up to date":       {marker, want, ""},
		"out of date":      {marker, strings.Replace(want, "4  in", "5  in", 1), `its line 4 is "     5  in all"`},
		"no title":         {"<!-- loc: examples/a -->\n", want, "write TITLE = PATH"},
		"no path":          {"<!-- loc: a = examples/a; b = -->\n", want, "write TITLE = PATH"},
		"a path outside":   {"<!-- loc: a = ../a -->\n", want, "from the repository's root"},
		"no such folder":   {"<!-- loc: a = examples/gone -->\n", want, "examples/gone"},
		"a folder of text": {"<!-- loc: a = empty -->\n", want, "empty has no Go code"},
		"two markers":      {"<!-- code: bench/b/main.go -->\n" + marker, want, "keep one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := Parse(tc.marker + "```text\n" + tc.text + "```\n")
			if err != nil {
				t.Fatal(err)
			}
			problems := strings.Join(CheckCode(root, page), "; ")
			if (tc.want == "") != (problems == "") || !strings.Contains(problems, tc.want) {
				t.Errorf("problems %q, want %q", problems, tc.want)
			}
		})
	}
}

// TestOperatorsHaveSameAPI holds the copy of WebApp's API, which the operator on controller-runtime needs
// because its module has other versions, to the original: the comparison is of operators for the same API.
func TestOperatorsHaveSameAPI(t *testing.T) {
	t.Parallel()
	original := filepath.Join(repository, "examples", "webapp", "api", "v1")
	copied := filepath.Join(repository, "dev", "bench", "controllerruntime", "webapp", "api", "v1")
	names := map[string]bool{}
	for _, dir := range []string{original, copied} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), "_test.go") {
				names[entry.Name()] = true
			}
		}
	}
	for name := range names {
		want, err := os.ReadFile(filepath.Join(original, name))
		if err != nil {
			t.Errorf("only the copy has %s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(filepath.Join(copied, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from the original (%v): cp %s %s", name, err, filepath.Join(original, name), copied)
		}
	}
}

func TestExamplesStaySmall(t *testing.T) {
	t.Parallel()
	lines := func(name string) int {
		text, err := os.ReadFile(filepath.Join(repository, "examples", name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := CountLines(name, text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for example, most := range map[string]int{
		// In addition to a validator with its server, its certificates and its registration it has what manager has.
		"webhook/small": 0,
		"manager":       0, // flags, probes, metrics, leader election and signals
	} {
		if further := lines(example) - lines("podprinter"); further > most {
			t.Errorf("examples/%s has %d lines more than examples/podprinter, at most %d are allowed", example, further, most)
		}
	}
}
