package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/cover"
)

// shopConfig tries all mutants of package price.
func shopConfig(t *testing.T) config {
	t.Helper()
	folder := t.TempDir()
	return config{
		dir: shop, patterns: []string{"./price"}, n: 1000, seed: 1, slack: 3 * time.Second,
		state: filepath.Join(folder, "state.json"), out: filepath.Join(folder, "results.md"), verdicts: filepath.Join(folder, "verdicts.txt"),
	}
}

func idOf(t *testing.T, change string) string {
	t.Helper()
	for _, m := range findIn(t, shop, "./price") {
		if m.Before+" => "+m.After == change {
			return m.ID
		}
	}
	t.Fatalf("no mutant %q", change)
	return ""
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRunReportsSurvivorsAndRetriesThem(t *testing.T) {
	t.Parallel()
	c := shopConfig(t)
	limit := idOf(t, "return total > 99 => return total >= 99")
	if err := os.WriteFile(c.verdicts, []byte(limit+"\nreason: no promise about 99\n\nprice-00000000\nreason: gone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runTool(t.Context(), c, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	document := readFile(t, c.out)
	for _, want := range []string{
		"price/price.go:26\n\n```diff\n" + idOf(t, "return total > 99 => return total > 100") + " constant in Discount, price/price.go\n" +
			"- return total > 99\n+ return total > 100\n```\n\n2 tests reach it and pass.",
		"+ return \"\"\n```\n\nNo test reaches it.",
		"| price |", "seed 1",
	} {
		if !strings.Contains(document, want) {
			t.Errorf("the document has no %q:\n%s", want, document)
		}
	}
	if strings.Contains(document, limit) {
		t.Errorf("the document contains the explained survivor %s:\n%s", limit, document)
	}
	var results map[string]*result
	if err := json.Unmarshal([]byte(readFile(t, c.state)), &results); err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]result{
		"total += p => (removed)":                   {Outcome: killed, By: "example.com/shop/price.TestTotal"},
		"n -= 2 => (removed)":                       {Outcome: timedOut},
		`return strings.ToUpper(name) => return ""`: {Outcome: killed, By: "example.com/shop/cart.TestLine"},
		`return strings.ToLower("X") => return ""`:  {Outcome: notCovered},
		"return total > 99 => return total > 100":   {Outcome: survived},
		"for n > 1 { => for n > 2 {":                {Outcome: killed, By: "example.com/shop/price.TestHalve"},
	} {
		got := results[idOf(t, change)]
		if got == nil || got.Outcome != want.Outcome || want.By != "" && got.By != want.By {
			t.Errorf("%s: got %+v, want %+v", change, got, want)
		}
	}
	if !strings.Contains(out.String(), "verdict price-00000000: no mutant has this ID") {
		t.Errorf("the stale verdict is not reported:\n%s", out.String())
	}
	summary := lastLine(out.String())
	if !strings.HasPrefix(summary, "mutants: ") || !strings.HasSuffix(summary, "1 explained") {
		t.Errorf("the last line is %q", summary)
	}

	c.retry = true
	var second bytes.Buffer
	if err := runTool(t.Context(), c, &second); err != nil {
		t.Fatalf("%v\n%s", err, second.String())
	}
	if lastLine(second.String()) != summary {
		t.Errorf("after -retry the last line is %q, before it was %q", lastLine(second.String()), summary)
	}
	if !strings.Contains(readFile(t, c.out), "were taken over from an earlier run") {
		t.Error("the document does not mention the earlier run")
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestRunOfOneMutantShowsItsOutcome(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		`return strings.ToUpper(name) => return ""`: "killed example.com/shop/cart.TestLine in",
		"return total > 99 => return total >= 99":   "survived in",
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			c := shopConfig(t)
			c.run = []string{idOf(t, change)}
			var out bytes.Buffer
			if err := runTool(t.Context(), c, &out); err != nil {
				t.Fatal(err)
			}
			if got := lastLine(out.String()); !strings.HasPrefix(got, c.run[0]+": "+want) {
				t.Errorf("got %q", out.String())
			}
		})
	}
}

func TestLastPackagesRunCompletely(t *testing.T) {
	for change, want := range map[string]string{
		`return strings.ToUpper(name) => return ""`: "killed example.com/shop/till.TestLabel in",
		"return total > 99 => return total >= 99":   "survived in", // TestSecondRun fails once, and passes when it runs again
	} {
		t.Run(change, func(t *testing.T) {
			t.Setenv("SHOP_RUNS", filepath.Join(t.TempDir(), "runs"))
			c := shopConfig(t)
			c.run, c.last = []string{idOf(t, change)}, "./price=./till,./price=./cart"
			var out bytes.Buffer
			if err := runTool(t.Context(), c, &out); err != nil {
				t.Fatal(err)
			}
			if got := lastLine(out.String()); !strings.HasPrefix(got, c.run[0]+": "+want) {
				t.Errorf("got %q", out.String())
			}
		})
	}
	c := shopConfig(t)
	c.last = "./price"
	if err := runTool(t.Context(), c, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), `-last: "./price" is not of the form`) {
		t.Errorf("the error is %v", err)
	}
}

func TestMutantThatDoesNotCompileIsKilled(t *testing.T) {
	t.Parallel()
	s := &session{config: shopConfig(t), stdout: &bytes.Buffer{}}
	if err := s.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := s.newBench(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(b.work) //nolint:errcheck // it is a temporary folder
	broken := *s.mutants[0]
	broken.edits = []edit{{broken.edits[0].start, broken.edits[0].end, "undefined()"}}
	if r, err := b.try(t.Context(), &broken); err != nil || r.Outcome != killed || !strings.Contains(r.By, "does not compile") {
		t.Errorf("got %+v, %v", r, err)
	}
}

// cancelOn is a writer that cancels when the given text is written.
type cancelOn struct {
	bytes.Buffer
	text   string
	cancel context.CancelCauseFunc
}

func (w *cancelOn) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.cancel(errInterrupted)
	}
	return w.Buffer.Write(p)
}

func TestInterruptedRunWritesResults(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"measuring", " tried, "} {
		c := shopConfig(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		out := &cancelOn{text: text, cancel: cancel}
		if err := runTool(ctx, c, out); !errors.Is(err, errInterrupted) {
			t.Fatalf("interrupted while it prints %q: got %v", text, err)
		}
		if got := lastLine(out.String()); !strings.HasPrefix(got, "mutants: ") {
			t.Errorf("the last line is %q", got)
		}
		if !strings.Contains(readFile(t, c.out), "The run was interrupted.") {
			t.Error("the document does not mention the interruption")
		}
	}
}

func TestRunReportsTestsThatFailWithoutMutant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/x\n\ngo 1.26.0\n", "x.go": "package x\n\nfunc f() int { return 1 }\n",
		"x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Fatal(f(), \"broken\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := shopConfig(t)
	c.dir, c.patterns = dir, []string{"."}
	err := runTool(t.Context(), c, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "TestF fails without a mutant") {
		t.Errorf("got %v", err)
	}
}

func block(startLine, startColumn, endLine, endColumn, count int) cover.ProfileBlock {
	return cover.ProfileBlock{StartLine: startLine, StartCol: startColumn, EndLine: endLine, EndCol: endColumn, Count: count}
}

func TestProfileCovers(t *testing.T) {
	t.Parallel()
	p := profile{"m/a.go": {block(1, 1, 3, 5, 1), block(5, 1, 7, 2, 0)}, "m/b.go": {block(1, 1, 2, 1, 0)}}
	for _, test := range []struct {
		file         string
		line, column int
		want         bool
	}{
		{"a.go", 3, 4, true},
		{"a.go", 3, 5, true},
		{"a.go", 6, 1, false},
		{"a.go", 5, 1, false},
		{"b.go", 1, 1, false},
		{"b.go", 9, 1, false},
		{"c.go", 1, 1, false},
	} {
		m := &mutant{Package: "m", File: "x/" + test.file, Line: test.line, column: test.column}
		if got := p.covers(m); got != test.want {
			t.Errorf("%s:%d:%d: got %v", test.file, test.line, test.column, got)
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"-package is missing": {},
		"unexpected argument": {"-package", "./x", "./y"},
		"must be above zero":  {"-package", "./x", "-n", "0"},
	} {
		if err := start(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	unknown, missing := shopConfig(t), shopConfig(t)
	unknown.run, missing.retry = []string{"price-1"}, true
	for want, c := range map[string]config{"no mutant price-1 in ": unknown, "-retry needs": missing} {
		if err := runTool(t.Context(), c, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
