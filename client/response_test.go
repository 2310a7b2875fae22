package client_test

import (
	"errors"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestResponsesAreDecodedIntoCallersType: field names are case-sensitive, whole numbers stay whole, and the kind is
// set.
func TestResponsesAreDecodedIntoCallersType(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"metadata":{"name":"w","namespace":"shop"},"spec":{"Replicas":5,"size":9007199254740993,"share":0.5}}`))
		return true
	}
	set, err := client.Get[*appsv1.StatefulSet](t.Context(), c, kube.Key{Namespace: "shop", Name: "w"})
	if err != nil || set.Spec.Replicas != nil || set.Kind != "StatefulSet" || set.APIVersion != "apps/v1" {
		t.Errorf("typed: %+v, %v", set, err)
	}
	u, err := client.Get[*unstructured.Unstructured](t.Context(), c, kube.Key{Namespace: "shop", Name: "w"}, client.OfKind(widgetKind()))
	if err != nil || u.GroupVersionKind() != widgetKind() {
		t.Fatalf("unstructured: %v, %v", u, err)
	}
	spec := u.Object["spec"].(map[string]any)
	if spec["size"] != int64(9007199254740993) || spec["share"] != 0.5 || spec["Replicas"] != int64(5) {
		t.Errorf("unstructured: %#v", spec)
	}
	m, err := client.Get[*metav1.PartialObjectMetadata](t.Context(), c, kube.Key{Namespace: "shop", Name: "w"}, client.OfKind(widgetKind()))
	if err != nil || m.GroupVersionKind() != widgetKind() || m.Name != "w" {
		t.Errorf("metadata: %v, %v", m, err)
	}
}

// TestStatusResponseHasNoObject: a Status is not decoded into an object of another type.
func TestStatusResponseHasNoObject(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		respond(w, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success", Code: 201})
		return true
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	if got, err := client.Create(t.Context(), c, &corev1.Binding{Target: corev1.ObjectReference{Name: "n1"}}, client.SubresourceOf(pod, "binding")); err != nil || got == nil || got.Kind != "" {
		t.Errorf("the response is %+v, %v", got, err)
	}
	// The type has a struct as its status, into which a string cannot be decoded.
	if got, err := client.Create(t.Context(), c, pod, client.SubresourceOf(pod, "resize")); err != nil || got.Name != "" {
		t.Errorf("the response is %+v, %v", got, err)
	}
}

func TestNotFoundErrors(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	notFound := func(resource, name string) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	create := func(c *client.Client) error { _, err := client.Create(t.Context(), c, pod); return err }
	bind := func(c *client.Client) error {
		_, err := client.Create(t.Context(), c, &corev1.Binding{}, client.SubresourceOf(database(), "scale"))
		return err
	}
	remove := func(c *client.Client) error { return client.Delete(t.Context(), c, database()) }
	status := func(c *client.Client) error {
		_, err := client.Update(t.Context(), c, widget(), client.Subresource("status"))
		return err
	}
	for name, test := range map[string]struct {
		response error
		do       func(c *client.Client) error
		want     error
		missing  bool // IgnoreNotFound ignores it
	}{
		"the namespace":               {notFound("namespaces", "shop"), create, client.ErrNoNamespace, false},
		"what a webhook looked for":   {notFound("secrets", "key"), create, nil, false},
		"the object of a deletion":    {notFound("statefulsets", "db"), remove, client.ErrGone, true},
		"what its webhook looked for": {notFound("secrets", "key"), remove, nil, false},
		"another one of the kind":     {notFound("statefulsets", "other"), remove, nil, false},
		"a webhook says no more":      {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Message: "denied"}}, remove, nil, false},
		"the object":                  {notFound("statefulsets", "db"), bind, client.ErrGone, true},
		"the object, by its part":     {notFound("statefulsets/scale", "db"), bind, client.ErrGone, true},
		"what the body names":         {notFound("secrets", "db"), bind, nil, false},
		"a subresource of the kind":   {notFound("widgets", "w"), status, kube.ErrNotServed, false},
		"the namespace of an update":  {notFound("namespaces", "shop"), status, client.ErrNoNamespace, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				known, _ := errors.AsType[*apierrors.StatusError](test.response)
				copied := *known
				refuse(w, &copied)
				return true
			}
			err := test.do(c)
			for _, sentinel := range []error{client.ErrGone, client.ErrNoNamespace, kube.ErrNotServed} {
				if got, want := errors.Is(err, sentinel), errors.Is(test.want, sentinel); got != want {
					t.Errorf("%v: it is %q: %t, want %t", err, sentinel, got, want)
				}
			}
			if ignored := client.IgnoreNotFound(err) == nil; ignored != test.missing || !apierrors.IsNotFound(err) {
				t.Errorf("%v is ignored: %t, want %t; apimachinery calls it not found: %t", err, ignored, test.missing, apierrors.IsNotFound(err))
			}
		})
	}
}
