package contractmatrix

import (
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

const contractsPage = "../../docs/reference/contracts.md"

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
	t.Log("\n" + describeMatrix(contracts(), configurations()))
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
	// tests describes the scenario, for describeMatrix.
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
			fail("contract %d of docs/reference/contracts.md has no row in contracts()", number)
		}
	}
	if len(promised) == 0 {
		fail("docs/reference/contracts.md has no contracts")
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
			fail("the row of contract %d has no contract in docs/reference/contracts.md", c.number)
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

// describeMatrix returns the configurations, the tests, and the reasons for missing tests, as text for go test -v.
func describeMatrix(rows []contract, columns []configuration) string {
	var b strings.Builder
	b.WriteString("Each contract is tested in each configuration:\n\n")
	for _, conf := range columns {
		fmt.Fprintf(&b, "%-12s %s\n", conf.name, conf.about)
	}
	b.WriteString("\n")
	for _, c := range rows {
		if c.scenario != nil {
			fmt.Fprintf(&b, "%-12d %s\n", c.number, c.tests)
		}
		for _, conf := range columns {
			if reason := c.reason(conf.name); reason != "" {
				fmt.Fprintf(&b, "%-12d not in %s: %s\n", c.number, conf.name, reason)
			}
		}
	}
	return b.String()
}
