package kube_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

func web() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
	}
}

func respondProtobuf(t *testing.T, cluster *kube.Cluster, obj runtime.Object) http.HandlerFunc {
	t.Helper()
	var body strings.Builder
	if err := protobuf.NewSerializer(cluster.Scheme(), cluster.Scheme()).Encode(obj, &body); err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write([]byte(body.String())) // a client that went away shows in its test
	}
}

func TestRESTClientPrefersProtobufAndAcceptsJSON(t *testing.T) {
	t.Parallel()
	server, cluster := connect(t)
	client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/namespaces/default/pods/web"
	for name, response := range map[string]http.HandlerFunc{
		"protobuf": respondProtobuf(t, cluster, web()),
		"JSON":     respondJSON(http.StatusOK, web()),
	} {
		server.set(path, response)
		got := &corev1.Pod{}
		err := client.Get().Namespace("default").Resource("pods").Name("web").Do(t.Context()).Into(got)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := web()
		got.TypeMeta = want.TypeMeta // of no interest: decoders differ in whether they set it
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, r := range server.requests {
		if got, want := r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf,application/json"; got != want {
			t.Errorf("%s accepts %q, want %q", r.URL.Path, got, want)
		}
	}
}

func TestRESTClientWritesJSON(t *testing.T) {
	t.Parallel()
	server, cluster := connect(t)
	client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	server.set("/api/v1/namespaces/default/pods", respondJSON(http.StatusCreated, web()))
	if err := client.Post().Namespace("default").Resource("pods").Body(web()).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if got := server.requests[0].Header.Get("Content-Type"); got != runtime.ContentTypeJSON {
		t.Errorf("the body is sent as %q, want JSON, which custom resources need", got)
	}
}

func TestRESTClientRespectsContentTypesOfConfig(t *testing.T) {
	t.Parallel()
	server := &apiServer{responses: map[string]http.HandlerFunc{"/api/v1/pods/web": respondJSON(http.StatusOK, web())}}
	listening := httptest.NewServer(server)
	t.Cleanup(listening.Close)
	cluster, err := kube.Connect(&rest.Config{
		Host:          listening.URL,
		ContentConfig: rest.ContentConfig{AcceptContentTypes: runtime.ContentTypeJSON},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.HTTPClient().CloseIdleConnections)
	client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Get().Resource("pods").Name("web").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if got := server.requests[0].Header.Get("Accept"); got != runtime.ContentTypeJSON {
		t.Errorf("it accepts %q, want what the config says", got)
	}
}

func TestRESTClientIsCreatedOncePerVersion(t *testing.T) {
	t.Parallel()
	server, cluster := connect(t)
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	clients := make([]rest.Interface, 8)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { // waited for below
			var err error
			if clients[i], err = cluster.RESTClient(apps); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, client := range clients {
		if client != clients[0] {
			t.Error("two clients were made for apps/v1")
		}
	}
	err := clients[0].Get().Resource("deployments").Name("web").Do(t.Context()).Error()
	if !apierrors.IsNotFound(err) {
		t.Errorf("the error of a request is %v, want the server's", err)
	}
	if diff := cmp.Diff([]string{"/apis/apps/v1/deployments/web"}, server.paths()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
