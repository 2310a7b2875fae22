package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/simulation"
	webhooks "github.com/evenkeel-go/evenkeel/webhook"
)

// reviewer handles admission reviews by path.
type reviewer map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

func (h reviewer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(req.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	handle := h[req.URL.Path]
	if handle == nil {
		http.NotFound(w, req)
		return
	}
	review.Response = handle(review.Request)
	if review.Response != nil && review.Response.UID == "" {
		review.Response.UID = review.Request.UID
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func patchWith(text string) *admissionv1.AdmissionResponse {
	jsonPatch := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(text), PatchType: &jsonPatch}
}

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func webhook(kind, name, path, more string) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ` + kind + `WebhookConfiguration, metadata: {name: ` + name + `}, webhooks: [{
		name: ` + name + `.example.com, sideEffects: None, admissionReviewVersions: [v1],
		clientConfig: {service: {namespace: default, name: hooks, path: ` + path + `}},
		rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}]` + more + `}]}` + "\n---\n"
}

// A webhook server that listens gets the calls, with their paths. If it does not answer, the failure names its address.
func TestForwardedWebhooks(t *testing.T) {
	t.Parallel()
	listener := httptest.NewTLSServer(reviewer{"/policy": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: r.Name == "good", Result: &metav1.Status{Message: "bad name"}}
	}})
	defer listener.Close()
	address := listener.Listener.Addr().String()
	c := simulation.New(t, simulation.Config{YAML: webhook("Validating", "policy", "/policy", "")})
	c.ForwardWebhooks(address)
	if err := createConfigMap(t, c, "good", nil); err != nil {
		t.Error(err)
	}
	if err := createConfigMap(t, c, "bad", nil); err == nil || !strings.Contains(err.Error(), "bad name") {
		t.Errorf("a denied request: %v", err)
	}
	listener.Close()
	if err := createConfigMap(t, c, "good", nil); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("without a server: %v", err)
	}
}

func TestValidatingWebhook(t *testing.T) {
	t.Parallel()
	handler := reviewer{"/validate": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: r.Name != "bad", Result: &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "bad name"}}
	}}
	configuration := webhook("Validating", "policy", "/validate", "")
	// region webhooks
	simulation.Test(t, simulation.Config{YAML: configuration}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(handler) // any http.Handler
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}`)
		err := createConfigMap(t, c, "bad", nil)
		if !apierrors.IsForbidden(err) || err.Error() != `admission webhook "policy.example.com" denied the request: bad name` {
			t.Error(err)
		}
	})
	// endregion
}

// A webhook with only the former version of reviews gets that one.
func TestWebhookWithoutV1(t *testing.T) {
	t.Parallel()
	configuration := strings.Replace(webhook("Validating", "policy", "/validate", ""), "admissionReviewVersions: [v1]", "admissionReviewVersions: [v1beta1]", 1)
	simulation.Test(t, simulation.Config{YAML: configuration}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(reviewer{"/validate": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not " + r.Name}}
		}})
		err := createConfigMap(t, c, "a", nil)
		if !apierrors.IsBadRequest(err) || err.Error() != `admission webhook "policy.example.com" denied the request: not a` {
			t.Error(err)
		}
	})
}

// A server of package webhook is the handler, and its configurations register it.
func TestWebhookServer(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		options := func(name string) webhooks.HookConfig {
			return webhooks.HookConfig{Name: name, Operations: []admissionv1.Operation{admissionv1.Create}, Resources: []schema.GroupVersionResource{{Resource: "configmaps"}}}
		}
		server, err := webhooks.New(webhooks.Config{Cluster: c.Connect("operator"), Hooks: []webhooks.Hook{
			webhooks.Mutating(options("labels.example.com"), func(_ context.Context, r *webhooks.Request[*corev1.ConfigMap]) error {
				r.Object.Labels = map[string]string{"name": r.Object.Name}
				return nil
			}),
			webhooks.Validating(options("names.example.com"), func(_ context.Context, r *webhooks.Request[*corev1.ConfigMap]) error {
				if r.Object.Labels["name"] == "bad" {
					return field.Invalid(field.NewPath("metadata", "name"), r.Object.Name, "must not be bad")
				}
				return nil
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.HandleWebhooks(server)
		configurations, err := server.Configurations("operator", "https://operator.default.svc", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range configurations {
			text, err := yaml.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			c.Apply(string(text))
		}
		if err := createConfigMap(t, c, "good", nil); err != nil {
			t.Error(err)
		}
		err = createConfigMap(t, c, "bad", nil)
		if !apierrors.IsInvalid(err) || err.Error() != `admission webhook "names.example.com" denied the request: ConfigMap "bad" is invalid: metadata.name: Invalid value: "bad": must not be bad` {
			t.Error(err)
		}
	})
}

// A hook's own patch is applied, in the version of its Go type and for a dry run too; its warnings reach the client, also
// with a rejection. Audit annotations have no effect: the cluster in memory has no audit log.
func TestResponsesOfWebhookServer(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		simulation.Test(t, simulation.Config{YAML: gadgets}, func(t *testing.T, c *simulation.Cluster) {
			options := webhooks.HookConfig{Name: "sizes.gadgets.example.com", Operations: []admissionv1.Operation{admissionv1.Create}, Resources: []schema.GroupVersionResource{{Group: "example.com", Version: "v1", Resource: "gadgets"}}}
			var seen []string
			hook := func(_ context.Context, r *webhooks.Request[*unstructured.Unstructured]) error {
				seen = append(seen, fmt.Sprint(r.Admission.Kind.Version, r.DryRun()))
				r.Warn("sized")
				err := errors.Join(r.AddAuditAnnotation("size", "2"), r.Patch(client.Operation{Op: "add", Path: "/size", Value: 2}))
				if err == nil && r.Object.GetName() == "bad" {
					err = errors.New("no size")
				}
				return err
			}
			server, err := webhooks.New(webhooks.Config{Cluster: c.Connect("operator"), Hooks: []webhooks.Hook{webhooks.Mutating(options, hook)}})
			if err != nil {
				t.Fatal(err)
			}
			c.HandleWebhooks(server)
			configurations, err := server.Configurations("operator", "https://operator.default.svc", nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range configurations {
				text, err := yaml.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				c.Apply(string(text))
			}
			config, warnings := rest.CopyConfig(c.RESTConfig("user")), &warningsOf{}
			config.WarningHandler = warnings
			clients, err := dynamic.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			all := clients.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "gadgets"}).Namespace("default")
			for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
				for _, name := range []string{"good", "bad"} {
					obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
					obj.SetAPIVersion("example.com/" + version)
					obj.SetKind("Gadget")
					created, err := all.Create(t.Context(), obj, metav1.CreateOptions{DryRun: dryRun})
					if (err != nil) != (name == "bad") {
						t.Fatalf("%s, %s: %v", version, name, err)
					}
					if err == nil && (created.Object["size"] != int64(2) || created.GetAPIVersion() != "example.com/"+version) {
						t.Errorf("%s: created %v", version, created.Object)
					}
				}
			}
			if got := fmt.Sprint(*warnings, seen); got != "[sized sized sized sized] [v1true v1true v1false v1false]" {
				t.Errorf("%s: the warnings and the reviews are %s", version, got)
			}
		})
	}
}

// warningsOf collects the warnings of a client.
type warningsOf []string

func (w *warningsOf) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// Requests read a stored object while others are reviewed. The race detector reports a review that changes it.
func TestReviewsDoNotChangeStoredObjects(t *testing.T) {
	t.Parallel()
	definition := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
`
	configuration := strings.Replace(webhook("Mutating", "policy", "/review", ""), `apiGroups: [""], apiVersions: [v1], resources: [configmaps]`, `apiGroups: [example.com], apiVersions: [v1], resources: [widgets]`, 1)
	simulation.Test(t, simulation.Config{YAML: definition + configuration}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(reviewer{"/review": allow})
		c.Apply(`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}`)
		widgets, err := dynamic.NewForConfig(c.RESTConfig("user"))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for client := range 4 {
			wg.Go(func() {
				for i := range 25 {
					patch := fmt.Sprintf(`{"spec":{"client%d":%d}}`, client, i)
					if _, err := widgets.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default").
						Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil && !apierrors.IsConflict(err) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func createConfigMap(t *testing.T, c *simulation.Cluster, name string, labels map[string]string) error {
	t.Helper()
	clients, err := kubernetes.NewForConfig(c.RESTConfig("user"))
	if err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err = clients.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{})
	return err
}

func TestWebhookCallsThatFail(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler http.Handler
		more    string
		want    string // in the error; "" if the object is created
	}{
		"no handler":          {nil, "", `failed calling webhook "policy.example.com": failed to call webhook: Post "https://hooks.default.svc:443/review?timeout=10s": no endpoints available`},
		"no handler, ignored": {nil, ", failurePolicy: Ignore", ""},
		"panic":               {reviewer{"/review": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { panic("oops") }}, "", "the handler panicked: oops"},
		"other path":          {reviewer{}, "", "the server could not find the requested resource"},
		"no response":         {reviewer{"/review": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }}, "", "received invalid webhook response: webhook response was absent"},
		"wrong uid": {reviewer{"/review": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{UID: "x", Allowed: true}
		}}, "", `expected response.uid="00000000-0000-4000-8000-000000000001", got "x"`},
		"patch when validating": {reviewer{"/review": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return patchWith(`[]`) }}, "", "validating webhook may not return response.patch"},
		"bad JSON":              {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{")) }), "", "failed to call webhook:"},
		"denial, not ignored": {reviewer{"/review": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{}
		}}, ", failurePolicy: Ignore", `admission webhook "policy.example.com" denied the request without explanation`},
		"timeout":          {http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }), ", timeoutSeconds: 3", "/review?timeout=3s\": context deadline exceeded"},
		"timeout, ignored": {http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }), ", timeoutSeconds: 3, failurePolicy: Ignore", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{YAML: webhook("Validating", "policy", "/review", test.more)}, func(t *testing.T, c *simulation.Cluster) {
				c.HandleWebhooks(test.handler)
				start := time.Now()
				err := createConfigMap(t, c, "a", nil)
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				if took := time.Since(start); strings.HasPrefix(name, "timeout") != (took == 3*time.Second) {
					t.Errorf("the request took %s", took)
				}
			})
		})
	}
}

func TestWebhookSelection(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		more   string
		labels map[string]string
		want   bool
	}{
		"object selector":              {", objectSelector: {matchLabels: {a: b}}", map[string]string{"a": "b"}, true},
		"other object":                 {", objectSelector: {matchLabels: {a: b}}", nil, false},
		"namespace selector":           {", namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}", nil, true},
		"other namespace":              {", namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}", nil, false},
		"condition":                    {`, matchConditions: [{name: c, expression: "object.metadata.name == 'a' && request.userInfo.username == 'system:admin'"}]`, nil, true},
		"condition that is false":      {`, matchConditions: [{name: c, expression: "request.operation == 'DELETE'"}]`, nil, false},
		"condition that fails, ignore": {`, failurePolicy: Ignore, matchConditions: [{name: c, expression: "object.nothing == 1"}]`, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{YAML: webhook("Validating", "policy", "/review", test.more)}, func(t *testing.T, c *simulation.Cluster) {
				called := false
				c.HandleWebhooks(reviewer{"/review": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					called = true
					return allow(r)
				}})
				if err := createConfigMap(t, c, "a", test.labels); err != nil || called != test.want {
					t.Errorf("called %t, want %t; error %v", called, test.want, err)
				}
			})
		})
	}
}

// The first webhook is called again because the second one changed the object.
func TestMutatingWebhooksInOrder(t *testing.T) {
	t.Parallel()
	config := simulation.Config{YAML: webhook("Mutating", "b", "/b", "") + webhook("Mutating", "a", "/a", ", reinvocationPolicy: IfNeeded")}
	simulation.Test(t, config, func(t *testing.T, c *simulation.Cluster) {
		var calls []string
		c.HandleWebhooks(reviewer{
			"/a": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				calls = append(calls, "a")
				if strings.Contains(string(r.Object.Raw), `"data"`) {
					return patchWith(`[{"op":"add","path":"/data/a","value":"again"}]`)
				}
				return allow(r)
			},
			"/b": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				calls = append(calls, "b")
				return patchWith(`[{"op":"add","path":"/data","value":{"b":"1"}}]`)
			},
		})
		if err := createConfigMap(t, c, "a", nil); err != nil {
			t.Fatal(err)
		}
		cm := simulation.Get[*corev1.ConfigMap](c, "default/a")
		if got := strings.Join(calls, " "); got != "a b a" || cm.Data["a"] != "again" || cm.Data["b"] != "1" {
			t.Errorf("calls %s, data %v", got, cm.Data)
		}
	})
}

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
`

// The rule names version v1, the request is for v2.
func TestMutatingWebhookOfAnotherVersion(t *testing.T) {
	t.Parallel()
	hook := strings.NewReplacer(`apiGroups: [""]`, `apiGroups: [example.com]`, "configmaps", "gadgets").Replace(webhook("Mutating", "a", "/a", ""))
	simulation.Test(t, simulation.Config{YAML: gadgets + hook}, func(t *testing.T, c *simulation.Cluster) {
		var got string
		c.HandleWebhooks(reviewer{"/a": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			got = r.Kind.Version + " " + r.RequestKind.Version + " " + r.Resource.Version
			if !strings.Contains(string(r.Object.Raw), `"example.com/v1"`) {
				got += string(r.Object.Raw)
			}
			return patchWith(`[{"op":"add","path":"/size","value":2}]`)
		}})
		c.Apply(`{apiVersion: example.com/v2, kind: Gadget, metadata: {name: g, namespace: default}}`)
		clients, err := dynamic.NewForConfig(c.RESTConfig("user"))
		if err != nil {
			t.Fatal(err)
		}
		gadgets := schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "gadgets"}
		stored, err := clients.Resource(gadgets).Namespace("default").Get(t.Context(), "g", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if size := stored.Object["size"]; size != int64(2) {
			t.Errorf("the stored size is %v", size)
		}
		if got != "v1 v2 v1" {
			t.Errorf("the review has versions %s", got)
		}
	})
}

func TestInvalidWebhookConfiguration(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		invalid := strings.NewReplacer("policy.example.com", "policy", "sideEffects: None", "sideEffects: Some", `["*"]`, "[]").Replace(webhook("Validating", "policy", "/", ", timeoutSeconds: 31"))
		obj := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := yaml.Unmarshal([]byte(strings.TrimSuffix(invalid, "\n---\n")), obj); err != nil {
			t.Fatal(err)
		}
		clients, err := kubernetes.NewForConfig(c.RESTConfig("user"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), obj, metav1.CreateOptions{})
		for _, want := range []string{"at least three segments", `sideEffects: Unsupported value: "Some"`, "operations: Required value", "between 1 and 30 seconds"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
	})
}

// Each operation is reviewed as what it is: with its subresource, and with the objects that it has.
func TestWebhooksReviewOperations(t *testing.T) {
	t.Parallel()
	var reviews []string
	handler := reviewer{"/review": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		text := string(r.Operation) + " " + r.Resource.Resource
		if r.SubResource != "" {
			text += "/" + r.SubResource
		}
		text += " " + r.Kind.Kind + " " + r.Name
		for name, raw := range map[string][]byte{"object": r.Object.Raw, "old": r.OldObject.Raw} {
			if (len(raw) == 0) != (name == "object" && r.Operation == admissionv1.Delete || name == "old" && r.Operation == admissionv1.Create) {
				t.Errorf("%s: the %s is %s", text, name, raw)
			}
		}
		if *r.DryRun {
			text += " dry run"
		}
		reviews = append(reviews, text)
		return &admissionv1.AdmissionResponse{Allowed: r.Operation != admissionv1.Delete, Warnings: []string{"reviewed"}}
	}}
	configuration := strings.Replace(webhook("Validating", "policy", "/review", ""), `apiGroups: [""], apiVersions: [v1], resources: [configmaps]`,
		`apiGroups: [apps], apiVersions: ["*"], scope: Namespaced, resources: [deployments, deployments/scale]`, 1)
	deployment := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}},
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}}}`
	simulation.Test(t, simulation.Config{YAML: configuration, WithoutControllers: true}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(handler)
		c.Apply(deployment)
		clients, err := kubernetes.NewForConfig(c.RESTConfig("user"))
		if err != nil {
			t.Fatal(err)
		}
		deployments := clients.AppsV1().Deployments("default")
		scale := []byte(`{"spec":{"replicas":3}}`)
		if _, err := deployments.Patch(t.Context(), "web", types.MergePatchType, scale, metav1.PatchOptions{}, "scale"); err != nil {
			t.Error(err)
		}
		if _, err := deployments.Patch(t.Context(), "web", types.MergePatchType, scale, metav1.PatchOptions{DryRun: []string{"All"}}); err != nil {
			t.Error(err)
		}
		// The rules do not have the subresource status.
		if _, err := deployments.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Error(err)
		}
		if err := deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}); !apierrors.IsBadRequest(err) {
			t.Errorf("delete: %v", err)
		}
		if web := simulation.Get[*appsv1.Deployment](c, "default/web"); *web.Spec.Replicas != 3 {
			t.Errorf("%d replicas", *web.Spec.Replicas)
		}
		want := []string{
			"CREATE deployments Deployment web", "UPDATE deployments/scale Scale web", "UPDATE deployments Deployment web dry run", "DELETE deployments Deployment web",
		}
		if !slices.Equal(reviews, want) {
			t.Errorf("the reviews are\n%s\nwant\n%s", strings.Join(reviews, "\n"), strings.Join(want, "\n"))
		}
	})
}
