package informer_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// SetRetriever finds the scope of the kind before it waits for lists.
func TestSetRetrieverOfClusterScopedKindWithDefaultNamespaces(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]kube.Selection{"at the start": {}, "after all": {Namespaces: []string{kube.AllNamespaces}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, cluster := limitedCluster(t, "a", "b")
				nodes := run(t, informer.RetrieveSelected[*corev1.Node](cluster, first))
				if name == "after all" {
					time.Sleep(time.Second)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := nodes.SetRetriever(ctx, informer.RetrieveSelected[*corev1.Node](cluster, kube.Selection{LabelSelector: "!zone"}))
				if err != nil || nodes.Len() != 1 || nodes.Ready() != nil {
					t.Errorf("%d nodes, %v, %v", nodes.Len(), err, nodes.Ready())
				}
			})
		})
	}
}

// The limit holds again when a definition is replaced by one of a kind that lives in namespaces.
func TestLimitHoldsAfterDefinitionIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kind := apitest.KindNamed("Widget")
		server := apitest.New(apiserver.Custom(kind, "widgets"))
		for _, ns := range []string{"a", "b", "c"} {
			server.Apply("widgets", kube.Key{Namespace: ns, Name: "m"}, "test", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"`+ns+`","name":"m"}}`)
		}
		recorder := &limitedServer{Server: server}
		config := server.Config("test")
		var replaced atomic.Bool
		config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/apis/example.com/v1" && !replaced.Load() {
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1",` +
						`"resources":[{"name":"widgets","namespaced":false,"kind":"Widget","verbs":["list","watch"]}]}`)),
				}, nil
			}
			if r.URL.Path == "/apis/example.com/v1" {
				return server.RoundTrip(r)
			}
			if !replaced.Load() && strings.HasSuffix(r.URL.Path, "widgets") { // the cluster-scoped one has no objects
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`))}, nil
			}
			return recorder.record(r)
		})
		cluster, err := kube.Connect(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.SetNamespaces("a"); err != nil {
			t.Fatal(err)
		}
		inf := run(t, informer.RetrieveSelected[*metav1.PartialObjectMetadata](cluster, kube.Selection{Kind: kind}))
		time.Sleep(time.Minute)
		replaced.Store(true)
		cluster.Forget(kind.GroupVersion())
		time.Sleep(10 * time.Minute)
		if got := recorder.requested(); slices.Contains(got, "/apis/example.com/v1/widgets") {
			t.Errorf("all namespaces are read although the limit is a: %q", got)
		}
		var keys []string
		for o, err := range inf.List(informer.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, o.Namespace)
		}
		if !slices.Equal(keys, []string{"a"}) {
			t.Errorf("cached objects of namespaces %q, want a; ready: %v", keys, inf.Ready())
		}
	})
}

// A kind may have different scopes in two Clusters.
func TestScopeIsThatOfEachCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kind := apitest.KindNamed("Widget")
		wide := apitest.New(apitest.ClusterScoped(apiserver.Custom(kind, "widgets")))
		server := apitest.New(apiserver.Custom(kind, "widgets"))
		recorder := &limitedServer{Server: server}
		c1, err := kube.Connect(wide.Config("test"))
		if err != nil {
			t.Fatal(err)
		}
		config := server.Config("test")
		config.Transport = roundTripper(recorder.record)
		c2, err := kube.Connect(config)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c1.SetNamespaces("a"), c2.SetNamespaces("a")
		sel := kube.Selection{Kind: kind}
		i := run(t, informer.Combine(informer.RetrieveSelected[*metav1.PartialObjectMetadata](c1, sel),
			informer.RetrieveSelected[*metav1.PartialObjectMetadata](c2, sel)))
		time.Sleep(time.Minute)
		if got := recorder.requested(); slices.Contains(got, "/apis/example.com/v1/widgets") {
			t.Errorf("the limited namespaced kind of the second Cluster is listed everywhere: %q; %v", got, i.Ready())
		}
	})
}

func TestCombinedClustersAreNotShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c1 := limitedCluster(t)
		s2, c2 := limitedCluster(t)
		s3, c3 := limitedCluster(t)
		for name, s := range map[string]*limitedServer{"two": s2, "three": s3} {
			s.Apply("configmaps", kube.Key{Namespace: name, Name: "only"}, "test",
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"`+name+`","name":"only"}}`)
		}
		share := func(other *kube.Cluster) *informer.Informer[*corev1.ConfigMap] {
			i, err := informer.Shared(informer.Config[*corev1.ConfigMap]{Retriever: informer.Combine(
				informer.Retrieve[*corev1.ConfigMap](c1), informer.Retrieve[*corev1.ConfigMap](other))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(i.Join(t.Context()))
			return i
		}
		i2, i3 := share(c2), share(c3)
		time.Sleep(time.Second)
		_, found2, _ := i2.Get(kube.Key{Namespace: "two", Name: "only"})
		_, found3, _ := i3.Get(kube.Key{Namespace: "three", Name: "only"})
		_, wrong, _ := i3.Get(kube.Key{Namespace: "two", Name: "only"})
		if !found2 || !found3 || wrong {
			t.Errorf("informer of c1+c2 has its object: %v; informer of c1+c3 has its object: %v, has one of c2: %v", found2, found3, wrong)
		}
	})
}
