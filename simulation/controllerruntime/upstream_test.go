package controllerruntime

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	// controller-runtime's tests import these modules.
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// explanation is a reason for which specs of controller-runtime's tests fail.
type explanation struct {
	reason string
	specs  *regexp.Regexp
	count  int // of specs that fail
}

func explanations(suite string) []explanation {
	return map[string][]explanation{
		"client": {
			{
				"an apply of a Node is not validated, because no schema of it is generated",
				regexp.MustCompile("^ClientWithFieldValidation / should return errors for invalid fields"), 1,
			},
		},
	}[suite]
}

// spec is a test in a report of Ginkgo.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " / ")
}

// The tests of controller-runtime's packages client and cache pass, as with an existing cluster, except for the explained
// specs. They run in the module cache, with the versions of this module. An explained spec that passes is an error too.
func TestUpstream(t *testing.T) {
	t.Parallel()
	suites := []string{"client", "cache"} // cache takes a minute
	for _, suite := range suites[:testlength.Count(1, 2)] {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			specs := runSuite(t, "sigs.k8s.io/controller-runtime/pkg/"+suite)
			counts := map[string]int{}
			explained := explanations(suite)
			for _, spec := range specs {
				switch spec.State {
				case "passed", "pending", "skipped":
					counts[spec.State]++
					continue
				}
				i := slices.IndexFunc(explained, func(e explanation) bool { return e.specs.MatchString(spec.name()) })
				if i < 0 {
					counts["failed"]++
					t.Errorf("%s: %s\n%s", spec.State, spec.name(), spec.Failure.Message)
					continue
				}
				counts["explained"]++
				explained[i].count--
			}
			for _, e := range explained {
				if e.count != 0 {
					t.Errorf("%d explained specs passed: %s", e.count, e.reason)
				}
			}
			if counts["passed"] < 200 {
				t.Errorf("only %d specs passed", counts["passed"])
			}
			t.Log(counts)
		})
	}
}

// runSuite runs the tests of a package against a new cluster, as envtest is one.
func runSuite(t *testing.T, path string) []spec {
	t.Helper()
	cluster := simulation.New(t, simulation.Config{WithoutControllers: true})
	report := filepath.Join(t.TempDir(), "report.json")
	// These specs read with a cancelled context, and fail if the new informer has synced before the read looks at it.
	const skipped = "should return an error when context is cancelled"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", path,
		"-args", "-ginkgo.json-report="+report, "-ginkgo.skip="+skipped)
	cmd.Env = append(os.Environ(), "USE_EXISTING_CLUSTER=true", "KUBECONFIG="+cluster.Serve())
	output, runErr := cmd.CombinedOutput()
	// The only test that may fail is the one that runs the specs.
	if failed := regexp.MustCompile(`(?m)^--- FAIL: .*`).FindAllString(string(output), -1); runErr != nil && len(failed) != 1 {
		t.Errorf("failed tests: %q", failed)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("no report: %v\n%s", runErr, output)
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(text, &suites); err != nil {
		t.Fatal(err)
	}
	var specs []spec
	for _, suite := range suites {
		specs = append(specs, suite.SpecReports...)
	}
	return specs
}
