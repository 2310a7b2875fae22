// Package kubectl runs kubectl against the API server for tests and against a real one, and compares what it prints.
package kubectl

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{Nodes: 2}, func(c *localcluster.Cluster) { local = c })
}

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kubectl.example.com}
spec:
  group: kubectl.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: ` + widgetSchema + `}}
`

const widgetSchema = `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"description":"Widget is a part.","properties":{"spec":{"type":"object","description":"The desired state.","x-kubernetes-preserve-unknown-fields":true}}}`

func TestKubectlOutputIsEqual(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		namespace string
		steps     []step
	}{
		{"objects", objectSteps()},
		{"collections", collectionSteps()},
		{"workloads", workloadSteps()},
		{"descriptions", descriptionSteps()},
		{"nodes", nodeSteps()},
		{"permissions", permissionSteps()},
	} {
		t.Run(test.namespace, func(t *testing.T) {
			t.Parallel()
			clients := pair(t, test.namespace)
			for i, s := range test.steps {
				s.command += " -n " + test.namespace
				want, got := clients[0].run(t, s), clients[1].run(t, s)
				compare(t, fmt.Sprintf("step %d: kubectl %s", i, s.command), want, got)
			}
		})
	}
}

// Commands that wait print the same when another command makes the change that they wait for.
func TestKubectlWaits(t *testing.T) {
	t.Parallel()
	const namespace = "waits"
	var outputs [2][]string
	for i, k := range pair(t, namespace) {
		for _, s := range waitingSteps() {
			outputs[i] = append(outputs[i], k.runWhile(t, s, namespace))
		}
	}
	for i, s := range waitingSteps() {
		compare(t, "kubectl "+s.command, outputs[0][i], outputs[1][i])
	}
}

func compare(t *testing.T, name, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s\n(-real +memory)\n%s", name, diff)
	}
}

// pair returns clients of the real server and of one in memory, which have the namespace.
func pair(t *testing.T, namespace string) [2]kubectl {
	t.Helper()
	binary, err := localcluster.Build(t.Context(), "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	memory := simulation.New(t, simulation.Config{YAML: definition})
	clients := [2]kubectl{{binary, local.Kubeconfig(), t.TempDir()}, {binary, memory.Serve(), t.TempDir()}}
	clients[0].run(t, step{"apply --server-side -f -", definition})
	clients[0].run(t, step{"wait crd/widgets.kubectl.example.com --for=condition=Established --timeout=30s", ""})
	for _, k := range clients {
		if text := k.run(t, step{"create namespace " + namespace, ""}); !strings.Contains(text, "created") {
			t.Fatalf("%s: %s", k.kubeconfig, text)
		}
	}
	clients[0].run(t, step{"wait serviceaccount/default --for=create --timeout=30s -n " + namespace, ""}) // Pods need it
	return clients
}

// Each resource in memory has the names, verbs and categories of the real server's. The real server has more resources:
// reviews, and resources that are not stored.
func TestAPIResourcesAreEqual(t *testing.T) {
	t.Parallel()
	clients := pair(t, "resources")
	const command = "api-resources --no-headers -o wide"
	inReal := map[string]bool{}
	spaces := regexp.MustCompile(` +`)
	for line := range strings.SplitSeq(clients[0].run(t, step{command, ""}), "\n") {
		inReal[spaces.ReplaceAllString(line, " ")] = true
	}
	for line := range strings.SplitSeq(clients[1].run(t, step{command, ""}), "\n") {
		if !inReal[spaces.ReplaceAllString(line, " ")] {
			t.Errorf("only in memory: %s", line)
		}
	}
}

// The server sends no tables, so kubectl prints the name and the age only.
func TestGetPrintsNameAndAge(t *testing.T) {
	t.Parallel()
	k := pair(t, "ages")[1]
	k.run(t, step{"apply -n ages -f -", fmt.Sprintf(config, "1")})
	text := k.run(t, step{"get configmaps -n ages", ""})
	if !regexp.MustCompile(`NAME +AGE\na +\S+\n`).MatchString(text) {
		t.Errorf("get configmaps:\n%s", text)
	}
}

// kubectl is a client of one server. home has its cache of discovery.
type kubectl struct{ binary, kubeconfig, home string }

// command returns a command of this client, without input.
func (k kubectl) command(t *testing.T, words string) *exec.Cmd {
	t.Helper()
	const editor = `sed -i 's/tier: back/tier: edited/'`
	args := append([]string{"kubectl", "--kubeconfig", k.kubeconfig}, strings.Split(words, " ")...)
	cmd := exec.CommandContext(t.Context(), k.binary, args...)
	cmd.Env = append(os.Environ(), "KUBE_EDITOR="+editor, "HOME="+k.home, "TMPDIR="+k.home)
	return cmd
}

// run runs a command and returns its normalized output, with its exit code.
func (k kubectl) run(t *testing.T, s step) string {
	t.Helper()
	cmd := k.command(t, s.command)
	cmd.Stdin = strings.NewReader(s.input)
	text, err := cmd.CombinedOutput()
	return normalize(string(text)) + fmt.Sprintf("\n%v", err)
}

// runWhile is run for a command that waits for changes: it makes them after the first line of the output.
func (k kubectl) runWhile(t *testing.T, s waitingStep, namespace string) string {
	t.Helper()
	k.run(t, step{"apply -n " + namespace + " -f -", s.object})
	cmd := k.command(t, s.command+" -n "+namespace)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(out)
	text, _ := reader.ReadString('\n')
	text += "meanwhile: " + k.run(t, step{s.meanwhile + " -n " + namespace, ""}) + "\n"
	rest, _ := io.ReadAll(reader)
	return normalize(text+string(rest)) + fmt.Sprintf("\n%v", cmd.Wait())
}

func normalize(text string) string {
	const uid = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	for pattern, symbol := range map[string]string{
		uid: "<uid>", `(?i)(resource ?version\W+)\d+`: "$1<version>", `(?m)^([-+]{3} \S+).*$`: "<diff>", `(?m)^diff -u.*$`: "<diff>",
		`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`: "<time>", `\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [-+]\d{4}`: "<time>", `(?m)^(Duration: +)\S+$`: "$1<duration>",
		`/\S*kubectl-\S+`: "<path>", `\b(W\d{4}) \d\d:\S+ +\d+`: "$1",
		`10\.96\.\d+\.\d+`: "<address>", `\b(pod \S+|pod/\S+)-[0-9a-z]{5}\b`: "$1-<random>",
		// The models' Pods need a second to be ready, those of the real cluster are ready at once.
		`(?m)^Waiting for deployment.*\n`: "",
		// A controller of the real server reports the address of a Service that is created while it checks all addresses.
		`(?m)^Events:\n  Type .*\n  ---- .*\n  Warning  ClusterIPNotAllocated .*$`: "Events:                   <none>",
		// A client uses it to find out whether two resources are stored as one.
		`,"storageVersionHash":"[^"]*"`: "",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, symbol)
	}
	return text
}
