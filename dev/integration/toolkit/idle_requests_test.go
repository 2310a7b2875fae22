package toolkit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/compat"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/status"
)

var update = flag.Bool("update", false, "write the table of calls in docs/toolkit.md anew")

// The page with the generated table.
const (
	page  = "../../../docs/toolkit.md"
	begin = "<!-- calls -->\n"
	end   = "<!-- end of calls -->\n"
)

// scene is the environment in which the helpers are called.
type scene struct {
	*testing.T
	namespace string
	plain     *client.Client // reads from the API server; its requests are not counted
}

// helper is a call of a helper, as a handler makes it on every run.
type helper struct {
	name string
	// waits means that a call waits for the effect of its writes: the number of requests varies.
	waits bool
	// run makes one call with c, which counts the requests.
	run func(s *scene, c *client.Client) error
}

func helpers() []helper {
	return []helper{
		{"`client.Get`, `client.Exists`", false, func(s *scene, c *client.Client) error {
			if _, err := client.Get[*corev1.ConfigMap](s.Context(), c, s.key("found")); err != nil {
				return err
			}
			_, err := client.Exists[*corev1.ConfigMap](s.Context(), c, s.key("found"))
			return err
		}},
		{"`client.All`, `client.Keys`", false, func(s *scene, c *client.Client) error {
			if _, err := client.All[*corev1.ConfigMap](s.Context(), c, kube.Selection{Namespaces: []string{s.namespace}}); err != nil {
				return err
			}
			_, err := client.Keys[*corev1.ConfigMap](s.Context(), c, kube.Selection{Namespaces: []string{s.namespace}})
			return err
		}},
		{"`client.Apply`", false, func(s *scene, c *client.Client) error {
			_, err := client.Apply(s.Context(), c, s.configMap("applied"))
			return err
		}},
		{"`compat.CreateOrUpdate`", false, func(s *scene, c *client.Client) error {
			_, err := compat.CreateOrUpdate(s.Context(), c, s.empty("updated"), fill)
			return err
		}},
		{"`compat.CreateOrPatch`", false, func(s *scene, c *client.Client) error {
			_, err := compat.CreateOrPatch(s.Context(), c, s.empty("patched"), fill)
			return err
		}},
		{"`client.EnsureNamespace`", false, func(s *scene, c *client.Client) error {
			_, err := client.EnsureNamespace(s.Context(), c, s.namespace+"-more", nil)
			return err
		}},
		{"`client.EditMetadata`", false, func(s *scene, c *client.Client) error {
			_, _, err := client.EditMetadata(s.Context(), c, s.get("labelled"), func(labels, annotations map[string]string) {
				labels["a"], annotations["a"] = "b", "b"
				delete(labels, "old")
			})
			return err
		}},
		{"`owned.Set.Apply`, two children", false, func(s *scene, c *client.Client) error {
			set, err := owned.New(owned.Config{Client: c, Name: "calls", Kinds: []schema.GroupVersionKind{
				corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
			}})
			if err == nil {
				_, err = set.Apply(s.Context(), s.get("owner"), owned.Of(s.configMap("child-1"), s.configMap("child-2"))...)
			}
			return err
		}},
		{"`status.Commit`", false, func(s *scene, c *client.Client) error {
			before, err := client.Get[*corev1.Namespace](s.Context(), s.plain, kube.Key{Name: s.namespace})
			if err != nil {
				return err
			}
			after := before.DeepCopy()
			after.Status.Conditions = []corev1.NamespaceCondition{{Type: "Counted", Status: corev1.ConditionTrue, Reason: "Test"}}
			_, err = status.Commit(s.Context(), c, before, after)
			return err
		}},
		{"`finalizer.Add`", false, func(s *scene, c *client.Client) error {
			_, err := finalizer.Add(s.Context(), c, s.get("finalized"), "calls.example.com/test")
			return err
		}},
		{"`finalizer.Remove`", false, func(s *scene, c *client.Client) error {
			_, err := finalizer.Remove(s.Context(), c, s.get("released"), "calls.example.com/test")
			return err
		}},
		{"`ownerref.Adopt`", false, func(s *scene, c *client.Client) error {
			_, err := ownerref.Adopt(s.Context(), c, s.get("owner"), s.get("orphan"))
			return err
		}},
		{"`crd.Ensure`, at the start of a program", true, func(s *scene, c *client.Client) error {
			definition := crdtest.Define("calls.example.com", "Call", crdtest.Version{Name: "v1"})
			_, err := crd.Ensure(s.Context(), c, []*apiextensionsv1.CustomResourceDefinition{definition})
			return err
		}},
	}
}

func fill(obj *corev1.ConfigMap) error {
	obj.Data = map[string]string{"a": "b"}
	return nil
}

func (s *scene) key(name string) kube.Key { return kube.Key{Namespace: s.namespace, Name: name} }

func (s *scene) empty(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
}

func (s *scene) configMap(name string) *corev1.ConfigMap {
	obj := s.empty(name)
	_ = fill(obj)
	return obj
}

// get returns the object that the handler would get.
func (s *scene) get(name string) *corev1.ConfigMap {
	s.Helper()
	obj, err := client.Get[*corev1.ConfigMap](s.Context(), s.plain, s.key(name))
	if err != nil {
		s.Fatal(err)
	}
	return obj
}

// Each helper is called three times: once when it has to write, and twice when it does not. docs/toolkit.md has the
// table.
func TestContract31_IdleHelpersMakeNoRequest(t *testing.T) {
	cluster := clustertest.Connect(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true}))
	plain := clustertest.Client(t, cluster)
	s := &scene{T: t, namespace: clustertest.Namespace(t, plain), plain: plain}
	for _, name := range []string{"found", "labelled", "unlabelled", "owner", "finalized", "released", "orphan"} {
		obj := s.empty(name)
		if name == "unlabelled" {
			obj.Labels = map[string]string{"old": "x"}
		}
		if name == "released" {
			obj.Finalizers = []string{"calls.example.com/test"}
		}
		if _, err := client.Create(t.Context(), plain, obj); err != nil {
			t.Fatal(err)
		}
	}
	configMaps := clustertest.Informer[*corev1.ConfigMap](t, cluster, kube.Selection{})
	deployments := clustertest.Informer[*appsv1.Deployment](t, cluster, kube.Selection{})
	namespaces := clustertest.Informer[*corev1.Namespace](t, cluster, kube.Selection{})

	var table strings.Builder
	fmt.Fprintln(&table, "| | something to do | nothing to do | the same without informers |")
	fmt.Fprintln(&table, "|---|---|---|---|")
	for _, h := range helpers() {
		var recording requestlog.Recording
		withInformers, err := clustertest.Client(t, cluster, configMaps, deployments, namespaces).With(func(config *client.Config) {
			config.Interceptors = []client.Interceptor{recording.Intercept}
		})
		if err != nil {
			t.Fatal(err)
		}
		without, err := withInformers.With(func(config *client.Config) { config.Informers = nil })
		if err != nil {
			t.Fatal(err)
		}
		count := func(c *client.Client) string {
			t.Helper()
			recording.Reset()
			if err := h.run(s, c); err != nil {
				t.Fatalf("%s: %v", h.name, err)
			}
			return summary(recording.Requests())
		}
		first := count(withInformers)
		if h.waits {
			first = summary(recording.Writes()) + ", and waits until it is served"
		}
		catchUp(t, s, configMaps, namespaces)
		atRest := count(withInformers)
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", h.name, first, atRest, count(without))
		if atRest != "none" && !h.waits {
			t.Errorf("%s makes requests at rest: %s", h.name, atRest)
		}
	}
	comparePage(t, table.String())
}

// catchUp waits until the informers show the writes.
func catchUp(t *testing.T, s *scene, configMaps *informer.Informer[*corev1.ConfigMap], namespaces *informer.Informer[*corev1.Namespace]) {
	t.Helper()
	clustertest.Eventually(t, func() string {
		for live, err := range client.List[*corev1.ConfigMap](t.Context(), s.plain, kube.Selection{Namespaces: []string{s.namespace}}) {
			if err != nil {
				return err.Error()
			}
			if kept, _, _ := configMaps.Get(kube.KeyOf(live)); kept == nil || kept.ResourceVersion != live.ResourceVersion {
				return "ConfigMap " + live.Name + " is not shown yet"
			}
		}
		for live, err := range client.List[*corev1.Namespace](t.Context(), s.plain, kube.Selection{}) {
			if err != nil {
				return err.Error()
			}
			if kept, _, _ := namespaces.Get(kube.KeyOf(live)); kept == nil || kept.ResourceVersion != live.ResourceVersion {
				return "Namespace " + live.Name + " is not shown yet"
			}
		}
		return ""
	})
}

// summary counts requests by verb, in the order of the first request of each verb.
func summary(requests []requestlog.Recorded) string {
	var verbs []client.Verb
	counts := map[client.Verb]int{}
	for _, request := range requests {
		if !slices.Contains(verbs, request.Verb) {
			verbs = append(verbs, request.Verb)
		}
		counts[request.Verb]++
	}
	var parts []string
	for _, verb := range verbs {
		parts = append(parts, fmt.Sprintf("%d %s", counts[verb], verb))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func comparePage(t *testing.T, table string) {
	t.Helper()
	content, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table: %s and %s", page, begin, end)
	}
	if *update {
		if err := os.WriteFile(filepath.FromSlash(page), []byte(before+begin+table+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(old, table); diff != "" {
		t.Errorf("%s does not say what is so; go test ./dev/integration/toolkit -update mends it (-page +run):\n%s", page, diff)
	}
}
