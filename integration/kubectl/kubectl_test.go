// Package kubectl runs kubectl against the API server for tests and against a real one, and compares what it prints.
package kubectl

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: tests, cluster: {server: "%s"}}]
contexts: [{name: tests, context: {cluster: tests, user: tests}}]
users: [{name: tests}]
current-context: tests
`

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

// step is a command. Its words are separated by spaces; input is its standard input.
type step struct{ command, input string }

func steps() []step {
	const (
		config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: web}}\ndata: {k: '%s'}\n"
		widget = "apiVersion: kubectl.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: %d}\n"
	)
	return []step{
		{"create -f -", fmt.Sprintf(config, "1")},
		{"create -f -", fmt.Sprintf(config, "1")},
		{"get configmap a -o yaml", ""},
		{"get configmaps -l app=web -o name", ""},
		{"get configmap missing", ""},
		{"apply -f -", fmt.Sprintf(config, "2")},
		{"apply -f -", fmt.Sprintf(config, "2")},
		{"diff -f -", fmt.Sprintf(config, "3")},
		{"apply -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {k: '1'}\n"},
		{"apply --server-side -f -", fmt.Sprintf(config, "3")},
		{"apply --server-side --force-conflicts -f -", fmt.Sprintf(config, "3")},
		{"apply --server-side --field-manager other -f -", fmt.Sprintf(config, "4")},
		{"apply --server-side --dry-run=server -f -", fmt.Sprintf(config, "5")},
		{"label configmap a tier=front", ""},
		{"label configmap a tier=back", ""},
		{"label configmap a tier=back --overwrite", ""},
		{"annotate configmap a note=x", ""},
		{"edit configmap a", ""},
		{"get configmap a -o jsonpath={.metadata.labels}", ""},
		{"patch configmap a --type merge -p {\"data\":{\"m\":\"1\"}}", ""},
		{"patch configmap a --type json -p [{\"op\":\"remove\",\"path\":\"/data/m\"}]", ""},
		{"patch configmap a -p {\"data\":{\"s\":\"1\"}}", ""},
		{"replace -f -", fmt.Sprintf(config, "6")},
		{"get configmap a -o jsonpath={.data}", ""},
		{"get configmap a -o yaml --show-managed-fields", ""},
		{"wait configmap/a --for=jsonpath={.data.k}=6 --timeout=5s", ""},
		{"wait configmap/a --for=condition=Ready --timeout=1s", ""},
		{"explain configmap.data", ""},
		{"explain configmaps.metadata.name", ""},
		{"create service clusterip web --tcp=80:8080", ""},
		{"get service web -o jsonpath={.spec.ports}", ""},
		{"apply -f -", fmt.Sprintf(widget, 1)},
		{"apply -f -", fmt.Sprintf(widget, 2)},
		{"apply --server-side -f -", fmt.Sprintf(widget, 3)},
		{"apply --server-side --force-conflicts -f -", fmt.Sprintf(widget, 3)},
		{"patch widget w --subresource=status --type merge -p {\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}", ""},
		{"wait widget/w --for=condition=Ready --timeout=5s", ""},
		{"explain widget.spec", ""},
		{"get widget w -o jsonpath={.spec}", ""},
		{"patch widget w --type merge -p {\"metadata\":{\"finalizers\":[\"example.com/a\"]}}", ""},
		{"delete widget w --wait=false", ""},
		{"get widget w -o jsonpath={.metadata.finalizers}", ""},
		{"patch widget w --type json -p [{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]", ""},
		{"wait widget/w --for=delete --timeout=5s", ""},
		{"delete configmap a", ""},
		{"delete configmap a", ""},
		{"delete service web", ""},
	}
}

func TestKubectlPrintsTheSame(t *testing.T) {
	t.Parallel()
	binary, err := localcluster.Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	clients := []kubectl{{binary, local.Kubeconfig(), t.TempDir()}, {binary, serve(t), t.TempDir()}}
	clients[0].run(t, step{"create -f -", definition})
	clients[0].run(t, step{"wait crd/widgets.kubectl.example.com --for=condition=Established --timeout=30s", ""})
	for _, k := range clients {
		if text := k.run(t, step{"create namespace kubectl", ""}); !strings.Contains(text, "created") {
			t.Fatalf("%s: %s", k.kubeconfig, text)
		}
	}
	for i, s := range steps() {
		s.command += " -n kubectl"
		want, got := clients[0].run(t, s), clients[1].run(t, s)
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("step %d: kubectl %s\n(-real +memory)\n%s", i, s.command, diff)
		}
	}
}

// The server sends no tables, so kubectl prints the name and the age only.
func TestGetPrintsNameAndAge(t *testing.T) {
	t.Parallel()
	binary, err := localcluster.Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	k := kubectl{binary, serve(t), t.TempDir()}
	k.run(t, step{"create namespace shop", ""})
	text := k.run(t, step{"get namespaces", ""})
	if !regexp.MustCompile(`NAME +AGE\nshop +\S+\n`).MatchString(text) {
		t.Errorf("get namespaces:\n%s", text)
	}
	if text := k.run(t, step{"api-resources --no-headers -o name", ""}); !strings.Contains(text, "configmaps\n") ||
		!strings.Contains(text, "widgets.kubectl.example.com\n") {
		t.Errorf("api-resources:\n%s", text)
	}
}

// serve returns the path of a kubeconfig for a server in memory.
func serve(t *testing.T) string {
	t.Helper()
	widgets := apiserver.Custom(schema.GroupVersionKind{Group: "kubectl.example.com", Version: "v1", Kind: "Widget"}, "widgets")
	widgets.Status, widgets.OpenAPI = true, []byte(widgetSchema)
	s, err := apiserver.New(apiserver.Config{Seed: 1, Kinds: []*apiserver.Kind{
		apiserver.ConfigMaps(), apiserver.Secrets(), apiserver.Namespaces(), apiserver.Leases(), builtin.Services(), widgets,
	}})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s)
	t.Cleanup(func() { s.CloseWatches(); listener.Close() })
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, fmt.Appendf(nil, kubeconfig, listener.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl is a client of one server. home has its cache of discovery.
type kubectl struct{ binary, kubeconfig, home string }

// run runs a command and returns its normalized output, with its exit code.
func (k kubectl) run(t *testing.T, s step) string {
	t.Helper()
	const editor = `sed -i s/tier:.back/tier:\x20edited/`
	args := append([]string{"kubectl", "--kubeconfig", k.kubeconfig}, strings.Split(s.command, " ")...)
	cmd := exec.CommandContext(t.Context(), k.binary, args...)
	cmd.Env = append(os.Environ(), "KUBE_EDITOR="+editor, "HOME="+k.home, "TMPDIR="+k.home)
	cmd.Stdin = strings.NewReader(s.input)
	text, err := cmd.CombinedOutput()
	return normalize(string(text)) + fmt.Sprintf("\n%v", err)
}

func normalize(text string) string {
	for pattern, symbol := range map[string]string{
		`uid: \S+`: "uid: <uid>", `resourceVersion: \S+`: "resourceVersion: <version>", `(?m)^([-+]{3} \S+).*$`: "<diff>", `(?m)^diff -u.*$`: "<diff>",
		`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`: "<time>", `/\S*kubectl-\S+`: "<path>",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, symbol)
	}
	return text
}
