// Package upgrade tests that an operator of one version of the library works on the objects of another one.
package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

const (
	repository = "../../.."
	// predecessor is the environment variable with the commit of the other version. Without it, both are the same:
	// what a restart must not change, an upgrade must not change either.
	predecessor = "EVENKEEL_PREDECESSOR"
	// system is the namespace of the operator's lease and certificates.
	system = "webapp-operator"
)

var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{Nodes: 1}, func(c *localcluster.Cluster) { local = c })
}

// The operator of examples/webapp is replaced by its next version, and that by the former one again. Neither changes what
// the other one has written, and each continues its work.
func TestVersionsWorkOnEachOthersObjects(t *testing.T) {
	testlength.OnlyLong(t)
	u := newUpgrade(t)
	former, present := u.build(os.Getenv(predecessor)), u.build("")

	stop := u.start(former)
	u.change("shop", "registry.example.com/shop:1.0")
	written := u.written()
	stop()
	for i, program := range []string{present, former} {
		stop := u.start(program)
		u.change(fmt.Sprintf("other-%d", i), "registry.example.com/shop:1.0") // the first list was handled before it
		if changes := diff.Diff(written, u.written()); changes != "" {
			t.Errorf("%s changed objects of the other version (-before +after):\n%s", filepath.Base(program), changes)
		}
		u.change("shop", fmt.Sprintf("registry.example.com/shop:2.%d", i))
		written = u.written()
		stop()
	}
	stop = u.start(present)
	u.delete("shop")
	stop()
}

type upgrade struct {
	clustertest.Env
	kubeconfig string
	arguments  []string
	hosts      sync.Map // the records outside of the cluster: the owners by host
}

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	u := &upgrade{Env: clustertest.NewEnv(t, local.RESTConfig()), kubeconfig: local.Kubeconfig()}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}
	if _, err := client.Create(t.Context(), u.Client, namespace); err != nil {
		t.Fatal(err)
	}
	u.apply(filepath.Join(repository, "examples/webapp/api/v1/webapp.example.com_webapps.yaml"))
	records := httptest.NewServer(http.HandlerFunc(u.record))
	t.Cleanup(records.Close)
	address := func() string {
		listener := clustertest.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
		defer func() { _ = listener.Close() }()
		return listener.Addr().String()
	}
	hooks := address()
	u.arguments = []string{
		"--records=" + records.URL, "--listen=" + address(), "--webhook-listen=" + hooks, "--webhook-url=https://" + hooks,
		"--lease-namespace=" + system, "--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms",
	}
	return u
}

// record is the API of the records.
func (u *upgrade) record(w http.ResponseWriter, r *http.Request) {
	owner := r.URL.Query().Get("owner")
	switch r.Method {
	case http.MethodPut:
		if other, taken := u.hosts.LoadOrStore(r.URL.Path, owner); taken && other != owner {
			w.WriteHeader(http.StatusConflict)
		}
	case http.MethodDelete:
		u.hosts.CompareAndDelete(r.URL.Path, owner)
	default:
		other, found := u.hosts.Load(r.URL.Path)
		if !found {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, other)
	}
}

// build builds the operator at a commit, or that of the checkout.
func (u *upgrade) build(commit string) (program string) {
	u.Helper()
	source, name := clustertest.Must(filepath.Abs(repository))(u), "present"
	if commit != "" {
		archive := filepath.Join(u.TempDir(), "source.tar")
		u.output(source, "git", "archive", "--output="+archive, commit)
		source, name = u.TempDir(), commit
		u.output(source, "tar", "-xf", archive)
	}
	program = filepath.Join(u.TempDir(), name)
	u.output(filepath.Join(source, "examples", "webapp"), "go", "build", "-o", program, ".")
	return program
}

func (u *upgrade) output(dir, name string, args ...string) {
	u.Helper()
	command := exec.CommandContext(u.Context(), name, args...)
	command.Dir = dir
	if text, err := command.CombinedOutput(); err != nil {
		u.Fatalf("%s: %v\n%s", command, err, text)
	}
}

// start starts a program. stop ends it, and waits for its end.
func (u *upgrade) start(program string) (stop func()) {
	u.Helper()
	var log bytes.Buffer
	command := exec.CommandContext(context.WithoutCancel(u.Context()), program, u.arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+u.kubeconfig)
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		u.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			u.Error(err)
		}
		if err := command.Wait(); err != nil || u.Failed() {
			u.Errorf("%s: %v\n%s", filepath.Base(program), err, &log)
		}
	})
	u.Cleanup(stop)
	return stop
}

// change applies a WebApp with an image, and waits until the operator has done its work. The API server rejects it until
// it reaches the operator's webhooks.
func (u *upgrade) change(name, image string) {
	u.Helper()
	app := u.read(filepath.Join(repository, "examples/webapp/config/sample.yaml"))
	app.SetNamespace(u.Namespace)
	app.SetName(name)
	for field, value := range map[string]string{"image": image, "host": name + ".example.com"} {
		if err := unstructured.SetNestedField(app.Object, value, "spec", field); err != nil {
			u.Fatal(err)
		}
	}
	clustertest.Eventually(u, func() string {
		applied, err := client.Apply(u.Context(), u.Client, app, client.Force())
		if err != nil {
			return err.Error()
		}
		observed, _, _ := unstructured.NestedInt64(applied.Object.Object, "status", "observedGeneration")
		conditions, _, _ := unstructured.NestedSlice(applied.Object.Object, "status", "conditions")
		ready := slices.ContainsFunc(conditions, func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return fields["type"] == "Ready" && fields["status"] == "True"
		})
		if observed != applied.Object.GetGeneration() || !ready {
			return fmt.Sprintf("%s has generation %d and status %v", name, applied.Object.GetGeneration(), applied.Object.Object["status"])
		}
		return ""
	})
}

// delete deletes a WebApp, and waits for the end of its children and its record.
func (u *upgrade) delete(name string) {
	u.Helper()
	app := &unstructured.Unstructured{}
	app.SetGroupVersionKind(schema.GroupVersionKind{Group: "webapp.example.com", Version: "v1", Kind: "WebApp"})
	app.SetNamespace(u.Namespace)
	app.SetName(name)
	clustertest.Eventually(u, func() string { return clustertest.Text(client.Delete(u.Context(), u.Client, app)) })
	clustertest.Eventually(u, func() string {
		left := u.written()
		if _, found := u.hosts.Load("/" + name + ".example.com"); found {
			left["record"] = true
		}
		if len(left) > 0 {
			return fmt.Sprintf("left are %v", left)
		}
		return ""
	})
}

// written returns what operators write for the WebApp shop, without what changes with each write and what others write.
func (u *upgrade) written() map[string]any {
	u.Helper()
	all := map[string]any{}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "webapp.example.com", Version: "v1", Kind: "WebApp"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ConfigMap"},
	} {
		selection := kube.Selection{Kind: kind, Namespaces: []string{u.Namespace}}
		for obj, err := range client.List[*unstructured.Unstructured](u.Context(), u.Client, selection) {
			if err != nil {
				u.Fatal(err)
			}
			if !strings.HasPrefix(obj.GetName(), "shop") {
				continue
			}
			var owners []string
			for _, entry := range obj.GetManagedFields() {
				if entry.Manager != "kube-controller-manager" && entry.Manager != "kwok" {
					owners = append(owners, fmt.Sprintf("%s %s %s %s", entry.Manager, entry.Operation, entry.Subresource, entry.FieldsV1))
				}
			}
			slices.Sort(owners)
			obj.SetManagedFields(nil)
			obj.SetResourceVersion("")
			if kind.Kind == "Deployment" {
				delete(obj.Object, "status") // of Kubernetes
			}
			all[kind.Kind+" "+obj.GetName()] = []any{obj.Object, owners}
		}
	}
	return all
}

// apply applies the object in a file.
func (u *upgrade) apply(file string) {
	u.Helper()
	if _, err := client.Apply(u.Context(), u.Client, u.read(file)); err != nil {
		u.Fatal(err)
	}
}

func (u *upgrade) read(file string) *unstructured.Unstructured {
	u.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(clustertest.Must(os.ReadFile(file))(u), &obj.Object); err != nil {
		u.Fatal(err)
	}
	return obj
}
