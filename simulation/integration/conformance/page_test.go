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
const pagePath = "../../../docs/conformance.md"

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
		t.Errorf("docs/conformance.md has other masks: make conformance OPS=10000 PAGE=1 writes it\n%s", difference)
	}
}

// TestPageHasMinimums checks that the page has operations of each kind, verb and code that has a minimum.
func TestPageHasMinimums(t *testing.T) {
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), operationsHeader(kinds()))
	if !found {
		t.Fatalf("docs/conformance.md has no operations of these kinds: make conformance OPS=10000 PAGE=1 writes it\n%s", operationsHeader(kinds()))
	}
	cells := map[count]string{}
	for line := range strings.SplitSeq(table, "\n") {
		row := strings.Split(line, "|")
		if len(row) < len(kinds())+3 {
			break
		}
		code, err := strconv.Atoi(strings.TrimSpace(row[2]))
		if err != nil {
			t.Fatalf("a row without a code: %s", line)
		}
		for i, k := range kinds() {
			cells[count{k.resource, strings.TrimSpace(row[1]), code}] = strings.TrimSpace(row[3+i])
		}
	}
	for _, k := range kinds() {
		for _, m := range minimumsOf(k) {
			if cells[count{k.resource, m.verb, m.code}] == "" {
				t.Errorf("docs/conformance.md has no operation %s %d on %s: make conformance OPS=10000 PAGE=1 writes it", m.verb, m.code, k.resource)
			}
		}
	}
}

// operationsHeader is the head of the table of operations.
func operationsHeader(kinds []*kind) string {
	header := "| | |"
	for _, k := range kinds {
		header += " " + k.resource + " |"
	}
	return header + "\n|---|---|" + strings.Repeat("--:|", len(kinds)) + "\n"
}

// page returns docs/conformance.md.
func (r *runner) page(t *testing.T, kinds []*kind, seed uint64, version string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!-- Written by `make conformance OPS=10000 PAGE=1`. Do not edit: the text is in " +
		"simulation/integration/conformance/page_test.go. -->\n# Conformance of the API server for tests\n\n")
	fmt.Fprintf(&b, "%s, %s. On %s, %d cores. Kubernetes %s; libraries %s. Seed %d: %d operations, no differences.\n\n",
		time.Now().UTC().Format("2 January 2006"), runtime.Version(), processor(), runtime.NumCPU(), version, libraryVersion(t), seed, r.operations)
	b.WriteString("`make conformance` sends random operations to the API server in memory (`internal/apiserver`) and to a real " +
		"kube-apiserver\n(`localcluster`). It compares the codes, reasons, messages, warnings, objects and watch events.\n\n" +
		"- Values that a server chooses (uids, resource versions, times, generated names) are renamed in the order of their\n  first appearance.\n" +
		"- The operations of a sequence share a namespace and a few names, so that they meet the results of earlier ones. A\n  sequence with a difference is shortened before it is reported.\n" +
		"- Some sequences go on after both servers have lost their history: etcd is compacted, and kube-apiserver restarted.\n" +
		"- Each verb, kind and code has a minimum count (`minimums_test.go`, `definitionminimums_test.go`). Operations with a known\n  result fill up what random operations have not reached.\n" +
		"- `TestListParameters` and `TestWatchParameters` send all combinations of the parameters of lists and watches: version, its\n  match, limit and token, initial events and bookmarks.\n\n")
	b.WriteString("## Masks\n\nA mask is an accepted difference:\n\n" + maskHeader)
	for _, m := range masks() {
		fmt.Fprintf(&b, "| %s | %s | %d |\n", m.name, m.reason, r.masked[m.name])
	}
	b.WriteString("\n## Operations\n\nSuccessful operations by form:\n\n| Form | Operations |\n|---|--:|\n")
	for _, f := range forms() {
		fmt.Fprintf(&b, "| %s | %d |\n", f.name, r.forms[f.name])
	}
	b.WriteString("\nAll operations by verb, code and kind. A watch counts with the code of its response, or of its event of type ERROR.\n" +
		"Evict and bind are creations of the subresources `eviction` and `binding` of a Pod. Operations with \"custom resource\" are on the\n" +
		"custom resources of definitions that the other operations of the column change.\n\n" + operationsHeader(kinds))
	var rows []count
	for c := range r.coverage {
		if row := (count{verb: c.verb, code: c.code}); !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, compareCounts)
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s | %d |", row.verb, row.code)
		for _, k := range kinds {
			cell := " |"
			if n := r.coverage[count{k.resource, row.verb, row.code}]; n > 0 {
				cell = fmt.Sprintf(" %d |", n)
			}
			b.WriteString(cell)
		}
		b.WriteString("\n")
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
