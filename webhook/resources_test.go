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
	admissionv1 "k8s.io/api/admission/v1"
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

// optionsFor are the options of a hook for resources.
func optionsFor(gv schema.GroupVersion, resources ...string) HookConfig {
	options := mapsOptions()
	options.Resources = nil
	for _, name := range resources {
		options.Resources = append(options.Resources, gv.WithResource(name))
	}
	return options
}

func execOptions(operations ...admissionv1.Operation) HookConfig {
	options := optionsFor(corev1.SchemeGroupVersion, "pods/exec")
	options.Operations = operations
	return options
}

// validatingOf returns a configuration with its Go type.
func validatingOf(t *testing.T, obj kube.Object) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	typed := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := throughJSON(obj, typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

func allow[T kube.Object](context.Context, *Request[T]) error { return nil }

// A resource whose objects do not have the Go type of its hook is a mistake: each of their requests would fail.
func TestNewRejectsResourcesOfOtherKinds(t *testing.T) {
	t.Parallel()
	any1 := schema.GroupVersion{Group: "*", Version: "*"}
	for name, test := range map[string]struct {
		hook Hook
		want string // "": no mistake
	}{
		"subresources":         {Validating(optionsFor(schema.GroupVersion{}, "pods/*"), allow[*corev1.Pod]), `Resources[0] is "pods/*": requests for kinds other than Pod would fail`},
		"of a Mutator":         {Mutating(optionsFor(schema.GroupVersion{}, "pods", "pods/*"), allow[*corev1.Pod]), `is "pods/*"`},
		"all resources":        {Validating(optionsFor(schema.GroupVersion{}, "*"), allow[*corev1.Pod]), `is "*"`},
		"everything":           {Validating(optionsFor(any1, "*/*"), allow[*corev1.Pod]), `is "*/*"`},
		"all versions":         {Validating(optionsFor(schema.GroupVersion{Version: "*"}, "pods"), allow[*corev1.Pod]), `the Go type of the hook is for v1: omit group and version`},
		"another version":      {Validating(optionsFor(schema.GroupVersion{Version: "v2"}, "pods"), allow[*corev1.Pod]), `omit group and version`},
		"another group":        {Validating(optionsFor(schema.GroupVersion{Group: "apps", Version: "v1"}, "pods"), allow[*corev1.Pod]), `omit group and version`},
		"only a group":         {Validating(optionsFor(schema.GroupVersion{Group: "apps"}, "pods/status"), allow[*corev1.Pod]), "Resources[0] lacks a Version"},
		"no resource":          {Validating(optionsFor(corev1.SchemeGroupVersion, ""), allow[*corev1.Pod]), "Resources[0] lacks a Resource"},
		"exec":                 {Validating(execOptions(), allow[*unstructured.Unstructured]), `is "pods/exec", which has CONNECT requests only`},
		"exec with CONNECT":    {Validating(execOptions("CONNECT"), allow[*unstructured.Unstructured]), ""},
		"* beside another":     {Validating(execOptions("*", "CONNECT"), allow[*unstructured.Unstructured]), `Operations has "*" beside others`},
		"named subresources":   {Validating(optionsFor(schema.GroupVersion{}, "pods", "pods/status"), allow[*corev1.Pod]), ""},
		"one subresource":      {Validating(optionsFor(any1, "*/scale"), allow[*corev1.Pod]), ""},
		"another group's":      {Validating(optionsFor(schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments/scale"), allow[*corev1.Pod]), ""},
		"any kind, everything": {Validating(optionsFor(any1, "*/*"), allow[*unstructured.Unstructured]), ""},
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
	core, all := "", &metav1.LabelSelector{}
	config := func(group string, resources ...string) HookConfig {
		c := optionsFor(schema.GroupVersion{Group: group, Version: "v1"}, resources...)
		c.Name = "all.web.example.com"
		return c
	}
	withSelector := config(core, "namespaces", "pods")
	withSelector.NamespaceSelector = all
	twoGroups := config(core, "namespaces")
	twoGroups.Resources = append(twoGroups.Resources, config("a.example.com", "namespaces").Resources...)
	for name, test := range map[string]struct {
		hook            Hook
		limited, failed bool
	}{
		"a type":                   {Validating(HookConfig{}, allow[*corev1.Pod]), true, false},
		"the type Namespace":       {Validating(HookConfig{}, allow[*corev1.Namespace]), false, false},
		"namespaces":               {Validating(config(core, "namespaces"), allow[*unstructured.Unstructured]), false, false},
		"subresources":             {Validating(config(core, "namespaces/status"), allow[*unstructured.Unstructured]), false, false},
		"another group's":          {Validating(config("a.example.com", "namespaces"), allow[*unstructured.Unstructured]), false, false},
		"everything":               {Validating(config("*", "*/*"), allow[*unstructured.Unstructured]), true, false},
		"both":                     {Validating(config(core, "pods", "namespaces"), allow[*unstructured.Unstructured]), false, true},
		"any group and both":       {Validating(config("*", "namespaces", "pods"), allow[*unstructured.Unstructured]), false, true},
		"both with a selector":     {Validating(withSelector, allow[*unstructured.Unstructured]), false, false},
		"namespaces of each group": {Validating(twoGroups, allow[*unstructured.Unstructured]), false, false},
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
		configurations, err := s.Configurations("web", "https://web:9443", nil)
		if err != nil {
			t.Fatal(err)
		}
		selector := validatingOf(t, configurations[0]).Webhooks[0].NamespaceSelector
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

// A hook that names no resource of the cluster would admit everything silently, and one for another kind would reject each
// request. A mistake is an error before the hook is registered; a resource that may be installed later is logged once.
func TestResourcesAreComparedWithTheCluster(t *testing.T) {
	t.Parallel()
	twoVersions := optionsFor(corev1.SchemeGroupVersion, "secrets")
	twoVersions.Resources = append(twoVersions.Resources, schema.GroupVersionResource{Version: "v2", Resource: "secrets"})
	for name, test := range map[string]struct {
		hook             Hook
		failure, warning string
	}{
		"right":              {hook: Validating(optionsFor(schema.GroupVersion{}, "secrets"), allow[*corev1.Secret])},
		"singular":           {hook: Validating(optionsFor(schema.GroupVersion{}, "secret"), allow[*corev1.Secret]), failure: `Resources[0] is "secret": the name of the resource is secrets`},
		"kind":               {hook: Validating(optionsFor(schema.GroupVersion{}, "Secrets"), allow[*corev1.Secret]), failure: "the name of the resource is secrets"},
		"mistyped":           {hook: Validating(optionsFor(schema.GroupVersion{}, "zecrets"), allow[*corev1.Secret]), failure: `is "zecrets": that of Secret is secrets`},
		"another kind":       {hook: Validating(optionsFor(schema.GroupVersion{}, "secrets", "configmaps"), allow[*corev1.Secret]), failure: `is "configmaps", whose objects are of /v1, Kind=ConfigMap`},
		"subresource":        {hook: Validating(optionsFor(schema.GroupVersion{}, "pods/binding"), allow[*corev1.Pod]), failure: `is "pods/binding", whose objects are of /v1, Kind=Binding`},
		"no subresource":     {hook: Validating(optionsFor(schema.GroupVersion{}, "pods/other"), allow[*corev1.Pod]), warning: "[pods/other.v1]"},
		"status":             {hook: Validating(optionsFor(schema.GroupVersion{}, "pods/status"), allow[*corev1.Pod])},
		"any kind, right":    {hook: Validating(optionsFor(corev1.SchemeGroupVersion, "secrets", "configmaps"), allow[*unstructured.Unstructured])},
		"any kind, kind":     {hook: Validating(optionsFor(corev1.SchemeGroupVersion, "secret"), allow[*unstructured.Unstructured]), failure: "the name of the resource is secrets"},
		"any kind, missing":  {hook: Validating(optionsFor(schema.GroupVersion{Group: "example.com", Version: "v1"}, "widgets"), allow[*unstructured.Unstructured]), warning: "[widgets.v1.example.com]"},
		"one version of two": {hook: Validating(twoVersions, allow[*unstructured.Unstructured])},
		"any kind, all":      {hook: Validating(optionsFor(schema.GroupVersion{Group: "*", Version: "v1"}, "widgets"), allow[*unstructured.Unstructured])},
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
	for _, address := range []string{"https://a:9443", "https://a:9443/", "https://a/b/c", "https://a/b/", "https://a.b.svc", "https://a.b.svc/b", "https://a.b.svc/b/c/"} {
		configurations, err := s.Configurations("a", address, nil)
		if err != nil {
			t.Fatal(err)
		}
		hook := validatingOf(t, configurations[0]).Webhooks[0].ClientConfig
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: robotsCRD}}
		definition.Spec.Names.Kind = "Robot"
		for _, version := range []string{"v1", "v2", "v3"} {
			definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version})
		}
		conversions, err := s.Conversions(address, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := crd.SetConversions(conversions, definition); err != nil {
			t.Fatal(err)
		}
		conversion := definition.Spec.Conversion.Webhook.ClientConfig
		paths := map[bool]string{}
		if strings.Contains(address, ".svc") {
			paths[true], paths[false] = *hook.Service.Path, *conversion.Service.Path
		} else {
			for isHook, at := range map[bool]*string{true: hook.URL, false: conversion.URL} {
				parsed, err := url.Parse(*at)
				if err != nil {
					t.Fatal(err)
				}
				paths[isHook] = parsed.Path
			}
		}
		for path, body := range map[string]string{
			paths[true]:  `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"version":"v1","kind":"ConfigMap"},"object":` + mapObject + `}}`,
			paths[false]: string(conversionReview("")),
		} {
			if code, text := post(t, s, path, []byte(body)); code != http.StatusOK {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
	}
}

func TestAddressesOfServers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]address{
		"https://a":                    {name: "a", host: "a", port: 443},
		"https://[::1]:9443/x":         {name: "::1", host: "[::1]:9443", port: 9443, path: "/x"},
		"https://a.b.svc":              {service: kube.Key{Namespace: "b", Name: "a"}, name: "a.b.svc", host: "a.b.svc", port: 443},
		"https://a.b.svc:8443/x/y/":    {service: kube.Key{Namespace: "b", Name: "a"}, name: "a.b.svc", host: "a.b.svc:8443", port: 8443, path: "/x/y"},
		"https://a.b.svc.cluster.test": {name: "a.b.svc.cluster.test", host: "a.b.svc.cluster.test", port: 443},
		"https://A.b.SVC":              {service: kube.Key{Namespace: "b", Name: "a"}, name: "a.b.svc", host: "A.b.SVC", port: 443},
		"https://b.svc":                {name: "b.svc", host: "b.svc", port: 443},
	} {
		if got, err := parseAddress(text); err != nil || got != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a.b.svc", "https://a?b=c", "https://a?", "https://a/#b", "https://a#", "https://a:b@c", "http://a", "https://", "https://:443", "https://a:0", "https://a:65536", "https://.b.svc", "https://a..svc", "https://a_b.c.svc", "https://*.b.svc", "https://a.-b.svc", "https://a.b.svc/c%20d", "https://[fe80::1%25eth0]"} {
		if got, err := parseAddress(text); err == nil || !strings.Contains(err.Error(), "URL is ") {
			t.Errorf("%s is accepted: %+v, %v", text, got, err)
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
		configurations, err := serve(t, hook).Configurations("operator", certificatesFor(w.client).URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		installed := validatingOf(t, configurations[0])
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

// A hook without a name and resources is asked about creations and updates of its kind.
func TestDefaultNameAndResources(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Cluster: connect(t), Hooks: []Hook{Validating(HookConfig{}, allow[*corev1.Pod]), Mutating(HookConfig{}, allow[*networkingv1.Ingress])}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	configurations, err := s.Configurations("web", "https://web:9443", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range configurations {
		hooks := validatingOf(t, obj).Webhooks
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
