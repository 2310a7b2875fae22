package client_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// newFieldServer returns a server with ConfigMaps of two colours in two namespaces, and Secrets of type Opaque. The API
// server can select Secrets by type, and ConfigMaps by no field except their name and namespace.
func newFieldServer(t *testing.T) (*apitest.Server, *kube.Cluster) {
	t.Helper()
	server := apitest.New(apiserver.ConfigMaps(), apiserver.Secrets(), apitest.Nodes())
	for _, namespace := range []string{"shop", "bank"} {
		for name, color := range map[string]string{"a": "red", "b": "blue", "c": "red", "d": ""} {
			server.Edit("configmaps", kube.Key{Namespace: namespace, Name: name}, "somebody", func(obj map[string]any) bool {
				obj["metadata"].(map[string]any)["labels"] = map[string]any{"name": name}
				obj["data"] = map[string]any{"color": color}
				return true
			})
		}
		server.Edit("secrets", kube.Key{Namespace: namespace, Name: "s"}, "somebody", func(obj map[string]any) bool {
			obj["type"] = "Opaque"
			return true
		})
	}
	server.Edit("nodes", kube.Key{Name: "n1"}, "somebody", func(map[string]any) bool { return true })
	cluster, err := kube.Connect(server.Config("tests"))
	if err != nil {
		t.Fatal(err)
	}
	return server, cluster
}

func byColor(c *corev1.ConfigMap) []string {
	if c.Data["color"] == "" {
		return nil
	}
	return []string{c.Data["color"]}
}

// runInformer runs an informer until stop, in a bubble.
func runInformer[T kube.Object](t *testing.T, config informer.Config[T]) (i *informer.Informer[T], stop func()) {
	t.Helper()
	i, err := informer.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leave := i.Join(ctx)
	if err := i.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	return i, func() { cancel(); leave(); synctest.Wait() }
}

// TestFieldSelectorsReadFromInformers: each selector has the objects that the API server would return, from the informer
// if it can evaluate the selector, otherwise from the API server.
func TestFieldSelectorsReadFromInformers(t *testing.T) {
	t.Parallel()
	all := kube.Selection{}
	both := func(names ...string) (keys []string) {
		for _, namespace := range []string{"bank", "shop"} {
			for _, name := range names {
				keys = append(keys, namespace+"/"+name)
			}
		}
		return keys
	}
	for name, test := range map[string]struct {
		selects kube.Selection
		cut     []string
		lists   kube.Selection
		options []client.ReadOption
		want    []string
		fails   string // the request is rejected with this
		live    bool
	}{
		"a name":                       {selects: all, lists: kube.Selection{FieldSelector: "metadata.name=a"}, want: both("a")},
		"a name in a namespace":        {selects: all, lists: kube.Selection{Namespaces: []string{"shop"}, FieldSelector: "metadata.name=a"}, want: []string{"shop/a"}},
		"a name and its label":         {selects: all, lists: kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "name=a", FieldSelector: "metadata.name=a"}, want: []string{"shop/a"}},
		"a name and another label":     {selects: all, lists: kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "name!=a", FieldSelector: "metadata.name=a"}},
		"a missing name":               {selects: all, lists: kube.Selection{Namespaces: []string{"shop"}, FieldSelector: "metadata.name=x"}},
		"all but a name":               {selects: all, lists: kube.Selection{Namespaces: []string{"shop"}, FieldSelector: "metadata.name!=a"}, want: []string{"shop/b", "shop/c", "shop/d"}},
		"a namespace":                  {selects: all, lists: kube.Selection{FieldSelector: "metadata.namespace=shop,metadata.name!=a"}, want: []string{"shop/b", "shop/c", "shop/d"}},
		"two namespaces exclude":       {selects: all, lists: kube.Selection{Namespaces: []string{"bank"}, FieldSelector: "metadata.namespace=shop"}},
		"the namespace it has":         {selects: kube.Selection{Namespaces: []string{"shop"}}, lists: kube.Selection{FieldSelector: "metadata.namespace=shop"}, want: []string{"shop/a", "shop/b", "shop/c", "shop/d"}},
		"a namespace it does not have": {selects: kube.Selection{Namespaces: []string{"shop"}}, lists: kube.Selection{FieldSelector: "metadata.namespace=bank,metadata.name=a"}, want: []string{"bank/a"}, live: true},
		"an index":                     {selects: all, lists: kube.Selection{FieldSelector: "data.color=red"}, want: both("a", "c")},
		"an index and a name":          {selects: all, lists: kube.Selection{Namespaces: []string{"shop"}, FieldSelector: "data.color=red,metadata.name=a"}, want: []string{"shop/a"}},
		"an index and labels":          {selects: all, lists: kube.Selection{LabelSelector: "name=c", FieldSelector: "data.color=red"}, want: both("c")},
		"an index without matches":     {selects: all, lists: kube.Selection{FieldSelector: "data.color=green"}},
		"an index it may not use":      {selects: all, cut: []string{"data.other"}, lists: kube.Selection{FieldSelector: "data.color=red"}, live: true, fails: "informer \"configmaps\" does not answer"},
		"a name, of parts":             {selects: all, cut: []string{"data.other"}, lists: kube.Selection{Namespaces: []string{"shop"}, FieldSelector: "metadata.name=a"}, want: []string{"shop/a"}, live: true},
		"an index without a value":     {selects: all, lists: kube.Selection{FieldSelector: "data.color="}, live: true, fails: "does not answer \"data.color=\""},
		"all but a value":              {selects: all, lists: kube.Selection{FieldSelector: "data.color!=red"}, live: true, fails: "does not answer"},
		"two indexes":                  {selects: all, lists: kube.Selection{FieldSelector: "data.color=red,data.other=red"}, live: true, fails: "does not answer"},
		"no index":                     {selects: all, lists: kube.Selection{FieldSelector: "data.size=1"}, live: true, fails: "Index with the name of the field"},
		"FromAPI":                      {selects: all, lists: kube.Selection{Namespaces: []string{"shop"}, FieldSelector: "metadata.name=a"}, options: []client.ReadOption{client.FromAPI()}, want: []string{"shop/a"}, live: true},
		"a partial informer":           {selects: kube.Selection{LabelSelector: "name=a"}, lists: kube.Selection{FieldSelector: "data.color=red"}, live: true, fails: "of the whole selection"},
		"a part of a partial informer": {selects: kube.Selection{LabelSelector: "name=a"}, lists: kube.Selection{LabelSelector: "name=a", FieldSelector: "data.color=red"}, want: both("a")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, cluster := newFieldServer(t)
				i, stop := runInformer(t, informer.Config[*corev1.ConfigMap]{
					Name: "configmaps", Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, test.selects), Cut: test.cut,
					Indexes: []informer.Index[*corev1.ConfigMap]{
						{Name: "data.color", Values: byColor}, {Name: "data.other", Values: byColor},
					},
				})
				defer stop()
				c, err := client.New(client.Config{Cluster: cluster, Informers: []client.Informer{i}})
				if err != nil {
					t.Fatal(err)
				}
				server.Requests()
				objects, err := client.All[*corev1.ConfigMap](t.Context(), c, test.lists, test.options...)
				if got := server.Requests(); (len(got) > 0) != test.live {
					t.Errorf("the requests are %q; want some: %t", got, test.live)
				}
				if test.fails != "" {
					if err == nil || !strings.Contains(err.Error(), test.fails) {
						t.Errorf("the error is %v, want %q", err, test.fails)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				var keys []string
				for _, obj := range objects {
					keys = append(keys, kube.KeyOf(obj).String())
				}
				slices.Sort(keys)
				if diff := cmp.Diff(test.want, keys); diff != "" {
					t.Errorf("objects (-want +got):\n%s", diff)
				}
				names, err := client.Keys[*corev1.ConfigMap](t.Context(), c, test.lists, test.options...)
				if err != nil || len(names) != len(test.want) {
					t.Errorf("Keys: %v, %v", slices.Collect(maps.Keys(names)), err)
				}
			})
		})
	}
}

// TestFieldSelectorsIgnoreFailingIndexes: an index whose function has panicked lacks objects.
func TestFieldSelectorsIgnoreFailingIndexes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, cluster := newFieldServer(t)
		failing := false
		i, stop := runInformer(t, informer.Config[*corev1.Secret]{
			Retriever: informer.Retrieve[*corev1.Secret](cluster),
			Indexes: []informer.Index[*corev1.Secret]{{Name: "type", Values: func(s *corev1.Secret) []string {
				if failing {
					panic("broken")
				}
				return []string{string(s.Type)}
			}}},
		})
		defer stop()
		c, err := client.New(client.Config{Cluster: cluster, Informers: []client.Informer{i}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			server.Requests()
			found, err := client.Keys[*corev1.Secret](t.Context(), c, kube.Selection{FieldSelector: "type=Opaque"})
			if err != nil || len(found) != 2 {
				t.Errorf("failing: %t: the objects are %v, %v", failing, found, err)
			}
			if got := server.Requests(); (len(got) > 0) != failing {
				t.Errorf("failing: %t: the requests are %q", failing, got)
			}
			failing = true
			server.Edit("secrets", kube.Key{Namespace: "shop", Name: "s"}, "somebody", func(obj map[string]any) bool {
				obj["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
				return true
			})
			synctest.Wait()
		}
	})
}

// TestFieldSelectorsOfClusterScopedKinds: the name of such an object is its key.
func TestFieldSelectorsOfClusterScopedKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, cluster := newFieldServer(t)
		i, stop := runInformer(t, informer.Config[*corev1.Node]{Retriever: informer.Retrieve[*corev1.Node](cluster)})
		defer stop()
		c, err := client.New(client.Config{Cluster: cluster, Informers: []client.Informer{i}})
		if err != nil {
			t.Fatal(err)
		}
		server.Requests()
		for selector, want := range map[string]int{"metadata.name=n1": 1, "metadata.name=n2": 0, "metadata.name!=n2": 1} {
			nodes, err := client.All[*corev1.Node](t.Context(), c, kube.Selection{FieldSelector: selector})
			if err != nil || len(nodes) != want {
				t.Errorf("%s selects %d objects, %v; want %d", selector, len(nodes), err, want)
			}
		}
		if got := server.Requests(); got != nil {
			t.Errorf("the requests are %q", got)
		}
		// The API server decides whether the kind has this field.
		_, _ = client.All[*corev1.Node](t.Context(), c, kube.Selection{FieldSelector: "metadata.namespace=shop"})
		if got := server.Requests(); len(got) != 1 {
			t.Errorf("the requests are %q, want one", got)
		}
	})
}

// ExampleList_fieldSelector reads the ConfigMaps with a value from an informer, whose index has the name of the field.
func ExampleList_fieldSelector() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cluster := newShop() // in a program: kube.Connect
	settings, err := informer.New(informer.Config[*corev1.ConfigMap]{
		Retriever: informer.Retrieve[*corev1.ConfigMap](cluster),
		Indexes: []informer.Index[*corev1.ConfigMap]{
			{Name: "data.mode", Values: func(c *corev1.ConfigMap) []string { return []string{c.Data["mode"]} }},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(client.Config{Cluster: cluster, Informers: []client.Informer{settings}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.Create(ctx, c, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "quick"}, Data: map[string]string{"mode": "fast"},
	}); err != nil {
		fmt.Println(err)
		return
	}
	defer settings.Join(ctx)() // a controller does this for its Config.Reads
	if err := settings.WaitSynced(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for config, err := range client.List[*corev1.ConfigMap](ctx, c, kube.Selection{FieldSelector: "data.mode=fast"}) {
		fmt.Println(config.Name, err)
	}
	// Output:
	// quick <nil>
}
