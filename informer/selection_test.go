package informer_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// selected returns an in-memory cluster. Its lists contain the ConfigMap ns/kept at version 5, and its watches send
// what is written to events.
func selected(t *testing.T) (cluster *kube.Cluster, events *io.PipeWriter) {
	t.Helper()
	body, events := io.Pipe()
	const item = `{"metadata":{"namespace":"ns","name":"kept","uid":"u","resourceVersion":"5","labels":{"app":"a"}}}`
	answer := func(body io.ReadCloser) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
	}
	text := func(s string) *http.Response { return answer(io.NopCloser(strings.NewReader(s))) }
	cluster, err := kube.Connect(&rest.Config{Host: "http://cluster.example", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		switch {
		case r.URL.Path == "/api/v1":
			return text(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["list","watch"]}]}`), nil
		case query.Get("sendInitialEvents") == "true":
			return &http.Response{StatusCode: http.StatusBadRequest, Body: io.NopCloser(bytes.NewReader(nil))}, nil
		case query.Get("watch") == "true":
			return answer(body), nil
		}
		return text(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[` + item + `]}`), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return cluster, events
}

func send(t *testing.T, events io.Writer, kind, name, version string) {
	t.Helper()
	_, err := fmt.Fprintf(events, `{"type":%q,"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":%q,"uid":"u","resourceVersion":%q}}}`+"\n", kind, name, version)
	if err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// Writes of objects that are not selected are not awaited, as far as the selection can be evaluated.
func TestAwaitIgnoresUnselectedObjects(t *testing.T) {
	labelled := func(name, labels string) *wire.Object {
		o, err := wire.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":%q,"uid":"u","resourceVersion":"11","labels":{%s}}}`, name, labels), nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	colored := func(name, color string) *wire.Object {
		o, err := wire.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":%q,"uid":"u","resourceVersion":"11"},"data":{"color":%q}}`, name, color), nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	write := func(namespace, name string, after *wire.Object) cache.Write {
		return cache.Write{Key: kube.Key{Namespace: namespace, Name: name}, UID: "u", ResourceVersion: "11", Object: after}
	}
	deletion := write("ns", "kept", labelled("kept", `"app":"b"`))
	deletion.Deleted = true
	for name, test := range map[string]struct {
		selection kube.Selection
		write     cache.Write
		atOnce    bool
	}{
		"all":                      {kube.Selection{}, write("ns", "new", nil), false},
		"another namespace":        {kube.Selection{Namespaces: []string{"ns"}}, write("other", "new", nil), true},
		"its namespace":            {kube.Selection{Namespaces: []string{"ns"}}, write("ns", "new", nil), false},
		"another name":             {kube.Selection{FieldSelector: "metadata.name=kept"}, write("ns", "new", nil), true},
		"its name":                 {kube.Selection{FieldSelector: "metadata.name==kept"}, write("ns", "kept", nil), false},
		"not its name":             {kube.Selection{FieldSelector: "metadata.name!=kept"}, write("ns", "kept", nil), true},
		"not another name":         {kube.Selection{FieldSelector: "metadata.name!=kept"}, write("ns", "new", nil), false},
		"a namespace by its field": {kube.Selection{FieldSelector: "metadata.namespace=ns,metadata.name=new"}, write("other", "new", nil), true},
		"its field":                {kube.Selection{FieldSelector: "data.color=red"}, write("ns", "new", colored("new", "red")), false},
		"another field":            {kube.Selection{FieldSelector: "data.color=red"}, write("ns", "new", colored("new", "blue")), true},
		"not another field":        {kube.Selection{FieldSelector: "data.color!=red"}, write("ns", "new", colored("new", "blue")), false},
		"a field that it lacks":    {kube.Selection{FieldSelector: "data.size=big"}, write("ns", "new", colored("new", "red")), true},
		"its field is absent":      {kube.Selection{FieldSelector: "data.size="}, write("ns", "new", colored("new", "red")), false},
		"a field that is false":    {kube.Selection{FieldSelector: "data.on=false"}, write("ns", "new", colored("new", "red")), false},
		"another field, of what is kept": {
			kube.Selection{FieldSelector: "data.color=red"}, write("ns", "kept", colored("kept", "blue")), false,
		},
		"a deletion of what another field excludes": {kube.Selection{FieldSelector: "data.color=red"}, cache.Write{
			Key: kube.Key{Namespace: "ns", Name: "new"}, UID: "u", ResourceVersion: "11", Deleted: true,
		}, true},
		"labels":                 {kube.Selection{LabelSelector: "app=a"}, write("ns", "new", labelled("new", `"app":"a"`)), false},
		"other labels":           {kube.Selection{LabelSelector: "app=a"}, write("ns", "new", labelled("new", `"app":"b"`)), true},
		"no selection by labels": {kube.Selection{LabelSelector: " "}, write("ns", "new", labelled("new", ``)), false},
		"other labels, of what is kept": {
			kube.Selection{LabelSelector: "app=a"}, write("ns", "kept", labelled("kept", `"app":"b"`)), false,
		},
		"a deletion of what was not selected": {kube.Selection{LabelSelector: "app=a"}, cache.Write{
			Key: kube.Key{Namespace: "ns", Name: "new"}, UID: "u", ResourceVersion: "11", Deleted: true, Object: labelled("new", `"app":"b"`),
		}, true},
		"a deletion": {kube.Selection{LabelSelector: "app=a"}, deletion, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, events := selected(t)
				inf, err := informer.New(informer.Config[configMap]{Retriever: informer.RetrieveSelected[configMap](cluster, test.selection)})
				if err != nil {
					t.Fatal(err)
				}
				defer inf.Join(t.Context())()
				synctest.Wait()
				var seen atomic.Int32
				cache.Of(inf).Await(test.write, func() { seen.Add(1) })
				if test.atOnce {
					expectSeen(t, "at once", &seen, 1)
					return
				}
				expectSeen(t, "before", &seen, 0)
				if strings.Contains(test.selection.LabelSelector, "app") && cache.Of(inf).Has(test.write.Key) {
					send(t, events, "DELETED", test.write.Key.Name, "11") // it has left the selection
				} else if cache.Of(inf).Has(test.write.Key) {
					send(t, events, "MODIFIED", test.write.Key.Name, "11")
				} else {
					send(t, events, "BOOKMARK", "", "11")
				}
				expectSeen(t, "after", &seen, 1)
				_ = events.Close() // never fails
			})
		})
	}
}

// After a run has created an object and moved it out of the selection, it must not get the state in between.
func TestAwaitOfObjectThatLeavesTheSelection(t *testing.T) {
	for name, deleted := range map[string]bool{"relabelled": false, "relabelled and deleted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, events := selected(t)
				inf, err := informer.New(informer.Config[configMap]{
					Retriever: informer.RetrieveSelected[configMap](cluster, kube.Selection{LabelSelector: "app=a"}),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer inf.Join(t.Context())()
				synctest.Wait()
				write := func(version, app string) (w cache.Write) {
					after, err := wire.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":"new","uid":"u","resourceVersion":%q,"labels":{"app":%q}}}`, version, app), nil)
					if err != nil {
						t.Fatal(err)
					}
					return cache.Write{Key: after.Key, UID: "u", ResourceVersion: version, Object: after}
				}
				var created, left atomic.Int32
				cache.Of(inf).Await(write("11", "a"), func() { created.Add(1) })
				last := write("12", "b")
				last.Deleted = deleted
				cache.Of(inf).Await(last, func() { left.Add(1) })
				expectSeen(t, "the creation, before", &created, 0)
				expectSeen(t, "the end, before", &left, 0)
				send(t, events, "ADDED", "new", "11")
				expectSeen(t, "the creation, with its event", &created, 1)
				expectSeen(t, "the end, with the creation's event", &left, 0)
				send(t, events, "DELETED", "new", "12")
				expectSeen(t, "the end, with its event", &left, 1)
				_ = events.Close() // never fails
			})
		})
	}
}

// A written object whose fields are not known may be selected by them: the informer cannot decode its protobuf.
func TestAwaitOfUnknownFields(t *testing.T) {
	t.Run("metadata", awaitsUnknownFields[*metav1.PartialObjectMetadata])
	t.Run("unstructured", awaitsUnknownFields[*unstructured.Unstructured])
}

func awaitsUnknownFields[T kube.Object](t *testing.T) {
	t.Helper()
	written, err := wire.FromObject(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new", UID: "u", ResourceVersion: "11"},
		Data:       map[string]string{"color": "red"},
	}, nil)
	if err != nil || written.Format != wire.Protobuf {
		t.Fatal(written, err)
	}
	synctest.Test(t, func(t *testing.T) {
		cluster, events := selected(t)
		inf, err := informer.New(informer.Config[T]{Retriever: informer.RetrieveSelected[T](cluster, kube.Selection{
			FieldSelector: "data.color=red", Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer inf.Join(t.Context())()
		synctest.Wait()
		var seen atomic.Int32
		cache.Of(inf).Await(cache.Write{Key: written.Key, UID: "u", ResourceVersion: "11", Object: written}, func() { seen.Add(1) })
		expectSeen(t, "before", &seen, 0)
		send(t, events, "ADDED", "new", "11")
		expectSeen(t, "after", &seen, 1)
		_ = events.Close() // never fails
	})
}
