package simulation_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// retrieveConfigMaps retrieves all ConfigMaps except those that each cluster has.
func retrieveConfigMaps(cluster *kube.Cluster) informer.Retriever[*corev1.ConfigMap] {
	return informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{
		FieldSelector: "metadata.name!=kube-root-ca.crt,metadata.name!=extension-apiserver-authentication",
	})
}

// newCopier returns a controller that copies each ConfigMap into a Secret of the same name.
func newCopier(tb testing.TB, c *simulation.Cluster, wrap ...controller.Middleware[*corev1.ConfigMap]) *controller.Controller[*corev1.ConfigMap] {
	tb.Helper()
	cluster := c.Connect("copier")
	secrets, err := informer.New(informer.Config[*corev1.Secret]{Retriever: informer.Retrieve[*corev1.Secret](cluster)})
	if err != nil {
		tb.Fatal(err)
	}
	writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "copier", Informers: []client.Informer{secrets}})
	if err != nil {
		tb.Fatal(err)
	}
	handle := func(ctx context.Context, cm *corev1.ConfigMap) error {
		secret := &corev1.Secret{Data: map[string][]byte{}}
		secret.Namespace, secret.Name = cm.Namespace, cm.Name
		for key, value := range cm.Data {
			secret.Data[key] = []byte(value)
		}
		_, err := client.Apply(ctx, writer, secret)
		return err
	}
	copier, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "copier", Retriever: retrieveConfigMaps(cluster), Handler: controller.Chain(handle, wrap...), Reads: []informer.Any{secrets},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return copier
}

const motto = `{apiVersion: v1, kind: ConfigMap, metadata: {name: motto}, data: {text: we never sleep}}`

func TestIdleController(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Run(newCopier(t, c))
		c.Apply(motto)
		c.Settle()
		secret := simulation.Get[*corev1.Secret](c, "default/motto")
		if got := string(secret.Data["text"]); got != "we never sleep" {
			t.Errorf("the Secret contains %q", got)
		}
		if idle := c.Record(func() { c.Advance(time.Hour) }).Writes(); len(idle) > 0 {
			t.Errorf("writes of an idle controller:\n%s", idle)
		}
	})
}

func TestSettleWaitsForRetries(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		responses := []func(r simulation.Request, send func()) error{
			func(r simulation.Request, _ func()) error {
				return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, r.Key.Name, errors.New("changed"))
			},
			func(simulation.Request, func()) error { return errors.New("connection refused") },
			func(simulation.Request, func()) error { return apierrors.NewServiceUnavailable("starting") },
			func(_ simulation.Request, send func()) error {
				send()
				return errors.New("connection reset")
			},
		}
		c.Intercept(func(r simulation.Request, send func()) error {
			if r.UserAgent != "copier" || !r.IsWrite() || len(responses) == 0 {
				return nil
			}
			respond := responses[0]
			responses = responses[1:]
			return respond(r, send)
		})
		c.Run(newCopier(t, c))
		requests := c.Record(func() {
			c.Apply(motto)
			c.Settle()
		}).By("copier").Writes()
		if len(requests) != 5 || requests[0].Status != 409 || requests[1].Status != 0 || requests[2].Status != 503 || requests[3].Status != 0 || requests[4].Status != 200 {
			t.Errorf("the requests are\n%s", requests)
		}
		c.Expect(`{apiVersion: v1, kind: Secret, metadata: {name: motto}, data: {text: d2UgbmV2ZXIgc2xlZXA=}}`)
	})
}

func create(tb testing.TB, c *simulation.Cluster, obj kube.Object) {
	tb.Helper()
	if _, err := client.Create(tb.Context(), c.Client(), obj); err != nil {
		tb.Fatal(err)
	}
}

// The garbage collector deletes dependents, unless the test plays its part.
func TestGarbageCollector(t *testing.T) {
	t.Parallel()
	for _, without := range []bool{false, true} {
		simulation.Test(t, simulation.Config{WithoutControllers: without}, func(t *testing.T, c *simulation.Cluster) {
			c.Apply(motto)
			owner := simulation.Get[*corev1.ConfigMap](c, "default/motto")
			dependent := &corev1.Secret{}
			dependent.Namespace, dependent.Name = "default", "motto"
			dependent.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
			create(t, c, dependent)
			simulation.Delete[*corev1.ConfigMap](c, "default/motto")
			c.Settle()
			if without {
				simulation.Get[*corev1.Secret](c, "default/motto")
			} else {
				simulation.ExpectGone[*corev1.Secret](c, "default/motto")
			}
		})
	}
}

// Two clusters in one test have nothing in common but the time.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{Namespaces: []string{"shop"}}, func(t *testing.T, one *simulation.Cluster) {
		two := simulation.New(t, simulation.Config{YAML: motto})
		one.Run(newCopier(t, one))
		two.Run(newCopier(t, two))
		one.Settle()
		two.Settle()
		simulation.ExpectGone[*corev1.Secret](one, "default/motto")
		simulation.Get[*corev1.Secret](two, "default/motto")
		simulation.Get[*corev1.Namespace](one, "shop")
		simulation.ExpectGone[*corev1.Namespace](two, "shop")
	})
}

// Clusters of one test, also of a test and its subtests, have different uids and versions, as two real ones do. Each run of a
// test has the same.
func TestClustersHaveDifferentURLsUIDsAndVersions(t *testing.T) {
	t.Parallel()
	identities := func(tb testing.TB) []string {
		tb.Helper()
		c := simulation.New(tb, simulation.Config{YAML: motto})
		create(tb, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		all := []string{c.RESTConfig("").Host}
		for _, obj := range []kube.Object{
			simulation.Get[*corev1.Namespace](c, "default"), simulation.Get[*corev1.ConfigMap](c, "default/motto"), simulation.Get[*corev1.Secret](c, "default/a"),
		} {
			all = append(all, string(obj.GetUID()), obj.GetResourceVersion())
		}
		return all
	}
	run := func() (all [][]string) {
		t.Run("parent", func(t *testing.T) {
			all = append(all, identities(t), identities(t))
			t.Run("child", func(t *testing.T) { all = append(all, identities(t)) })
			t.Run("sibling", func(t *testing.T) { all = append(all, identities(t)) })
		})
		return all
	}
	first := run()
	seen := map[string]int{}
	for cluster, values := range first[:3] {
		for _, value := range values {
			if other, exists := seen[value]; exists && other != cluster {
				t.Errorf("clusters %d and %d have the uid or version %s", other, cluster, value)
			}
			seen[value] = cluster
		}
	}
	if diff := cmp.Diff(first[2], first[3]); diff != "" {
		t.Errorf("clusters of tests that do not run together (-child +sibling):\n%s", diff)
	}
	if diff := cmp.Diff(first, run()); diff != "" {
		t.Errorf("the second run of a test (-first +second):\n%s", diff)
	}
}

func TestStoppedProgram(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		stop := c.Run(newCopier(t, c))
		c.Settle()
		stop()
		c.Apply(motto)
		c.Settle()
		simulation.ExpectGone[*corev1.Secret](c, "default/motto")
		c.Run(newCopier(t, c)) // as after a restart
		c.Settle()
		simulation.Get[*corev1.Secret](c, "default/motto")
	})
}

// A retry later than Config.IdleAfter is not waited for.
func TestIdleAfter(t *testing.T) {
	t.Parallel()
	later := func(next controller.Handler[*corev1.ConfigMap]) controller.Handler[*corev1.ConfigMap] {
		return func(ctx context.Context, cm *corev1.ConfigMap) error {
			run, _ := controller.RunFrom(ctx)
			if run.ID == 1 {
				return controller.RequeueAfter(10 * time.Second)
			}
			return next(ctx, cm)
		}
	}
	for idleAfter, copied := range map[time.Duration]bool{0: false, 11 * time.Second: true} {
		simulation.Test(t, simulation.Config{YAML: motto, IdleAfter: idleAfter}, func(t *testing.T, c *simulation.Cluster) {
			c.Run(newCopier(t, c, later))
			c.Settle()
			exists, err := client.Exists[*corev1.Secret](t.Context(), c.Client(), kube.Key{Namespace: "default", Name: "motto"})
			if err != nil || exists != copied {
				t.Errorf("IdleAfter %v: the Secret exists: %t (%v), want %t", idleAfter, exists, err, copied)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply(motto)
		create(t, c, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "motto-"}, Type: "Warning", Reason: "Long", Message: "shorten it", Count: 2,
			InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "default", Name: "motto"},
		})
		time.Sleep(time.Second)
		create(t, c, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "motto-"}, Type: "Normal", Reason: "Short", Note: "thanks",
			Regarding: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "default", Name: "motto"},
			EventTime: metav1.NowMicro(), ReportingController: "example.com/motto", ReportingInstance: "motto-0", Action: "Read",
		})
		if diff := cmp.Diff([]string{"Warning Long: shorten it (2 times)", "Normal Short: thanks"}, c.Events("default/motto")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// Programs in other processes use a port and a kubeconfig file.
func TestServe(t *testing.T) {
	t.Parallel()
	// region serve
	c := simulation.New(t, simulation.Config{YAML: motto})
	kubeconfig := c.Serve() // for kubectl, or any other program
	// endregion
	// As kubectl does, which asks for credentials that a kubeconfig lacks.
	config, err := clientcmd.NewInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, nil, strings.NewReader("")).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := clients.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	simulation.Edit(c, "default/motto", "", func(cm *corev1.ConfigMap) { cm.Data["text"] = "changed" })
	for event := range watch.ResultChan() {
		if cm, ok := event.Object.(*corev1.ConfigMap); ok && cm.Data["text"] == "changed" {
			return
		}
	}
	t.Error("the watch ended")
}

// As with kube-apiserver, a client of the kubeconfig file has a transport for TLS, and one connection for all requests.
func TestServeHasHTTP2(t *testing.T) {
	t.Parallel()
	config, err := clientcmd.BuildConfigFromFlags("", simulation.New(t, simulation.Config{}).Serve())
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	res, err := c.Get(config.Host + "/api/v1/namespaces")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if c.Transport == nil || res.Proto != "HTTP/2.0" || res.StatusCode != http.StatusOK {
		t.Errorf("transport %v, response %s %s", c.Transport, res.Proto, res.Status)
	}
}

// Watches with a timeout that client-go may have chosen at random have the same duration; others have the requested one.
func TestDurationOfWatches(t *testing.T) {
	t.Parallel()
	for requested, want := range map[int64]time.Duration{
		60: time.Minute, 300: 450 * time.Second, 301: 450 * time.Second, 600: 450 * time.Second, 601: 601 * time.Second,
	} {
		simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
			clients, err := kubernetes.NewForConfig(c.RESTConfig("test"))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			watch, err := clients.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: &requested})
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Stop()
			for event := range watch.ResultChan() {
				t.Logf("ignored %s", event.Type)
			}
			if got := time.Since(began); got != want {
				t.Errorf("a watch with a timeout of %d s lasted %s, want %s", requested, got, want)
			}
		})
	}
}

// A Deployment becomes available, unless a test decides that its Pods do not.
func TestPods(t *testing.T) {
	t.Parallel()
	const web = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}}}`
	for want, config := range map[string]simulation.Config{
		"{readyReplicas: 2, unavailableReplicas: null}": {},
		"{readyReplicas: null, unavailableReplicas: 2}": {Pods: func(*corev1.Pod) simulation.PodBehavior { return simulation.PodBehavior{NeverReady: true} }},
		"{replicas: null}": {WithoutControllers: true},
	} {
		simulation.Test(t, config, func(_ *testing.T, c *simulation.Cluster) {
			c.Apply(web)
			c.Settle()
			c.Expect("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, status: " + want + "}")
		})
	}
}

// A StatefulSet gets its Pods and claims, and its Service their addresses.
func TestStatefulSets(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply(`
apiVersion: v1
kind: Service
metadata: {name: peers}
spec: {clusterIP: None, selector: {app: db}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: peers
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: "db:1"}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
`)
		c.Settle()
		c.Expect("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, status: {availableReplicas: 2, updatedReplicas: 2}}")
		c.Expect("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-1}, status: {phase: Bound}}")
		var names []string
		for slice, err := range client.List[*discoveryv1.EndpointSlice](t.Context(), c.Client(), kube.Selection{Namespaces: []string{"default"}}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, endpoint := range slice.Endpoints {
				names = append(names, *endpoint.Hostname)
			}
		}
		if diff := cmp.Diff([]string{"db-0", "db-1"}, names); diff != "" {
			t.Errorf("names of the endpoints (-want +got):\n%s", diff)
		}
	})
}

// Kinds without validation are served too, and so are reviews. Kinds that are only parts of other requests are not.
func TestServedKinds(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		clients, err := kubernetes.NewForConfig(c.RESTConfig("discovery"))
		if err != nil {
			t.Fatal(err)
		}
		_, lists, err := clients.Discovery().ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		served := map[string]bool{} // by resource: whether it is namespaced
		for _, list := range lists {
			for _, r := range list.APIResources {
				served[r.Name] = r.Namespaced
			}
		}
		for resource, namespaced := range map[string]bool{
			"services": true, "endpoints": true, "endpointslices": true, "ingresses": true, "networkpolicies": true, "roles": true,
			"cronjobs": true, "horizontalpodautoscalers": true, "poddisruptionbudgets": true, "persistentvolumeclaims": true,
			"clusterroles": false, "nodes": false, "persistentvolumes": false, "storageclasses": false, "customresourcedefinitions": false,
			"tokenreviews": false, "selfsubjectaccessreviews": false, "localsubjectaccessreviews": true,
		} {
			if got, ok := served[resource]; !ok || got != namespaced {
				t.Errorf("%s: served %t, namespaced %t", resource, ok, got)
			}
		}
		for _, resource := range []string{"apigroups", "componentstatuses", "bindings"} {
			if _, ok := served[resource]; ok {
				t.Errorf("%s is served", resource)
			}
		}
		c.Apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {ingressClassName: nginx}}`)
		c.Expect(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, generation: 1}, spec: {ingressClassName: nginx}}`)
	})
}

// The models of Kubernetes' controllers have caches that do not depend on hooks; their writes are repeated.
func TestModelsRecoverFromFailures(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		const outage = 2 * time.Second
		began := time.Now()
		c.Intercept(func(r simulation.Request, _ func()) error {
			if strings.HasPrefix(r.UserAgent, "kube") && time.Since(began) < outage {
				return errors.New("connection refused")
			}
			return nil
		})
		c.Apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}
`)
		c.Advance(outage)
		c.Settle()
		if d := simulation.Get[*appsv1.Deployment](c, "default/web"); d.Status.AvailableReplicas != 2 {
			t.Errorf("the status is %+v", d.Status)
		}
	})
}
