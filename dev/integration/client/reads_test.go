package client

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Reads that an informer can answer make no request. Other reads make one, which is never a watch.
func TestReadsFromInformersMakeNoCall(t *testing.T) {
	t.Parallel()
	config, setup, namespace := setUp(t)
	for name, app := range map[string]string{"a": "web", "b": "db"} {
		obj := configMap(namespace, name, map[string]string{"a": "b"})
		obj.Labels = map[string]string{"app": app}
		must(client.Create(t.Context(), setup, obj))(t)
	}
	cluster := clustertest.Connect(t, config)
	whole := clustertest.Informer[*corev1.ConfigMap](t, cluster, kube.Selection{Namespaces: []string{namespace}})
	web := clustertest.Informer[*corev1.ConfigMap](t, cluster, kube.Selection{Namespaces: []string{namespace}, LabelSelector: "app=web"})
	key := func(name string) kube.Key { return kube.Key{Namespace: namespace, Name: name} }
	kind := client.OfKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	in := []string{namespace}
	get, list := "get configmaps "+namespace+"/", "list configmaps "+namespace+"/"
	ctx, calls := observe(t)
	c := clustertest.Client(t, cluster, whole)
	obj := must(client.Get[*corev1.ConfigMap](ctx, c, key("a")))(t)
	u := must(client.Get[*unstructured.Unstructured](ctx, c, key("a"), kind))(t)
	m := must(client.Get[*metav1.PartialObjectMetadata](ctx, c, key("a"), kind))(t)
	if text, _, _ := unstructured.NestedString(u.Object, "data", "a"); obj.Data["a"] != "b" || text != "b" || m.Labels["app"] != "web" || u.GetKind() != "ConfigMap" || m.Kind != "ConfigMap" || obj.Kind != "ConfigMap" {
		t.Errorf("the objects are %+v, %v and %+v", obj, u, m)
	}
	_, err := client.Get[*corev1.ConfigMap](ctx, c, key("none"))
	if !errors.Is(err, client.ErrGone) || must(client.Exists[*corev1.ConfigMap](ctx, c, key("none")))(t) {
		t.Errorf("what is not there: %v", err)
	}
	if all := must(client.All[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: in, LabelSelector: "app!=web"}))(t); len(all) != 1 || all[0].Name != "b" {
		t.Errorf("the objects are %v", all)
	}
	if names := must(client.Keys[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: in}))(t); len(names) != 2 {
		t.Errorf("the names are %v", names)
	}
	if requests := calls.Take(); requests != nil {
		t.Errorf("an informer knows, and calls were made: %q", requests)
	}
	must(client.Get[*corev1.ConfigMap](ctx, c, key("a"), client.FromAPI()))(t)
	must(client.GetLive(ctx, c, obj))(t)
	if requests := calls.Take(); !slices.Equal(requests, []string{get + "a", get + "a"}) {
		t.Errorf("past the informer, the calls are %q", requests)
	}

	// An informer with a selection answers for selected objects only.
	c = clustertest.Client(t, cluster, web)
	must(client.Get[*corev1.ConfigMap](ctx, c, key("a")))(t)
	if requests := calls.Take(); requests != nil {
		t.Errorf("the informer shows it, and calls were made: %q", requests)
	}
	if found := must(client.Exists[*corev1.ConfigMap](ctx, c, key("b")))(t); !found {
		t.Error("what an informer has not selected is said not to be there")
	}
	if all := must(client.All[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: in}))(t); len(all) != 2 {
		t.Errorf("the objects are %v", all)
	}
	if requests := calls.Take(); !slices.Equal(requests, []string{get + "b", list}) {
		t.Errorf("past what the informer knows, the calls are %q", requests)
	}
	// Without informers no read starts a watch.
	c = clustertest.Client(t, cluster)
	for range 3 {
		must(client.Get[*corev1.ConfigMap](ctx, c, key("a")))(t)
	}
	if requests := calls.Take(); !slices.Equal(requests, []string{get + "a", get + "a", get + "a"}) {
		t.Errorf("without informers, the calls are %q", requests)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	kind := define(t, c, "Bell", "bells", true, "")
	cm := configMap(namespace, "w", map[string]string{"a": "b"})
	cm.Labels = map[string]string{"app": "web"}
	bell := object(kind, namespace, "w", 1)
	bell.SetLabels(cm.Labels)
	t.Run("typed", func(t *testing.T) { t.Parallel(); watchLife(t, c, cm) })
	t.Run("unstructured", func(t *testing.T) { t.Parallel(); watchLife(t, c, bell) })
	t.Run("metadata", func(t *testing.T) {
		t.Parallel()
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		m.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "w", Labels: cm.Labels}
		watchLife(t, c, m)
	})
}

// watchLife watches the creation, an update and the deletion of an object.
func watchLife[T kube.Object](t *testing.T, c *client.Client, obj T) {
	t.Helper()
	kind := must(c.Cluster().KindOf(obj))(t)
	ctx, calls := observe(t)
	w := must(client.Watch[T](ctx, c, kube.Selection{Kind: kind, Namespaces: []string{obj.GetNamespace()}, LabelSelector: "app=web"}))(t)
	if _, metadata := any(obj).(*metav1.PartialObjectMetadata); metadata {
		must(client.Create(t.Context(), c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(), Labels: obj.GetLabels()}}))(t)
	} else {
		must(client.Create(t.Context(), c, obj))(t)
	}
	next := func(want watch.EventType) T {
		event := <-w.ResultChan()
		got, ok := event.Object.(T)
		if event.Type != want || !ok {
			t.Fatalf("the event is %s with a %T: %+v", event.Type, event.Object, event.Object)
		}
		if kube.KeyOf(got) != kube.KeyOf(obj) || got.GetObjectKind().GroupVersionKind() != kind || got.GetUID() == "" {
			t.Errorf("%s: the object is %+v", want, got)
		}
		return got
	}
	seen := next(watch.Added)
	changed := seen.DeepCopyObject().(T)
	changed.SetAnnotations(map[string]string{"note": "changed"})
	must(client.Patch(t.Context(), c, seen, client.MergeFrom(seen, changed)))(t)
	if got := next(watch.Modified); got.GetAnnotations()["note"] != "changed" {
		t.Errorf("the object is %+v", got)
	}
	if err := client.Delete(t.Context(), c, seen); err != nil {
		t.Fatal(err)
	}
	next(watch.Deleted)
	w.Stop()
	for event := range w.ResultChan() {
		t.Errorf("after Stop: %+v", event)
	}
	if requests := calls.Take(); len(requests) != 1 || !strings.HasPrefix(requests[0], "watch ") {
		t.Errorf("the calls are %q", requests)
	}
	// From a resource version: later changes only.
	w = must(client.Watch[T](ctx, c, kube.Selection{Kind: kind, Namespaces: []string{obj.GetNamespace()}}, client.NotOlderThan(seen.GetResourceVersion())))(t)
	next(watch.Modified)
	next(watch.Deleted)
	w.Stop()
}

// By default the API server drops unknown fields and returns a warning, which is logged once. With strict validation it
// rejects the object and names the field.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	kind := define(t, c, "Typo", "typos", true, "")
	logged := &testlog.Buffer{}
	c.Cluster().SetLogger(logged.Logger(nil))
	c = must(client.New(c.Config()))(t)
	obj := object(kind, namespace, "", 1)
	obj.SetGenerateName("t-")
	obj.Object["spec"].(map[string]any)["sise"] = int64(2)
	for range 3 {
		must(client.Create(t.Context(), c, obj))(t)
	}
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `unknown field \"spec.sise\"`) {
		t.Errorf("logged was: %s", text)
	}
	strict := with(t, c, func(config *client.Config) { config.FieldValidation = metav1.FieldValidationStrict })
	err := first(client.Create(t.Context(), strict, obj))
	if retry.Classify(err) != retry.Invalid || !strings.Contains(err.Error(), `unknown field "spec.sise"`) {
		t.Errorf("strict: the error is %v", err)
	}
	must(client.Create(t.Context(), strict, obj, client.FieldValidation(metav1.FieldValidationIgnore)))(t)
	if text := logged.String(); strings.Count(text, "\n") != 1 {
		t.Errorf("logged was: %s", text)
	}
	obj.Object["spec"] = map[string]any{"size": int64(-1)}
	err = first(client.Create(t.Context(), strict, obj))
	if causes := retryrules.Fields(err); retry.Classify(err) != retry.Invalid || len(causes) != 1 || causes[0] != "spec.size" {
		t.Errorf("the error is %v, with the causes %v", err, causes)
	}
}

// The client requests metadata only, and also accepts whole objects, for servers that return nothing else.
func TestMetadataRequestsReceiveMetadataOnly(t *testing.T) {
	t.Parallel()
	sent := &testlog.Buffer{}
	config := anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return copier{next, sent} })
	c := clustertest.Client(t, clustertest.Connect(t, config))
	namespace := clustertest.Namespace(t, c)
	must(client.Create(t.Context(), c, configMap(namespace, "a", nil)))(t)
	written := must(client.Get[*corev1.ConfigMap](t.Context(), c, kube.Key{Namespace: namespace, Name: "a"}))(t)
	written.Data = map[string]string{"much": "data"}
	must(client.Update(t.Context(), c, written))(t)
	before := len(sent.String())

	metadata := must(client.Get[*metav1.PartialObjectMetadata](t.Context(), c, kube.KeyOf(written), client.OfKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))))(t)
	changed := metadata.DeepCopy()
	changed.Labels = map[string]string{"app": "web"}
	must(client.Patch(t.Context(), c, metadata, client.MergeFrom(metadata, changed)))(t)
	if names := must(client.Keys[*corev1.ConfigMap](t.Context(), c, kube.Selection{Namespaces: []string{namespace}}))(t); len(names) != 1 {
		t.Errorf("the names are %v", names)
	}
	w := must(client.Watch[*metav1.PartialObjectMetadata](t.Context(), c, kube.Selection{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaces: []string{namespace}}))(t)
	<-w.ResultChan()
	w.Stop()
	if answers := sent.String()[before:]; strings.Count(answers, `"PartialObjectMetadata"`) < 3 || strings.Contains(answers, "much") {
		t.Errorf("the answers are %s", answers)
	}
}

// copier records the bodies of responses.
type copier struct {
	next http.RoundTripper
	to   io.Writer
}

// RoundTrip implements http.RoundTripper.
func (c copier) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, c.to), resp.Body}
	}
	return resp, err
}
