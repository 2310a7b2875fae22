package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func lister(cluster *kube.Cluster) (informer.Retriever[*corev1.ConfigMap], error) {
	clients, err := kubernetes.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		return nil, err
	}
	return informer.FromListerWatcher[*corev1.ConfigMap](cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "configmaps", "default", fields.Everything())), nil
}

// readConfigMaps permits what the author declares for a ListerWatcher.
func readConfigMaps(c *simulation.Cluster) {
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: default}, rules: [{apiGroups: [''], resources: [configmaps], verbs: [list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: default}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: ServiceAccount, name: web, namespace: prod}]}`)
}

// wrapped is a Retriever of the program's own around one of the library.
type wrapped struct {
	informer.Retriever[*corev1.ConfigMap]
}

func TestFurtherProgramsWithPrintedPermissions(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, *corev1.ConfigMap) error { return controller.Terminal(errors.New("broken")) }
	owns := func(cluster *kube.Cluster, retriever informer.Retriever[*corev1.ConfigMap], children owned.Config, kinds ...watched.Kind) (manager.Runner, error) {
		return evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
			Name: "web", Cluster: cluster, Owns: kinds, Children: children,
			Controller: controller.Config[*corev1.ConfigMap]{Retriever: retriever},
			Handle: func(ctx context.Context, obj *corev1.ConfigMap, run *evenkeel.Run) error {
				if obj.Labels["web"] == "off" {
					_, err := run.Apply(ctx)
					return err
				}
				_, err := run.Apply(ctx, someJob(obj))
				return err
			},
		})
	}
	const off = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, labels: {web: 'off'}}}"
	const inVault = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: vault, labels: {web: x}}}"
	for name, program := range map[string]permitted{
		"Events of a controller with a ListerWatcher": {new: func(c *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			readConfigMaps(c)
			retriever, err := lister(cluster)
			if err != nil {
				return nil, err
			}
			return controller.New(controller.Config[*corev1.ConfigMap]{Name: "web", Cluster: cluster, Retriever: retriever, Handler: fails})
		}, use: applies(someConfigMap)},
		"children of a controller with a ListerWatcher": {new: func(c *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			readConfigMaps(c)
			retriever, err := lister(cluster)
			if err != nil {
				return nil, err
			}
			return owns(cluster, retriever, owned.Config{}, watched.Of[*batchv1.Job]())
		}, use: applies(someConfigMap, off)},
		"a wrapped Retriever": {new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return owns(cluster, wrapped{informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"default"}, LabelSelector: "web"})}, owned.Config{}, watched.Of[*batchv1.Job]())
		}, use: applies(someConfigMap, off)},
		"children of owners outside of the limit": {namespaces: []string{"a"}, new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return owns(cluster, informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"vault"}, LabelSelector: "web"}), owned.Config{}, watched.Of[*batchv1.Job]())
		}, use: applies(inVault, strings.Replace(inVault, "web: x", "web: 'off'", 1))},
		"children in the limit, own namespace elsewhere": {namespaces: []string{"a", "default"}, new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return owns(cluster, labeled(cluster), owned.Config{}, watched.Of[*batchv1.Job]())
		}, use: applies(someConfigMap, off)},
		"children in a further namespace": {namespaces: []string{"default", "vault"}, new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
				Name: "web", Cluster: cluster, Owns: []watched.Kind{watched.Of[*corev1.Secret]()}, Children: owned.Config{Namespaces: []string{"vault"}},
				Controller: controller.Config[*corev1.ConfigMap]{Retriever: labeled(cluster)},
				Handle: func(ctx context.Context, obj *corev1.ConfigMap, run *evenkeel.Run) error {
					var desired []kube.Object
					if obj.Labels["web"] != "off" {
						desired = append(desired, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "vault"}})
					}
					_, err := run.Apply(ctx, desired...)
					return err
				},
			})
		}, use: func(c *simulation.Cluster) {
			applies(someConfigMap)(c)
			simulation.Get[*corev1.Secret](c, "vault/s")
			applies(off)(c)
			c.Advance(time.Minute)
		}},
		"a cluster-scoped owner within a limit": {namespaces: []string{"a"}, new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return evenkeel.New(evenkeel.Config[*corev1.Namespace]{
				Name: "web", Cluster: cluster, Owns: []watched.Kind{watched.Of[*corev1.Secret]()},
				Handle: func(ctx context.Context, obj *corev1.Namespace, run *evenkeel.Run) error {
					if obj.Name != "a" {
						return nil
					}
					_, err := run.Apply(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "a"}})
					return err
				},
				Finalizer: "example.com/x", Teardown: func(context.Context, *corev1.Namespace, *evenkeel.Run) error { return nil },
			})
		}, use: func(c *simulation.Cluster) {
			c.Advance(20 * time.Second)
			simulation.Get[*corev1.Secret](c, "a/s")
			simulation.Delete[*corev1.Namespace](c, "a")
			c.Advance(20 * time.Second)
		}},
		"a cluster-scoped child": {namespaces: []string{"a"}, new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return evenkeel.New(evenkeel.Config[*corev1.Node]{
				Name: "web", Cluster: cluster, Owns: []watched.Kind{watched.Of[*rbacv1.ClusterRole]()},
				Handle: func(ctx context.Context, _ *corev1.Node, run *evenkeel.Run) error {
					_, err := run.Apply(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
					return err
				},
			})
		}, use: applies("{apiVersion: v1, kind: Node, metadata: {name: node1}}")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{Namespaces: []string{"vault", "a"}}, program.test)
		})
	}
}

// asUser returns clients that impersonate a user with these rules in the namespace default.
func asUser(t *testing.T, c *simulation.Cluster, rules ...string) *kubernetes.Clientset {
	t.Helper()
	c.Apply(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: default}, rules: [%s]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: default}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: User, name: u, apiGroup: rbac.authorization.k8s.io}]}`, strings.Join(rules, ",")))
	config := c.RESTConfig("u")
	config.Impersonate = rest.ImpersonationConfig{UserName: "u"}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// k8s.io/apiserver sets no name for deletecollection (pkg/endpoints/request/requestinfo.go), so that a rule with
// resourceNames never permits it.
func TestRulesWithNamesRefuseDeleteCollection(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		u := asUser(t, c, `{apiGroups: [""], resources: [configmaps], resourceNames: [a], verbs: [deletecollection]}`)
		err := u.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=a"})
		if err == nil {
			t.Error("permitted; the real API server refuses it")
		}
	})
}

// An aggregated ClusterRole has the rules of those that it selects.
func TestAggregatedRolesHaveTheirRules(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		u := asUser(t, c)
		c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: part, labels: {agg: "yes"}}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: all}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {agg: "yes"}}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: v}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}, subjects: [{kind: User, name: u, apiGroup: rbac.authorization.k8s.io}]}`)
		c.Advance(time.Minute)
		if _, err := u.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// Semantics in which both must agree.
func TestRulesPermitAsKubernetes(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		u := asUser(t, c, `{apiGroups: [""], resources: ["pods/*"], verbs: ["*"]}`, `{apiGroups: [""], resources: ["*/status"], verbs: [patch]}`,
			`{apiGroups: [""], resources: [namespaces], verbs: [get, list]}`, `{apiGroups: [""], resources: [secrets], resourceNames: [a], verbs: [list, watch, create, get]}`)
		ctx := t.Context()
		check := func(what string, permitted bool, err error) {
			forbidden := err != nil && strings.Contains(err.Error(), " cannot ")
			if forbidden == permitted {
				t.Errorf("%s: want permitted %v: %v", what, permitted, err)
			}
		}
		_, err := u.CoreV1().Pods("default").Get(ctx, "x", metav1.GetOptions{})
		check("pods/* does not permit pods", false, err)
		err = u.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/pods/x/status").Do(ctx).Error()
		check("pods/* does not permit pods/status", false, err)
		_, err = u.CoreV1().Pods("default").Patch(ctx, "x", "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{}, "status")
		check("*/status", true, err)
		_, err = u.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		check("the own Namespace", true, err)
		_, err = u.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=default"})
		check("list of Namespaces", false, err)
		_, err = u.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a"})
		check("list by name", true, err)
		_, err = u.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		check("list of all", false, err)
		_, err = u.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		check("create by name", false, err)
		_, err = u.CoreV1().Secrets("missing").Get(ctx, "a", metav1.GetOptions{})
		check("in a namespace that does not exist", false, err)
		err = u.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/secrets/a").Param("watch", "true").Do(ctx).Error()
		check("a get with watch=true", true, err)
		err = u.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Error()
		t.Logf("/metrics: %v", err)
		err = u.CoreV1().RESTClient().Get().AbsPath("/livez").Do(ctx).Error()
		t.Logf("/livez: %v", err)
		err = u.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/").Do(ctx).Error()
		t.Logf("/debug: %v", err)
	})
}

// editing is a transport: before the first patch of a Letter, another client changes it.
type editing struct {
	*refusals
	edit func()
	once sync.Once
}

func (e *editing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/letters/l") {
		e.once.Do(e.edit)
	}
	return e.refusals.RoundTrip(req)
}

// installs is a program that only installs definitions.
func installs(definitions crd.Definitions) func(context.Context, *evenkeel.Program) error {
	return func(ctx context.Context, p *evenkeel.Program) error {
		if _, err := p.Connect(); err != nil {
			return err
		}
		p.Install(definitions)
		return p.Run(ctx)
	}
}

// The migration of a program that only installs definitions, while another client writes an object.
func TestPrintedPermissionsOfMigrationBesideAnotherWriter(t *testing.T) {
	t.Parallel()
	definitions, err := crd.Parse([]byte(letters("v2")))
	if err != nil {
		t.Fatal(err)
	}
	manifests := letters("v1") + "{apiVersion: example.com/v1, kind: Letter, metadata: {name: l}, spec: {text: hello}}\n"
	simulation.Test(t, simulation.Config{YAML: manifests}, func(t *testing.T, c *simulation.Cluster) {
		config, refused := asPrinted(t, c, installs(definitions))
		requests := &editing{refusals: refused, edit: func() {
			c.Apply("{apiVersion: example.com/v2, kind: Letter, metadata: {name: l}, spec: {text: changed}}")
		}}
		config.Transport = requests
		cluster, err := kube.Connect(config)
		if err != nil {
			t.Fatal(err)
		}
		writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "web"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := crd.Ensure(t.Context(), writer, definitions, crd.AcceptNewer()); err != nil {
			t.Error(err)
		}
		result, err := crd.Migrate(t.Context(), writer, "letters.example.com")
		t.Logf("%+v", result.Rewritten)
		if err != nil || len(requests.refused) > 0 {
			t.Errorf("%v; refused: %q", err, requests.refused)
		}
	})
}

// A definition that is not yet established when the program starts, as after kubectl apply.
func TestPrintedPermissionsOfDefinitionInConflict(t *testing.T) {
	t.Parallel()
	definitions, err := crd.Parse([]byte(letters("v2")))
	if err != nil {
		t.Fatal(err)
	}
	// another definition has its names for a while
	other := strings.Replace(strings.Replace(letters("v2"), "letters.example.com", "notes.example.com", 1), "plural: letters", "plural: notes", 1)
	simulation.Test(t, simulation.Config{YAML: other}, func(t *testing.T, c *simulation.Cluster) {
		config, requests := asPrinted(t, c, installs(definitions))
		cluster, err := kube.Connect(config)
		if err != nil {
			t.Fatal(err)
		}
		writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "web"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = crd.Ensure(t.Context(), writer, definitions, crd.AcceptNewer())
		if err == nil || !strings.Contains(err.Error(), `"LetterList" is already in use`) || apierrors.IsForbidden(err) {
			t.Errorf("the error is %v; refused: %q", err, requests.refused)
		}
	})
}
