package informer_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

// defaults is a server with ConfigMaps, Secrets and Sites in the namespaces a and b, some of them with the label app=web.
type defaults struct {
	*testing.T
	server  *apitest.Server
	cluster *kube.Cluster
}

func withDefaults(t *testing.T, test func(d *defaults)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apiserver.Secrets(), apitest.ClusterScoped(apitest.Widgets()))
		for _, name := range []string{"a/web", "b/web", "a/other"} {
			namespace, name, _ := strings.Cut(name, "/")
			metadata := `"metadata":{"namespace":"` + namespace + `","name":"` + name + `","labels":{"app":"` + name + `"}},"data":{"k":"dg=="}}`
			key := kube.Key{Namespace: namespace, Name: name}
			server.Apply("configmaps", key, "test", `{"apiVersion":"v1","kind":"ConfigMap",`+metadata)
			server.Apply("secrets", key, "test", `{"apiVersion":"v1","kind":"Secret",`+metadata)
		}
		for _, name := range []string{"web", "other"} {
			server.Apply("widgets", kube.Key{Name: name}, "test", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"`+name+`","labels":{"app":"`+name+`"}}}`)
		}
		d := &defaults{T: t, server: server}
		d.cluster = d.connect()
		test(d)
	})
}

// watches returns the number of watches. One that has just ended, because its random time-out is a whole number of seconds
// as the time of the test is, has been started again.
func (d *defaults) watches() int {
	synctest.Wait()
	return d.server.Watches()
}

func (d *defaults) connect() *kube.Cluster {
	d.Helper()
	cluster, err := kube.Connect(d.server.Config("test"))
	if err != nil {
		d.Fatal(err)
	}
	cluster.SetLogger((&testlog.Buffer{}).Logger(nil))
	return cluster
}

func web() kube.Selection { return kube.Selection{LabelSelector: "app=web"} }

func hide(m *corev1.ConfigMap) error {
	m.Data = map[string]string{"k": "hidden"}
	return nil
}

// set sets defaults that select by label and transform.
func (d *defaults) set() {
	d.Helper()
	err := informer.SetDefaults(informer.Config[*corev1.ConfigMap]{
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](d.cluster, web()), Transform: hide,
	})
	if err != nil {
		d.Fatal(err)
	}
}

// expect runs an informer, and checks which objects it has.
func expect[T kube.Object](d *defaults, name string, i *informer.Informer[T], err error, want ...string) {
	d.Helper()
	if err != nil {
		d.Fatalf("%s: %v", name, err)
	}
	d.Cleanup(i.Join(d.Context()))
	time.Sleep(time.Minute)
	var got []string
	for obj, err := range i.List(informer.Query{}) {
		if err != nil {
			d.Errorf("%s: %v", name, err)
			continue
		}
		key := kube.KeyOf(obj).String()
		if m, ok := any(obj).(*corev1.ConfigMap); ok {
			key += "=" + m.Data["k"]
		}
		got = append(got, key)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		d.Errorf("%s: the informer has %q, want %q", name, got, want)
	}
}

func TestInformersGetDefaultsOfTheirClusterAndType(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		other := d.connect()
		d.set()
		create := func(name string, r informer.Retriever[*corev1.ConfigMap], change func(*informer.Config[*corev1.ConfigMap]), want ...string) {
			d.Helper()
			config := informer.Config[*corev1.ConfigMap]{Retriever: r}
			if change != nil {
				change(&config)
			}
			i, err := informer.New(config)
			expect(d, name, i, err, want...)
		}
		in := func(selection kube.Selection) informer.Retriever[*corev1.ConfigMap] {
			return informer.RetrieveSelected[*corev1.ConfigMap](d.cluster, selection)
		}
		all := in(kube.Selection{})
		create("all", all, nil, "a/web=hidden", "b/web=hidden")
		create("a namespace", in(kube.Selection{Namespaces: []string{"a"}}), nil, "a/web=hidden")
		create("two namespaces", in(kube.Selection{Namespaces: []string{"a", "b"}}), nil, "a/web=hidden", "b/web=hidden")
		create("labels of its own", in(kube.Selection{LabelSelector: "app=other"}), nil, "a/other=hidden")
		create("fields of its own", in(kube.Selection{FieldSelector: "metadata.name!="}), nil, "a/other=hidden", "a/web=hidden", "b/web=hidden")
		create("a selection beside none", informer.Combine(in(kube.Selection{Namespaces: []string{"b"}}),
			in(kube.Selection{Namespaces: []string{"a"}, LabelSelector: "app=other"})), nil, "a/other=hidden", "b/web=hidden")
		create("a Transform of its own", all, func(c *informer.Config[*corev1.ConfigMap]) {
			c.Transform = func(*corev1.ConfigMap) error { return nil }
		}, "a/web=dg==", "b/web=dg==")
		create("of children", all, func(c *informer.Config[*corev1.ConfigMap]) { c.KeepAppliedBy = "op" }, "a/other=dg==", "a/web=dg==", "b/web=dg==")
		create("of the program", programRetriever{all}, nil, "a/other=dg==", "a/web=dg==", "b/web=dg==")
		create("of another Cluster", informer.Retrieve[*corev1.ConfigMap](other), nil, "a/other=dg==", "a/web=dg==", "b/web=dg==")
		secrets, err := informer.New(informer.Config[*corev1.Secret]{Retriever: informer.Retrieve[*corev1.Secret](d.cluster)})
		expect(d, "another kind", secrets, err, "a/other", "a/web", "b/web")
		metadata, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveMetadata[*corev1.ConfigMap](d.cluster, kube.Selection{}),
		})
		expect(d, "metadata", metadata, err, "a/other", "a/web", "b/web")
	})
}

// programRetriever is a Retriever of the program.
type programRetriever struct {
	informer.Retriever[*corev1.ConfigMap]
}

func TestDefaultsOfMetadata(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		err := informer.SetDefaults(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveMetadata[*corev1.ConfigMap](d.cluster, web()), Optional: true,
		})
		if err != nil {
			d.Fatal(err)
		}
		metadata, err := informer.Shared(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveMetadata[*corev1.ConfigMap](d.cluster, kube.Selection{}),
		})
		expect(d, "metadata of ConfigMaps", metadata, err, "a/web", "b/web")
		secrets, err := informer.Shared(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveMetadata[*corev1.Secret](d.cluster, kube.Selection{}),
		})
		expect(d, "metadata of Secrets", secrets, err, "a/other", "a/web", "b/web")
	})
}

// The namespaces of a Cluster, its cluster-scoped kinds and SetRetriever keep the default selection.
func TestDefaultSelectionHoldsInEveryScope(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		if err := d.cluster.SetNamespaces("a", "b"); err != nil {
			d.Fatal(err)
		}
		d.set()
		maps, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)})
		expect(d, "the namespaces of the Cluster", maps, err, "a/web=hidden", "b/web=hidden")
		for name, selection := range map[string]struct {
			kube.Selection
			want []string
		}{
			"fewer":                 {kube.Selection{Namespaces: []string{"a"}}, []string{"a/web=hidden"}},
			"a selection and again": {kube.Selection{LabelSelector: "app=other"}, []string{"a/other=hidden"}},
			"all":                   {kube.Selection{Namespaces: []string{kube.AllNamespaces}}, []string{"a/web=hidden", "b/web=hidden"}},
		} {
			err := maps.SetRetriever(d.Context(), informer.RetrieveSelected[*corev1.ConfigMap](d.cluster, selection.Selection))
			expect(d, "SetRetriever: "+name, maps, err, selection.want...)
		}
		widgets := kube.Selection{Kind: apitest.KindNamed("Widget"), LabelSelector: "app=web"}
		err = informer.SetDefaults(informer.Config[*unstructured.Unstructured]{
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](d.cluster, widgets),
		})
		if err != nil {
			d.Fatal(err)
		}
		widgets.LabelSelector = ""
		i, err := informer.New(informer.Config[*unstructured.Unstructured]{
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](d.cluster, widgets),
		})
		expect(d, "a cluster-scoped kind", i, err, "web")
		view, err := informer.As[*metav1.PartialObjectMetadata](i)
		expect(d, "a view", view, err, "web")
	})
}

// SetRetriever does not change that the informer of children has no default selection.
func TestSetRetrieverOfChildrenHasNoDefaultSelection(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		d.set()
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.RetrieveSelected[*corev1.ConfigMap](d.cluster, web()), KeepAppliedBy: "op",
		})
		if err != nil {
			d.Fatal(err)
		}
		err = i.SetRetriever(d.Context(), informer.Retrieve[*corev1.ConfigMap](d.cluster))
		expect(d, "of children", i, err, "a/other=dg==", "a/web=dg==", "b/web=dg==")
	})
}

// Functions cannot be compared, but those of the defaults are the same for all informers.
func TestInformersWithDefaultsAreShared(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		err := informer.SetDefaults(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.RetrieveSelected[*corev1.ConfigMap](d.cluster, web()), Transform: hide, OnError: func(error) {},
			Indexes: []informer.Index[*corev1.ConfigMap]{{Name: "k", Values: func(m *corev1.ConfigMap) []string { return []string{m.Data["k"]} }}},
		})
		if err != nil {
			d.Fatal(err)
		}
		share := func(change func(*informer.Config[*corev1.ConfigMap])) {
			config := informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)}
			if change != nil {
				change(&config)
			}
			i, err := informer.Shared(config)
			expect(d, "shared", i, err, "a/web=hidden", "b/web=hidden")
			if n, err := i.Count(informer.Query{Index: "k", Value: "hidden"}); n != 2 || err != nil {
				d.Errorf("the default index finds %d objects, %v", n, err)
			}
		}
		share(nil)
		share(nil)
		share(func(c *informer.Config[*corev1.ConfigMap]) {
			c.Retriever = informer.RetrieveSelected[*corev1.ConfigMap](d.cluster, web())
		})
		if n := d.watches(); n != 1 {
			d.Errorf("three equal informers have %d watches", n)
		}
		share(func(c *informer.Config[*corev1.ConfigMap]) { c.Transform = hide })
		share(func(c *informer.Config[*corev1.ConfigMap]) { c.OnError = func(error) {} })
		if n := d.watches(); n != 3 {
			d.Errorf("with two that have functions of their own: %d watches", n)
		}
	})
}

// A client reads objects that its informer does not select, and all objects of an informer with a Transform, from the
// API server.
func TestClientReadsBesideDefaultSelection(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		err := informer.SetDefaults(informer.Config[*corev1.Secret]{Retriever: informer.RetrieveSelected[*corev1.Secret](d.cluster, web())})
		if err != nil {
			d.Fatal(err)
		}
		d.set()
		secrets, err := informer.New(informer.Config[*corev1.Secret]{Retriever: informer.Retrieve[*corev1.Secret](d.cluster)})
		expect(d, "Secrets", secrets, err, "a/web", "b/web")
		maps, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)})
		expect(d, "ConfigMaps", maps, err, "a/web=hidden", "b/web=hidden")
		c, err := client.New(client.Config{Cluster: d.cluster, Informers: []client.Informer{secrets, maps}})
		if err != nil {
			d.Fatal(err)
		}
		if _, err := client.Get[*corev1.Secret](d.Context(), c, kube.Key{Namespace: "a", Name: "other"}); err != nil {
			d.Errorf("a Secret that is not selected: %v", err)
		}
		if all, err := client.All[*corev1.Secret](d.Context(), c, kube.Selection{}); len(all) != 3 || err != nil {
			d.Errorf("all Secrets: %d, %v", len(all), err)
		}
		m, err := client.Get[*corev1.ConfigMap](d.Context(), c, kube.Key{Namespace: "a", Name: "web"})
		if err != nil || m.Data["k"] != "dg==" {
			d.Errorf("a ConfigMap that is transformed in the cache: %v, %v", m, err)
		}
	})
}

func TestSetDefaultsReportsMistakes(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		limited := d.connect()
		if err := limited.SetNamespaces("a"); err != nil {
			d.Fatal(err)
		}
		type config = informer.Config[*corev1.Secret]
		retrieve := func(selection kube.Selection) informer.Retriever[*corev1.Secret] {
			return informer.RetrieveSelected[*corev1.Secret](d.cluster, selection)
		}
		for name, test := range map[string]struct {
			config config
			want   []string
		}{
			"no Retriever":        {config{}, []string{"informers of *v1.Secret: Retriever must be"}},
			"no Cluster":          {config{Retriever: informer.Retrieve[*corev1.Secret](nil)}, []string{"of one Cluster"}},
			"of two Clusters":     {config{Retriever: informer.Combine(retrieve(kube.Selection{}), informer.Retrieve[*corev1.Secret](limited))}, []string{"of one Cluster"}},
			"Namespaces":          {config{Retriever: retrieve(kube.Selection{Namespaces: []string{"a"}})}, []string{"Secret", "Cluster.SetNamespaces"}},
			"AllNamespaces":       {config{Retriever: informer.RetrieveSelected[*corev1.Secret](limited, kube.Selection{Namespaces: []string{kube.AllNamespaces}})}, []string{"Namespaces"}},
			"two selections":      {config{Retriever: informer.Combine(retrieve(web()), retrieve(kube.Selection{}))}, []string{"several selections"}},
			"an invalid selector": {config{Retriever: retrieve(kube.Selection{LabelSelector: "=="})}, []string{`label selector "=="`}},
			"other fields, and mistakes": {config{
				Name: "x", Logger: (&testlog.Buffer{}).Logger(nil), Metrics: (*noMetrics)(nil), Retriever: retrieve(web()),
				Transform: func(*corev1.Secret) error { return nil }, KeepAppliedBy: "op", Indexes: make([]informer.Index[*corev1.Secret], 1),
			}, []string{"Name, Metrics, Logger: set them", "KeepAppliedBy cannot be", "Indexes[0]"}},
		} {
			err := informer.SetDefaults(test.config)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					d.Errorf("%s: %v, want %q", name, err, want)
				}
			}
		}
		// No mistake sets anything, and makes no informer.
		if err := informer.SetDefaults(config{Retriever: retrieve(web())}); err != nil {
			d.Errorf("after the mistakes: %v", err)
		}
		if err := informer.SetDefaults(config{Retriever: retrieve(web())}); err == nil || !strings.Contains(err.Error(), "have defaults already") {
			d.Errorf("a second call: %v", err)
		}
		for range 2 {
			if _, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)}); err != nil {
				d.Fatal(err)
			}
		}
		err := informer.SetDefaults(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)})
		if err == nil || !strings.Contains(err.Error(), "set the defaults of informers of ConfigMap as *v1.ConfigMap: some were created already") {
			d.Errorf("after an informer was created: %v", err)
		}
	})
}

type noMetrics struct{ informer.Recorder }

// Informers keep the namespaces and the logger that the Cluster had when they were created, so later changes must not
// pass silently.
func TestNamespacesAndLoggerAreSetBeforeInformers(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		log := &testlog.Buffer{}
		d.cluster.SetLogger(log.Logger(nil))
		if err := d.cluster.SetNamespaces("a"); err != nil || log.String() != "" {
			d.Fatalf("before: %v, log: %s", err, log.String())
		}
		if _, err := informer.New(informer.Config[*corev1.Secret]{Retriever: informer.Retrieve[*corev1.Secret](d.cluster)}); err != nil {
			d.Fatal(err)
		}
		// A Retriever of two Clusters has no defaults.
		other := d.connect()
		if _, err := informer.New(informer.Config[*corev1.Secret]{
			Retriever: informer.Combine(informer.Retrieve[*corev1.Secret](d.cluster), informer.Retrieve[*corev1.Secret](other)),
		}); err != nil || other.SetNamespaces("a") == nil {
			d.Errorf("a combined informer: %v", err)
		}
		// A Retriever keeps the limit from its creation, unless it has a selection of its own.
		another := d.connect()
		informer.RetrieveSelected[*corev1.Secret](another, kube.Selection{Namespaces: []string{"b"}})
		selected := another.SetNamespaces("a")
		informer.Retrieve[*corev1.Secret](another)
		if err := another.SetNamespaces("b"); selected != nil || err == nil {
			d.Errorf("after a selected Retriever: %v, and after one of all: %v", selected, err)
		}
		err := d.cluster.SetNamespaces("a", "b")
		if err == nil || !strings.Contains(err.Error(), "created already") || !slices.Equal(d.cluster.Namespaces(), []string{"a"}) {
			d.Errorf("namespaces %q after an informer was created: %v", d.cluster.Namespaces(), err)
		}
		if d.cluster.SetLogger(log.Logger(nil)); strings.Count(log.String(), "logger set after") != 1 {
			d.Errorf("the log is %q", log.String())
		}
	})
}
