package watched_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T) *kube.Cluster {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "https://api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func newInformer[T kube.Object](t *testing.T, retriever informer.Retriever[T]) *informer.Informer[T] {
	t.Helper()
	objects, err := informer.New(informer.Config[T]{Retriever: retriever})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// valid returns a valid config.
func valid(cluster *kube.Cluster) watched.Config {
	return watched.Config{
		Client: client.Config{Cluster: cluster, FieldOwner: "webapp-operator"},
		Set:    owned.Config{Name: "webapp"},
		Kinds:  []watched.Kind{watched.Of[*appsv1.Deployment](), watched.Of[*corev1.ConfigMap]()},
	}
}

func TestNewCreatesInformerAndSourcePerKind(t *testing.T) {
	t.Parallel()
	cluster := connect(t)
	secrets := newInformer(t, informer.Retrieve[*corev1.Secret](cluster))
	nodes := newInformer(t, informer.Retrieve[*corev1.Node](cluster))
	config := valid(cluster)
	config.Namespaces = []string{"a", "b"}
	config.Set.Namespaces = []string{"b"}
	config.Client.Informers = []client.Informer{nodes}
	config.Kinds = append(config.Kinds, watched.Existing(secrets))
	given := slices.Clone(config.Kinds)
	children, err := watched.New(config)
	if err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, s := range children.Sources {
		prepared, err := s.Prepare(controller.Target{Logger: slog.Default()})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, prepared.Name)
	}
	if want := []string{"owned Deployment of webapp", "owned ConfigMap of webapp", "owned Secret"}; !slices.Equal(sources, want) {
		t.Errorf("the sources are %q, want %q", sources, want)
	}
	readers := children.Client.Config().Informers
	if len(readers) != 4 || readers[2] != client.Informer(secrets) || readers[3] != client.Informer(nodes) {
		t.Fatalf("the client reads from %v", readers)
	}
	if len(config.Client.Informers) != 1 || config.Set.Client != nil || len(config.Kinds) != len(given) {
		t.Error("New has changed the caller's config")
	}
}

// requests is a transport that records the requests, serves discovery, and rejects all other requests.
type requests struct{ paths []string }

// RoundTrip implements http.RoundTripper.
func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path != "/api/v1" {
		r.paths = append(r.paths, req.URL.Path+" "+req.URL.Query().Get("labelSelector"))
		return nil, errors.New("refused")
	}
	kinds := `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap"}]}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(kinds)), Request: req,
	}, nil
}

func TestInformersSelectLabelOfSet(t *testing.T) {
	t.Parallel()
	asked := &requests{}
	cluster, err := kube.Connect(&rest.Config{Host: "https://api.example.com", Transport: asked})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		namespaces []string
		want       string
	}{
		{nil, "/api/v1/configmaps evenkeel.dev/set=webapp"},
		{[]string{"a"}, "/api/v1/namespaces/a/configmaps evenkeel.dev/set=webapp"},
	} {
		config := valid(cluster)
		config.Namespaces = test.namespaces
		var retriever informer.Retriever[*corev1.ConfigMap]
		config.Kinds = []watched.Kind{watched.Of(func(c *informer.Config[*corev1.ConfigMap]) {
			retriever, c.Name = c.Retriever, "settings"
		})}
		children, err := watched.New(config)
		if err != nil {
			t.Fatal(err)
		}
		if got := cache.Of(children.Client.Config().Informers[0]).Name(); got != "settings" {
			t.Errorf("the configured name of the informer is %q", got)
		}
		asked.paths = nil
		if _, err := retriever.List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Fatal("the list was not rejected")
		}
		if !slices.Contains(asked.paths, test.want) {
			t.Errorf("the informer asks for %q, want %q", asked.paths, test.want)
		}
	}
}

// The informer of a kind that comes from its Retriever is named like the others.
func TestKindFromRetriever(t *testing.T) {
	t.Parallel()
	config := valid(connect(t))
	shop := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shop"}
	config.Kinds = []watched.Kind{watched.Of(func(c *informer.Config[*unstructured.Unstructured]) {
		c.Retriever = informer.RetrieveSelected[*unstructured.Unstructured](config.Client.Cluster, kube.Selection{Kind: shop})
	})}
	children, err := watched.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if i := children.Client.Config().Informers[0]; cache.Of(i).Name() != "Shop of webapp" || cache.Of(i).Kind() != shop {
		t.Errorf("the informer is called %q, and is one of %s", cache.Of(i).Name(), cache.Of(i).Kind())
	}
}

func TestNewReportsAllMistakes(t *testing.T) {
	t.Parallel()
	cluster := connect(t)
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "x"})
	if err != nil {
		t.Fatal(err)
	}
	metadata := newInformer(t, informer.RetrieveMetadata[*corev1.Secret](cluster, kube.Selection{}))
	for name, test := range map[string]struct {
		change func(*watched.Config)
		want   []string
	}{
		"empty config": {
			func(c *watched.Config) { *c = watched.Config{} },
			[]string{"new watched set", "Cluster is required", "Set.Name is required", "one of Kinds is required"},
		},
		"several at once": {
			func(c *watched.Config) {
				c.Client.FieldValidation, c.Set.Name, c.Kinds = "Lax", "x y", nil
			},
			[]string{"Lax", `is "x y", which is not a label value`, "one of Kinds is required"},
		},
		"kinds": {
			func(c *watched.Config) {
				c.Kinds = []watched.Kind{
					{},
					watched.Existing[*corev1.Secret](nil),
					watched.Existing(metadata),
					watched.Of[*corev1.ConfigMap](), watched.Of[*corev1.ConfigMap](),
					watched.Of[*metav1.PartialObjectMetadata](),
					watched.Of(func(c *informer.Config[*corev1.Pod]) { c.Retriever = nil }),
				}
			},
			[]string{
				"kind 0: the zero Kind", "kind 1: the informer of *v1.Secret is nil", "kind 2: informer Secret keeps only metadata",
				"kind 4: ConfigMap is listed twice", "kind 5:", "set Selection.Kind", "kind 6:", "Retriever is required",
			},
		},
		"client of the set": {func(config *watched.Config) { config.Set.Client = c }, []string{"Set.Client must be nil"}},
		"a namespace that is not watched": {
			func(c *watched.Config) { c.Namespaces, c.Set.Namespaces = []string{"a"}, []string{"a", "b"} },
			[]string{`Set.Namespaces has "b", which is not among Namespaces`},
		},
		"no name of the set":         {func(c *watched.Config) { c.Client.FieldOwner, c.Set.Name = "", "" }, []string{"Set.Name is required"}},
		"rejected by package owned":  {func(c *watched.Config) { c.Set.Propagation = "sideways" }, []string{"Propagation is"}},
		"rejected by package client": {func(c *watched.Config) { c.Client.FieldValidation = "Lax" }, []string{"Lax"}},
		"kind of an earlier version is current too": {
			func(c *watched.Config) {
				c.Set.Kinds = []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Kind: "Secret"}}
			},
			[]string{"Secret"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := valid(cluster)
			test.change(&config)
			_, err := watched.New(config)
			if err == nil {
				t.Fatal("New returned no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not contain %q: %v", want, err)
				}
			}
		})
	}
}

// The field owner is the default name of the set.
func TestSetNameDefaultsToFieldOwner(t *testing.T) {
	t.Parallel()
	config := valid(connect(t))
	config.Set.Name = ""
	children, err := watched.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if got := cache.Of(children.Client.Config().Informers[0]).Name(); got != "Deployment of webapp-operator" {
		t.Errorf("the informer is called %q", got)
	}
	config.Client.FieldOwner = "webapp operator"
	if _, err := watched.New(config); err == nil || !strings.Contains(err.Error(), "Client.FieldOwner") {
		t.Errorf("a field owner that is not a label value: %v", err)
	}
}

// Without a FieldOwner the client has the name of the program, and the informers keep the fields that it has applied.
func TestFieldOwnerDefaultsToProgram(t *testing.T) {
	t.Parallel()
	var kept string
	config := valid(connect(t))
	config.Client.FieldOwner = ""
	config.Kinds = []watched.Kind{watched.Of(func(c *informer.Config[*corev1.ConfigMap]) { kept = c.KeepAppliedBy })}
	children, err := watched.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if owner := children.Client.Config().FieldOwner; owner == "" || kept != owner {
		t.Errorf("the field owner is %q, the informer keeps the fields of %q", owner, kept)
	}
}

// A controller without the sources of its children requests them in each run. That is a warning, once.
func TestSourcesThatNoControllerHasAreReported(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]bool{"given": true, "not given": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps(), apiserver.Secrets())
				cluster, err := kube.Connect(server.Config("operator"))
				if err != nil {
					t.Fatal(err)
				}
				cluster.SetLogger(slog.New(slog.DiscardHandler))
				children, err := watched.New(watched.Config{
					Client: client.Config{Cluster: cluster, FieldOwner: "webapp"},
					Kinds:  []watched.Kind{watched.Of[*corev1.Secret]()},
				})
				if err != nil {
					t.Fatal(err)
				}
				var logs testlog.Buffer
				config := controller.Config[*corev1.ConfigMap]{
					Name: "webapp", Cluster: cluster, Logger: slog.New(slog.NewTextHandler(&logs, nil)), Workers: 1,
					Handler: func(ctx context.Context, app *corev1.ConfigMap) error {
						_, err := children.Set.Apply(ctx, app, owned.Of(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: app.Name}})...)
						return err
					},
				}
				if given {
					config.Sources = children.Sources
				}
				ctrl, err := controller.New(config)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"a", "b", "c"} {
					app := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
					if _, err := client.Create(t.Context(), children.Client, app); err != nil {
						t.Fatal(err)
					}
				}
				testrun.Start(t, ctrl.Run)
				time.Sleep(time.Minute)
				if n, want := strings.Count(logs.String(), "children are not watched"), map[bool]int{false: 1}[given]; n != want {
					t.Errorf("%d warnings, want %d:\n%s", n, want, logs.String())
				}
			})
		})
	}
}

// One list of kinds defines the sources, the set and the client of a controller.
func ExampleNew() {
	cluster, err := kube.Connect(&rest.Config{Host: "https://api.example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	children, err := watched.New(watched.Config{
		Client: client.Config{Cluster: cluster, FieldOwner: "webapp-operator"},
		Kinds:  []watched.Kind{watched.Of[*appsv1.Deployment](), watched.Of[*corev1.Service]()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = controller.New(controller.Config[*corev1.ConfigMap]{
		Name:      "webapp",
		Retriever: informer.Retrieve[*corev1.ConfigMap](cluster),
		Sources:   children.Sources,
		Handler: func(ctx context.Context, app *corev1.ConfigMap) error {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
			_, err := children.Set.Apply(ctx, app, owned.Of(service)...)
			return err
		},
	})
	fmt.Println(len(children.Sources), "sources:", err)
	// Output: 2 sources: <nil>
}

// The namespaces of the Cluster are the default of Namespaces, also for the check of those of the set.
func TestNamespacesOfClusterAreWatched(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ set, want string }{
		"none":              {},
		"among them":        {set: "b"},
		"all":               {set: metav1.NamespaceAll},
		"not among them":    {set: "c", want: `Set.Namespaces has "c", which is not among the namespaces of the Cluster`},
		"all of the server": {set: kube.AllNamespaces, want: `Set.Namespaces has "*"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := connect(t)
			if err := cluster.SetNamespaces("a", "b"); err != nil {
				t.Fatal(err)
			}
			config := valid(cluster)
			if name != "none" {
				config.Set.Namespaces = []string{test.set}
			}
			_, err := watched.New(config)
			if text := fmt.Sprint(err); (err != nil) != (test.want != "") || !strings.Contains(text, test.want) {
				t.Errorf("New returned %v", err)
			}
		})
	}
}
