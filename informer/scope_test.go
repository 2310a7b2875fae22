package informer_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestDefinitionReplacedWithNamespacedOne: an informer of a namespace recovers when a cluster-scoped definition is
// replaced by a namespaced one.
func TestDefinitionReplacedWithNamespacedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
		server := apitest.New(apiserver.Custom(kind, "widgets"))
		config := server.Config("test")
		var replaced atomic.Bool
		config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if replaced.Load() || r.URL.Path != "/apis/example.com/v1" {
				return server.RoundTrip(r)
			}
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1",` +
					`"resources":[{"name":"widgets","namespaced":false,"kind":"Widget","verbs":["list","watch"]}]}`)),
			}, nil
		})
		cluster, err := kube.Connect(config)
		if err != nil {
			t.Fatal(err)
		}
		inf, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](cluster, kube.Selection{Kind: kind, Namespaces: []string{"ns"}}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer inf.Join(t.Context())()
		time.Sleep(time.Minute)
		if err := inf.Ready(); err == nil || !strings.Contains(err.Error(), "the kind is cluster-scoped") {
			t.Errorf("with the cluster-scoped definition: %v", err)
		}
		replaced.Store(true)
		time.Sleep(time.Minute)
		if err := inf.Ready(); err != nil {
			t.Errorf("with the namespaced definition: %v", err)
		}
	})
}
