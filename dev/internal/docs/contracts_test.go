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

// TestContractsPage compares docs/reference/contracts.md with the tests of the repository: each contract has a test of its
// number, each test with the number of a contract is on the page, and each test on the page exists.
func TestContractsPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "reference", "contracts.md"))
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

// checkContracts returns the problems of the page, one sentence each. Each contract has a row in the table,
// | number | promise |, and a section of the same number below it, ### Contract number, which lists its tests, one a line:
// - `TestContract07_...`.
func checkContracts(page string, tests map[string]bool) []string {
	var problems []string
	fail := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	rows, sections := contractNumbers(page, `(?m)^\| (\d+) \|`), contractNumbers(page, `(?m)^### Contract (\d+)$`)
	if len(rows) == 0 {
		fail("the page has no contract")
	}
	for i, number := range rows {
		if number != i+1 {
			fail("contract %d follows contract %d", number, i)
		}
	}
	if !slices.Equal(rows, sections) {
		fail("the table has the contracts %v, and the sections are for %v", rows, sections)
	}
	listed := map[string]bool{} // tests on the page
	for _, number := range sections {
		own := false
		for _, name := range contractTests(page, number) {
			listed[name] = true
			own = own || contractOf(name) == number
			if !tests[name] {
				fail("contract %d lists %s, which does not exist", number, name)
			}
			if contract := contractOf(name); contract != 0 && contract != number {
				fail("contract %d lists %s, which is a test of contract %d", number, name, contract)
			}
		}
		if !own {
			fail("contract %d lists no test TestContract%02d_...", number, number)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		if !strings.HasPrefix(name, "TestContract") || name == "TestContractsPage" || name == "TestContractMatrix" {
			continue
		}
		switch number := contractOf(name); {
		case number == 0:
			fail("%s: write the number in two digits: TestContract07_...", name)
		case !listed[name]:
			fail("%s is not on the page: add it to contract %d", name, number)
		}
	}
	return problems
}

// contractNumbers returns the numbers that pattern finds, in their order.
func contractNumbers(page, pattern string) []int {
	var numbers []int
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1) {
		number, err := strconv.Atoi(found[1])
		if err != nil {
			number = 0
		}
		numbers = append(numbers, number)
	}
	return numbers
}

// contractTests returns the tests that the section of a contract lists.
func contractTests(page string, number int) []string {
	_, section, _ := strings.Cut(page, fmt.Sprintf("\n### Contract %d\n", number))
	section, _, _ = strings.Cut(section, "\n#")
	var names []string
	for _, found := range regexp.MustCompile("(?m)^- `(Test\\w+)`$").FindAllStringSubmatch(section, -1) {
		names = append(names, found[1])
	}
	return names
}

// contractOf returns the number of the contract in a test's name; 0 if it has none.
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

func TestCheckContracts(t *testing.T) {
	t.Parallel()
	// page writes a page of contracts, each with its tests: "1: A B".
	page := func(contracts ...string) string {
		table, sections := "| # | Contract |\n|---|---|\n", ""
		for _, contract := range contracts {
			number, names, _ := strings.Cut(contract, ":")
			table += "| " + number + " | a promise |\n"
			sections += "\n### Contract " + number + "\n\na promise\n\n"
			for name := range strings.FieldsSeq(names) {
				sections += "- `" + name + "`\n"
			}
		}
		return table + sections
	}
	for name, tc := range map[string]struct {
		page, tests string
		want        string // empty: no problem
	}{
		"right":                {page("1: TestContract01_A TestB", "2: TestContract02_A"), "TestContract01_A TestB TestContract02_A TestC", ""},
		"no contract":          {"# Contracts\n", "", "no contract"},
		"gap":                  {page("1: TestContract01_A", "3: TestContract03_A"), "TestContract01_A TestContract03_A", "contract 3 follows contract 1"},
		"row without section":  {page("1: TestContract01_A") + "| 2 | another |\n", "TestContract01_A", "the sections are for [1]"},
		"no test of contract":  {page("1: TestB"), "TestB", "contract 1 lists no test"},
		"missing test":         {page("1: TestContract01_A TestB"), "TestContract01_A", "lists TestB, which does not exist"},
		"other contract":       {page("1: TestContract01_A TestContract02_A"), "TestContract01_A TestContract02_A", "a test of contract 2"},
		"not on the page":      {page("1: TestContract01_A"), "TestContract01_A TestContract01_B", "TestContract01_B is not on the page"},
		"one digit":            {page("1: TestContract01_A"), "TestContract01_A TestContract1_B", "in two digits"},
		"number without a bar": {page("1: TestContract01_A"), "TestContract01_A TestContract01B", "in two digits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := map[string]bool{}
			for test := range strings.FieldsSeq(tc.tests) {
				tests[test] = true
			}
			got := strings.Join(checkContracts(tc.page, tests), "; ")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("checkContracts returns %q, want %q", got, tc.want)
			}
		})
	}
}
