package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const shop = "testdata/shop"

func findIn(t *testing.T, dir string, patterns ...string) []*mutant {
	t.Helper()
	packages, err := load(t.Context(), dir, patterns)
	if err != nil {
		t.Fatal(err)
	}
	return find(packages)
}

func TestFindReturnsMutantsOfEachOperator(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range findIn(t, shop, "./operators") {
		got = append(got, m.Operator+" "+m.Function+": "+m.Before+" => "+m.After)
	}
	want := strings.Split(strings.TrimSpace(`
constant timeout: const timeout = 30 * time.Second => const timeout = 60 * time.Second
constant timeout: const timeout = 30 * time.Second => const timeout = 30 * time.Minute
negate (*box).put: if n <= 0 && last { => if !(n <= 0 && last) {
logic (*box).put: if n <= 0 && last { => if n <= 0 || last {
boundary (*box).put: if n <= 0 && last { => if n < 0 && last {
constant (*box).put: if n <= 0 && last { => if n <= 1 && last {
return (*box).put: return b.size, fmt.Errorf("%d is not positive", n) => return 0, nil
return (*box).put: return b.size, fmt.Errorf("%d is not positive", n) => return b.size, nil
negate (*box).put: if !b.open { => if b.open {
remove (*box).put: b.open = last => (removed)
boolean (*box).put: b.open = last => b.open = !last
remove (*box).put: b.size += n => (removed)
remove (*box).put: b.state = busy => (removed)
constant (*box).put: b.state = busy => b.state = idle
constant (*box).put: _ = make([]int, 0, 8) => _ = make([]int, 1, 8)
return (*box).put: return b.size, nil => return 0, nil
negate largest: if n == 7 { => if n != 7 {
constant largest: if n == 7 { => if n == 8 {
constant largest: if n == 7 { => if n == 6 {
jump largest: continue => (removed)
negate largest: if n > most { => if !(n > most) {
remove largest: most = n => (removed)
negate largest: case n > 100: => case !(n > 100):
boundary largest: case n > 100: => case n >= 100:
constant largest: case n > 100: => case n > 101:
constant largest: case n > 100: => case n > 99:
return largest: return most - 1 => return 0
arithmetic largest: return most - 1 => return most + 1
constant largest: return most - 1 => return most - 2
constant largest: return most - 1 => return most - 0
return largest: return most => return 0
negate (*box).close: if b.size != 0 { => if b.size == 0 {
constant (*box).close: if b.size != 0 { => if b.size != 1 {
remove (*box).close: fmt.Println("not empty") => (removed)
jump (*box).close: return => (removed)
remove (*box).close: b.open = false => (removed)
boolean (*box).close: b.open = false => b.open = true
`), "\n")
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("unexpected: %s", line)
		}
	}
}

func TestMutatedFileKeepsImportsAndVariablesInUse(t *testing.T) {
	t.Parallel()
	for _, m := range findIn(t, shop, "./operators") {
		if m.Operator != opRemove || !strings.HasPrefix(m.Before, "b.size += n") {
			continue
		}
		if got := string(m.mutated()); !strings.Contains(got, "_ = b; _ = n\n") {
			t.Errorf("the variables of the removed statement are not used:\n%s", got)
		}
	}
	mutants := findIn(t, shop, "./cart")
	at := slices.IndexFunc(mutants, func(m *mutant) bool { return m.Operator == opReturn })
	if got := string(mutants[at].mutated()); !strings.Contains(got, `import _ "example.com/shop/price"`) {
		t.Errorf("the import is not blank:\n%s", got)
	}
}

func TestIDsAreStable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(shop, "price", "price.go"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	edited := strings.Replace(string(text), "// Total adds", "var added = 1 > 2\n\n// Total adds", 1)
	for name, content := range map[string]string{"go.mod": "module example.com/shop\n\ngo 1.26.0\n", "internal/price/price.go": edited} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(mutants []*mutant) []string {
		var all []string
		for _, m := range mutants {
			if m.Function != "added" {
				all = append(all, m.ID)
			}
		}
		return all
	}
	before, after := ids(findIn(t, shop, "./price")), ids(findIn(t, dir, "./..."))
	if !slices.Equal(before, after) {
		t.Errorf("before %v\nafter %v", before, after)
	}
	if slices.Sort(before); len(slices.Compact(slices.Clone(before))) != len(before) {
		t.Errorf("two mutants have one ID: %v", before)
	}
}
