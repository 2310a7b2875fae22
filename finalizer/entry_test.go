package finalizer_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
)

const booksPath = "/api/v1/namespaces/town/configmaps/books"

// TestRemoveFromMissingObject: nothing was written to an object that is gone or was replaced.
func TestRemoveFromMissingObject(t *testing.T) {
	t.Parallel()
	for name, replaced := range map[string]bool{"gone": false, "replaced": true} {
		server, c := newServer()
		obj := read[*corev1.ConfigMap](t, c)
		edit(server, func(obj map[string]any) { delete(obj["metadata"].(map[string]any), "finalizers") })
		if replaced {
			edit(server, func(obj map[string]any) {
				obj["metadata"].(map[string]any)["finalizers"] = []any{cleanup}
			})
		}
		if changed, err := finalizer.Remove(t.Context(), c, obj, cleanup); changed || err != nil {
			t.Errorf("%s: changed is %t, %v", name, changed, err)
		}
		if live := server.Object("configmaps", books()); replaced != (live != nil && len(live.GetFinalizers()) == 1) {
			t.Errorf("%s: the object is now %v", name, live)
		}
	}
}

// TestRejectedPatchIsNotRepeated: the object has the state that the patch requires, so a policy has rejected the change
// itself.
func TestRejectedPatchIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ deleting, remove bool }{
		"add": {}, "remove": {remove: true}, "remove during deletion": {deleting: true, remove: true},
	} {
		server, c := newServer()
		if !test.deleting {
			edit(server, func(obj map[string]any) { delete(obj["metadata"].(map[string]any), "finalizers") })
			edit(server, func(obj map[string]any) { obj["metadata"].(map[string]any)["finalizers"] = []any{cleanup} })
		}
		obj := read[*corev1.ConfigMap](t, c)
		server.Requests()
		server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.Method == http.MethodPatch {
				return apitest.Failure(apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "books", nil)), nil
			}
			return do(), nil
		})
		var changed bool
		var err error
		if test.remove {
			changed, err = finalizer.Remove(t.Context(), c, obj, cleanup)
		} else {
			changed, err = finalizer.Add(t.Context(), c, obj, "bank.example.com/audit")
		}
		if changed || !apierrors.IsInvalid(err) {
			t.Errorf("%s: changed is %t, %v", name, changed, err)
		}
		if diff := cmp.Diff([]string{"PATCH " + booksPath, "GET " + booksPath}, server.Requests()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
}

// A conflict says nothing about the finalizers, so the change is made again.
func TestConflictIsRepeated(t *testing.T) {
	t.Parallel()
	server, c := newServer()
	obj := read[*corev1.ConfigMap](t, c)
	patches := 0
	server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodPatch {
			if patches++; patches == 1 {
				return apitest.Failure(apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "books", nil)), nil
			}
		}
		return do(), nil
	})
	if changed, err := finalizer.Remove(t.Context(), c, obj, cleanup); !changed || err != nil || patches != 2 {
		t.Errorf("changed is %t, %v, after %d patches", changed, err, patches)
	}
}

// Options that change nothing in a finalizer, or another part of the object, are an error before any request.
func TestAddRejectsOtherOptions(t *testing.T) {
	t.Parallel()
	server, c := newServer()
	obj := read[*corev1.ConfigMap](t, c)
	server.Requests()
	for name, option := range map[string]client.WriteOption{
		"Subresource": client.Subresource("status"), "Force": client.Force(), "IfUnchanged": client.IfUnchanged(),
	} {
		_, err := finalizer.Add(t.Context(), c, obj, "shop.example.com/other", option)
		if err == nil || !strings.Contains(err.Error(), "option "+name+": this call accepts only") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if requests := server.Requests(); len(requests) > 0 {
		t.Errorf("the requests are %q", requests)
	}
}
