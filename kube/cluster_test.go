package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// apiServer has a response for each path, and records the requests.
type apiServer struct {
	mu        sync.Mutex
	responses map[string]http.HandlerFunc
	requests  []*http.Request
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	response := s.responses[r.URL.Path]
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if response == nil {
		response = status(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	response(w, r)
}

func (s *apiServer) set(path string, response http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responses[path] = response
}

// paths returns the requested paths since the last call.
func (s *apiServer) paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths []string
	for _, r := range s.requests {
		paths = append(paths, r.URL.Path)
	}
	s.requests = nil
	return paths
}

func respondJSON(code int, body any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // the test reports failed clients
	}
}

func status(code int, reason metav1.StatusReason) http.HandlerFunc {
	return respondJSON(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code), Message: "no " + string(reason),
	})
}

func resources(groupVersion string, list ...metav1.APIResource) http.HandlerFunc {
	return respondJSON(http.StatusOK, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: groupVersion, APIResources: list,
	})
}

// connect starts a server on loopback and connects to it.
func connect(t *testing.T) (*apiServer, *kube.Cluster) {
	t.Helper()
	server := &apiServer{responses: map[string]http.HandlerFunc{}}
	listening := httptest.NewServer(server)
	t.Cleanup(listening.Close)
	cluster, err := kube.Connect(&rest.Config{Host: listening.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.HTTPClient().CloseIdleConnections)
	return server, cluster
}

func TestConnectMakesNoRequestAndCopiesItsConfig(t *testing.T) {
	t.Parallel()
	server, _ := connect(t)
	config := &rest.Config{Host: "http://127.0.0.1:1", UserAgent: "mine"}
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	if config.QPS != 0 {
		t.Errorf("Connect changed the caller's config: QPS is %v", config.QPS)
	}
	config.UserAgent = "changed"
	cluster.RESTConfig().UserAgent = "changed too"
	if got := cluster.RESTConfig().UserAgent; got != "mine" {
		t.Errorf("the cluster's config was changed from outside: %q", got)
	}
	if got := server.paths(); got != nil {
		t.Errorf("Connect asked for %v", got)
	}
}

func TestConnectReportsEveryMistake(t *testing.T) {
	t.Parallel()
	failing := errors.New("no such types")
	fails := func(*runtime.Scheme) error { return failing }
	adds := func(*runtime.Scheme) error { return nil }
	badTLS := &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("no certificate")}}
	for name, tc := range map[string]struct {
		config *rest.Config
		types  []func(*runtime.Scheme) error
		want   []string
	}{
		"no config":        {nil, nil, []string{"the rest config is nil", "kube.LoadConfig"}},
		"types":            {&rest.Config{}, []func(*runtime.Scheme) error{adds, fails}, []string{"register types (function 2)", "no such types"}},
		"nil":              {&rest.Config{}, []func(*runtime.Scheme) error{adds, nil}, []string{"register types (function 2): it is nil"}},
		"TLS":              {badTLS, nil, []string{"make an HTTP client for https://127.0.0.1:1"}},
		"types and TLS":    {badTLS, []func(*runtime.Scheme) error{fails}, []string{"register types (function 1)", "make an HTTP client"}},
		"a host in pieces": {&rest.Config{Host: "http://%zz"}, nil, []string{"make a REST client"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kube.Connect(tc.config, tc.types...)
			if cluster != nil || err == nil {
				t.Fatalf("Connect returned %v, %v; want an error alone", cluster, err)
			}
			for _, want := range append(tc.want, "connect to a cluster: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q lacks %q", err, want)
				}
			}
		})
	}
}

// memo is a type that only some clusters register.
type memo struct{ corev1.ConfigMap }

func (m *memo) DeepCopyObject() runtime.Object { return &memo{*m.DeepCopy()} }

func TestKindOf(t *testing.T) {
	t.Parallel()
	addMemo := func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Memo"}, &memo{})
		return nil
	}
	with, err := kube.Connect(&rest.Config{}, addMemo)
	if err != nil {
		t.Fatal(err)
	}
	without, err := kube.Connect(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	named := &unstructured.Unstructured{}
	named.SetAPIVersion("example.com/v2")
	named.SetKind("Other")
	for _, tc := range []struct {
		cluster *kube.Cluster
		obj     runtime.Object
		want    string // empty: an error
		advice  string // of the error
	}{
		{without, &corev1.Pod{}, "/v1, Kind=Pod", ""},
		{without, named, "example.com/v2, Kind=Other", ""},
		{with, &memo{}, "example.com/v1, Kind=Memo", ""},
		{without, &memo{}, "", "AddToScheme"},
		{without, &unstructured.Unstructured{}, "", "set its apiVersion and kind"},
		{without, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}, "apps/v1, Kind=Deployment", ""},
		{without, &metav1.PartialObjectMetadata{}, "", "set its apiVersion and kind"},
	} {
		kind, err := tc.cluster.KindOf(tc.obj)
		if tc.want == "" {
			if err == nil || !strings.Contains(err.Error(), tc.advice) || !strings.Contains(err.Error(), "find the kind of") {
				t.Errorf("KindOf(%T) returned %v, %v; want an error that says what to do", tc.obj, kind, err)
			}
			continue
		}
		if err != nil || kind.String() != tc.want {
			t.Errorf("KindOf(%T) is %q, %v; want %q", tc.obj, kind, err, tc.want)
		}
	}
}

func TestResourceDiscoversVersionOnce(t *testing.T) {
	t.Parallel()
	server, cluster := connect(t)
	server.set("/apis/apps/v1", resources(
		"apps/v1",
		// A subresource may be first, and may have its parent's kind.
		metav1.APIResource{Name: "deployments/status", Kind: "Deployment", Namespaced: true},
		metav1.APIResource{Name: "deployments", Kind: "Deployment", Namespaced: true},
		metav1.APIResource{Name: "zones", Kind: "Zone"},
	))
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	for kind, want := range map[string]kube.Resource{
		"Deployment": {GroupVersionResource: apps.WithResource("deployments"), Kind: "Deployment", Namespaced: true},
		"Zone":       {GroupVersionResource: apps.WithResource("zones"), Kind: "Zone"},
	} {
		for range 2 {
			got, err := cluster.Resource(t.Context(), apps.WithKind(kind))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: error %v (-want +got):\n%s", kind, err, diff)
			}
		}
	}
	if diff := cmp.Diff([]string{"/apis/apps/v1"}, server.paths()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	cluster.Forget(apps)
	if _, err := cluster.Resource(t.Context(), apps.WithKind("Zone")); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"/apis/apps/v1"}, server.paths()); diff != "" {
		t.Errorf("requests after Forget (-want +got):\n%s", diff)
	}
}

func TestResourceFindsKindInstalledLater(t *testing.T) {
	t.Parallel()
	server, cluster := connect(t)
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Memo"}
	expectNotServed := func(when string) {
		t.Helper()
		res, err := cluster.Resource(t.Context(), kind)
		if !errors.Is(err, kube.ErrNotServed) || res != (kube.Resource{}) {
			t.Errorf("%s: Resource returned %+v, %v; want kube.ErrNotServed", when, res, err)
			return
		}
		for _, want := range []string{"Memo", "example.com/v1", "CustomResourceDefinition"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error %q lacks %q", when, err, want)
			}
		}
	}
	expectNotServed("the group is unknown")
	server.set("/apis/example.com/v1", resources("example.com/v1", metav1.APIResource{Name: "notes", Kind: "Note"}))
	expectNotServed("only another kind is there")
	server.set("/apis/example.com/v1", resources("example.com/v1", metav1.APIResource{Name: "memos", Kind: "Memo"}))
	res, err := cluster.Resource(t.Context(), kind)
	if err != nil || res.GroupVersionResource.Resource != "memos" {
		t.Errorf("after the installation, Resource returned %+v, %v", res, err)
	}
	expected := []string{"/apis/example.com/v1", "/apis/example.com/v1", "/apis/example.com/v1"}
	if diff := cmp.Diff(expected, server.paths()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A failed request must not be reported as a kind that is not served.
func TestResourceReturnsRequestError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		path     string
		gv       schema.GroupVersion
		response http.HandlerFunc
		is       func(error) bool
	}{
		"forbidden": {
			"/apis/apps/v1",
			schema.GroupVersion{Group: "apps", Version: "v1"},
			status(http.StatusForbidden, metav1.StatusReasonForbidden), apierrors.IsForbidden,
		},
		"forbidden, core": {
			"/api/v1",
			schema.GroupVersion{Version: "v1"},
			status(http.StatusForbidden, metav1.StatusReasonForbidden), apierrors.IsForbidden,
		},
		"an aggregated API that is down": {
			"/apis/metrics.k8s.io/v1",
			schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"},
			status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable), apierrors.IsServiceUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, cluster := connect(t)
			server.set(tc.path, tc.response)
			_, err := cluster.Resource(t.Context(), tc.gv.WithKind("Thing"))
			if !tc.is(err) || errors.Is(err, kube.ErrNotServed) || !strings.Contains(err.Error(), tc.gv.String()) {
				t.Errorf("Resource returned %v", err)
			}
		})
	}
}

func TestResourceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, cluster := connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := cluster.Resource(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Resource returned %v, want context.Canceled", err)
	}
}
