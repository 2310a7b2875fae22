package controllers_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
	clusterkinds "github.com/evenkeel-go/evenkeel/simulation/internal/kinds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with controllers, in a bubble.
type world struct {
	t       *testing.T
	server  *apiserver.Server
	manager *controllers.Manager
	// requests are the writes of the controllers, except for the first objects of each namespace.
	requests []string
	// fail, if set, returns the code of a request that fails.
	fail func(req *http.Request) int
	// pods, if set, returns the behaviour of a Pod.
	pods func(*corev1.Pod) controllers.PodBehavior
}

// RoundTrip implements http.RoundTripper for the controllers.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.fail != nil {
		if code := w.fail(req); code != 0 {
			return &http.Response{StatusCode: code, Body: http.NoBody, Request: req}, nil
		}
	}
	res, err := w.server.Transport().RoundTrip(req)
	agent := req.UserAgent()
	agent = agent[strings.LastIndexByte(agent, '/')+1:]
	ofNamespaces := agent == "service-account-controller" || agent == "root-ca-certificate-publisher"
	if err == nil && req.Method != http.MethodGet && !ofNamespaces {
		w.requests = append(w.requests, agent+" "+req.Method+" "+req.URL.Path+" "+http.StatusText(res.StatusCode))
	}
	return res, err
}

// inWorlds runs each test in parallel in a world of its own.
func inWorlds(t *testing.T, tests map[string]func(*world)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(_ *testing.T, w *world) { test(w) })
		})
	}
}

// inWorld runs f in a bubble, with a server that has namespaces "one" and "two".
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Config{Kinds: kinds(), Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, server: server}
		w.apply("v1/namespaces", `{metadata: {name: one}}`)
		w.apply("v1/namespaces", `{metadata: {name: two}}`)
		w.manager = controllers.New(controllers.Config{Server: server, Transport: w, Pods: func(pod *corev1.Pod) controllers.PodBehavior {
			if w.pods == nil {
				return controllers.PodBehavior{}
			}
			return w.pods(pod)
		}})
		w.run(0)
		f(t, w)
	})
}

func widgets() *apiserver.Kind {
	return apiserver.Custom(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}, "widgets")
}

// run runs the controllers for some time; zero: for the steps of deletions.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	d = max(d, 20*apiserver.DeletionStep)
	end := time.Now().Add(d)
	for steps := 0; ; steps++ {
		next, worked, err := w.manager.Step(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if steps > 10_000 {
			w.t.Fatalf("the controllers work without end:\n%s", strings.Join(w.requests[max(0, len(w.requests)-40):], "\n"))
		}
		if worked {
			continue
		}
		if next.IsZero() || next.After(end) {
			time.Sleep(time.Until(end))
			return
		}
		time.Sleep(time.Until(next))
	}
}

// send sends a request of a user, and returns the status code and the decoded response. resource is a path such as
// v1/configmaps, apps/v1/deployments.
func (w *world) send(method, path, contentType string, body any) (int, map[string]any) {
	w.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://simulation.invalid"+path, strings.NewReader(string(text)))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "test")
	res, err := w.server.Transport().RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	var decoded map[string]any
	if err := json.NewDecoder(res.Body).Decode(&decoded); err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, decoded
}

// path returns the path of an object, or of all in a namespace. resource is v1/configmaps, for example; key is
// namespace/name, namespace/, or the name of a namespace.
func path(resource, key string) string {
	i := strings.LastIndexByte(resource, '/')
	version, plural := "/apis/"+resource[:i], resource[i+1:]
	if !strings.Contains(resource[:i], "/") {
		version = "/api/" + resource[:i]
	}
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		return version + "/" + plural + "/" + key
	}
	return strings.TrimSuffix(version+"/namespaces/"+namespace+"/"+plural+"/"+name, "/")
}

// apply creates an object or changes it with a merge patch, and returns its uid. The default namespace is one.
func (w *world) apply(resource, manifest string) (uid string) {
	w.t.Helper()
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &obj); err != nil {
		w.t.Fatal(err)
	}
	if version, plural, ok := strings.Cut(resource, "/v1/"); ok && version == "example.org" {
		obj["apiVersion"], obj["kind"] = "example.org/v1", strings.ToUpper(plural[:1])+strings.TrimSuffix(plural[1:], "s")
	}
	metadata := obj["metadata"].(map[string]any)
	key := metadata["name"].(string)
	collection := strings.TrimSuffix(path(resource, "x"), "/x")
	if resource != "v1/namespaces" {
		namespace, _ := metadata["namespace"].(string)
		if namespace == "" {
			namespace = "one"
		}
		key = namespace + "/" + key
		collection = path(resource, namespace+"/")
	}
	code, res := w.send(http.MethodPatch, path(resource, key), "application/merge-patch+json", obj)
	if code == http.StatusNotFound {
		code, res = w.send(http.MethodPost, collection, "application/json", obj)
	}
	if code >= 300 {
		w.t.Fatalf("apply %s: %d %v", manifest, code, res)
	}
	return res["metadata"].(map[string]any)["uid"].(string)
}

// patch changes an object by a merge patch.
func (w *world) patch(resource, key, patch string) {
	w.t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(patch), &decoded); err != nil {
		w.t.Fatal(err)
	}
	if code, res := w.send(http.MethodPatch, path(resource, key), "application/merge-patch+json", decoded); code != http.StatusOK {
		w.t.Fatalf("patch %s: %d %v", key, code, res)
	}
}

func (w *world) delete(resource, key, policy string) {
	w.t.Helper()
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	if policy != "" {
		options["propagationPolicy"] = policy
	}
	if code, res := w.send(http.MethodDelete, path(resource, key), "application/json", options); code >= 300 {
		w.t.Fatalf("delete %s: %d %v", key, code, res)
	}
}

// get returns an object, or nil.
func (w *world) get(resource, key string) map[string]any {
	w.t.Helper()
	code, obj := w.send(http.MethodGet, path(resource, key), "", nil)
	if code == http.StatusNotFound {
		return nil
	}
	return obj
}

// expect checks which objects of namespace one exist: the others must not.
func (w *world) expect(resource, names string) {
	w.t.Helper()
	_, list := w.send(http.MethodGet, path(resource, "one/"), "", nil)
	var found []string
	for _, item := range list["items"].([]any) {
		metadata := item.(map[string]any)["metadata"].(map[string]any)
		name := metadata["name"].(string)
		if name == "kube-root-ca.crt" { // each namespace has it
			continue
		}
		if metadata["deletionTimestamp"] != nil {
			name += "(deleting)"
		}
		found = append(found, name)
	}
	if got := strings.Join(found, " "); got != names {
		w.t.Errorf("%s are [%s], want [%s]; writes of the controllers:\n%s", resource, got, names, strings.Join(w.requests, "\n"))
	}
}

func kinds() []*apiserver.Kind {
	all, err := clusterkinds.All()
	if err != nil {
		panic(err)
	}
	return append(all, apiserver.Custom(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}, "gadgets"))
}
