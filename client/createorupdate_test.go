package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/compat"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestUnstructuredObjectsWithInts: DeepCopy of an unstructured object panics for an int.
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
		want string // the suffix of the last request
	}{
		"create": {func() error { return first(client.Create(t.Context(), c, written())) }, body},
		"update": {func() error { return first(client.Update(t.Context(), c, written())) }, body},
		"create or update": {func() error {
			return first(compat.CreateOrUpdate(t.Context(), c, written(), func(u *unstructured.Unstructured) error {
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
			return first(client.Update(t.Context(), c, scale, client.SubresourceOf(database(), "scale")))
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

// TestStatusIsWrittenAfterKindsAreForgotten: another request may have dropped the discovery because of a missing kind.
func TestStatusIsWrittenAfterKindsAreForgotten(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		return r.Method == http.MethodPatch && echo(w, r, body)
	}
	_, err := compat.CreateOrPatch(t.Context(), c, database(), func(set *appsv1.StatefulSet) error {
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

// TestUpdateKeepsFieldsUnknownToInformersType: callers use unstructured objects to keep such fields.
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
	c = with(t, c, func(config *client.Config) { config.Informers = shows(databases(true, "*")) })
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
	written, err := compat.CreateOrUpdate(t.Context(), c, set, label("db"))
	if err != nil || written.Outcome != client.Unchanged || server.log() != nil {
		t.Fatalf("%s, %v; the requests are %q", written.Outcome, err, server.log())
	}
	if written, err = compat.CreateOrUpdate(t.Context(), c, set, label("other")); err != nil {
		t.Fatal(err)
	}
	if newer, _, _ := unstructured.NestedString(written.Object.Object, "spec", "newer"); newer == "" || !cmp.Equal(server.verbs(), []string{http.MethodGet, http.MethodPut}) {
		t.Errorf("the requests are %q", server.log())
	}
	// An informer of unstructured objects has all fields of every type.
	shown := databases(true, "*")
	shown.model, shown.objects = &unstructured.Unstructured{}, []kube.Object{written.Object}
	c = with(t, c, func(config *client.Config) { config.Informers = shows(shown) })
	_, err = compat.CreateOrUpdate(t.Context(), c, database(), func(set *appsv1.StatefulSet) error {
		set.Labels = nil
		return nil
	})
	if err != nil || !cmp.Equal(server.verbs(), []string{http.MethodGet, http.MethodPut, http.MethodPut}) {
		t.Errorf("%v; the requests are %q", err, server.log())
	}
}

// TestCreateOrPatchWritesStatusOfNewObject: if another client writes the object between the two requests, the status is
// patched again, and the outcome stays Created.
func TestCreateOrPatchWritesStatusOfNewObject(t *testing.T) {
	t.Parallel()
	const (
		all    = "/apis/apps/v1/namespaces/shop/deployments"
		one    = all + "/web"
		status = one + "/status"
	)
	for name, test := range map[string]struct {
		write    bool
		requests []string
	}{
		"no other client": {false, []string{"GET " + one, "POST " + all, "PATCH " + status}},
		"another client":  {true, []string{"GET " + one, "POST " + all, "PATCH " + status, "GET " + one, "PATCH " + status}},
	} {
		s := newWaitServer(t)
		s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if test.write && req.Method == http.MethodPatch {
				test.write = false
				s.Edit("deployments", webKey(), "other", func(obj map[string]any) bool {
					(&unstructured.Unstructured{Object: obj}).SetLabels(map[string]string{"theirs": "1"})
					return true
				})
			}
			return do(), nil
		})
		web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		written, err := compat.CreateOrPatch(t.Context(), s.client, web, func(web *appsv1.Deployment) error {
			web.Status.Replicas = 3
			return nil
		})
		if err != nil || written.Outcome != client.Created || !written.StatusUpdated || written.Changed != nil || written.Object.Status.Replicas != 3 {
			t.Errorf("%s: %v; %+v", name, err, written)
		}
		if diff := cmp.Diff(test.requests, s.Requests()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
}

// TestCreateOrUpdateOfObjectThatCannotBeEncoded does not call mutate with a part of the object.
func TestCreateOrUpdateOfObjectThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	broken := widget()
	broken.SetName("new")
	broken.Object["spec"] = func() {}
	_, err := compat.CreateOrUpdate(t.Context(), c, broken, func(u *unstructured.Unstructured) error {
		t.Errorf("mutate was called with %v", u)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "encode the object") {
		t.Errorf("the error is %v", err)
	}
}
