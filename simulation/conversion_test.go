package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// robots defines a kind with the versions v1, which has spec.size, and v2, which has spec.length. %s is the storage version.
func robots(storage string) string {
	version := func(name, field string) string {
		return fmt.Sprintf(`{name: %s, served: true, storage: %t, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {
			spec: {type: object, properties: {%s: {type: integer}, color: {type: string, default: %s}}},
			status: {type: object, properties: {phase: {type: string}}}}}}}`, name, name == storage, field, name)
	}
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: robots.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Robot, plural: robots}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: default, name: hooks, path: /convert}}}}
  versions: [` + version("v1", "size") + `, ` + version("v2", "length") + `]
---
`
}

const (
	robotsV1 = "/apis/example.com/v1/namespaces/default/robots"
	robotsV2 = "/apis/example.com/v2/namespaces/default/robots"
	robotA   = "{apiVersion: example.com/v2, kind: Robot, metadata: {name: a}, spec: {length: 1}}"
)

// converter handles conversion reviews of robots, and changes the response if it is not nil.
type converter func(*apiextensionsv1.ConversionResponse)

func (f converter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(req.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		text := strings.Replace(string(raw.Raw), `"example.com/v1","kind"`, `"example.com/v2","kind"`, 1)
		from, to := `"size":`, `"length":`
		if strings.HasSuffix(review.Request.DesiredAPIVersion, "v1") {
			text = strings.Replace(string(raw.Raw), `"example.com/v2","kind"`, `"example.com/v1","kind"`, 1)
			from, to = to, from
		}
		converted := runtime.RawExtension{Raw: []byte(strings.ReplaceAll(text, from, to))}
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, converted)
	}
	review.Request = nil
	if f != nil {
		f(review.Response)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// replacing returns a converter that replaces a text in the converted objects.
func replacing(old, by string) converter {
	return func(r *apiextensionsv1.ConversionResponse) {
		for i, obj := range r.ConvertedObjects {
			r.ConvertedObjects[i].Raw = []byte(strings.ReplaceAll(string(obj.Raw), old, by))
		}
	}
}

// exchange sends a request, and returns the response.
func exchange(t *testing.T, c *simulation.Cluster, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://simulation.invalid"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	res, err := c.RESTConfig("user").Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// want sends a request, and checks its status code and a part of its response.
func want(t *testing.T, c *simulation.Cluster, method, path, body string, code int, part string) {
	t.Helper()
	if got, text := exchange(t, c, method, path, body); got != code || !strings.Contains(text, part) {
		t.Errorf("%s %s: %d %s, want %d and %s", method, path, got, text, code, part)
	}
}

func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v2")}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(converter(nil)) // any http.Handler
		c.Apply(`{apiVersion: example.com/v1, kind: Robot, metadata: {name: a}, spec: {size: 1}}`)
		want(t, c, http.MethodGet, robotsV2+"/a", "", http.StatusOK, `"spec":{"color":"v1","length":1}`)
	})
}

func TestRequestsInVersions(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v2")}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(converter(nil))
		c.Apply(`{apiVersion: example.com/v1, kind: Robot, metadata: {name: a}, spec: {size: 1}}`)
		want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusOK, `"spec":{"color":"v1","size":1}`)
		want(t, c, http.MethodGet, robotsV1, "", http.StatusOK, `"spec":{"color":"v1","size":1}`)
		const applied = "{apiVersion: example.com/v2, kind: Robot, metadata: {name: a}, spec: {length: 2}}"
		want(t, c, http.MethodPatch, robotsV2+"/a?fieldManager=other", applied, http.StatusConflict, `conflict with \"test\": .spec.size`)
		want(t, c, http.MethodPatch, robotsV2+"/a?fieldManager=other&force=true", applied, http.StatusOK, `"spec":{"color":"v1","length":2}`)
		want(t, c, http.MethodPatch, robotsV1+"/a/status?fieldManager=other", "{apiVersion: example.com/v1, kind: Robot, status: {phase: x}}",
			http.StatusOK, `"spec":{"color":"v1","size":2},"status":{"phase":"x"}`)
		want(t, c, http.MethodDelete, robotsV1+"/a", "", http.StatusOK, "")
		want(t, c, http.MethodGet, robotsV2+"/a", "", http.StatusNotFound, "")
	})
}

// One object cannot be converted, so no list of the kind works. The webhook's message names the object; the health and
// the log of a controller contain it.
func TestControllerNamesObjectThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v2") + robotA}, func(t *testing.T, c *simulation.Cluster) {
		const message = "convert Robot default/a from example.com/v2: spec.length is broken"
		c.HandleWebhooks(converter(func(r *apiextensionsv1.ConversionResponse) {
			r.Result = metav1.Status{Status: metav1.StatusFailure, Message: message}
		}))
		var logged testlog.Buffer
		handled := 0
		ctrl, err := controller.New(controller.Config[*unstructured.Unstructured]{
			Name: "robots", Logger: slog.New(slog.NewTextHandler(&logged, nil)), Workers: 1,
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](c.Connect("robots"), kube.Selection{
				Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Robot"},
			}),
			Handler: func(context.Context, *unstructured.Unstructured) error { handled++; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := c.Run(ctrl)
		c.Advance(time.Minute)
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("the controller is ready, or the reason lacks the object: %v", err)
		}
		c.HandleWebhooks(converter(nil))
		c.Advance(2 * time.Minute)
		if err := ctrl.Ready(); err != nil || handled == 0 {
			t.Errorf("after the repair the object was handled %d times; ready: %v", handled, err)
		}
		stop()
		if !strings.Contains(logged.String(), message) {
			t.Errorf("the log lacks the object:\n%s", logged.String())
		}
	})
}

// The texts are those of kube-apiserver, with which the conformance tests compare them.
func TestConversionThatFails(t *testing.T) {
	t.Parallel()
	const failed, invalid = "conversion webhook for example.com/v2, Kind=Robot failed: ", "conversion webhook for example.com/v2, Kind=Robot returned invalid "
	raw := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	tests := map[string]struct {
		handler http.Handler
		want    string
	}{
		"no handler": {nil, failed + `Post \"https://hooks.default.svc:443/convert?timeout=30s\": no endpoints available`},
		"panic":      {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") }), "the handler panicked: oops"},
		"waits": {
			http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }),
			`convert?timeout=30s\": context deadline exceeded`,
		},
		"other path":   {http.NotFoundHandler(), failed + "the server could not find the requested resource"},
		"not JSON":     {raw("{"), failed},
		"empty":        {raw(""), failed},
		"another kind": {raw(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition"}`), failed},
		"no response":  {raw(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`), failed + "no response provided"},
		"uid":          {converter(func(r *apiextensionsv1.ConversionResponse) { r.UID = "x" }), failed + `expected response.uid=\"00000000-0000-4000-8000-000000000001\", got \"x\"`},
		"failure":      {converter(func(r *apiextensionsv1.ConversionResponse) { r.Result = metav1.Status{Message: "broken"} }), failed + "broken"},
		"no result": {
			converter(func(r *apiextensionsv1.ConversionResponse) { r.Result = metav1.Status{} }),
			failed + "response.result.status was '', not 'Success'",
		},
		"no object": {converter(func(r *apiextensionsv1.ConversionResponse) { r.ConvertedObjects = nil }), "Kind=Robot returned 0 objects, expected 1"},
		"two objects": {
			converter(func(r *apiextensionsv1.ConversionResponse) {
				r.ConvertedObjects = append(r.ConvertedObjects, r.ConvertedObjects...)
			}),
			"Kind=Robot returned 2 objects, expected 1",
		},
		"null":        {converter(func(r *apiextensionsv1.ConversionResponse) { r.ConvertedObjects[0].Raw = nil }), `"message":"unexpected end of JSON input"`},
		"version":     {replacing(`"example.com/v1","kind"`, `"example.com/v2","kind"`), invalid + "object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v2)"},
		"kind":        {replacing(`"Robot"`, `"Car"`), invalid + "object at index 0: invalid kind (expected Robot, received Car)"},
		"name":        {replacing(`"name":"a"`, `"name":"b"`), invalid + "object: must have the same name: a != b"},
		"namespace":   {replacing(`"namespace":"default"`, `"namespace":"x"`), invalid + "object: must have the same namespace: default != x"},
		"uid of one":  {replacing(`"uid":"`, `"uid":"x`), invalid + "object: must have the same UID: "},
		"no metadata": {replacing(`"metadata"`, `"other"`), invalid + "object: must have the same name: a != "},
		"labels":      {replacing(`"name":"a"`, `"name":"a","labels":{"a":"-"}`), invalid + `metadata: metadata.labels: Invalid value: \"-\"`},
		"label":       {replacing(`"name":"a"`, `"name":"a","labels":{"a":1}`), invalid + "metadata: metadata.labels[a] must be a string, but is int64 in converted object"},
		"annotations": {replacing(`"name":"a"`, `"name":"a","annotations":[]`), invalid + "metadata: invalid metadata.annotations of type []interface {} in converted object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{YAML: robots("v2") + robotA, WithoutControllers: true}, func(t *testing.T, c *simulation.Cluster) {
				c.HandleWebhooks(test.handler)
				start := time.Now()
				want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusInternalServerError, test.want)
				if took := time.Since(start); (name == "waits") != (took == 30*time.Second) {
					t.Errorf("the request took %s", took)
				}
				for _, path := range []string{robotsV1 + "/a", robotsV1} { // the stored version is available
					want(t, c, http.MethodGet, strings.Replace(path, "v1", "v2", 1), "", http.StatusOK, `"length":1`)
					c.HandleWebhooks(converter(nil)) // and after a repair, the other
					want(t, c, http.MethodGet, path, "", http.StatusOK, `"size":1`)
				}
			})
		})
	}
}

// A conversion can change labels and annotations, and no other metadata.
func TestConversionKeepsMetadata(t *testing.T) {
	t.Parallel()
	config := simulation.Config{YAML: robots("v2") + strings.ReplaceAll(robotA, "name: a", "name: a, labels: {old: x}")}
	simulation.Test(t, config, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(replacing(`"labels":{"old":"x"},`, ""))
		if code, text := exchange(t, c, http.MethodGet, robotsV1+"/a", ""); code != http.StatusOK || strings.Contains(text, `"labels":`) {
			t.Errorf("without labels: %d %s", code, text)
		}
		_, before := exchange(t, c, http.MethodGet, robotsV2+"/a", "")
		c.HandleWebhooks(replacing(`"labels":{"old":"x"}`, `"labels":{"x":"y"},"annotations":{"note":"n"},"finalizers":["a/b"],"generation":7,"extra":1`))
		_, after := exchange(t, c, http.MethodGet, robotsV1+"/a", "")
		var x, y unstructured.Unstructured
		for text, into := range map[string]*unstructured.Unstructured{before: &x, after: &y} {
			if err := into.UnmarshalJSON([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		x.SetLabels(map[string]string{"x": "y"})
		x.SetAnnotations(map[string]string{"note": "n"})
		if got, want := fmt.Sprint(y.Object["metadata"]), fmt.Sprint(x.Object["metadata"]); got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
	})
}

// A watch sends an event when its object can be converted, and later ones after it.
func TestWatchDuringFailedConversions(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v2") + robotA, Namespaces: []string{"other"}}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(replacing(`"size":1`, `"size":7`))
		clients, err := dynamic.NewForConfig(c.RESTConfig("watcher"))
		if err != nil {
			t.Fatal(err)
		}
		watcher, err := clients.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "robots"}).Namespace("default").
			Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		received := func() (events []string) {
			for {
				synctest.Wait()
				select {
				case e := <-watcher.ResultChan():
					u, ok := e.Object.(*unstructured.Unstructured)
					if !ok {
						t.Fatalf("event %v", e)
					}
					events = append(events, fmt.Sprint(e.Type, " ", u.GetAPIVersion(), " ", u.GetName(), " ", u.Object["spec"]))
				default:
					return events
				}
			}
		}
		create := func(name, namespace string) {
			want(t, c, http.MethodPost, strings.Replace(robotsV2, "default", namespace, 1), strings.ReplaceAll(robotA, "name: a", "name: "+name), http.StatusCreated, "")
		}
		event := func(name string, size int) string {
			return fmt.Sprintf("ADDED example.com/v1 %s map[color:v2 size:%d]", name, size)
		}
		create("before", "default")
		if got, expected := received(), []string{event("a", 7), event("before", 7)}; !slices.Equal(got, expected) {
			t.Errorf("events %q, want %q", got, expected)
		}
		c.HandleWebhooks(converter(func(r *apiextensionsv1.ConversionResponse) {
			if raw := string(r.ConvertedObjects[0].Raw); strings.Contains(raw, `"bad"`) || strings.Contains(raw, `"other"`) {
				r.Result.Status = metav1.StatusFailure
			}
		}))
		create("elsewhere", "other")
		create("good", "default")
		create("bad", "default")
		create("last", "default")
		time.Sleep(10 * time.Minute)
		if got, expected := received(), []string{event("good", 1)}; !slices.Equal(got, expected) {
			t.Errorf("events %q, want %q", got, expected)
		}
		c.HandleWebhooks(converter(nil))
		time.Sleep(30 * time.Second)
		if got, expected := received(), []string{event("bad", 1), event("last", 1)}; !slices.Equal(got, expected) {
			t.Errorf("events after the repair %q, want %q", got, expected)
		}
		c.HandleWebhooks(nil)
		create("late", "default")
		synctest.Wait()
		c.HandleWebhooks(converter(nil))
		time.Sleep(time.Second)
		if got, expected := received(), []string{event("late", 1)}; !slices.Equal(got, expected) {
			t.Errorf("events after a short failure %q, want %q", got, expected)
		}
	})
}

// Clusters with one Config have handlers of their own, and stored objects that are converted by them.
func TestConversionsOfClusters(t *testing.T) {
	t.Parallel()
	config := simulation.Config{YAML: robots("v2") + robotA}
	one, two := simulation.New(t, config), simulation.New(t, config)
	one.HandleWebhooks(replacing(`"color":"v2"`, `"color":"one"`))
	two.HandleWebhooks(replacing(`"color":"v2"`, `"color":"two"`))
	for range 2 {
		for name, c := range map[string]*simulation.Cluster{"one": one, "two": two} {
			want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusOK, `"color":"`+name+`"`)
			want(t, c, http.MethodGet, robotsV1, "", http.StatusOK, `"color":"`+name+`"`)
		}
	}
}

// Lists, watches and writes use the first conversion of an object, as watch caches do.
func TestConversionsAreKept(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v2") + robotA, WithoutControllers: true}, func(t *testing.T, c *simulation.Cluster) {
		var calls atomic.Int32
		c.HandleWebhooks(converter(func(r *apiextensionsv1.ConversionResponse) {
			calls.Add(1)
			if len(r.ConvertedObjects) != 1 {
				t.Errorf("%d objects in a review", len(r.ConvertedObjects))
			}
			if raw := string(r.ConvertedObjects[0].Raw); strings.Contains(raw, "resourceVersion") {
				t.Errorf("a review with a resourceVersion: %s", raw)
			}
		}))
		want(t, c, http.MethodPost, robotsV2, strings.ReplaceAll(robotA, "name: a", "name: b"), http.StatusCreated, "")
		for _, step := range []struct {
			path  string
			calls int32
		}{{robotsV1, 2}, {robotsV1, 2}, {robotsV2, 2}, {robotsV1 + "/a", 3}, {robotsV1 + "/a", 4}, {robotsV1 + "/a?resourceVersion=0", 4}, {robotsV2 + "/a", 4}} {
			if exchange(t, c, http.MethodGet, step.path, ""); calls.Load() != step.calls {
				t.Errorf("%s: %d calls, want %d", step.path, calls.Load(), step.calls)
			}
		}
		c.HandleWebhooks(nil)
		want(t, c, http.MethodGet, robotsV1, "", http.StatusOK, `"size":1`)
		want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusInternalServerError, "no endpoints available")
		want(t, c, http.MethodDelete, robotsV1+"/a", "", http.StatusInternalServerError, "no endpoints available")
		want(t, c, http.MethodDelete, robotsV2+"/a", "", http.StatusOK, "")
	})
}

// After a change of the storage version, objects are stored in the new version at their next write.
func TestConversionAfterChangeOfStorageVersion(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v1") + strings.NewReplacer("v2", "v1", "length", "size").Replace(robotA)}, func(t *testing.T, c *simulation.Cluster) {
		var last atomic.Value // apiVersion of the latest converted object
		c.HandleWebhooks(converter(func(r *apiextensionsv1.ConversionResponse) {
			last.Store(string(r.ConvertedObjects[0].Raw[len(`{"apiVersion":"example.com/`):][:2]))
		}))
		want(t, c, http.MethodGet, robotsV2+"/a", "", http.StatusOK, `"length":1`)
		c.Apply(strings.TrimSuffix(robots("v2"), "---\n"))
		for _, step := range []struct{ method, path, body, part, converted string }{
			{http.MethodGet, robotsV1 + "/a", "", `"size":1`, ""},
			{http.MethodGet, robotsV2 + "/a", "", `"length":1`, "v2"},
			{http.MethodPatch, robotsV2 + "/a?fieldManager=x", "{apiVersion: example.com/v2, kind: Robot}", `"length":1`, ""},
			{http.MethodGet, robotsV2 + "/a", "", `"length":1`, ""},
			{http.MethodGet, robotsV1 + "/a", "", `"size":1`, "v1"},
		} {
			last.Store("")
			want(t, c, step.method, step.path, step.body, http.StatusOK, step.part)
			if step.method == http.MethodGet && last.Load() != step.converted {
				t.Errorf("%s %s: converted %v, want %q", step.method, step.path, last.Load(), step.converted)
			}
		}
	})
}

// The models of the controllers read objects as they are stored, so they need no handler.
func TestModelsWithoutConversions(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v2") + robotA, Namespaces: []string{"shop"}}, func(t *testing.T, c *simulation.Cluster) {
		c.Settle()
		want(t, c, http.MethodDelete, "/api/v1/namespaces/shop", "", http.StatusOK, "")
		c.Settle()
		want(t, c, http.MethodGet, "/api/v1/namespaces/shop", "", http.StatusNotFound, "")
	})
}

// Calls take virtual time, and handlers may make requests, also to the resource that is converted.
func TestConversionHandlerThatWaits(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: robots("v2") + robotA}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(converter(func(*apiextensionsv1.ConversionResponse) {
			time.Sleep(20 * time.Second)
			want(t, c, http.MethodGet, robotsV2+"/a", "", http.StatusOK, `"length":1`)
		}))
		start := time.Now()
		want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusOK, `"size":1`)
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("the request took %s", took)
		}
	})
}

// An admission webhook gets objects in the version of its rule, and their changes are converted back.
func TestConversionForAdmission(t *testing.T) {
	t.Parallel()
	hook := strings.NewReplacer(`apiGroups: [""]`, "apiGroups: [example.com]", "resources: [configmaps]", "resources: [robots]").
		Replace(webhook("Mutating", "policy", "/mutate", ""))
	simulation.Test(t, simulation.Config{YAML: robots("v2") + hook}, func(t *testing.T, c *simulation.Cluster) {
		var seen []string
		mux := http.NewServeMux()
		mux.Handle("/mutate", reviewer{"/mutate": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			seen = append(seen, r.RequestKind.Version+" "+r.Kind.Version+" "+string(r.Object.Raw))
			return patchWith(`[{"op":"replace","path":"/spec/size","value":5}]`)
		}})
		mux.Handle("/convert", converter(nil))
		c.HandleWebhooks(mux)
		want(t, c, http.MethodPost, robotsV2, robotA, http.StatusCreated, `"spec":{"color":"v2","length":5}`)
		if len(seen) != 1 || !strings.HasPrefix(seen[0], "v2 v1 ") || !strings.Contains(seen[0], `"size":1`) {
			t.Errorf("reviews %q", seen)
		}
		mux.HandleFunc("/", http.NotFound)
		c.HandleWebhooks(reviewer{})
		want(t, c, http.MethodPost, robotsV2, robotA, http.StatusInternalServerError, "conversion webhook for example.com/v2, Kind=Robot failed: ")
	})
}

// A definition that is created by the test, and changes of its strategy.
func TestConversionStrategies(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(converter(nil))
		definition := strings.TrimSuffix(robots("v2"), "---\n")
		c.Apply(definition)
		want(t, c, http.MethodPost, robotsV2, robotA, http.StatusCreated, "")
		want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusOK, `"spec":{"color":"v2","size":1}`)
		want(t, c, http.MethodGet, robotsV1, "", http.StatusOK, `"spec":{"color":"v2","size":1}`)
		none := definition[:strings.Index(definition, "  conversion: ")] + definition[strings.Index(definition, "  versions: "):]
		for _, step := range []struct{ definition, part string }{{none, `"spec":{"color":"v2"}`}, {definition, `"spec":{"color":"v2","size":1}`}} {
			c.Apply(step.definition)
			want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusOK, step.part)
			want(t, c, http.MethodGet, robotsV1, "", http.StatusOK, step.part)
		}
		c.Apply(strings.Replace(definition, "conversionReviewVersions: [v1]", "conversionReviewVersions: [v1beta1]", 1))
		want(t, c, http.MethodGet, robotsV1+"/a", "", http.StatusInternalServerError, "no supported conversion review versions")
		want(t, c, http.MethodDelete, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/robots.example.com", "", http.StatusOK, "")
		want(t, c, http.MethodGet, robotsV2+"/a", "", http.StatusNotFound, "")
	})
}

// The objects of Config are created before there is a handler.
func TestConfigWithObjectToConvert(t *testing.T) {
	t.Parallel()
	config := simulation.Config{YAML: robots("v2") + strings.NewReplacer("v2", "v1", "length", "size").Replace(robotA)}
	output := failureOf(t, config, func(testing.TB, *simulation.Cluster) {})
	expectOutput(t, output, "Config.YAML, document 2: ", "conversion webhook for example.com/v1, Kind=Robot failed: ", "HandleWebhooks")
}

// Two goroutines use one object in two versions.
func TestConcurrentConversions(t *testing.T) {
	t.Parallel()
	c := simulation.New(t, simulation.Config{YAML: robots("v2") + robotA, WithoutControllers: true})
	c.HandleWebhooks(converter(nil))
	var users sync.WaitGroup
	for i := range 4 {
		users.Go(func() {
			for n := range 20 {
				path, version, field := robotsV1, "v1", "size"
				if (i+n)%2 == 0 {
					path, version, field = robotsV2, "v2", "length"
				}
				want(t, c, http.MethodPatch, path+"/a?force=true&fieldManager=user", fmt.Sprintf("{apiVersion: example.com/%s, kind: Robot, spec: {%s: %d}}", version, field, n), http.StatusOK, "")
				want(t, c, http.MethodGet, path, "", http.StatusOK, `"`+field+`":`)
			}
		})
	}
	users.Wait()
}
