package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestUnstructuredObjectsWithInts: an int in an unstructured object is none that its DeepCopy knows, and
// panics at.
func TestUnstructuredObjectsWithInts(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		if r.Method == http.MethodGet {
			refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "w"))
			return true
		}
		return echo(w, r, body)
	}
	c = with(t, c, func(config *client.Config) { config.Namespace, config.FieldOwner = "shop", "me" })
	written := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "shop.example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"size": 3, "list": []string{"a"}},
		}}
	}
	scale := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": 3},
	}}
	first := func(_ any, err error) error { return err }
	const body = `{"apiVersion":"shop.example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop"},"spec":{"list":["a"],"size":3}}`
	for name, test := range map[string]struct {
		do   func() error
		want string // the end of the last request
	}{
		"create": {func() error { return first(client.Create(t.Context(), c, written())) }, body},
		"update": {func() error { return first(client.Update(t.Context(), c, written())) }, body},
		"create or update": {func() error {
			return first(client.CreateOrUpdate(t.Context(), c, written(), func(u *unstructured.Unstructured) error {
				u.Object["spec"] = map[string]any{"size": 4}
				return nil
			}))
		}, `"size":4}}`},
		"apply": {func() error { return first(client.Apply(t.Context(), c, written())) }, body},
		"patch": {func() error {
			changed := written()
			changed.Object["spec"] = map[string]any{"size": 5, "list": []string{"a"}}
			return first(client.Patch(t.Context(), c, written(), client.MergeFrom(written(), changed)))
		}, `{"spec":{"size":5}}`},
		"the body of a subresource": {func() error {
			return first(client.UpdateSubresource(t.Context(), c, database(), "scale", scale))
		}, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"db","namespace":"shop"},"spec":{"replicas":3}}`},
	} {
		if err := test.do(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		log := server.log()
		if got := log[len(log)-1]; !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: the request is %s, want %s", name, got, test.want)
		}
	}
	if scale.GetName() != "" {
		t.Error("an argument was changed")
	}
}

// TestSubresourceRequiresConcreteType to be read into.
func TestSubresourceRequiresConcreteType(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))
	_, read := client.GetSubresource[kube.Object](t.Context(), c, database(), "scale")
	_, patched := client.PatchSubresource[kube.Object](t.Context(), c, database(), "scale", patch)
	for _, err := range []error{read, patched} {
		if err == nil || !strings.Contains(err.Error(), "kube.Object is an interface: name the type that is to be made") {
			t.Errorf("the error is %v", err)
		}
	}
	// What is sent has a type, and so has the answer.
	var body kube.Object = &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "u1", ResourceVersion: "7"}}
	if answer, err := client.UpdateSubresource(t.Context(), c, database(), "scale", body); err != nil || answer.GetName() != "db" {
		t.Errorf("the answer is %v, %v", answer, err)
	}
	if got := server.verbs(); !cmp.Equal(got, []string{http.MethodPut}) {
		t.Errorf("the requests are %q", got)
	}
}

// TestLockedRequiresResourceVersion.
func TestLockedRequiresResourceVersion(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	changed := database()
	changed.Labels = map[string]string{"a": "b"}
	for _, nothing := range []metav1.Object{nil, (*appsv1.StatefulSet)(nil)} {
		if _, err := client.Patch(t.Context(), c, database(), client.MergeFrom(database(), changed).Locked(nothing)); err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("the error is %v", err)
		}
	}
	if got := server.log(); got != nil {
		t.Errorf("requests were made all the same: %q", got)
	}
}

// TestNilInformerRejected: a nil pointer is not nil in an interface.
func TestNilInformerRejected(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{Informers: []client.Informer{(*shelf)(nil)}})
	if err == nil || !strings.Contains(err.Error(), "nil is among Informers, at 0") {
		t.Errorf("the error is %v", err)
	}
}

// TestFieldSelectorsAreCombined, as those of labels do: a deletion by the last one would take more than
// was meant.
func TestFieldSelectorsAreCombined(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = echo
	err := client.DeleteAllOf[*corev1.Pod](t.Context(), c, client.InNamespace("shop"),
		client.FieldSelector("spec.nodeName=n1"), client.FieldSelector("status.phase=Failed"))
	if err != nil {
		t.Fatal(err)
	}
	if got := server.log()[0]; !strings.Contains(got, "?fieldSelector=spec.nodeName%3Dn1%2Cstatus.phase%3DFailed ") {
		t.Errorf("the request is %s", got)
	}
}

// TestEmptyNotOlderThanReadsFromAPIServer: the version of an object that did not come from the
// cluster.
func TestEmptyNotOlderThanReadsFromAPIServer(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	c = with(t, c, func(config *client.Config) { config.Informers = []client.Informer{databases(true, "*")} })
	if _, err := client.Get[*appsv1.StatefulSet](t.Context(), c, kube.KeyOf(database()), client.NotOlderThan("")); err != nil {
		t.Error(err)
	}
	if got := server.log(); !cmp.Equal(got, []string{"GET " + databasePath}) {
		t.Errorf("the requests are %q", got)
	}
}

// TestRejectedWatchSetsRequestStatus for interceptors.
func TestRejectedWatchSetsRequestStatus(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		refuse(w, apierrors.NewForbidden(podResource(), "", errors.New("no")))
		return true
	}
	var recording client.Recording
	c = with(t, c, func(config *client.Config) { config.Interceptors = []client.Interceptor{recording.Intercept} })
	if _, err := client.Watch[*corev1.Pod](t.Context(), c); err == nil {
		t.Fatal("it was not refused")
	}
	if got := recording.Requests(); len(got) != 1 || got[0].Status != http.StatusForbidden {
		t.Errorf("recorded is %+v", got)
	}
}

// TestStatusIsWrittenAfterKindsAreForgotten: another request may have met a kind that is gone.
func TestStatusIsWrittenAfterKindsAreForgotten(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		return r.Method == http.MethodPatch && echo(w, r, body)
	}
	_, err := client.CreateOrPatch(t.Context(), c, database(), func(set *appsv1.StatefulSet) error {
		set.Status.Replicas = 5
		c.Cluster().Forget(appsv1.SchemeGroupVersion)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"GET " + databasePath, "PATCH " + databasePath + `/status {"metadata":{"resourceVersion":"7"},"status":{"availableReplicas":0,"replicas":5}}`}
	if got := server.log(); !cmp.Equal(got, want) {
		t.Errorf("the requests are %q, want %q", got, want)
	}
}

// TestListAnsweredByInterceptor.
func TestListAnsweredByInterceptor(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	answers := func(client.RoundTrip) client.RoundTrip {
		return func(_ context.Context, r *client.Request) error {
			return json.Unmarshal([]byte(`{"items":[{"metadata":{"name":"a"}}]}`), r.Answer)
		}
	}
	c = with(t, c, func(config *client.Config) { config.Interceptors = []client.Interceptor{answers} })
	all, err := client.All[*corev1.Pod](t.Context(), c)
	if err != nil || len(all) != 1 || all[0].Name != "a" {
		t.Errorf("the list is %v, %v", all, err)
	}
}

// TestUpdateKeepsFieldsUnknownToInformersType: who writes unstructured objects does so for
// the sake of such fields.
func TestUpdateKeepsFieldsUnknownToInformersType(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.edit(databasePath, func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"app": "db"})
		u.Object["spec"].(map[string]any)["newer"] = "than the type"
	})
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		return r.Method == http.MethodPut && echo(w, r, body)
	}
	c = with(t, c, func(config *client.Config) { config.Informers = []client.Informer{databases(true, "*")} })
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(databases(true, "").kind)
	set.SetNamespace("shop")
	set.SetName("db")
	label := func(value string) func(u *unstructured.Unstructured) error {
		return func(u *unstructured.Unstructured) error {
			u.SetLabels(map[string]string{"app": value})
			return nil
		}
	}
	written, err := client.CreateOrUpdate(t.Context(), c, set, label("db"))
	if err != nil || written.Outcome != client.Unchanged || server.log() != nil {
		t.Fatalf("%s, %v; the requests are %q", written.Outcome, err, server.log())
	}
	if written, err = client.CreateOrUpdate(t.Context(), c, set, label("other")); err != nil {
		t.Fatal(err)
	}
	if newer, _, _ := unstructured.NestedString(written.Object.Object, "spec", "newer"); newer == "" || !cmp.Equal(server.verbs(), []string{http.MethodGet, http.MethodPut}) {
		t.Errorf("the requests are %q", server.log())
	}
	// An informer of unstructured objects knows all that any type does.
	shown := databases(true, "*")
	shown.model, shown.objects = &unstructured.Unstructured{}, []kube.Object{written.Object}
	c = with(t, c, func(config *client.Config) { config.Informers = []client.Informer{shown} })
	_, err = client.CreateOrUpdate(t.Context(), c, database(), func(set *appsv1.StatefulSet) error {
		set.Labels = nil
		return nil
	})
	if err != nil || !cmp.Equal(server.verbs(), []string{http.MethodGet, http.MethodPut, http.MethodPut}) {
		t.Errorf("%v; the requests are %q", err, server.log())
	}
}

// TestWaitForIgnoresOtherObjects: whatever else a server sends that does not know the selector, as
// those of aggregated APIs may not.
func TestWaitForIgnoresOtherObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			query := req.URL.Query()
			query.Del("fieldSelector")
			req.URL.RawQuery = query.Encode()
			return do(), nil
		})
		another := func(name string) {
			s.Edit("deployments", kube.Key{Namespace: "shop", Name: name}, "controller", func(obj map[string]any) bool {
				obj["spec"] = map[string]any{"replicas": int64(3)}
				obj["status"] = map[string]any{
					"observedGeneration": int64(1), "replicas": int64(3), "updatedReplicas": int64(3), "availableReplicas": int64(3),
				}
				return true
			})
		}
		another("before")
		w := s.begin(t.Context(), client.Timeout(time.Minute))
		time.Sleep(time.Second)
		another("other")
		time.Sleep(time.Second)
		s.put(3)
		w.has(t, 2*time.Second)
		if w.obj.Name != "web" {
			t.Errorf("waited for %s", w.obj.Name)
		}
	})
}
