package evenkeel_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// objectsOf returns the objects that Manifests returns, by kind, namespace and name.
func objectsOf(t *testing.T, run func(context.Context, *evenkeel.Program) error, args ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := evenkeel.Manifests("web", run, append([]string{"--image=web:1", "--namespace=prod"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for i, document := range strings.Split(string(text), "\n---\n") {
		var content map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
			t.Fatalf("document %d: %v\n%s", i, err, text)
		}
		obj := &unstructured.Unstructured{Object: content}
		objects[strings.TrimSpace(fmt.Sprint(obj.GetKind(), " ", strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/")))] = obj
	}
	return objects
}

func decode[T any](t *testing.T, objects map[string]*unstructured.Unstructured, name string) (into T) {
	t.Helper()
	obj := objects[name]
	if obj == nil {
		t.Fatalf("%s is missing among %q", name, slices.Sorted(maps.Keys(objects)))
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, &into, true); err != nil {
		t.Fatal(err)
	}
	return into
}

// rulesOf returns the rules of a role in short form, none if there is no such role.
func rulesOf(t *testing.T, objects map[string]*unstructured.Unstructured, name string) []string {
	t.Helper()
	if objects[name] == nil {
		return nil
	}
	var texts []string
	for _, rule := range decode[rbacv1.ClusterRole](t, objects, name).Rules {
		texts = append(texts, fmt.Sprintf("%s %s %s %s", rule.APIGroups, rule.Resources, rule.ResourceNames, rule.Verbs))
	}
	return texts
}

// deploymentsOf runs an operator of ConfigMaps with Deployments as children, and a controller of Nodes.
func deploymentsOf(ctx context.Context, p *evenkeel.Program) error {
	cluster, err := p.Connect()
	if err != nil {
		return err
	}
	p.Permit(corev1.Resource("pods/eviction"), []string{"create"})
	p.Permit(storagev1.Resource("storageclasses"), []string{"get"})
	operator, err := evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
		Name: "web", Cluster: cluster, Owns: []watched.Kind{watched.Of[*appsv1.Deployment]()},
		Handle:    func(context.Context, *corev1.ConfigMap, *evenkeel.Run) error { return nil },
		Finalizer: "example.com/web", Teardown: func(context.Context, *corev1.ConfigMap, *evenkeel.Run) error { return nil },
	})
	if err != nil {
		return err
	}
	nodes, err := controller.New(controller.Config[*corev1.Node]{
		Name: "nodes", Cluster: cluster, Handler: func(context.Context, *corev1.Node) error { return nil },
	})
	if err != nil {
		return err
	}
	secrets, err := informer.New(informer.Config[*corev1.Secret]{
		Retriever: informer.RetrieveSelected[*corev1.Secret](cluster, kube.Selection{Namespaces: []string{"vault"}}),
	})
	if err != nil {
		return err
	}
	return p.Run(ctx, operator, nodes, secrets)
}

func TestManifestsOfOperator(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, deploymentsOf)
	want := []string{
		"[] [nodes] [] [list watch]",
		"[] [configmaps] [] [get list patch watch]",
		"[] [configmaps/finalizers] [] [update]",
		"[apps] [deployments] [] [create delete get list patch watch]",
		"[events.k8s.io] [events] [] [create patch]",
		"[] [pods/eviction] [] [create]",
		"[storage.k8s.io] [storageclasses] [] [get]",
	}
	got := rulesOf(t, objects, "ClusterRole prod.web")
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the ClusterRole (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"[] [secrets] [] [list watch]"}, rulesOf(t, objects, "Role vault/prod.web")); diff != "" {
		t.Errorf("the Role of another namespace (-want +got):\n%s", diff)
	}
	wantLease := []string{"[coordination.k8s.io] [leases] [] [create]", "[coordination.k8s.io] [leases] [web] [get update]"}
	if diff := cmp.Diff(wantLease, rulesOf(t, objects, "Role prod/web")); diff != "" {
		t.Errorf("the Role for the lease (-want +got):\n%s", diff)
	}
	binding := decode[rbacv1.RoleBinding](t, objects, "RoleBinding vault/prod.web")
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "web", Namespace: "prod"}}, binding.Subjects); diff != "" {
		t.Errorf("the subjects (-want +got):\n%s", diff)
	}
	decode[corev1.Namespace](t, objects, "Namespace prod")
	decode[corev1.ServiceAccount](t, objects, "ServiceAccount prod/web")
	pod := decode[appsv1.Deployment](t, objects, "Deployment prod/web").Spec.Template.Spec
	if c := pod.Containers[0]; c.Image != "web:1" || len(c.Args) > 0 || c.LivenessProbe.HTTPGet.Port.StrVal != "http" || c.Ports[0].ContainerPort != 8080 {
		t.Errorf("the container is %+v", c)
	}
	if ports := decode[corev1.Service](t, objects, "Service prod/web").Spec.Ports; len(ports) != 1 || ports[0].Port != 8080 {
		t.Errorf("the ports are %+v", ports)
	}
}

// operatorIn returns a program with an operator of ConfigMaps, which are all in the namespace vault, as its children.
func operatorIn(ctx context.Context, p *evenkeel.Program) error {
	cluster, err := p.Connect()
	if err != nil {
		return err
	}
	operator, err := evenkeel.New(evenkeel.Config[*corev1.ConfigMap]{
		Name: "web", Cluster: cluster,
		Owns: []watched.Kind{watched.Of(func(c *informer.Config[*corev1.Secret]) {
			c.Retriever = informer.RetrieveSelected[*corev1.Secret](cluster, kube.Selection{Namespaces: []string{"vault"}, LabelSelector: owned.LabelSet + "=web"})
		})},
		Handle: func(context.Context, *corev1.ConfigMap, *evenkeel.Run) error { return nil },
		Controller: controller.Config[*corev1.ConfigMap]{
			Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"vault"}}),
		},
	})
	if err != nil {
		return err
	}
	return p.Run(ctx, operator)
}

// The permissions for a kind, its children and its Events are those for the namespaces in which it is watched.
func TestManifestsOfOperatorInItsNamespace(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--", "--namespaces=a"}} {
		objects := objectsOf(t, operatorIn, args...)
		want := []string{
			"[] [configmaps] [] [get list watch]", "[] [configmaps/finalizers] [] [update]",
			"[] [secrets] [] [create delete get list patch watch]", "[events.k8s.io] [events] [] [create patch]",
		}
		if diff := cmp.Diff(want, rulesOf(t, objects, "Role vault/prod.web")); diff != "" {
			t.Errorf("%q: the Role (-want +got):\n%s", args, diff)
		}
		if objects["ClusterRole prod.web"] != nil || objects["Role a/prod.web"] != nil {
			t.Errorf("%q: there are further roles", args)
		}
	}
	want := []string{"[] [configmaps secrets] [] [get list watch]"}
	if diff := cmp.Diff(want, rulesOf(t, objectsOf(t, operatorIn, "--", "--read-only"), "Role vault/prod.web")); diff != "" {
		t.Errorf("with --read-only (-want +got):\n%s", diff)
	}
}

// Children may live in further namespaces, which a set names.
func TestManifestsOfChildrenInFurtherNamespaces(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		own, err := client.New(client.Config{Cluster: cluster, FieldOwner: "web"})
		if err != nil {
			return err
		}
		secrets := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Secret")}
		if _, err := owned.New(owned.Config{Client: own, Name: "web", Kinds: secrets, Namespaces: []string{"vault"}}); err != nil {
			return err
		}
		return p.Run(ctx)
	}
	objects := objectsOf(t, run, "--", "--namespaces=a")
	for _, name := range []string{"Role a/prod.web", "Role vault/prod.web"} {
		if diff := cmp.Diff([]string{"[] [secrets] [] [create delete get list patch]"}, rulesOf(t, objects, name)); diff != "" {
			t.Errorf("the %s (-want +got):\n%s", name, diff)
		}
	}
}

// Events about objects that live in no namespace are in the namespace default; a program that writes none needs no rule.
func TestManifestsPermitEvents(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, deploymentsOf, "--", "--namespaces=a")
	if diff := cmp.Diff([]string{"[events.k8s.io] [events] [] [create patch]"}, rulesOf(t, objects, "Role default/prod.web")); diff != "" {
		t.Errorf("Events about Nodes (-want +got):\n%s", diff)
	}
	if objects := objectsOf(t, empty); objects["ClusterRole prod.web"] != nil {
		t.Error("a program without controllers has a ClusterRole")
	}
	own := func(ctx context.Context, p *evenkeel.Program) error {
		if _, err := p.Connect(); err != nil {
			return err
		}
		p.Events()
		return p.Run(ctx)
	}
	if got := rulesOf(t, objectsOf(t, own), "ClusterRole prod.web"); len(got) != 1 {
		t.Errorf("a program with Events of its own has %q", got)
	}
}

// empty is a program without controllers.
func empty(ctx context.Context, p *evenkeel.Program) error {
	if _, err := p.Connect(); err != nil {
		return err
	}
	return p.Run(ctx)
}

func TestManifestsOfPermissions(t *testing.T) {
	t.Parallel()
	gateways := schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "gatewayclasses"}
	permitted := func(declare func(p *evenkeel.Program)) func(context.Context, *evenkeel.Program) error {
		return func(ctx context.Context, p *evenkeel.Program) error {
			declare(p)
			return empty(ctx, p)
		}
	}
	objects := objectsOf(t, permitted(func(p *evenkeel.Program) {
		p.Permit(corev1.Resource("secrets"), []string{"get"})
		p.Permit(corev1.Resource("nodes"), []string{"get"}, kube.Key{Name: "a"})
		p.Permit(gateways, []string{"get"}, kube.Key{Namespace: kube.AllNamespaces})
		p.Permit(corev1.Resource("configmaps"), []string{"get", "watch"},
			kube.Key{Namespace: "kube-system", Name: "b"}, kube.Key{Namespace: "kube-system", Name: "a"}, kube.Key{Namespace: "kube-system", Name: "a"}, kube.Key{Name: "own"}, kube.Key{Namespace: "vault"}, kube.Key{Namespace: "vault", Name: "a"})
	}), "--", "--namespaces=a", "--leader-elect=false")
	for role, want := range map[string][]string{
		"ClusterRole prod.web":      {"[] [nodes] [a] [get]", "[gateway.networking.k8s.io] [gatewayclasses] [] [get]"},
		"Role a/prod.web":           {"[] [secrets] [] [get]", "[] [configmaps] [own] [get watch]"},
		"Role kube-system/prod.web": {"[] [configmaps] [a b] [get watch]"},
		"Role vault/prod.web":       {"[] [configmaps] [] [get watch]"},
	} {
		if diff := cmp.Diff(want, rulesOf(t, objects, role)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
	}
	for want, declare := range map[string]func(p *evenkeel.Program){
		"both are needed":    func(p *evenkeel.Program) { p.Permit(corev1.Resource(""), []string{"get"}) },
		"the verbs are []":   func(p *evenkeel.Program) { p.Permit(corev1.Resource("pods"), nil) },
		`the verbs are [""]`: func(p *evenkeel.Program) { p.Permit(corev1.Resource("/status"), []string{""}) },
		"the key is empty": func(p *evenkeel.Program) {
			p.Permit(corev1.Resource("pods"), []string{"get"}, kube.Key{Name: "a"}, kube.Key{})
		},
		"are cluster-scoped": func(p *evenkeel.Program) {
			p.Permit(corev1.Resource("nodes/status"), []string{"get"}, kube.Key{Namespace: "a"})
		},
		"no namespace has this name": func(p *evenkeel.Program) {
			p.Permit(corev1.Resource("pods"), []string{"get"}, kube.Key{Namespace: "A_b"})
		},
		"no object has this name": func(p *evenkeel.Program) { p.Permit(corev1.Resource("pods"), []string{"get"}, kube.Key{Name: "*"}) },
		"its scope is not known":  func(p *evenkeel.Program) { p.Permit(gateways, []string{"get"}) },
	} {
		if _, err := evenkeel.Manifests("web", permitted(declare), "--image=x", "--namespace=prod", "--", "--namespaces=a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// The resource and the scope of a kind without a definition in the program are in that of --crd.
func TestManifestsOfKindWithoutDefinition(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		classes, err := informer.New(informer.Config[*unstructured.Unstructured]{
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"}}),
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, classes)
	}
	_, err := evenkeel.Manifests("web", run, "--image=x", "--namespace=prod")
	if err == nil || !strings.Contains(err.Error(), "of GatewayClass in gateway.networking.k8s.io/v1 are not known: pass the file") {
		t.Errorf("without a definition: %v", err)
	}
	path := filepath.Join(t.TempDir(), "crd.yaml")
	definition := "---\nkind: CustomResourceDefinition\nspec: {group: gateway.networking.k8s.io, scope: Cluster, names: {kind: GatewayClass, plural: gatewayclasses}}\n"
	if err := os.WriteFile(path, []byte(definition), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := objectsOf(t, run, "--crd="+path, "--", "--namespaces=a")
	if diff := cmp.Diff([]string{"[gateway.networking.k8s.io] [gatewayclasses] [] [list watch]"}, rulesOf(t, objects, "ClusterRole prod.web")); diff != "" {
		t.Errorf("the ClusterRole (-want +got):\n%s", diff)
	}
}

// Webhooks are registered by the program, because a rejected Pod of the Deployment could not start it.
func TestManifestsLeaveWebhooksToTheProgram(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, hooked, "--", "--webhook-listen=:9443")
	if objects["ValidatingWebhookConfiguration web"] != nil {
		t.Error("the configuration is printed")
	}
	want := "[admissionregistration.k8s.io] [mutatingwebhookconfigurations validatingwebhookconfigurations] [web] [create get patch]"
	if got := rulesOf(t, objects, "ClusterRole prod.web"); !slices.Contains(got, want) {
		t.Errorf("the rules are %q", got)
	}
	if ports := decode[corev1.Service](t, objects, "Service prod/web").Spec.Ports; len(ports) != 2 || ports[1].Port != 443 {
		t.Errorf("the ports are %+v", ports)
	}
}

// hooked is an operator of Pods with a webhook.
func hooked(ctx context.Context, p *evenkeel.Program) error {
	cluster, err := p.Connect()
	if err != nil {
		return err
	}
	operator, err := evenkeel.New(evenkeel.Config[*corev1.Pod]{
		Name: "web", Cluster: cluster, Handle: func(context.Context, *corev1.Pod, *evenkeel.Run) error { return nil },
		Validate: func(context.Context, *webhook.Request[*corev1.Pod]) error { return nil },
	})
	if err != nil {
		return err
	}
	return p.Run(ctx, operator)
}

// The environment of the person who prints is not that of the Deployment.
func TestManifestsIgnoreEnvironment(t *testing.T) {
	want := objectsOf(t, deploymentsOf)
	t.Setenv("OPERATOR_NAMESPACES", "a")
	t.Setenv("OPERATOR_LEASE_NAME", "other")
	t.Setenv("OPERATOR_CONFIG", "/missing")
	if diff := cmp.Diff(want, objectsOf(t, deploymentsOf)); diff != "" {
		t.Errorf("with an environment (-want +got):\n%s", diff)
	}
}

// The Deployment serves what the manager serves, also by settings without a flag.
func TestManifestsOfManagerSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change        func(*evenkeel.Program)
		args          []string
		probe, scheme string
	}{
		"default": {nil, nil, "http HTTP", ""},
		"a certificate": {func(p *evenkeel.Program) {
			p.Manager.TLS = func(c *tls.Config) {
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") }
			}
		}, nil, "http HTTPS", "https"},
		"settings of TLS":   {func(p *evenkeel.Program) { p.Manager.TLS = func(*tls.Config) {} }, nil, "http HTTP", ""},
		"probes":            {func(p *evenkeel.Program) { p.Manager.ProbeListen = ":8081" }, nil, "probes HTTP", "https"},
		"several addresses": {nil, []string{"--listen=localhost:1,:8081"}, "http HTTP", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
				if test.change != nil {
					test.change(p)
				}
				return empty(ctx, p)
			}, append([]string{"--service-monitor", "--"}, test.args...)...)
			probe := decode[appsv1.Deployment](t, objects, "Deployment prod/web").Spec.Template.Spec.Containers[0].LivenessProbe.HTTPGet
			if got := fmt.Sprint(probe.Port.StrVal, " ", probe.Scheme); got != test.probe {
				t.Errorf("the probe is %s", got)
			}
			endpoints, _, _ := unstructured.NestedSlice(objects["ServiceMonitor prod/web"].Object, "spec", "endpoints")
			if scheme, _ := endpoints[0].(map[string]any)["scheme"].(string); scheme != test.scheme {
				t.Errorf("the ServiceMonitor has the scheme %q", scheme)
			}
		})
	}
}

// Names that are numbers, and arguments with $, stay as they are.
func TestManifestsQuoteTexts(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, p *evenkeel.Program) error {
		p.Flags.String("x", "", "")
		p.Options.LeaseNamespace = "dev"
		return empty(ctx, p)
	}
	objects := objectsOf(t, run, "--namespace=2024", "--", "--x=$(HOME)$", "--lease-namespace=leases")
	decode[corev1.Namespace](t, objects, "Namespace 2024")
	args := decode[appsv1.Deployment](t, objects, "Deployment 2024/web").Spec.Template.Spec.Containers[0].Args
	if !slices.Equal(args, []string{"--x=$$(HOME)$$", "--lease-namespace=leases"}) {
		t.Errorf("the arguments are %q", args)
	}
	if got := rulesOf(t, objects, "Role leases/2024.web"); len(got) != 2 {
		t.Errorf("the rules for the lease are %q", got)
	}
}

// The function of Manifests may wait for the end of its context beside Run.
func TestManifestsEndTheContext(t *testing.T) {
	t.Parallel()
	objectsOf(t, func(ctx context.Context, p *evenkeel.Program) error {
		if err := empty(ctx, p); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// A program that is limited to namespaces gets a Role in each, and a ClusterRole for kinds that live in none.
func TestManifestsInNamespaces(t *testing.T) {
	t.Parallel()
	objects := objectsOf(t, deploymentsOf, "--network-policy", "--service-monitor", "--alerts", "--",
		"--namespaces=a,prod", "--listen=:8443", "--probe-listen=:8081", "--authorize", "--lease-name=other", "--shutdown-timeout=40s")
	wantCluster := []string{
		"[] [nodes] [] [list watch]", "[authentication.k8s.io] [tokenreviews] [] [create]",
		"[authorization.k8s.io] [subjectaccessreviews] [] [create]", "[storage.k8s.io] [storageclasses] [] [get]",
	}
	if diff := cmp.Diff(wantCluster, rulesOf(t, objects, "ClusterRole prod.web")); diff != "" {
		t.Errorf("the ClusterRole (-want +got):\n%s", diff)
	}
	inA := rulesOf(t, objects, "Role a/prod.web")
	if !slices.Contains(inA, "[apps] [deployments] [] [create delete get list patch watch]") || strings.Contains(fmt.Sprint(inA), "leases") {
		t.Errorf("the rules in a are %q", inA)
	}
	if own := fmt.Sprint(rulesOf(t, objects, "Role prod/web")); !strings.Contains(own, "leases] [other]") || !strings.Contains(own, "deployments") {
		t.Errorf("the rules in prod are %s", own)
	}
	deployment := decode[appsv1.Deployment](t, objects, "Deployment prod/web")
	pod := deployment.Spec.Template.Spec
	if p := pod.Containers[0].ReadinessProbe.HTTPGet; p.Port.StrVal != "probes" || p.Scheme != corev1.URISchemeHTTP {
		t.Errorf("the probe is %+v", p)
	}
	if *deployment.Spec.Replicas != 2 || *pod.TerminationGracePeriodSeconds != 41 || !slices.Contains(pod.Containers[0].Args, "--namespaces=a,prod") {
		t.Errorf("the Deployment is %+v", deployment.Spec)
	}
	if policy := decode[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy prod/web"); len(policy.Spec.Ingress[0].Ports) != 2 {
		t.Errorf("the NetworkPolicy is %+v", policy.Spec)
	}
	if monitor := fmt.Sprint(objects["ServiceMonitor prod/web"]); !strings.Contains(monitor, "scheme:https") || !strings.Contains(monitor, "bearerTokenFile") {
		t.Errorf("the ServiceMonitor is %s", monitor)
	}
	text, err := os.ReadFile("docs/dashboards/alerts.yaml")
	var want any
	if err := errors.Join(err, yaml.Unmarshal(text, &want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, objects["PrometheusRule prod/web"].Object["spec"]); diff != "" {
		t.Errorf("the PrometheusRule (-file +printed):\n%s", diff)
	}
}

// The lease is in the namespace of the program, whatever the program's default is; the fence gets its policy.
func TestManifestsWithFence(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, p *evenkeel.Program) error {
		p.Options.LeaseNamespace = "dev"
		if _, err := p.Connect(); err != nil {
			return err
		}
		p.Manager.LeaderElection = &leader.Config{Fence: true}
		return p.Run(ctx)
	}
	objects := objectsOf(t, run)
	decode[rbacv1.Role](t, objects, "Role prod/fence.prod.web")
	if objects["ValidatingAdmissionPolicy fence.prod.web"] == nil {
		t.Error("the policy is missing")
	}
	container := decode[appsv1.Deployment](t, objects, "Deployment prod/web").Spec.Template.Spec.Containers[0]
	if !slices.Equal(container.Args, []string{"--lease-namespace=prod"}) || len(container.Env) != 1 || container.Env[0].Name != "POD_UID" {
		t.Errorf("the container is %+v", container)
	}
	if elsewhere := objectsOf(t, run, "--", "--lease-namespace=leases"); elsewhere["ValidatingAdmissionPolicy fence.leases.web"] == nil {
		t.Error("the policy is for another lease than that of --lease-namespace")
	}
	without := decode[appsv1.Deployment](t, objectsOf(t, run, "--", "--leader-elect=false"), "Deployment prod/web")
	if without.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || *without.Spec.Replicas != 1 {
		t.Errorf("without a lease the Deployment is %+v", without.Spec)
	}
}

func TestManifestsErrors(t *testing.T) {
	t.Parallel()
	request := func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "web"})
		if err != nil {
			return err
		}
		_, err = client.Get[*corev1.ConfigMap](ctx, c, kube.Key{Namespace: metav1.NamespaceDefault, Name: "x"})
		return err
	}
	for name, test := range map[string]struct {
		run  func(context.Context, *evenkeel.Program) error
		args []string
		want string
	}{
		"without an image": {deploymentsOf, []string{"--namespace=prod"}, "--image is"},
		"an invalid name":  {deploymentsOf, []string{"--namespace=a/b", "--image=x"}, `--namespace is "a/b"`},
		"a program's flag": {deploymentsOf, []string{"--namespace=prod", "--image=x", "--listen=:1"}, "flag provided but not defined: -listen"},
		"no Run":           {func(context.Context, *evenkeel.Program) error { return nil }, []string{"--namespace=prod", "--image=x"}, "has not called Program.Run"},
		"a request":        {request, []string{"--namespace=prod", "--image=x"}, "has no cluster: make requests in a Runner"},
		"an ignored error of Run": {func(ctx context.Context, p *evenkeel.Program) error {
			_ = p.Run(ctx)
			return nil
		}, []string{"--namespace=prod", "--image=x"}, "call Connect first"},
		"certificate files":   {empty, []string{"--namespace=prod", "--image=x", "--", "--tls-cert-file=/a", "--tls-private-key-file=/b"}, `--tls-cert-file is "/a": the Deployment has no files`},
		"a config file":       {empty, []string{"--namespace=prod", "--image=x", "--", "--config=/a"}, `--config is "/a"`},
		"a loopback address":  {empty, []string{"--namespace=prod", "--image=x", "--", "--probe-listen=127.0.0.1:1"}, "the server probes listens at 127.0.0.1:1, which has no port that other hosts can reach"},
		"the port 443 twice":  {hooked, []string{"--namespace=prod", "--image=x", "--", "--listen=:443", "--webhook-listen=:9443"}, "have the port 443 of the Service"},
		"webhooks elsewhere":  {hooked, []string{"--namespace=prod", "--image=x", "--", "--lease-namespace=a", "--webhook-listen=:9443"}, "omit --lease-namespace"},
		"a mistake of config": {deploymentsOf, []string{"--namespace=prod", "--image=x", "--", "--namespaces=A"}, "set the namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := evenkeel.Manifests("web", test.run, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
		})
	}
}
