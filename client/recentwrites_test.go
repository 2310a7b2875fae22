package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// appliedShelf is an informer that shows one ConfigMap and the fields that "me" has applied to it.
type appliedShelf struct {
	cache.Informer
	object *corev1.ConfigMap
}

func (appliedShelf) ReadsFrom(string) bool { return true }

func (appliedShelf) Name() string { return "applied" }
func (appliedShelf) Kind() schema.GroupVersionKind {
	return corev1.SchemeGroupVersion.WithKind("ConfigMap")
}
func (appliedShelf) Covers(string, labels.Selector) bool { return true }
func (appliedShelf) NewObject() (kube.Object, bool)      { return &corev1.ConfigMap{}, true }

func (s appliedShelf) Metadata() cache.Reader { return s }

func (s appliedShelf) Object(kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	return s.object.DeepCopy(), &metav1.ManagedFieldsEntry{
		Manager: "me", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:mode":{}}}`),
	}, true, nil
}

// An informer may not show the client's own recent write yet. Until it certainly does, Apply must not rely on an
// informer that shows the object as desired.
func TestApplyIgnoresStaleInformerAfterOwnWrite(t *testing.T) {
	t.Parallel()
	config := func(mode string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Data: map[string]string{"mode": mode}}
	}
	shown := config("fast")
	shown.UID, shown.ResourceVersion = "u1", "7"
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"mode":"slow"}}`))
	for name, test := range map[string]struct {
		write func(ctx context.Context, c *client.Client) error
		sends bool
		uid   types.UID // of the object that requests return; default: that of shown
	}{
		"nothing":    {func(context.Context, *client.Client) error { return nil }, false, ""},
		"a deletion": {func(ctx context.Context, c *client.Client) error { return client.Delete(ctx, c, shown) }, true, ""},
		"a patch": {func(ctx context.Context, c *client.Client) error {
			_, err := client.Patch(ctx, c, shown, patch)
			return err
		}, true, ""},
		"a deletion of all": {func(ctx context.Context, c *client.Client) error {
			return client.DeleteAllOf[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "a=b"})
		}, true, ""},
		"an apply of something else": {func(ctx context.Context, c *client.Client) error {
			_, err := client.Apply(ctx, c, config("slow"))
			return err
		}, true, ""},
		"an apply of something else to a new object of the name": {func(ctx context.Context, c *client.Client) error {
			_, err := client.Apply(ctx, c, config("slow"))
			return err
		}, true, "u2"},
		"an apply of something else and a conflict": {func(ctx context.Context, c *client.Client) error {
			if _, err := client.Apply(ctx, c, config("slow")); err != nil {
				return err
			}
			var conflict *client.ConflictError
			if _, err := client.Apply(ctx, c, config("conflict")); !errors.As(err, &conflict) {
				return fmt.Errorf("want a conflict, got %w", err)
			}
			return nil
		}, true, ""},
		"a forced apply in another name": {func(ctx context.Context, c *client.Client) error {
			_, err := client.Apply(ctx, c, config("slow"), client.Force(), client.FieldOwner("other"))
			return err
		}, true, ""},
		"a patch of the status": {func(ctx context.Context, c *client.Client) error {
			_, err := client.Patch(ctx, c, shown, patch, client.Subresource("status"))
			return err
		}, false, ""},
		"a patch of another object": {func(ctx context.Context, c *client.Client) error {
			other := config("slow")
			other.Name = "other"
			_, err := client.Patch(ctx, c, other, patch)
			return err
		}, false, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := apitest.New(apiserver.ConfigMaps())
			cluster, err := kube.Connect(server.Config("test"))
			if err != nil {
				t.Fatal(err)
			}
			requests := 0
			c, err := client.New(client.Config{
				Cluster: cluster, FieldOwner: "me", Informers: shows(appliedShelf{object: shown}),
				Interceptors: []client.Interceptor{func(client.RoundTrip) client.RoundTrip {
					return func(_ context.Context, r *client.Request) error {
						requests++
						r.Status = http.StatusOK
						if strings.Contains(string(r.Body), `"conflict"`) {
							return &apierrors.StatusError{ErrStatus: metav1.Status{
								Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
								Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
									Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "x"`, Field: ".data.mode",
								}}},
							}}
						}
						if response, ok := r.Response.(*corev1.ConfigMap); ok {
							*response = *config("slow")
							response.UID, response.ResourceVersion = cmp.Or(test.uid, shown.UID), "9"
						}
						return nil
					}
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			sends := func() bool {
				before := requests
				if _, err := client.Apply(t.Context(), c, config("fast")); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return requests > before
			}
			if sends() {
				t.Errorf("%s: what the informer shows as applied is applied again", name)
			}
			if err := test.write(t.Context(), c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			time.Sleep(30 * time.Second)
			if got := sends(); got != test.sends {
				t.Errorf("after %s: a request was made: %t, want %t", name, got, test.sends)
			}
		})
	}
}
