package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/simulation"
	webhooks "github.com/evenkeel-go/evenkeel/webhook"
)

// refusals is a transport that notes the requests without permission.
type refusals struct {
	http.RoundTripper
	manifests string
	mu        sync.Mutex
	refused   []string // guarded by mu
}

func (r *refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.RoundTripper.RoundTrip(req)
	if err == nil && res.StatusCode == http.StatusForbidden {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused = append(r.refused, req.Method+" "+req.URL.Path)
	}
	return res, err
}

// asPrinted applies the manifests of a program, and returns the connection of its account, and what is refused to it.
func asPrinted(t *testing.T, c *simulation.Cluster, run func(context.Context, *evenkeel.Program) error, args ...string) (*rest.Config, *refusals) {
	t.Helper()
	text, err := evenkeel.Manifests("web", run, append([]string{"--image=x", "--namespace=prod", "--"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(string(text))
	config := c.RESTConfig("web")
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:prod:web"}
	requests := &refusals{RoundTripper: config.Transport, manifests: string(text)}
	config.Transport = requests
	return config, requests
}

// permitted is a program that a test runs with the permissions that it prints.
type permitted struct {
	namespaces []string // the limit of the program
	new        func(*simulation.Cluster, *kube.Cluster) (manager.Runner, error)
	use        func(*simulation.Cluster) // what the user does
}

func (p permitted) test(t *testing.T, c *simulation.Cluster) {
	t.Helper()
	var args []string
	for _, namespace := range p.namespaces {
		args = append(args, "--namespaces="+namespace)
	}
	config, requests := asPrinted(t, c, func(ctx context.Context, program *evenkeel.Program) error {
		cluster, err := program.Connect()
		if err != nil {
			return err
		}
		runner, err := p.new(c, cluster)
		if err != nil {
			return err
		}
		return program.Run(ctx, runner)
	}, args...)
	cluster, err := kube.Connect(config)
	if err == nil {
		err = cluster.SetNamespaces(p.namespaces...)
	}
	if err != nil {
		t.Fatal(err)
	}
	events, err := event.New(event.Config{Cluster: cluster, Controller: "web"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Go("events", events.Run)()
	runner, err := p.new(c, cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Go("web", runner.Run)()
	p.use(c)
	requests.mu.Lock()
	defer requests.mu.Unlock()
	if len(requests.refused) > 0 {
		t.Errorf("refused requests: %q\n%s", slices.Compact(requests.refused), requests.manifests)
	}
}

// named is a Runner with a name, which programs need.
type named manager.RunFunc

func (n named) Name() string                  { return "web" }
func (n named) Run(ctx context.Context) error { return n(ctx) }

// applies returns a function that applies objects one after the other.
func applies(objects ...string) func(*simulation.Cluster) {
	return func(c *simulation.Cluster) {
		for _, object := range objects {
			c.Apply(object)
			c.Advance(20 * time.Second)
		}
	}
}

const someConfigMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, labels: {web: x}}}"

// labeled selects ConfigMaps of the test, not those of the cluster.
func labeled(cluster *kube.Cluster) informer.Retriever[*corev1.ConfigMap] {
	return informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{LabelSelector: "web"})
}

func someJob(owner kube.Object) owned.Child {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: owner.GetName(), Namespace: owner.GetNamespace()}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	return owned.Child{Object: job, CreateOnly: true}
}

// Programs work with the permissions that they print.
func TestProgramsWithPrintedPermissions(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]permitted{
		"a child of type Once": {new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
				Name: "web", Cluster: cluster, Owns: []watched.Kind{watched.Of[*batchv1.Job]()},
				Controller: controller.Config[*corev1.ConfigMap]{Retriever: labeled(cluster)},
				Handle: func(ctx context.Context, obj *corev1.ConfigMap, run *evenkeel.Run) error {
					child := someJob(obj)
					child.Once = true
					_, err := run.Apply(ctx, child)
					return err
				},
			})
		}, use: applies(someConfigMap)},
		"children of a controller": {new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			children, err := watched.New(watched.Config{
				Client: client.Config{Cluster: cluster, FieldOwner: "web"}, Kinds: []watched.Kind{watched.Of[*batchv1.Job]()},
			})
			if err != nil {
				return nil, err
			}
			return controller.New(controller.Config[*corev1.ConfigMap]{
				Name: "web", Cluster: cluster, Sources: children.Sources, Retriever: labeled(cluster),
				Handler: func(ctx context.Context, obj *corev1.ConfigMap) error {
					var desired []owned.Child
					if obj.Labels["web"] != "off" {
						desired = []owned.Child{someJob(obj)}
					}
					_, err := children.Set.Apply(ctx, obj, desired...)
					return err
				},
			})
		}, use: applies(someConfigMap, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, labels: {web: 'off'}}}")},
		"a status that another client changes": {new: func(c *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return evenkeel.New(evenkeel.Config[*corev1.Service]{
				Name: "web", Cluster: cluster,
				Handle: func(_ context.Context, obj *corev1.Service, _ *evenkeel.Run) error {
					if obj.Name == "a" && len(obj.Status.Conditions) == 0 {
						simulation.Edit(c, "default/a", "status", func(s *corev1.Service) {
							other := metav1.Condition{Type: fmt.Sprintf("Other%d", len(s.Status.Conditions)), Status: "True", Reason: "X", LastTransitionTime: metav1.Now()}
							s.Status.Conditions = append(s.Status.Conditions, other)
						})
					}
					return nil
				},
				Status: func(obj *corev1.Service) (*[]metav1.Condition, *int64) { return &obj.Status.Conditions, nil },
			})
		}, use: applies("{apiVersion: v1, kind: Service, metadata: {name: a, namespace: default}, spec: {ports: [{port: 80}]}}")},
		"objects outside of the limit": {namespaces: []string{"a"}, new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return evenkeel.New(evenkeel.Config[*corev1.Service]{
				Name: "web", Cluster: cluster,
				Controller: controller.Config[*corev1.Service]{Retriever: informer.RetrieveSelected[*corev1.Service](cluster, kube.Selection{Namespaces: []string{"vault"}})},
				Handle:     func(context.Context, *corev1.Service, *evenkeel.Run) error { return nil },
				Finalizer:  "example.com/x", Teardown: func(context.Context, *corev1.Service, *evenkeel.Run) error { return nil },
				Status: func(obj *corev1.Service) (*[]metav1.Condition, *int64) { return &obj.Status.Conditions, nil },
			})
		}, use: applies("{apiVersion: v1, kind: Service, metadata: {name: a, namespace: vault}, spec: {ports: [{port: 80}]}}")},
		"two operators with one kind of children": {new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			of := func(name, namespace string) (manager.Runner, error) {
				return evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
					Name: name, Cluster: cluster, Owns: []watched.Kind{watched.Of[*batchv1.Job]()},
					Controller: controller.Config[*corev1.ConfigMap]{Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{namespace}, LabelSelector: "web"})},
					Handle: func(ctx context.Context, obj *corev1.ConfigMap, run *evenkeel.Run) error {
						_, err := run.Apply(ctx, someJob(obj))
						return err
					},
				})
			}
			first, err := of("first", "a")
			second, errSecond := of("second", "vault")
			return named(func(ctx context.Context) error {
				var running sync.WaitGroup
				running.Go(func() { _ = first.Run(ctx) })
				defer running.Wait()
				return second.Run(ctx)
			}), errors.Join(err, errSecond)
		}, use: func(c *simulation.Cluster) {
			applies(strings.Replace(someConfigMap, "default", "a", 1), strings.Replace(someConfigMap, "default", "vault", 1))(c)
			simulation.Get[*batchv1.Job](c, "a/a")
			simulation.Get[*batchv1.Job](c, "vault/a")
		}},
		"a lease that another replica takes over": {new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			candidate := func(identity string) (*leader.Elector, error) {
				return leader.New(leader.Config{Cluster: cluster, Namespace: "vault", Name: "web", Identity: identity})
			}
			first, err := candidate("first")
			second, errSecond := candidate("second")
			return named(func(ctx context.Context) error {
				var running sync.WaitGroup
				defer running.Wait()
				running.Go(func() {
					_ = first.Run(ctx, func(ctx context.Context) error {
						select {
						case <-ctx.Done():
						case <-time.After(time.Minute):
						}
						return nil
					})
				})
				return second.Run(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
			}), errors.Join(err, errSecond)
		}, use: func(c *simulation.Cluster) {
			c.Advance(5 * time.Minute)
			c.Expect("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: vault, name: web}, spec: {holderIdentity: second}}")
		}},
		"Events about a Node": {namespaces: []string{"a"}, new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			return controller.New(controller.Config[*corev1.Node]{
				Name: "web", Cluster: cluster,
				Handler: func(context.Context, *corev1.Node) error { return controller.Terminal(errors.New("broken")) },
			})
		}, use: applies("{apiVersion: v1, kind: Node, metadata: {name: node1}}")},
		"a finalizer of unstructured objects": {new: func(_ *simulation.Cluster, cluster *kube.Cluster) (manager.Runner, error) {
			own, err := client.New(client.Config{Cluster: cluster, FieldOwner: "web"})
			if err != nil {
				return nil, err
			}
			teardown, err := finalizer.New(finalizer.Config[*unstructured.Unstructured]{
				Client: own, Name: "example.com/x",
				Steps: []finalizer.Step[*unstructured.Unstructured]{{Name: "a", Run: func(context.Context, *unstructured.Unstructured) error { return nil }}},
			})
			if err != nil {
				return nil, err
			}
			selection := kube.Selection{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, LabelSelector: "web"}
			return controller.New(controller.Config[*unstructured.Unstructured]{
				Name: "web", Cluster: cluster, Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, selection),
				Handler: controller.Chain(func(context.Context, *unstructured.Unstructured) error { return nil },
					middleware.Finalizer(teardown, middleware.FinalizerOptions[*unstructured.Unstructured]{})),
			})
		}, use: func(c *simulation.Cluster) {
			applies(someConfigMap)(c)
			simulation.Delete[*corev1.ConfigMap](c, "default/a")
			c.Advance(20 * time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{Namespaces: []string{"vault", "a"}}, program.test)
		})
	}
}

// A program whose webhook is called for Pods starts.
func TestPrintedProgramWithWebhookForPodsStarts(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		text, err := evenkeel.Manifests("web", func(ctx context.Context, p *evenkeel.Program) error {
			cluster, err := p.Connect()
			if err != nil {
				return err
			}
			operator, err := evenkeel.New(evenkeel.Config[*corev1.Pod]{
				Name: "web", Cluster: cluster, Handle: func(context.Context, *corev1.Pod, *evenkeel.Run) error { return nil },
				Validate: func(context.Context, *webhooks.Request[*corev1.Pod]) error { return nil },
			})
			if err != nil {
				return err
			}
			return p.Run(ctx, operator)
		}, "--image=x", "--namespace=2024", "--", "--webhook-listen=:9443")
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(string(text))
		c.Advance(time.Hour)
		if status := simulation.Get[*appsv1.Deployment](c, "2024/web").Status; status.ReadyReplicas == 0 {
			t.Errorf("an hour after kubectl apply, the Deployment has no Pod: %+v", status)
		}
	})
}
