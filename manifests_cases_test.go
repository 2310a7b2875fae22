package evenkeel_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

type runFunc = func(context.Context, *evenkeel.Program) error

// A controller that only reads a kind must not get the verbs that another one needs elsewhere.
func TestManifestsOfTwoControllersOfOneKind(t *testing.T) {
	t.Parallel()
	handle := func(context.Context, *corev1.ConfigMap, *evenkeel.Run) error { return nil }
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		operator, err := evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
			Name: "web", Cluster: cluster, Handle: handle,
			Owns: []watched.Kind{watched.Of(func(c *informer.Config[*appsv1.Deployment]) {
				c.Retriever = informer.RetrieveSelected[*appsv1.Deployment](cluster, kube.Selection{Namespaces: []string{"vault"}, LabelSelector: owned.LabelSet + "=web"})
			})},
			Controller: controller.Config[*corev1.ConfigMap]{
				Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"vault"}}),
			},
		})
		if err != nil {
			return err
		}
		report, err := controller.New(controller.Config[*appsv1.Deployment]{
			Name: "report", Cluster: cluster, Handler: func(context.Context, *appsv1.Deployment) error { return nil },
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, operator, report)
	})
	for _, rule := range rulesOf(t, objects, "ClusterRole prod.web") {
		if strings.Contains(rule, "deployments") && rule != "[apps] [deployments] [] [list watch]" {
			t.Errorf("Deployments are only read outside of vault, and the ClusterRole has %s", rule)
		}
	}
}

// A finalizer of objects of which only the metadata is read.
func TestManifestsOfFinalizerOfMetadata(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		operator, err := evenkeel.New(evenkeel.Config[*metav1.PartialObjectMetadata]{
			Name: "web", Cluster: cluster, Handle: func(context.Context, *metav1.PartialObjectMetadata, *evenkeel.Run) error { return nil },
			Finalizer: "example.com/x", Teardown: func(context.Context, *metav1.PartialObjectMetadata, *evenkeel.Run) error { return nil },
			Controller: controller.Config[*metav1.PartialObjectMetadata]{Retriever: informer.RetrieveMetadata[*corev1.ConfigMap](cluster, kube.Selection{})},
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, operator)
	})
	if got := rulesOf(t, objects, "ClusterRole prod.web"); !slices.Contains(got, "[] [configmaps] [] [get list patch watch]") {
		t.Errorf("%q", got)
	}
}

// The program's own Events may be about any object, also if it watches Events somewhere.
func TestManifestsOfEventsBesideWatchedEvents(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		p.Events()
		watch, err := informer.New(informer.Config[*eventsv1.Event]{
			Retriever: informer.RetrieveSelected[*eventsv1.Event](cluster, kube.Selection{Namespaces: []string{"vault"}}),
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, watch)
	})
	if got := rulesOf(t, objects, "ClusterRole prod.web"); !strings.Contains(fmt.Sprint(got), "[events] [] [create patch]") {
		t.Errorf("the ClusterRole is %q, the Role in vault %q", got, rulesOf(t, objects, "Role vault/prod.web"))
	}
}

// Children are created in the namespace of their owner, also outside of the limit.
func TestManifestsOfChildrenOfOwnersOutsideOfLimit(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		operator, err := evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
			Name: "web", Cluster: cluster, Handle: func(context.Context, *corev1.ConfigMap, *evenkeel.Run) error { return nil },
			Owns: []watched.Kind{watched.Of[*corev1.Secret]()},
			Controller: controller.Config[*corev1.ConfigMap]{
				Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"vault"}}),
			},
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, operator)
	}, "--", "--namespaces=a")
	if got := rulesOf(t, objects, "Role vault/prod.web"); !strings.Contains(fmt.Sprint(got), "create") || !strings.Contains(fmt.Sprint(got), "secrets") {
		t.Errorf("owners are in vault, where their children are created: %q; in a: %q", got, rulesOf(t, objects, "Role a/prod.web"))
	}
}

func fenced(hooks bool) runFunc {
	return func(ctx context.Context, p *evenkeel.Program) error {
		p.Manager.LeaderElection = &leader.Config{Fence: true}
		if hooks {
			return hooked(ctx, p)
		}
		return empty(ctx, p)
	}
}

// No rule is printed twice.
func TestManifestsHaveLeaseRulesOnce(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, fenced(false))
	own, fence := rulesOf(t, objects, "Role prod/web"), rulesOf(t, objects, "Role prod/fence.prod.web")
	for _, rule := range own {
		if slices.Contains(fence, rule) {
			t.Errorf("%s is in the Roles web and fence.prod.web: without one of them, nothing fails", rule)
		}
	}
}

// electing runs electors beside the program's own one.
func electing(fenced bool, leases ...leader.Config) runFunc {
	return func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		p.Manager.LeaderElection = &leader.Config{Fence: fenced}
		for _, config := range leases {
			config.Cluster, config.Namespace = cluster, "locks"
			elector, err := leader.New(config)
			if err != nil {
				return err
			}
			p.Manager.Runnables = append(p.Manager.Runnables, manager.Runnable{Name: config.Name, Runner: manager.RunFunc(func(ctx context.Context) error {
				return elector.Run(ctx, func(context.Context) error { return nil })
			})})
		}
		return p.Run(ctx)
	}
}

// A lease of the program's own may have the fence, also without the uid of a Pod in the environment of the command. Each
// replica may take a lease without a fence, which the fence exempts.
func TestManifestsHaveFenceOfOwnLease(t *testing.T) {
	t.Parallel()
	for _, fenced := range []string{"web", "shards"} {
		of := map[string]string{"web": "fence.prod.web", "shards": "fence.locks.shards"}
		objects := objectsOf(t, electing(fenced == "web", leader.Config{Name: "shards", Fence: fenced == "shards"}, leader.Config{Name: "plain"}))
		policy := objects["ValidatingAdmissionPolicy "+of[fenced]]
		if policy == nil {
			t.Fatalf("the policy %s is missing", of[fenced])
		}
		if text := fmt.Sprint(policy.Object); !strings.Contains(text, "plain") || strings.Contains(of[fenced], "prod") && !strings.Contains(text, "shards") {
			t.Errorf("the policy %s does not exempt the other leases: %s", of[fenced], text)
		}
		if rules := rulesOf(t, objects, strings.Replace("Role NAMESPACE/"+of[fenced], "NAMESPACE", strings.Split(of[fenced], ".")[1], 1)); len(rules) == 0 {
			t.Error("the lease of a fence has no rules")
		}
		if got := rulesOf(t, objects, "Role locks/prod.web"); !slices.Contains(got, "[coordination.k8s.io] [leases] [plain] [get update]") && !slices.Contains(got, "[coordination.k8s.io] [leases] [shards] [get update]") {
			t.Errorf("the other leases have %q", got)
		}
		if env := decode[appsv1.Deployment](t, objects, "Deployment prod/web").Spec.Template.Spec.Containers[0].Env; len(env) != 1 {
			t.Errorf("the environment is %v", env)
		}
	}
	for name, run := range map[string]runFunc{
		"fence one lease for all":       electing(true, leader.Config{Name: "shards", Fence: true}),
		"begin with the uid of the Pod": electing(false, leader.Config{Name: "shards", Fence: true, Identity: "x"}),
	} {
		if _, err := evenkeel.Manifests("web", run, "--image=x", "--namespace=prod"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error is %v, want %q", err, name)
		}
	}
}

// listedBy is a controller with a Retriever of the program's own.
func listedBy[T kube.Object](cluster *kube.Cluster, name string) (*controller.Controller[T], error) {
	return controller.New(controller.Config[T]{
		Name: name, Cluster: cluster, Retriever: informer.FromListerWatcher[T](&cache.ListWatch{}), Handler: func(context.Context, T) error { return nil },
	})
}

// Requests of a Retriever of the program's own are not known: a warning says so, until the program declares them.
func TestManifestsWarnOfOwnRetrievers(t *testing.T) {
	t.Parallel()
	for _, permitted := range []struct {
		resource string
		verbs    []string
		want     []string
	}{
		{"pods", []string{"get", "list"}, []string{"controller=things", "controller=pods"}},
		{"configmaps", []string{"list", "watch"}, []string{"controller=pods"}}, // the kind of things is not known
		{"pods", []string{"*"}, nil},
		{"*", []string{"*"}, nil},
	} {
		log := ownRetrieversWith(t, permitted.resource, permitted.verbs...)
		if strings.Count(log, "what the Retriever of a controller requests") != len(permitted.want) {
			t.Errorf("with %s of %s the log is %q, want %s", permitted.verbs, permitted.resource, log, permitted.want)
		}
		for _, name := range permitted.want {
			if !strings.Contains(log, name) {
				t.Errorf("with %s of %s the log is %q, want %s", permitted.verbs, permitted.resource, log, name)
			}
		}
	}
}

// ownRetrieversWith returns the log of a program that is printed.
func ownRetrieversWith(t *testing.T, resource string, verbs ...string) string {
	t.Helper()
	log := &testlog.Buffer{}
	objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		p.Permit(corev1.Resource(resource), verbs)
		cluster.SetLogger(slog.New(slog.NewTextHandler(log, nil)))
		things, err := listedBy[*unstructured.Unstructured](cluster, "things")
		if err != nil {
			return err
		}
		pods, err := listedBy[*corev1.Pod](cluster, "pods")
		if err != nil {
			return err
		}
		return p.Run(ctx, things, pods)
	})
	return log.String()
}

// Alerts on metrics that the program does not have would never fire.
func TestManifestsOfAlertsOnOtherMetrics(t *testing.T) {
	t.Parallel()
	log := &testlog.Buffer{}
	named := func(namespace string) runFunc {
		return func(ctx context.Context, p *evenkeel.Program) error {
			p.Metrics.Namespace = namespace
			cluster, err := p.Connect()
			if err != nil {
				return err
			}
			cluster.SetLogger(slog.New(slog.NewTextHandler(log, nil)))
			return p.Run(ctx)
		}
	}
	if _, err := evenkeel.Manifests("web", named("web"), "--image=x", "--namespace=prod", "--alerts"); err == nil || !strings.Contains(err.Error(), `Metrics.Namespace is "web"`) {
		t.Errorf("the error is %v", err)
	}
	objectsOf(t, named("evenkeel"), "--alerts")
	if !strings.Contains(log.String(), "alerts never fire without Program.Metrics.CompatibleNames") {
		t.Errorf("the log is %q", log)
	}
}

// Every replica registers its webhooks and keeps the Secret, also a standby: the fence must not refuse that.
func TestManifestsExemptWebhooksFromFence(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, fenced(true), "--", "--webhook-listen=:9443")
	policy := objects["ValidatingAdmissionPolicy fence.prod.web"]
	if text := fmt.Sprint(policy.Object["spec"]); !strings.Contains(text, "secrets") || !strings.Contains(text, "webhookconfigurations") {
		t.Errorf("the fence has no exemption for what standbys write: %s", text)
	}
}

// The name of the program is also that of its Service and its webhooks.
func TestManifestsOfNameThatServicesCannotHave(t *testing.T) {
	t.Parallel()
	text, err := evenkeel.Manifests("2048-operator", empty, "--image=x", "--namespace=prod")
	if err == nil && strings.Contains(string(text), "kind: Service\n") && len(validation.IsDNS1035Label("2048-operator")) > 0 {
		t.Errorf("the Service 2048-operator is printed, and is not valid: %q", validation.IsDNS1035Label("2048-operator"))
	}
}

// The kubelet has no client certificate.
func TestManifestsOfProbesWithClientCertificates(t *testing.T) {
	t.Parallel()
	text, err := evenkeel.Manifests("web", func(ctx context.Context, p *evenkeel.Program) error {
		p.Manager.TLS = func(c *tls.Config) {
			c.ClientAuth = tls.RequireAndVerifyClientCert
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") }
		}
		return empty(ctx, p)
	}, "--image=x", "--namespace=prod")
	if err == nil && strings.Contains(string(text), "livenessProbe") {
		t.Error("the Deployment has probes at a server that refuses the kubelet: its container restarts forever")
	}
}

// Cluster-scoped kinds of Kubernetes 1.37 that the table lacks.
func TestManifestsOfClusterScopedKinds(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		c, err := informer.New(informer.Config[*resourcev1alpha3.ResourcePoolStatusRequest]{Retriever: informer.Retrieve[*resourcev1alpha3.ResourcePoolStatusRequest](cluster)})
		if err != nil {
			return err
		}
		return p.Run(ctx, c)
	}, "--", "--namespaces=a")
	if len(rulesOf(t, objects, "ClusterRole prod.web")) == 0 {
		t.Errorf("a cluster-scoped kind is in the Role %q", rulesOf(t, objects, "Role a/prod.web"))
	}
}

// What the program does in another cluster is not in the roles of this one.
func TestManifestsOfSecondCluster(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		second, err := kube.Connect(&rest.Config{Host: "https://second.invalid"})
		if err != nil {
			return err
		}
		children, err := watched.New(watched.Config{
			Client: client.Config{Cluster: second, FieldOwner: "web"}, Kinds: []watched.Kind{watched.Of[*appsv1.Deployment]()},
		})
		if err != nil {
			return err
		}
		c, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "web", Cluster: cluster, Sources: children.Sources, Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
		})
		if err != nil {
			return err
		}
		remote, err := controller.New(controller.Config[*corev1.Secret]{
			Name: "remote", Cluster: second, Retriever: informer.Retrieve[*corev1.Secret](second), Handler: func(context.Context, *corev1.Secret) error { return nil },
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, c, remote)
	})
	got := rulesOf(t, objects, "ClusterRole prod.web")
	t.Logf("%q", got)
	if text := fmt.Sprint(got); strings.Contains(text, "deployments") || strings.Contains(text, "secrets") {
		t.Errorf("%q", got)
	}
}

// A read-only program, with webhooks.
func TestManifestsOfReadOnlyProgramWithWebhooks(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, hooked, "--", "--webhook-listen=:9443", "--read-only", "--authorize", "--listen=:8080", "--probe-listen=:8081")
	for name := range objects {
		if strings.Contains(name, "Role") && !strings.Contains(name, "Binding") {
			t.Log(name, rulesOf(t, objects, name))
		}
	}
}

// All verbs contain each of them.
func TestManifestsOfAllVerbs(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		p.Permit(appsv1.Resource("deployments"), []string{"*"})
		p.Permit(appsv1.Resource("deployments"), []string{"get"})
		return empty(ctx, p)
	})
	if got := rulesOf(t, objects, "ClusterRole prod.web"); !slices.Equal(got, []string{"[apps] [deployments] [] [*]"}) {
		t.Errorf("the rules are %q", got)
	}
}

// A program that is read-only writes nothing, so it needs no permission to write.
func TestManifestsOfReadOnlyRequests(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		p.Permit(corev1.Resource("secrets"), []string{"get", "create", "delete"})
		p.Permit(corev1.Resource("configmaps"), []string{"*"})
		return empty(ctx, p)
	}, "--", "--read-only")
	want := []string{"[] [configmaps] [] [get list watch]", "[] [secrets] [] [get]"}
	if got := rulesOf(t, objects, "ClusterRole prod.web"); !slices.Equal(got, want) {
		t.Errorf("the rules are %q", got)
	}
}

// A file for --crd needs no name of the definition: that of an aggregated API has none.
func TestManifestsOfRequestsForKindInFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "crd.yaml")
	text := "kind: CustomResourceDefinition\nspec: {group: example.com, scope: Cluster, names: {kind: Fleet, plural: fleets}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		p.Permit(schema.GroupResource{Group: "example.com", Resource: "fleets"}, []string{"get"})
		return empty(ctx, p)
	}, "--crd="+path, "--", "--namespaces=a")
	if got := rulesOf(t, objects, "ClusterRole prod.web"); !slices.Contains(got, "[example.com] [fleets] [] [get]") {
		t.Errorf("the rules are %q", got)
	}
}

// The arguments after -- are those of the program: --help among them.
func TestManifestsCommandPrintsHelp(t *testing.T) {
	t.Parallel()
	if os.Getenv("EVENKEEL_TEST_MAIN") != "" {
		os.Args = append([]string{"web"}, strings.Fields(os.Getenv("EVENKEEL_TEST_MAIN"))...)
		evenkeel.Main("web", empty)
	}
	for _, args := range []string{"manifests --help", "manifests --image=x --namespace=y -- --help", "manifests", "manifests --image=x --namespace=y --listen=:1", "manifests --image=x --namespace=y -- --nope", "manifests --image=x --namespace=y z"} {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestManifestsCommandPrintsHelp$")
		command.Env = append(os.Environ(), "EVENKEEL_TEST_MAIN="+args)
		out, err := command.CombinedOutput()
		t.Logf("%s: %v\n%s", args, err, out)
		if len(out) == 0 {
			t.Errorf("%s prints nothing", args)
		}
	}
}

// Kinds of children of earlier versions of the program are only read and deleted, where owners are.
func TestManifestsOfFormerKinds(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		in := kube.Selection{Namespaces: []string{"vault"}}
		operator, err := evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
			Name: "web", Cluster: cluster, Handle: func(context.Context, *corev1.ConfigMap, *evenkeel.Run) error { return nil },
			Owns: []watched.Kind{watched.Of(func(c *informer.Config[*corev1.Secret]) {
				c.Retriever = informer.RetrieveSelected[*corev1.Secret](cluster, kube.Selection{Namespaces: []string{"vault"}, LabelSelector: owned.LabelSet + "=web"})
			})},
			Children:   owned.Config{Kinds: []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("DaemonSet")}},
			Controller: controller.Config[*corev1.ConfigMap]{Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, in)},
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, operator)
	})
	if got := rulesOf(t, objects, "ClusterRole prod.web"); len(got) > 0 {
		t.Errorf("all owners are in vault, and the ClusterRole has %q", got)
	}
}

// Arguments that YAML cannot have, or an error.
func TestManifestsKeepArguments(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"\x7f", "\u0085", "a\nb: c\n---\nkind: X", "\ufeff", "\x80", "\u2028", "on", "1e3", "- x", "$(A)", "<&>", "\t"} {
		text, err := evenkeel.Manifests("web", func(ctx context.Context, p *evenkeel.Program) error {
			p.Flags.String("x", "", "")
			return empty(ctx, p)
		}, "--image=x", "--namespace=prod", "--", "--x="+value)
		if err != nil {
			t.Logf("%q: %v", value, err)
			continue
		}
		found := false
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var d appsv1.Deployment
			if err := yaml.Unmarshal([]byte(document), &d); err != nil {
				t.Errorf("%q: %v", value, err)
				found = true
				break
			}
			if d.Kind == "Deployment" {
				found = true
				if got := strings.ReplaceAll(d.Spec.Template.Spec.Containers[0].Args[0], "$$", "$"); got != "--x="+value {
					t.Errorf("%q became %q", value, got)
				}
			}
		}
		if !found {
			t.Errorf("%q: no Deployment", value)
		}
	}
}

// kubectl get crd -o yaml prints a List.
func TestManifestsReadListOfDefinitions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "crds.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: List\nitems:\n- kind: CustomResourceDefinition\n  metadata: {name: a.example.com}\n  spec: {group: example.com, scope: Cluster, names: {kind: A, plural: a}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := evenkeel.Manifests("web", empty, "--image=x", "--namespace=prod", "--crd="+path)
	if err != nil {
		t.Error(err)
	}
}

// A port that does not exist is an error.
func TestManifestsOfPorts(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{":99999", ":-1", "127.0.0.1:8080"} {
		_, err := evenkeel.Manifests("web", empty, "--image=x", "--namespace=prod", "--", "--listen="+listen)
		if err == nil || !strings.Contains(err.Error(), "no port that other hosts can reach") {
			t.Errorf("--listen=%s: %v", listen, err)
		}
	}
	objects := objectsOf(t, empty, "--network-policy", "--", "--listen=:8080,:8081")
	var ports []string
	for _, port := range decode[appsv1.Deployment](t, objects, "Deployment prod/web").Spec.Template.Spec.Containers[0].Ports {
		ports = append(ports, fmt.Sprint(port.Name, " ", port.ContainerPort))
	}
	if want := []string{"http 8080", "http-2 8081"}; !slices.Equal(ports, want) {
		t.Errorf("the ports are %q, want %q", ports, want)
	}
}

// Kinds that no CustomResourceDefinition defines: of aggregated API servers, and the group lifecycle.k8s.io of 1.37.
func TestManifestsOfKindsThatNoDefinitionDefines(t *testing.T) {
	t.Parallel()
	for kind, want := range map[schema.GroupVersionKind]string{
		{Group: "route.openshift.io", Version: "v1", Kind: "Route"}:               "of an aggregated API server, write a file",
		{Group: "lifecycle.k8s.io", Version: "v1alpha1", Kind: "EvictionRequest"}: "",
	} {
		_, err := evenkeel.Manifests("web", func(ctx context.Context, p *evenkeel.Program) error {
			cluster, err := p.Connect()
			if err != nil {
				return err
			}
			c, err := informer.New(informer.Config[*unstructured.Unstructured]{Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: kind})})
			if err != nil {
				return err
			}
			return p.Run(ctx, c)
		}, "--image=x", "--namespace=prod")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
