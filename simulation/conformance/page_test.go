package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pagePath is the generated page.
const pagePath = "../../docs/reference/conformance.md"

const maskHeader = "| Mask | Reason | Applied |\n|---|---|--:|\n"

// TestPage compares the masks of the page with those of the code.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), maskHeader)
	table, _, _ = strings.Cut(table, "\n\n")
	var want, got []string
	for _, m := range masks() {
		want = append(want, fmt.Sprintf("| %s | %s |", m.name, m.reason))
	}
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		line = strings.TrimSuffix(line, " |")
		got = append(got, line[:strings.LastIndex(line, "|")+1]) // without the number
	}
	if difference := compare([2]string{strings.Join(want, "\n"), strings.Join(got, "\n")}); difference != "" {
		t.Errorf("docs/reference/conformance.md has other masks: make conformance OPS=10000 PAGE=1 writes it\n%s", difference)
	}
}

// TestPageHasEachKind checks that the page has operations on each kind, and at least those that have a minimum.
func TestPageHasEachKind(t *testing.T) {
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), operationsHeader)
	if !found {
		t.Fatalf("docs/reference/conformance.md has no table of operations: make conformance OPS=10000 PAGE=1 writes it\n%s", operationsHeader)
	}
	rows := map[string][]string{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 6 {
			break
		}
		rows[strings.TrimSpace(cells[1])] = cells
	}
	for _, k := range kinds() {
		cells, found := rows[k.resource]
		if !found {
			t.Errorf("docs/reference/conformance.md has no operations on %s: make conformance OPS=10000 PAGE=1 writes it", k.resource)
			continue
		}
		for column, want := range []int{len(minimumsOf(k)), len(minimumsOf(k))} { // operations, and pairs of verb and code
			cell := strings.TrimSpace(cells[2+2*column])
			if got, err := strconv.Atoi(cell); err != nil || got < want {
				t.Errorf("docs/reference/conformance.md has %q for %s, column %d; want at least %d: make conformance OPS=10000 PAGE=1 writes it", cell, k.resource, 2+2*column, want)
			}
		}
	}
}

// operationsHeader is the head of the table of operations.
const operationsHeader = "| Kind | Operations | Successful | Verbs with their codes |\n|---|--:|--:|--:|\n"

// page returns docs/reference/conformance.md.
func (r *runner) page(t *testing.T, kinds []*kind, seed uint64, version string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!-- Written by `make conformance OPS=10000 PAGE=1`. Do not edit: the text is in " +
		"simulation/conformance/page_test.go. -->\n# Conformance of the API server for tests\n\n")
	fmt.Fprintf(&b, "%s, %s. On %s, %d cores. Kubernetes %s; libraries %s. Seed %d: %d operations, no differences.\n\n",
		time.Now().UTC().Format("2 January 2006"), runtime.Version(), processor(), runtime.NumCPU(), version, libraryVersion(t), seed, r.operations)
	b.WriteString("`make conformance` sends random operations to the API server in memory (`internal/apiserver`) and to a real " +
		"kube-apiserver,\nand compares codes, reasons, messages, warnings, objects and watch events. Values that a server chooses (uids, versions,\n" +
		"times, generated names) are renamed in the order of their first appearance. Each verb, kind and code has a minimum count\n" +
		"(`minimums_test.go`). `TestListParameters` and `TestWatchParameters` send all combinations of the parameters of lists and\nwatches.\n\n")
	b.WriteString("## Masks\n\nA mask is an accepted difference:\n\n" + maskHeader)
	for _, m := range masks() {
		fmt.Fprintf(&b, "| %s | %s | %d |\n", m.name, m.reason, r.masked[m.name])
	}
	b.WriteString("\n## Operations\n\nSuccessful operations by form:")
	for i, f := range forms() {
		separator := ","
		if i == 0 {
			separator = ""
		}
		fmt.Fprintf(&b, "%s %s %d", separator, f.name, r.forms[f.name])
	}
	b.WriteString(".\n\nThe last column counts the combinations of a verb and a code that occurred. `go test -v` prints each with its count.\n\n" + operationsHeader)
	for _, k := range kinds {
		var all, successful, pairs int
		for c, n := range r.coverage {
			if c.kind != k.resource || n == 0 {
				continue
			}
			all, pairs = all+n, pairs+1
			if c.code < http.StatusBadRequest {
				successful += n
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", k.resource, all, successful, pairs)
	}
	var exceptions []string
	for _, k := range kinds {
		for what, reason := range k.unreachable {
			exceptions = append(exceptions, fmt.Sprintf("- %s, %s: %s\n", k.resource, what, reason))
		}
	}
	if slices.Sort(exceptions); len(exceptions) > 0 {
		b.WriteString("\nWithout a minimum:\n\n" + strings.Join(exceptions, ""))
	}
	b.WriteString(notServed(t, r.real))
	return b.String()
}

// kubernetesVersion returns the version of a server.
func (s *server) kubernetesVersion(t *testing.T) string {
	t.Helper()
	var info struct{ GitVersion string }
	res := s.send(t.Context(), http.MethodGet, "/version", "", nil)
	if err := json.Unmarshal([]byte(res.body), &info); err != nil {
		t.Fatalf("%s: /version: %d %v", s.name, res.code, err)
	}
	return info.GitVersion
}

// libraryVersion returns the version of the Kubernetes libraries. A test binary has no list of its modules.
func libraryVersion(t *testing.T) string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/apimachinery").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(version))
}

// processor returns the name of the CPU.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	_, rest, found := strings.Cut(string(info), "model name\t: ")
	if name, _, _ := strings.Cut(rest, "\n"); found {
		return name
	}
	return runtime.GOARCH
}
