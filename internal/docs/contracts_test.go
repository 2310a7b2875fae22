package docs

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestContractsPage holds docs/contracts.md to the tests that there are: each contract has a test
// of its number, each test that has the number of a contract is on the page, and each test on the
// page exists.
func TestContractsPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "contracts.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := testNames(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkContracts(string(text), tests) {
		t.Error(problem)
	}
}

// testNames returns the names of all tests below root.
func testNames(root fs.FS) (map[string]bool, error) {
	names := map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() && (base == "testdata" || name != "." && strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := goparser.ParseFile(token.NewFileSet(), name, text, goparser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	return names, err
}

// checkContracts returns what is wrong with the page, one sentence each. A row of its table is
// | number | promise | tests |.
func checkContracts(page string, tests map[string]bool) []string {
	var problems []string
	fail := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	named := map[string]int{} // tests on the page, and their contracts
	last := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // the head
		}
		if number != last+1 {
			fail("contract %d follows contract %d", number, last)
		}
		last = number
		own := false
		for _, found := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(cells[3], -1) {
			name := found[1]
			named[name] = number
			own = own || contractOf(name) == number
			if !tests[name] {
				fail("contract %d names %s, which is no test", number, name)
			}
			if of := contractOf(name); of != 0 && of != number {
				fail("contract %d names %s, which is a test of contract %d", number, name, of)
			}
		}
		if !own {
			fail("contract %d names no test TestContract%02d_...", number, number)
		}
	}
	if last == 0 {
		fail("there is no contract on the page")
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		if !strings.HasPrefix(name, "TestContract") || name == "TestContractsPage" || name == "TestContractMatrix" {
			continue
		}
		switch number := contractOf(name); {
		case number == 0:
			fail("%s: write the number in two digits: TestContract07_...", name)
		case named[name] == 0:
			fail("%s is not on the page: add it to contract %d", name, number)
		}
	}
	return problems
}

// contractOf returns the number of the contract that a test is of, by its name; 0 for none.
func contractOf(test string) int {
	found := regexp.MustCompile(`^TestContract(\d\d)_`).FindStringSubmatch(test)
	if found == nil {
		return 0
	}
	number, err := strconv.Atoi(found[1])
	if err != nil {
		return 0
	}
	return number
}

// The check itself: each rule is broken once.
func TestCheckContracts(t *testing.T) {
	t.Parallel()
	const head = "| # | promise | tests |\n|---|---|---|\n"
	for name, tc := range map[string]struct {
		page, tests string
		want        string // empty: nothing is wrong
	}{
		"right":                  {head + "| 1 | one | `TestContract01_A`, `TestB` |\n| 2 | two | `TestContract02_A` |\n", "TestContract01_A TestB TestContract02_A TestC", ""},
		"no contract":            {"# Contracts\n", "", "there is no contract"},
		"a gap":                  {head + "| 1 | one | `TestContract01_A` |\n| 3 | three | `TestContract03_A` |\n", "TestContract01_A TestContract03_A", "contract 3 follows contract 1"},
		"no test of the number":  {head + "| 1 | one | `TestB` |\n", "TestB", "contract 1 names no test"},
		"no such test":           {head + "| 1 | one | `TestContract01_A`, `TestB` |\n", "TestContract01_A", "names TestB, which is no test"},
		"another's test":         {head + "| 1 | one | `TestContract01_A`, `TestContract02_A` |\n", "TestContract01_A TestContract02_A", "a test of contract 2"},
		"not on the page":        {head + "| 1 | one | `TestContract01_A` |\n", "TestContract01_A TestContract01_B", "TestContract01_B is not on the page"},
		"a number in one digit":  {head + "| 1 | one | `TestContract01_A` |\n", "TestContract01_A TestContract1_B", "in two digits"},
		"a number without a bar": {head + "| 1 | one | `TestContract01_A` |\n", "TestContract01_A TestContract01B", "in two digits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := map[string]bool{}
			for test := range strings.FieldsSeq(tc.tests) {
				tests[test] = true
			}
			got := strings.Join(checkContracts(tc.page, tests), "; ")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("checkContracts says %q, want %q", got, tc.want)
			}
		})
	}
}
