package informer_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// limitedCluster returns a server with a Node and with ConfigMaps in the namespaces a, b and c, and a Cluster that is
// limited to namespaces.
func limitedCluster(t *testing.T, namespaces ...string) (*limitedServer, *kube.Cluster) {
	t.Helper()
	server := apitest.New(apiserver.ConfigMaps(), apitest.Nodes())
	server.Apply("nodes", kube.Key{Name: "n"}, "test", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`)
	for _, namespace := range []string{"a", "b", "c"} {
		server.Apply("configmaps", kube.Key{Namespace: namespace, Name: "m"}, "test",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"`+namespace+`","name":"m"}}`)
	}
	recorder := &limitedServer{Server: server}
	config := server.Config("test")
	config.Transport = roundTripper(recorder.record)
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.SetNamespaces(namespaces...); err != nil {
		t.Fatal(err)
	}
	return recorder, cluster
}

// limitedServer records the paths of lists and watches.
type limitedServer struct {
	*apitest.Server
	mu    sync.Mutex
	paths []string // guarded by mu; each once
}

func (s *limitedServer) record(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path := r.URL.Path; r.Method == http.MethodGet && path != "/api/v1" && !slices.Contains(s.paths, path) {
		s.paths = append(s.paths, path)
	}
	return s.RoundTrip(r)
}

// requested returns the paths since the last call.
func (s *limitedServer) requested() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := s.paths
	s.paths = nil
	slices.Sort(paths)
	return paths
}

func run[T kube.Object](t *testing.T, retriever informer.Retriever[T]) *informer.Informer[T] {
	t.Helper()
	i, err := informer.New(informer.Config[T]{Retriever: retriever})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Join(t.Context()))
	return i
}

func TestSelectionsFollowNamespacesOfCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit, selected, want []string
	}{
		"no limit":      {nil, nil, []string{""}},
		"one":           {[]string{"a"}, nil, []string{"a"}},
		"several":       {[]string{"a", "b", "a"}, nil, []string{"a", "b"}},
		"others":        {[]string{"a"}, []string{"c"}, []string{"c"}},
		"all":           {[]string{"a", "b"}, []string{kube.AllNamespaces}, []string{""}},
		"limit removed": {[]string{kube.AllNamespaces}, nil, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, cluster := limitedCluster(t, test.limit...)
				selection := kube.Selection{Namespaces: test.selected}
				maps := run(t, informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection))
				metadata := run(t, informer.RetrieveMetadata[*corev1.ConfigMap](cluster, selection))
				time.Sleep(time.Second)
				var want []string
				for _, namespace := range test.want {
					path := "/api/v1/configmaps"
					if namespace != "" {
						path = "/api/v1/namespaces/" + namespace + "/configmaps"
					}
					want = append(want, path)
				}
				if got := server.requested(); !slices.Equal(got, want) {
					t.Errorf("requests of %q, want %q", got, want)
				}
				objects := len(test.want)
				if test.want[0] == "" {
					objects = 3
				}
				if maps.Len() != objects || metadata.Len() != objects || maps.Ready() != nil || metadata.Ready() != nil {
					t.Errorf("%d and %d objects, want %d; %v, %v", maps.Len(), metadata.Len(), objects, maps.Ready(), metadata.Ready())
				}
			})
		})
	}
}

// A kind that lives in no namespace is listed once, however many namespaces the Cluster is limited to, also if the Go type
// does not tell its scope. The informer knows own writes, and stays so after a restart and with another Retriever.
func TestClusterScopedKindsAreNotLimited(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string][]string{"one": {"a"}, "several": {"a", "b", "c"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, cluster := limitedCluster(t, limit...)
				nodes, err := informer.New(informer.Config[*corev1.Node]{Retriever: informer.Retrieve[*corev1.Node](cluster)})
				if err != nil {
					t.Fatal(err)
				}
				var announced []string
				nodes.Subscribe(func(c informer.Change) { announced = append(announced, string(c.Type)+" "+c.Key.Name) })
				c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "test", Informers: []client.Informer{nodes}})
				if err != nil {
					t.Fatal(err)
				}
				const path = "/api/v1/nodes"
				check := func(when string, want ...string) {
					t.Helper()
					synctest.Wait()
					if got := server.requested(); !slices.Equal(got, want) {
						t.Errorf("%s: requests of %q, want %q", when, got, want)
					}
					if n, open := nodes.Len(), server.Watches(); nodes.Ready() != nil || n != 1 || open != 1 {
						t.Errorf("%s: %d nodes, %d watches, %v", when, n, open, nodes.Ready())
					}
				}
				leave := nodes.Join(t.Context())
				time.Sleep(5 * time.Second)
				check("at the start", path)
				if want := []string{"listed n"}; !slices.Equal(announced, want) {
					t.Errorf("announced %q, want %q", announced, want)
				}
				if all, err := client.All[*corev1.Node](t.Context(), c, kube.Selection{}); len(all) != 1 || err != nil {
					t.Errorf("read %d nodes, %v", len(all), err)
				}
				check("after a read") // without a request

				// The informer shows a write of its Cluster as soon as it returns.
				if _, err := client.Apply(t.Context(), c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
					Name: "n", Labels: map[string]string{"zone": "z"},
				}}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if node, _, err := nodes.Get(kube.Key{Name: "n"}); err != nil || node.Labels["zone"] != "z" {
					t.Errorf("after a write: %v, %v", node, err)
				}
				leave()
				server.requested()
				leave = nodes.Join(t.Context())
				time.Sleep(5 * time.Second)
				check("after a restart", path)

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := nodes.SetRetriever(ctx, informer.RetrieveSelected[*corev1.Node](cluster,
					kube.Selection{LabelSelector: "zone"})); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				check("with another selection", path)
				leave()
			})
		})
	}
}

// Only the default is not a limit: a namespace that was chosen for a cluster-scoped kind is a mistake.
func TestChosenNamespaceOfClusterScopedKindIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, cluster := limitedCluster(t, "a")
		nodes := run(t, informer.RetrieveSelected[*corev1.Node](cluster, kube.Selection{Namespaces: []string{"a"}}))
		time.Sleep(time.Minute)
		if err := nodes.Ready(); err == nil || !strings.Contains(err.Error(), "the kind is cluster-scoped") {
			t.Error(err)
		}
	})
}

func TestNamespacesOfClusterAreValidated(t *testing.T) {
	t.Parallel()
	_, cluster := limitedCluster(t, "a", "b")
	for _, wrong := range [][]string{{""}, {"c", "a/b"}, {"..", "c"}, {"c", kube.AllNamespaces}} {
		if err := cluster.SetNamespaces(wrong...); err == nil {
			t.Errorf("%q are accepted", wrong)
		}
	}
	if got := cluster.Namespaces(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the namespaces are %q", got)
	}
	cluster.Namespaces()[0] = "changed"
	if got := cluster.Namespaces(); got[0] != "a" {
		t.Errorf("the namespaces are %q", got)
	}
	if err := cluster.SetNamespaces(); err != nil || cluster.Namespaces() != nil || (*kube.Cluster)(nil).Namespaces() != nil {
		t.Errorf("without a limit: %q, %v", cluster.Namespaces(), err)
	}
}
