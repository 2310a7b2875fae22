package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestConversionWebhooks runs scenarios on the real server, which calls a conversion webhook over TLS, and on a simulated
// cluster, which calls the same handler. All responses and watch events must be equal.
func TestConversionWebhooks(t *testing.T) {
	webhooks := map[string]*robots{}
	for name := range conversionScenarios() {
		webhooks[name] = &robots{}
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		webhooks[strings.TrimPrefix(req.URL.Path, "/")].ServeHTTP(w, req)
	})
	servers := newWebhookServers(t, handler)
	for name, steps := range conversionScenarios() {
		t.Run(name, func(t *testing.T) {
			var results [2][]string
			for i, s := range []*server{servers.real, servers.memory} {
				r := &conversionRun{server: s, webhook: webhooks[name], group: name + ".conversion.example.com", names: newNames()}
				r.run(t, servers.client(name), steps)
				results[i] = r.results
			}
			if diff := cmp.Diff(results[0], results[1]); diff != "" {
				t.Errorf("(-real +memory)\n%s", diff)
			}
			t.Logf("%d responses and events are equal", len(results[0]))
		})
	}
}

// conversionStep is a change of the webhook's answers, a request, or the start or the end of a watch.
type conversionStep struct {
	answer       answer // with set
	set          bool
	method, path string // the path begins with v1 or v2
	body         string // {} has an object's apiVersion and kind added
	media        string
	header       map[string]string
	until        int // repeats the request until it has this code
	definition   bool
	watch, end   string // name of a watch
}

// answer responds to a review. The response is correct.
type answer func(w http.ResponseWriter, response map[string]any)

func conversionScenarios() map[string][]conversionStep {
	send := func(method, path, body string) conversionStep {
		return conversionStep{method: method, path: path, body: body}
	}
	get := func(path string) conversionStep { return send(http.MethodGet, path, "") }
	post := func(path, body string) conversionStep { return send(http.MethodPost, path, body) }
	patch := func(media, path, body string) conversionStep {
		return conversionStep{method: http.MethodPatch, path: path, body: body, media: "application/" + media}
	}
	merge := func(path, body string) conversionStep { return patch("merge-patch+json", path, body) }
	apply := func(path, body string) conversionStep { return patch("apply-patch+yaml", path, body) }
	set := func(a answer) conversionStep { return conversionStep{set: true, answer: a} }
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	object := func(name, spec string) string { return `{"metadata":{"name":"` + name + `"},"spec":` + spec + `}` }
	storage := func(v1 bool) conversionStep {
		return conversionStep{definition: true, method: http.MethodPatch, media: "application/json-patch+json", body: fmt.Sprintf(
			`[{"op":"replace","path":"/spec/versions/0/storage","value":%t},{"op":"replace","path":"/spec/versions/1/storage","value":%t}]`, v1, !v1)}
	}
	fails := set(failing)
	listed := func(path string) conversionStep { // the real server rejects lists while it fills a new watch cache
		return conversionStep{method: http.MethodGet, path: path, until: http.StatusOK}
	}

	scenarios := map[string][]conversionStep{
		"requests": {
			post("v1", object("a", `{"size":1,"note":"x","unknown":1}`)),
			post("v2", object("b", `{"length":2}`)),
			get("v1/a"), get("v2/a"), get("v1/b"), get("v2/b"), get("v1"), get("v2"), get("v1?limit=1"),
			get("v1/a?resourceVersion=0"), get("v1?resourceVersion=0"), // from the watch cache, for which the lists before have waited
			get("v1?labelSelector=a"), get("v1?fieldSelector=metadata.name=a"),
			get("v1?fieldSelector=spec.size=1"), get("v2?fieldSelector=spec.length=1"), get("v1?fieldSelector=spec.length=1"),
			{method: http.MethodGet, path: "v1/a", header: map[string]string{"Accept": partial}},
			merge("v1/a", `{"spec":{"size":3}}`), merge("v2/a", `{"spec":{"length":4}}`), merge("v1/a", `{"spec":{"size":4}}`), merge("v1/a", `{"spec":{"size":"x"}}`),
			send(http.MethodPut, "v1/a", object("a", `{"size":5}`)),
			merge("v1/a", `{"metadata":{"resourceVersion":"1"}}`),
			patch("json-patch+json", "v1/a", `[{"op":"replace","path":"/spec/size","value":6}]`),
			merge("v1/a/status", `{"status":{"phase":"x"},"spec":{"size":7}}`), get("v1/a/status"), get("v2/a/status"),
			merge("v2/a/status", `{"status":{"phase":"y"}}`),
			get("v1/a/scale"), get("v2/a/scale"), merge("v1/a/scale", `{"spec":{"replicas":8}}`), merge("v2/a/scale", `{"spec":{"replicas":9}}`), get("v1/a"),
			post("v1?dryRun=All", object("c", `{"size":1}`)), merge("v1/a?dryRun=All", `{"spec":{"size":3}}`),
			merge("v1/a", `{"metadata":{"finalizers":["example.com/a"]}}`), send(http.MethodDelete, "v1/a", ""), merge("v1/a", `{"metadata":{"finalizers":null}}`),
			get("v1/a"), send(http.MethodDelete, "v1", ""), get("v2"),
		},
		"apply": {
			apply("v1/a?fieldManager=one", object("a", `{"size":1,"color":"red"}`)),
			apply("v2/a?fieldManager=two", object("a", `{"length":2}`)),
			apply("v2/a?fieldManager=two&force=true", object("a", `{"length":2}`)),
			apply("v1/a?fieldManager=two", object("a", `{"size":2}`)),
			apply("v1/a?fieldManager=one", object("a", `{"color":"blue"}`)),
			apply("v2/a?fieldManager=one", object("a", `{}`)),
			apply("v1/a/status?fieldManager=one", `{"status":{"phase":"x"}}`),
			apply("v2/a/status?fieldManager=two", `{"status":{"phase":"y"}}`),
			apply("v2/a/status?fieldManager=one", `{"status":{}}`),
			merge("v2/a?fieldManager=three", `{"spec":{"length":3}}`), merge("v1/a?fieldManager=three", `{"spec":{"size":4}}`), get("v1/a"), get("v2/a"),
		},
		"metadata": {
			post("v2", object("a", `{"length":1}`)), get("v1"), // which waits until the watch cache has converted the object
			set(changed(`"name":`, `"labels":{"x":"y"},"annotations":{"note":"n"},"finalizers":["a/b"],"generation":7,"extra":1,"name":`)),
			get("v1/a"), post("v1", object("b", `{"size":1}`)), get("v1"), set(nil), get("v1/b"), get("v2/b"), get("v1"),
		},
		"watch": {
			post("v2", object("a", `{"length":1}`)), get("v1"),
			{watch: "one", path: "v1?watch=1"},
			{watch: "two", path: "v2?watch=1"},
			{watch: "labels", path: "v1?watch=1&labelSelector=a=b"},
			{watch: "field", path: "v1?watch=1&fieldSelector=spec.size!=2"},
			{watch: "initial", path: "v1?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"},
			post("v1", object("b", `{"size":1}`)), merge("v2/b", `{"metadata":{"labels":{"a":"b"}},"spec":{"length":2}}`), merge("v1/b", `{"spec":{"size":3}}`),
			merge("v2/b", `{"metadata":{"labels":{"a":"c"}}}`), fails, merge("v2/b", `{"spec":{"length":4}}`), set(nil), send(http.MethodDelete, "v2/b", ""),
			merge("v1/a", `{"metadata":{"annotations":{"`+endAnnotation+`":"x"},"labels":{"a":"b"}}}`),
			{end: "one"},
			{end: "two"},
			{end: "labels"},
			{end: "field"},
			{end: "initial"},
		},
		"storage": {
			post("v1", object("a", `{"size":1}`)), post("v2", object("b", `{"length":2}`)), get("v1"), get("v2"),
			storage(true), set(failingFor("probe")),
			{method: http.MethodPost, path: "v1?dryRun=All", body: object("probe", `{}`), until: http.StatusCreated},
			set(nil), listed("v1"), listed("v2"), get("v1"), get("v2"), fails, get("v2/a"), get("v1/a"), set(nil),
			post("v1", object("c", `{"size":3}`)), get("v1/c"), get("v1/a"), get("v2/a"), get("v2/c"), get("v1"), get("v2"),
			merge("v1/a", `{}`), merge("v2/b", `{}`), get("v1"), get("v2"), fails, get("v1/a"), get("v1/b"), get("v2/a"), get("v2/b"), set(nil), get("v1"), get("v2"),
		},
		"stays-available": {
			post("v1", object("a", `{"size":1}`)), post("v2", object("b", `{"length":2}`)), get("v1"), fails,
			get("v1"), get("v1?resourceVersion=0"), get("v1/a?resourceVersion=0"), get("v1/a"), get("v2/a"), get("v2"),
			post("v1", object("c", `{"size":1}`)), merge("v1/b", `{"spec":{"size":2}}`), merge("v1/b", `{}`), merge("v1/b/status", `{"status":{"phase":"x"}}`),
			apply("v1/c?fieldManager=x", object("c", `{"size":1}`)), apply("v1/b?fieldManager=x", object("b", `{"size":3}`)),
			apply("v2/a?fieldManager=x&force=true", object("a", `{"length":3}`)), apply("v2/b?fieldManager=x", object("b", `{"color":"red"}`)),
			send(http.MethodDelete, "v1/b", ""), send(http.MethodDelete, "v2/b?dryRun=All", ""), get("v1/b/scale"), merge("v1/b/scale", `{"spec":{"replicas":1}}`),
			post("v2", object("d", `{"length":1}`)), get("v1"), get("v1/d"), get("v2/d"), merge("v1/d", `{"spec":{"size":5}}`),
			set(nil), get("v1"), get("v1/d"),
		},
		"deletion": {
			post("v1", object("a", `{"size":1}`)), post("v2", object("b", `{"length":1}`)), get("v1"), fails,
			{definition: true, method: http.MethodDelete},
			{definition: true, method: http.MethodGet, until: http.StatusNotFound},
			{method: http.MethodGet, path: "v2", until: http.StatusNotFound}, // the real server serves the resource a little longer
			get("v2/a"),
		},
		"managers": {
			post("v1", object("a", `{"size":1}`)), get("v1"), fails, merge("v2/a", `{"spec":{"length":5}}`), get("v2/a"), merge("v2/a", `{"spec":{"length":6}}`), set(nil),
			get("v1/a"), merge("v1/a", `{"spec":{"size":6}}`),
		},
	}
	var hostile []conversionStep
	hostile = append(hostile, post("v2", object("a", `{"length":1}`)))
	for _, a := range hostileAnswers() {
		hostile = append(hostile, set(a), get("v1/a"), post("v1?dryRun=All", object("b", `{"size":1}`)))
	}
	scenarios["hostile"] = hostile
	return scenarios
}

func hostileAnswers() []answer {
	text := func(text string) answer {
		return func(w http.ResponseWriter, _ map[string]any) { _, _ = w.Write([]byte(text)) }
	}
	code := func(code int) answer {
		return func(w http.ResponseWriter, _ map[string]any) { http.Error(w, "broken", code) }
	}
	field := func(name string, value any) answer {
		return func(w http.ResponseWriter, response map[string]any) {
			response[name] = value
			respond(w, response)
		}
	}
	return []answer{
		code(http.StatusBadRequest), code(http.StatusNotFound), code(http.StatusInternalServerError),
		text(""), text("{"), text("[]"), text("null"), text("{}"), text(`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no","code":409}`),
		text(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`), text(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition"}`),
		text(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview"}`), text(`{"apiVersion":"apiextensions.k8s.io/v2","kind":"ConversionReview"}`),
		text(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"convertedObjects":7}}`),
		field("uid", "6f2b1c1e-0000-4000-8000-000000000000"), field("uid", nil), field("result", nil), field("result", map[string]any{"status": "Failure"}),
		field("result", map[string]any{"status": "Failure", "message": "no", "reason": "NotFound", "code": 404}),
		field("convertedObjects", nil), field("convertedObjects", []any{}), field("convertedObjects", []any{nil}), field("convertedObjects", []any{7}),
		field("convertedObjects", []any{map[string]any{}}), field("convertedObjects", []any{map[string]any{"kind": "Robot"}}),
		field("convertedObjects", []any{map[string]any{"kind": "RobotList", "apiVersion": "x/v1", "items": []any{}}}),
		func(w http.ResponseWriter, response map[string]any) {
			objects := response["convertedObjects"].([]any)
			response["convertedObjects"] = append(objects, objects...)
			respond(w, response)
		},
		changed(`/v1"`, `/v3"`), changed(`/v2"`, `/v3"`), changed(`.example.com/v`, `.example.org/v`), changed(`"Robot"`, `"Car"`), changed(`"kind":"Robot",`, ``),
		changed(`"name":"`, `"name":"x`), changed(`"namespace":"`, `"namespace":"x`), changed(`"uid":"`, `"uid":"0`), changed(`"uid":"`, `"uids":"`),
		changed(`"metadata"`, `"other"`), changed(`"metadata":{`, `"metadata":7,"other":{`), changed(`"metadata":{`, `"metadata":null,"other":{`),
		changed(`"name":`, `"labels":7,"name":`), changed(`"name":`, `"labels":{"a":1},"name":`), changed(`"name":`, `"labels":{"a":"-"},"name":`),
		changed(`"name":`, `"labels":{"a/b/c":"x"},"name":`), changed(`"name":`, `"labels":null,"annotations":null,"name":`),
		changed(`"name":`, `"annotations":[],"name":`), changed(`"name":`, `"annotations":{"a":null},"name":`), changed(`"name":`, `"annotations":{"a b":""},"name":`),
		changed(`"spec":{`, `"spec":{"unknown":1,"color":null,`), changed(`"spec":{`, `"spec":7,"other":{`), changed(`"spec":{`, `"status":{"phase":7},"spec":{`),
	}
}

// robots is the handler of a conversion webhook between the versions v1, which has spec.size, and v2, which has spec.length.
type robots struct {
	mu     sync.Mutex
	answer answer // nil: it responds correctly; guarded by mu
}

func (h *robots) set(a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = a
}

func (h *robots) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h.mu.Lock()
	a := h.answer
	h.mu.Unlock()
	var review struct {
		Request struct {
			UID, DesiredAPIVersion string
			Objects                []map[string]any
		}
	}
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var converted []any
	for _, obj := range review.Request.Objects {
		from, to := "size", "length"
		if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1") {
			from, to = to, from
		}
		if spec, ok := obj["spec"].(map[string]any); ok && spec[from] != nil {
			spec[to] = spec[from]
			delete(spec, from)
		}
		obj["apiVersion"] = review.Request.DesiredAPIVersion
		converted = append(converted, obj)
	}
	response := map[string]any{"uid": review.Request.UID, "convertedObjects": converted, "result": map[string]any{"status": "Success"}}
	w.Header().Set("Content-Type", "application/json")
	if a == nil {
		a = respond
	}
	a(w, response)
}

func respond(w http.ResponseWriter, response map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

// failingFor returns an answer that is a failure for objects with a name.
func failingFor(name string) answer {
	return func(w http.ResponseWriter, response map[string]any) {
		for _, obj := range response["convertedObjects"].([]any) {
			if obj.(map[string]any)["metadata"].(map[string]any)["name"] == name {
				failing(w, response)
				return
			}
		}
		respond(w, response)
	}
}

func failing(w http.ResponseWriter, response map[string]any) {
	response["result"] = map[string]any{"status": "Failure", "message": "cannot"}
	respond(w, response)
}

// changed returns an answer in whose objects a text is replaced.
func changed(text, by string) answer {
	return func(w http.ResponseWriter, response map[string]any) {
		objects, err := json.Marshal(response["convertedObjects"])
		if err == nil {
			response["convertedObjects"] = json.RawMessage(strings.ReplaceAll(string(objects), text, by))
		}
		respond(w, response)
	}
}

// conversionRun is a scenario on one server.
type conversionRun struct {
	server  *server
	webhook *robots
	group   string
	names   *names
	watches map[string]*openWatch
	results []string
}

// run runs the steps of a scenario. client is the clientConfig of the webhook.
func (r *conversionRun) run(t *testing.T, client string, steps []conversionStep) {
	t.Helper()
	version := func(name, field string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"selectableFields":[{"jsonPath":".spec.%[3]s"}],"subresources":{"status":{},"scale":{"specReplicasPath":".spec.%[3]s","statusReplicasPath":".status.replicas"}},
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%[3]q:{"type":"integer"},"note":{"type":"string"},
"color":{"type":"string","default":"default of %[1]s"}}},"status":{"type":"object","properties":{"phase":{"type":"string"},"replicas":{"type":"integer"}}}}}}}`, name, storage, field)
	}
	definition := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/robots." + r.group
	r.webhook.set(nil)
	r.server.define(t, &kind{resource: "robots", apiVersion: r.group + "/v1", definition: `{"apiVersion":"apiextensions.k8s.io/v1",
"kind":"CustomResourceDefinition","metadata":{"name":"robots.` + r.group + `"},"spec":{"group":"` + r.group + `","scope":"Namespaced",
"names":{"kind":"Robot","listKind":"RobotList","plural":"robots","singular":"robot"},
"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":` + client + `}},
"versions":[` + version("v1", "size", false) + `,` + strings.Replace(version("v2", "length", true), `"note":{"type":"string"},`, "", 1) + `]}}`})
	defer func() {
		r.webhook.set(nil) // the deletion of the objects converts them
		r.request(t, definition, conversionStep{method: http.MethodDelete})
		r.request(t, definition, conversionStep{method: http.MethodGet, until: http.StatusNotFound})
	}()
	r.watches = map[string]*openWatch{}
	for i, s := range steps {
		what := fmt.Sprintf("step %d: %s %s %s\n", i, s.method, s.path, s.body)
		path := definition
		if version, rest, _ := strings.Cut(s.path, "/"); s.path != "" {
			version, query, _ := strings.Cut(version, "?")
			path = "/apis/" + r.group + "/" + version + "/namespaces/default/robots"
			if rest != "" {
				path += "/" + rest
			}
			if query != "" {
				path += "?" + query
			}
		}
		switch {
		case s.set:
			r.webhook.set(s.answer)
		case s.watch != "":
			r.watches[s.watch] = r.server.watch(t.Context(), path, nil)
		case s.end != "":
			events, problem := r.watches[s.end].stop()
			if problem != "" {
				t.Errorf("%s: watch %s: %s", r.server.name, s.end, problem)
			}
			r.names.anyVersion = true // of the bookmark after the initial events
			for _, e := range events {
				if isBookmark(e) {
					continue
				}
				r.results = append(r.results, "watch "+s.end+"\n"+r.names.canonical(decode(string(e))))
			}
			r.names.anyVersion = false
		default:
			res := r.request(t, path, s)
			if !s.definition && s.until == 0 {
				r.results = append(r.results, what+r.names.text(res))
			}
		}
	}
}

func (r *conversionRun) request(t *testing.T, path string, s conversionStep) result {
	t.Helper()
	header := map[string]string{}
	maps.Copy(header, s.header)
	if s.media != "" {
		header["Content-Type"] = s.media
	}
	body := s.body
	if s.method != http.MethodPatch || s.media == "application/apply-patch+yaml" {
		body = strings.Replace(body, "{", `{"apiVersion":"`+r.group+`/`+s.path[:min(2, len(s.path))]+`","kind":"Robot",`, 1)
	}
	var res result
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		res = r.server.send(ctx, s.method, path, body, header)
		return s.until == 0 || res.code == s.until, nil
	})
	if err != nil {
		t.Errorf("%s: %s %s never had the code %d; the last response: %s", r.server.name, s.method, path, s.until, res.body)
	}
	return res
}
