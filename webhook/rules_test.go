package webhook

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

// rulesFor are the options of a hook with one rule.
func rulesFor(groups, versions []string, resources ...string) HookConfig {
	options := mapsOptions()
	options.Rules[0].APIGroups, options.Rules[0].APIVersions, options.Rules[0].Resources = groups, versions, resources
	return options
}

func allow[T kube.Object](context.Context, *Request[T]) error { return nil }

// A rule that selects objects of other kinds than the Go type of its hook is a mistake: each of their requests would fail.
func TestNewRejectsRulesForOtherKinds(t *testing.T) {
	t.Parallel()
	any1 := []string{"*"}
	for name, test := range map[string]struct {
		hook Hook
		want string // "": no mistake
	}{
		"subresources":         {Validating(rulesFor(nil, nil, "pods/*"), allow[*corev1.Pod]), `Rules[0] has the resource "pods/*": requests for kinds other than Pod would fail`},
		"of a Mutator":         {Mutating(rulesFor(nil, nil, "pods", "pods/*"), allow[*corev1.Pod]), `has the resource "pods/*"`},
		"all resources":        {Validating(rulesFor(nil, nil, "*"), allow[*corev1.Pod]), `has the resource "*"`},
		"everything":           {Validating(rulesFor(any1, any1, "*/*"), allow[*corev1.Pod]), `has the resource "*/*"`},
		"all versions":         {Validating(rulesFor(nil, any1, "pods"), allow[*corev1.Pod]), `the Go type of the hook is for v1: omit both`},
		"another version":      {Validating(rulesFor(nil, []string{"v1", "v2"}, "pods"), allow[*corev1.Pod]), `omit both`},
		"another group":        {Validating(rulesFor([]string{"apps"}, nil, "pods"), allow[*corev1.Pod]), `omit both`},
		"named subresources":   {Validating(rulesFor(nil, nil, "pods", "pods/status"), allow[*corev1.Pod]), ""},
		"one subresource":      {Validating(rulesFor(any1, any1, "*/scale"), allow[*corev1.Pod]), ""},
		"another group's":      {Validating(rulesFor([]string{"apps"}, []string{"v1"}, "deployments/scale"), allow[*corev1.Pod]), ""},
		"any kind, everything": {Validating(rulesFor(any1, any1, "*/*"), allow[*unstructured.Unstructured]), ""},
	} {
		_, err := New(Config{Cluster: connect(t), Hooks: []Hook{test.hook}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.want)
		}
	}
}

// The limit of a program to namespaces does not apply to Namespaces, with whose own labels kube-apiserver compares the
// selector.
func TestLimitToNamespacesIsTheDefaultSelector(t *testing.T) {
	t.Parallel()
	core, any1, all := []string{""}, []string{"*"}, &metav1.LabelSelector{}
	config := func(groups []string, resources ...string) HookConfig {
		c := rulesFor(groups, []string{"v1"}, resources...)
		c.Name = "all.web.example.com"
		return c
	}
	withSelector := config(core, "namespaces", "pods")
	withSelector.NamespaceSelector = all
	split := config(core, "namespaces")
	split.Rules = append(split.Rules, config(core, "pods").Rules...)
	for name, test := range map[string]struct {
		hook            Hook
		limited, failed bool
	}{
		"a type":                   {Validating(HookConfig{}, allow[*corev1.Pod]), true, false},
		"the type Namespace":       {Validating(HookConfig{}, allow[*corev1.Namespace]), false, false},
		"namespaces":               {Validating(config(core, "namespaces"), allow[*unstructured.Unstructured]), false, false},
		"subresources":             {Validating(config(core, "namespaces/status"), allow[*unstructured.Unstructured]), false, false},
		"another group's":          {Validating(config([]string{"a.example.com"}, "namespaces"), allow[*unstructured.Unstructured]), false, false},
		"everything":               {Validating(config(any1, "*/*"), allow[*unstructured.Unstructured]), true, false},
		"both":                     {Validating(config(core, "pods", "namespaces"), allow[*unstructured.Unstructured]), false, true},
		"two rules":                {Validating(split, allow[*unstructured.Unstructured]), false, true},
		"any group and both":       {Validating(config(any1, "namespaces", "pods"), allow[*unstructured.Unstructured]), false, true},
		"both with a selector":     {Validating(withSelector, allow[*unstructured.Unstructured]), false, false},
		"namespaces of each group": {Validating(config([]string{"", "a.example.com"}, "namespaces"), allow[*unstructured.Unstructured]), false, false},
	} {
		cluster := connect(t)
		if err := cluster.SetNamespaces("shop", "sea"); err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Cluster: cluster, Hooks: []Hook{test.hook}})
		if cluster.SetNamespaces("air") == nil { // the hook keeps those from before
			t.Errorf("%s: namespaces may be set after the hook", name)
		}
		if (err != nil) != test.failed || err != nil && !strings.Contains(err.Error(), "use a hook for each") {
			t.Errorf("%s: the error is %v", name, err)
		}
		if err != nil {
			continue
		}
		configuration := s.Configurations("web", admissionregistrationv1.WebhookClientConfig{URL: new("https://web:9443")})[0]
		selector := configuration.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks[0].NamespaceSelector
		if limited := selector != nil && len(selector.MatchExpressions) > 0; limited != test.limited {
			t.Errorf("%s: the selector is %v", name, selector)
		}
	}
}

// ruled runs a server with certificates and the hook for a minute, and returns whether it has registered it, its error and
// its log.
func ruled(t *testing.T, w *world, hook Hook, change func(*Certificates)) (registered bool, log string, err error) {
	t.Helper()
	logs := &testlog.Buffer{}
	c := w.newClient("operator")
	c.Cluster().SetLogger(slog.New(slog.NewTextHandler(logs, nil)))
	config := certificatesFor(c)
	if change != nil {
		change(config)
	}
	s, err := New(Config{Cluster: c.Cluster(), Hooks: []Hook{hook}, Listen: "127.0.0.1:0", Certificates: config})
	if err != nil {
		t.Fatal(err)
	}
	s.keeper.listening = func() error { return nil }
	ctx, cancel := context.WithCancel(certificates.WithPolicy(t.Context(), policy))
	var running sync.WaitGroup
	running.Go(func() { s.keeper.run(ctx) }) // waited for below
	time.Sleep(5 * time.Minute)
	cancel()
	running.Wait()
	_, missing := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), w.client, kube.Key{Name: "operator"})
	return missing == nil, logs.String(), s.keeper.ready()
}

// A rule that names no resource of the cluster would admit everything silently, and one for another kind would reject each
// request. A mistake is an error before the hook is registered; a resource that may be installed later is logged once.
func TestRulesAreComparedWithTheCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hook             Hook
		failure, warning string
	}{
		"right":             {hook: Validating(rulesFor(nil, nil, "secrets"), allow[*corev1.Secret])},
		"singular":          {hook: Validating(rulesFor(nil, nil, "secret"), allow[*corev1.Secret]), failure: `Rules[0] has the resource "secret": the name of the resource is secrets`},
		"kind":              {hook: Validating(rulesFor(nil, nil, "Secrets"), allow[*corev1.Secret]), failure: "the name of the resource is secrets"},
		"mistyped":          {hook: Validating(rulesFor(nil, nil, "zecrets"), allow[*corev1.Secret]), failure: `has the resource "zecrets": that of Secret is secrets`},
		"another kind":      {hook: Validating(rulesFor(nil, nil, "secrets", "configmaps"), allow[*corev1.Secret]), failure: `has the resource "configmaps", whose objects are of /v1, Kind=ConfigMap`},
		"subresource":       {hook: Validating(rulesFor(nil, nil, "pods/binding"), allow[*corev1.Pod]), failure: `has the resource "pods/binding", whose objects are of /v1, Kind=Binding`},
		"no subresource":    {hook: Validating(rulesFor(nil, nil, "pods/other"), allow[*corev1.Pod]), warning: "[pods/other]"},
		"status":            {hook: Validating(rulesFor(nil, nil, "pods/status"), allow[*corev1.Pod])},
		"any kind, right":   {hook: Validating(rulesFor([]string{""}, []string{"v1"}, "secrets", "configmaps"), allow[*unstructured.Unstructured])},
		"any kind, kind":    {hook: Validating(rulesFor([]string{""}, []string{"v1"}, "secret"), allow[*unstructured.Unstructured]), failure: "the name of the resource is secrets"},
		"any kind, missing": {hook: Validating(rulesFor([]string{"", "example.com"}, []string{"v1"}, "widgets"), allow[*unstructured.Unstructured]), warning: "[widgets]"},
		"any kind, all":     {hook: Validating(rulesFor([]string{"*"}, []string{"v1"}, "widgets"), allow[*unstructured.Unstructured])},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registered, log, err := ruled(t, newWorld(t, apiserver.ConfigMaps(), apitest.WithStatus(apitest.Pods())), test.hook, nil)
				if registered == (test.failure != "") || (err == nil) != (test.failure == "") || err != nil && !strings.Contains(err.Error(), test.failure) {
					t.Errorf("registered: %t, error %v, want %q", registered, err, test.failure)
				}
				warnings := strings.Count(log, "names resources that the cluster lacks")
				if test.warning == "" && warnings > 0 || test.warning != "" && (warnings != 1 || !strings.Contains(log, test.warning)) {
					t.Error(log)
				}
			})
		})
	}
}

// The server answers at each address that it registers: the URL or the service can have a path.
func TestReviewsAtRegisteredPaths(t *testing.T) {
	t.Parallel()
	s := serveRobots(t, nil, Validating(mapsOptions(), allowMaps), robotHook())
	for _, at := range []admissionregistrationv1.WebhookClientConfig{
		{URL: new("https://a:9443")},
		{URL: new("https://a:9443/")},
		{URL: new("https://a/b/c")},
		{URL: new("https://a/b/")},
		{Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b"}},
		{Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b", Path: new("/b")}},
		{Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b", Path: new("/b/c/")}},
	} {
		path := func(url_ *string, service *string) string {
			if url_ == nil {
				return *service
			}
			parsed, err := url.Parse(*url_)
			if err != nil {
				t.Fatal(err)
			}
			return parsed.Path
		}
		hook := s.Configurations("a", at)[0].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks[0].ClientConfig
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: robotsCRD}}
		definition.Spec.Names.Kind = "Robot"
		for _, version := range []string{"v1", "v2", "v3"} {
			definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version})
		}
		if err := crd.SetConversions(s.Conversions(at), definition); err != nil {
			t.Fatal(err)
		}
		conversion := definition.Spec.Conversion.Webhook.ClientConfig
		var ofHook, ofConversion *string
		if at.Service != nil {
			ofHook, ofConversion = hook.Service.Path, conversion.Service.Path
		}
		for path, body := range map[string]string{
			path(hook.URL, ofHook):             `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"version":"v1","kind":"ConfigMap"},"object":` + mapObject + `}}`,
			path(conversion.URL, ofConversion): string(conversionReview("")),
		} {
			if code, text := post(t, s, path, []byte(body)); code != http.StatusOK {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
	}
	for _, text := range []string{"https://a?b=c", "https://a/#b", "https://a:b@c", "http://a", "https://"} {
		if _, err := namesOf(admissionregistrationv1.WebhookClientConfig{URL: &text}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// With BundleOnly the server sets the bundle of its hooks in installed configurations, and no other field.
func TestBundleOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := Validating(mapsOptions(), allowMaps)
		bundleOnly := func(c *Certificates) { c.BundleOnly = true }
		if registered, _, err := ruled(t, w, hook, bundleOnly); registered || err == nil || !strings.Contains(err.Error(), `"operator" not found`) {
			t.Errorf("without a configuration: registered %t, %v", registered, err)
		}
		installed := serve(t, hook).Configurations("operator", certificatesFor(w.client).ClientConfig)[0].(*admissionregistrationv1.ValidatingWebhookConfiguration)
		installed.Labels = map[string]string{"chart": "a"}
		installed.Webhooks[0].TimeoutSeconds = new(int32(3))
		installed.Webhooks[0].ClientConfig.Service.Port = new(int32(8443))
		other := *installed.Webhooks[0].DeepCopy()
		other.Name, other.ClientConfig.CABundle = "other.example.com", []byte("other")
		installed.Webhooks = append(installed.Webhooks, other)
		if _, err := client.Create(t.Context(), w.client, installed); err != nil {
			t.Fatal(err)
		}
		if _, log, err := ruled(t, w, hook, bundleOnly); err != nil {
			t.Fatal(err, log)
		}
		got, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), w.client, kube.Key{Name: "operator"})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(got.Webhooks[0].ClientConfig.CABundle, []byte("BEGIN CERTIFICATE")) {
			t.Error("the bundle is not set")
		}
		got.Webhooks[0].ClientConfig.CABundle = nil
		if diff := cmp.Diff(installed.Webhooks, got.Webhooks); diff != "" || got.Labels["chart"] != "a" {
			t.Errorf("other fields have changed: %s", diff)
		}
	})
}

// A rule is for each of its resources in each of its groups: a name of one group can be that of a kind in another.
func TestRulesForSeveralGroups(t *testing.T) {
	t.Parallel()
	served := func(gv schema.GroupVersion) []metav1.APIResource {
		return map[string][]metav1.APIResource{
			"a": {{Name: "logging", Kind: "Logging"}}, "b": {{Name: "loggings", Kind: "Logging"}},
		}[gv.Group]
	}
	for _, groups := range [][]string{{"a", "b"}, {"b", "a"}} {
		rule := admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"v1"}, Resources: []string{"logging", "loggings"}}
		if missing, err := (admission{}).compareRule(rule, served); err != nil || len(missing) > 0 {
			t.Errorf("%v: missing %v, error %v", groups, missing, err)
		}
	}
}

// A hook without a name and rules is asked about creations and updates of its kind.
func TestDefaultNameAndRules(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Cluster: connect(t), Hooks: []Hook{Validating(HookConfig{}, allow[*corev1.Pod]), Mutating(HookConfig{}, allow[*networkingv1.Ingress])}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, obj := range s.Configurations("web", admissionregistrationv1.WebhookClientConfig{URL: new("https://web:9443")}) {
		var hooks []admissionregistrationv1.ValidatingWebhook
		if err := throughJSON(hooksOf(obj), &hooks); err != nil {
			t.Fatal(err)
		}
		rule := hooks[0].Rules[0]
		got = append(got, fmt.Sprint(hooks[0].Name, rule.Operations, rule.APIGroups, rule.APIVersions, rule.Resources))
	}
	slices.Sort(got)
	want := []string{
		"mutating.ingresses.networking.k8s.io[CREATE UPDATE] [networking.k8s.io] [v1] [ingresses]",
		"validating.pods.core[CREATE UPDATE] [] [v1] [pods]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("registered are %q, want %q", got, want)
	}
}
