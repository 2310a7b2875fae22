package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer stores objects by path, and checks preconditions as a real API server.
type apiServer struct {
	// handle may answer a request instead of the server; it reports whether it has. Optional.
	handle func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// afterGet is called after a GET of an object was answered, before the next request. Optional.
	afterGet func()

	mu       sync.Mutex
	objects  map[string]*unstructured.Unstructured // guarded by mu
	requests []string                              // guarded by mu; of objects: "GET /api/..." and the body
	unserved bool                                  // guarded by mu; every path returns 404, as after the CRD was removed
	asked    int                                   // guarded by mu; number of discovery requests
}

// shows returns informers of tests for a client.
func shows(informers ...cache.Informer) []client.Informer {
	all := make([]client.Informer, len(informers))
	for i, informer := range informers {
		all[i] = cache.Hold(informer)
	}
	return all
}

const (
	databasePath = "/apis/apps/v1/namespaces/shop/statefulsets/db"
	podPath      = "/api/v1/namespaces/shop/pods/db-0"
	nodePath     = "/api/v1/nodes/n1"
	widgetPath   = "/apis/shop.example.com/v1/namespaces/shop/widgets/w"
)

func newServer(t *testing.T) (*apiServer, *client.Client) {
	t.Helper()
	server, c, stop := startServer()
	t.Cleanup(stop)
	return server, c
}

// startServer starts an apiServer with a database of three replicas, one Pod of it, a Node and a custom object.
func startServer() (server *apiServer, c *client.Client, stop func()) {
	server = &apiServer{objects: map[string]*unstructured.Unstructured{}}
	server.put(databasePath, database())
	server.put(podPath, &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta("shop", "db-0"), Spec: corev1.PodSpec{NodeName: "n1"},
	})
	server.put(nodePath, node())
	server.put(widgetPath, widget())
	listening := httptest.NewServer(server)
	cluster, err := kube.Connect(&rest.Config{Host: listening.URL})
	if err != nil {
		panic(err)
	}
	c, err = client.New(client.Config{Cluster: cluster})
	if err != nil {
		panic(err)
	}
	return server, c, func() {
		cluster.HTTPClient().CloseIdleConnections()
		listening.Close()
	}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u1", ResourceVersion: "7"}
}

func database() *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: meta("shop", "db"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3))},
	}
}

func node() *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: meta("", "n1")}
}

func widget() *unstructured.Unstructured {
	w := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
	w.SetAPIVersion("shop.example.com/v1")
	w.SetKind("Widget")
	w.SetNamespace("shop")
	w.SetName("w")
	w.SetUID("u1")
	w.SetResourceVersion("7")
	return w
}

func (s *apiServer) put(path string, obj runtime.Object) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = &unstructured.Unstructured{Object: content}
}

// edit changes an object as another client. If change is nil, it deletes the object.
func (s *apiServer) edit(path string, change func(*unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change == nil {
		delete(s.objects, path)
		return
	}
	change(s.objects[path])
}

func touch(obj *unstructured.Unstructured) { obj.SetResourceVersion("8") }

func replace(obj *unstructured.Unstructured) {
	obj.SetUID("u2")
	obj.SetResourceVersion("9")
}

func (s *apiServer) replicas(t *testing.T) int64 {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _, err := unstructured.NestedInt64(s.objects[databasePath].Object, "spec", "replicas")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *apiServer) has(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path] != nil
}

// verbs returns the methods of the requests for objects.
func (s *apiServer) verbs() []string {
	var verbs []string
	for _, request := range s.log() {
		verb, _, _ := strings.Cut(request, " ")
		verbs = append(verbs, verb)
	}
	return verbs
}

func (s *apiServer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// expectNoRequests reports the requests that were made.
func (s *apiServer) expectNoRequests(t *testing.T) {
	t.Helper()
	if requests := s.log(); requests != nil {
		t.Errorf("requests were made all the same: %q", requests)
	}
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if list := resourcesOf(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")); list != nil {
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
		respond(w, http.StatusOK, list)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	// The default field manager, the name of the test binary, is left out.
	manager := "fieldManager=" + apiobject.FieldManager(rest.DefaultKubernetesUserAgent())
	uri := strings.NewReplacer("?"+manager, "", "&"+manager, "").Replace(r.URL.RequestURI())
	s.requests = append(s.requests, strings.TrimSpace(fmt.Sprint(r.Method, " ", uri, " ", string(body))))
	s.mu.Unlock()
	if s.handle != nil && s.handle(w, r, body) {
		return
	}
	s.mu.Lock()
	s.serve(w, r, body)
	s.mu.Unlock()
	if r.Method == http.MethodGet && s.afterGet != nil {
		s.afterGet()
	}
}

// serve answers a request for an object. s.mu must be held.
func (s *apiServer) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	path, isScale := strings.CutSuffix(r.URL.Path, "/scale")
	obj := s.objects[path]
	switch {
	case s.unserved:
		http.NotFound(w, r)
	case obj == nil, isScale && path != databasePath:
		refuse(w, apierrors.NewNotFound(schema.GroupResource{}, path[strings.LastIndex(path, "/")+1:]))
	case r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"):
		respond(w, http.StatusOK, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj.Object["metadata"],
		}})
	case r.Method == http.MethodGet:
		respond(w, http.StatusOK, obj)
	case r.Method == http.MethodDelete:
		var options metav1.DeleteOptions
		if err := json.Unmarshal(body, &options); err != nil || options.Kind != "DeleteOptions" || options.Preconditions == nil {
			refuse(w, apierrors.NewBadRequest(fmt.Sprintf("no options that this server knows: %s, %v", body, err)))
			return
		}
		p := options.Preconditions
		if p.UID != nil && *p.UID != obj.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
			refuse(w, apierrors.NewConflict(schema.GroupResource{}, path, fmt.Errorf("preconditions")))
			return
		}
		if options.DryRun == nil {
			delete(s.objects, path)
		}
		respond(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
	case r.Method == http.MethodPut && isScale:
		s.scale(w, r, obj, body)
	default:
		http.Error(w, "not expected", http.StatusMethodNotAllowed)
	}
}

func (s *apiServer) scale(w http.ResponseWriter, r *http.Request, obj *unstructured.Unstructured, body []byte) {
	scale := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, scale); err != nil || scale.GetKind() != "Scale" || scale.GetAPIVersion() != "autoscaling/v1" ||
		scale.GetName() != obj.GetName() || scale.GetNamespace() != obj.GetNamespace() {
		refuse(w, apierrors.NewBadRequest(fmt.Sprintf("no scale that this server knows: %s, %v", body, err)))
		return
	}
	if scale.GetUID() != obj.GetUID() || scale.GetResourceVersion() != obj.GetResourceVersion() {
		refuse(w, apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), fmt.Errorf("preconditions")))
		return
	}
	if r.URL.Query().Get("dryRun") == "" {
		replicas, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas") // 0 if it is missing
		obj.Object["spec"].(map[string]any)["replicas"] = replicas
	}
	respond(w, http.StatusOK, scale)
}

func resourcesOf(groupVersion string) *metav1.APIResourceList {
	resources := map[string][]metav1.APIResource{
		"v1": {
			{Name: "pods", Kind: "Pod", Namespaced: true},
			{Name: "services", Kind: "Service", Namespaced: true},
			{Name: "secrets", Kind: "Secret", Namespaced: true},
			{Name: "nodes", Kind: "Node"},
		},
		"apps/v1": {
			{Name: "statefulsets", Kind: "StatefulSet", Namespaced: true},
			{Name: "statefulsets/scale", Kind: "Scale", Group: "autoscaling", Version: "v1", Namespaced: true},
			{Name: "statefulsets/status", Kind: "StatefulSet", Namespaced: true},
		},
		"shop.example.com/v1": {{Name: "widgets", Kind: "Widget", Namespaced: true}},
	}
	if list, ok := resources[groupVersion]; ok {
		return &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: groupVersion, APIResources: list,
		}
	}
	return nil
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the test fails elsewhere if the client has closed the connection
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	respond(w, int(err.ErrStatus.Code), err.ErrStatus)
}
