package client_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// TestDestructiveRequestsAreSentOnce: a Retry-After is returned to the caller. The key then waits in the workqueue,
// whereas a retry below the caller would block a worker for as long.
func TestDestructiveRequestsAreSentOnce(t *testing.T) {
	t.Parallel()
	for name, act := range acts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &apiServer{}
			var mu sync.Mutex
			var writes []string
			listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, databasePath) {
					respond(w, http.StatusOK, database())
					return
				}
				if r.Method == http.MethodGet {
					server.ServeHTTP(w, r)
					return
				}
				mu.Lock()
				writes = append(writes, r.Method)
				first := len(writes) == 1
				mu.Unlock()
				if first {
					w.Header().Set("Retry-After", "1")
					refuse(w, apierrors.NewTooManyRequests("slower", 1))
					return
				}
				respond(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
			}))
			t.Cleanup(listening.Close)
			cluster, err := kube.Connect(&rest.Config{Host: listening.URL})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.HTTPClient().CloseIdleConnections)
			c, err := client.New(client.Config{Cluster: cluster})
			if err != nil {
				t.Fatal(err)
			}
			err = act(t, c, func(*appsv1.StatefulSet) error { return nil })
			mu.Lock()
			sent := slices.Clone(writes)
			mu.Unlock()
			if len(sent) != 1 {
				t.Errorf("sent %v, want one request", sent)
			}
			if after, _ := usercode.RetryAfter(err); retry.Classify(err) != retry.Throttled || after != time.Second {
				t.Errorf("the response is %v, want the server's, with its Retry-After", err)
			}
		})
	}
}
