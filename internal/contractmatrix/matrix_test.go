package contractmatrix

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The matrix allocates 3.5 GB and keeps a few MB at a time: with the default of 100, the garbage collector takes a fifth of
	// its CPU time.
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}

//nolint:gochecknoglobals // a flag must be defined before the tests begin
var update = flag.Bool("update", false, "write docs/contract-matrix.md")

const (
	contractsPage = "../../docs/contracts.md"
	matrixPage    = "../../docs/contract-matrix.md"
)

// TestContractMatrix tests each contract in each configuration. See the package's documentation.
func TestContractMatrix(t *testing.T) {
	t.Parallel()
	t.Run("complete", func(t *testing.T) {
		t.Parallel()
		page, err := os.ReadFile(contractsPage)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range checkMatrix(string(page), contracts(), configurations()) {
			t.Error(problem)
		}
	})
	t.Run("page", func(t *testing.T) {
		t.Parallel()
		want := renderPage(contracts(), configurations())
		if *update {
			if err := os.WriteFile(matrixPage, []byte(want), 0o644); err != nil { //nolint:gosec // a page of the docs
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(matrixPage)
		if err != nil || string(got) != want {
			t.Errorf("docs/contract-matrix.md differs from the tables (%v): go test ./internal/contractmatrix -run TestContractMatrix/page -update writes it", err)
		}
	})
	for _, c := range contracts() {
		t.Run(fmt.Sprintf("contract%02d", c.number), func(t *testing.T) {
			t.Parallel()
			for _, conf := range configurations() {
				if c.reason(conf.name) != "" {
					continue
				}
				t.Run(conf.name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { c.scenario(newCell(t, conf)) })
				})
			}
		})
	}
}

// contract is a row of the matrix.
type contract struct {
	number int
	// scenario tests the contract in every configuration. If it is nil, because is the reason.
	scenario func(x *cell)
	// tests describes the scenario, for the page.
	tests string
	// only contains the configurations of the scenario, if it is not for all; because is the reason.
	only    []string
	because string
	// except contains further configurations without a test, and the reasons.
	except map[string]string
}

// reason returns the reason why the contract has no test in a configuration, or "" if it has one.
func (c contract) reason(configuration string) string {
	if reason := c.except[configuration]; reason != "" {
		return reason
	}
	if c.scenario == nil || c.only != nil && !slices.Contains(c.only, configuration) {
		return c.because
	}
	return ""
}

// checkMatrix returns the problems of the tables: a contract of the page without a row, a row without a contract, a
// cell with neither a test nor a reason.
func checkMatrix(page string, rows []contract, columns []configuration) []string {
	var problems []string
	fail := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	promised := map[int]bool{}
	for _, found := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(page, -1) {
		number, err := strconv.Atoi(found[1])
		if err != nil {
			fail("contract %s: %v", found[1], err)
		}
		promised[number] = true
		if !slices.ContainsFunc(rows, func(c contract) bool { return c.number == number }) {
			fail("contract %d of docs/contracts.md has no row in contracts()", number)
		}
	}
	if len(promised) == 0 {
		fail("docs/contracts.md has no contracts")
	}
	names := map[string]bool{}
	for _, conf := range columns {
		if names[conf.name] {
			fail("there are two configurations %s", conf.name)
		}
		names[conf.name] = true
	}
	for i, c := range rows {
		switch {
		case !promised[c.number]:
			fail("the row of contract %d has no contract in docs/contracts.md", c.number)
		case i > 0 && rows[i-1].number >= c.number:
			fail("the row of contract %d follows that of contract %d", c.number, rows[i-1].number)
		}
		if (c.scenario == nil || c.only != nil) != (c.because != "") {
			fail("contract %d: because must say why configurations have no test, and nothing when only the exceptions have none", c.number)
		}
		if (c.scenario == nil) != (c.tests == "") {
			fail("contract %d: tests must say what its scenario tests", c.number)
		}
		for _, name := range c.only {
			if !names[name] {
				fail("contract %d names the configuration %s, which does not exist", c.number, name)
			}
		}
		for name, reason := range c.except {
			if !names[name] || reason == "" {
				fail("contract %d excepts %q for the reason %q", c.number, name, reason)
			}
		}
	}
	return problems
}

// renderPage returns docs/contract-matrix.md.
func renderPage(rows []contract, columns []configuration) string {
	var b strings.Builder
	b.WriteString(`# Contract matrix

<!-- Generated: go test ./internal/contractmatrix -run TestContractMatrix/page -update -->

Many defects of a controller library occur where two features meet. So each of the [contracts](contracts.md) is tested
in each of these configurations:

| Configuration | Description |
|---|---|
`)
	for _, conf := range columns {
		fmt.Fprintf(&b, "| %s | %s |\n", conf.name, conf.about)
	}
	b.WriteString(`
One table generates the tests (` + "`internal/contractmatrix`" + `), which use an API server in memory and virtual time:

` + "```sh\ngo test ./... -run TestContractMatrix -v\ngo test ./... -run TestContractMatrix/contract07/debounce\n```" + `

The contracts list their other tests. In the table **✓** is a test, and a letter is the reason for a missing
test.

| Contract |`)
	for _, conf := range columns {
		fmt.Fprintf(&b, " %s |", conf.name)
	}
	b.WriteString("\n|---" + strings.Repeat("|:-:", len(columns)) + "|\n")
	var reasons []string
	for _, c := range rows {
		fmt.Fprintf(&b, "| %d |", c.number)
		for _, conf := range columns {
			reason := c.reason(conf.name)
			if reason == "" {
				b.WriteString(" ✓ |")
				continue
			}
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
			fmt.Fprintf(&b, " %s |", letter(slices.Index(reasons, reason)))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nThe tests:\n\n")
	for _, c := range rows {
		if c.scenario != nil {
			b.WriteString(listItem(fmt.Sprintf("**%d**: %s", c.number, c.tests)))
		}
	}
	if len(reasons) > 0 {
		b.WriteString("\nThe reasons for missing tests:\n\n")
		for i, reason := range reasons {
			b.WriteString(listItem(fmt.Sprintf("**%s**: %s", letter(i), reason)))
		}
	}
	return b.String()
}

// listItem returns text as an item of a list, in lines of at most 120 characters.
func listItem(text string) string {
	var b strings.Builder
	line := "-"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 120 {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// letter names the reason with this number: a to z, aa, ab, ...
func letter(number int) string {
	if number < 26 {
		return string(rune('a' + number))
	}
	return letter(number/26-1) + letter(number%26)
}
