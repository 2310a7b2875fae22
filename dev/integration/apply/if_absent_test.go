package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Apply with IfAbsent creates a missing object and does not change an existing one, in a dry run too. It makes one
// request for a built-in kind, and two for a custom kind.
func TestApplyIfAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := installKind(t, w, "Lamp", true)
	for name, test := range map[string]struct {
		object kube.Object
		custom bool
	}{
		"ConfigMap":       {object: w.configMap("object", map[string]string{"mode": "fast"})},
		"Deployment":      {object: w.deployment("object", "shop:1")},
		"custom resource": {object: custom(w, kind, "object", map[string]any{"size": int64(3)}), custom: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, requests := watched(t)
			create, refused := []string{"patch"}, []string{"patch"}
			dry := []string{"patch (dry run)"}
			if test.custom {
				create, refused, dry = []string{"get", "patch"}, []string{"get"}, []string{"get", "patch (dry run)"}
			}
			applied(ctx, t, w.c, client.Created, test.object, client.IfAbsent(), client.DryRun())
			requests.want(t, dry...)
			if _, err := client.Get[*unstructured.Unstructured](t.Context(), w.c, kube.KeyOf(test.object), client.OfKind(must(w.cluster.KindOf(test.object))(t))); !errors.Is(err, client.ErrGone) {
				t.Fatalf("after the dry run: %v", err)
			}

			created := applied(ctx, t, w.c, client.Created, test.object, client.IfAbsent()).Object
			requests.want(t, create...)
			if encoded := string(must(json.Marshal(created.GetManagedFields()))(t)); strings.Contains(encoded, "f:resourceVersion") {
				t.Errorf("the field owner owns the resourceVersion: %s", encoded)
			}

			for _, owner := range []string{"tests", "another"} {
				for _, options := range [][]client.WriteOption{{client.IfAbsent()}, {client.IfAbsent(), client.DryRun()}} {
					_, err := client.Apply(t.Context(), w.as(t, owner), test.object, options...)
					if !errors.Is(err, client.ErrExists) || !apierrors.IsAlreadyExists(err) {
						t.Errorf("field owner %s: the error is %v", owner, err)
					}
				}
			}
			_, err := client.Apply(ctx, w.c, test.object, client.IfAbsent())
			requests.want(t, refused...)
			if !errors.Is(err, client.ErrExists) {
				t.Errorf("the error is %v", err)
			}
			now := must(client.Get[*unstructured.Unstructured](t.Context(), w.c, kube.KeyOf(test.object), client.OfKind(must(w.cluster.KindOf(test.object))(t))))(t)
			if now.GetResourceVersion() != created.GetResourceVersion() {
				t.Error("the object was changed")
			}
		})
	}
}

// An existing object that another manager has applied with other values is not changed either.
func TestApplyIfAbsentOverOtherValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created := applied(t.Context(), t, w.as(t, "another"), client.Created, w.configMap("object", map[string]string{"mode": "slow"})).Object
	_, err := client.Apply(t.Context(), w.c, w.configMap("object", map[string]string{"mode": "fast"}), client.IfAbsent())
	if !errors.Is(err, client.ErrExists) {
		t.Errorf("the error is %v", err)
	}
	now := must(client.Get[*unstructured.Unstructured](t.Context(), w.c, kube.KeyOf(created), client.OfKind(must(w.cluster.KindOf(created))(t))))(t)
	if now.GetResourceVersion() != created.ResourceVersion {
		t.Error("the object was changed")
	}
}

// After IfAbsent has created an object, the next apply of the same configuration makes no request.
func TestApplyAfterIfAbsentMakesNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*unstructured.Unstructured](t, w, must(w.cluster.KindOf(w.deployment("web", "")))(t))
	created := applied(t.Context(), t, c, client.Created, w.deployment("web", "shop:1"), client.IfAbsent()).Object
	shows(created)
	ctx, requests := watched(t)
	applied(ctx, t, c, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t)
}

// If several clients create an object at the same time, exactly one creates it.
func TestApplyIfAbsentCreatesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := installKind(t, w, "Torch", false)
	for round := range 10 {
		for _, obj := range []kube.Object{
			w.configMap(fmt.Sprint("object-", round), map[string]string{"mode": "fast"}),
			custom(w, kind, fmt.Sprint("object-", round), map[string]any{"size": int64(3)}),
		} {
			const clients = 4
			errs := make([]error, clients)
			var all sync.WaitGroup
			for n := range clients {
				c := w.as(t, fmt.Sprint("manager-", n))
				all.Go(func() { _, errs[n] = client.Apply(t.Context(), c, obj, client.IfAbsent()) })
			}
			all.Wait()
			created := 0
			for _, err := range errs {
				switch {
				case err == nil:
					created++
				case !errors.Is(err, client.ErrExists):
					t.Errorf("the error is %v", err)
				}
			}
			if created != 1 {
				t.Errorf("%T: created %d times", obj, created)
			}
		}
	}
}

// A namespace that does not exist, or is being deleted, is an error, not an existing object.
func TestApplyIfAbsentInMissingNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lost := w.configMap("object", nil)
	lost.Namespace = "no-such-namespace"
	if _, err := client.Apply(t.Context(), w.c, lost, client.IfAbsent()); !errors.Is(err, client.ErrNoNamespace) || errors.Is(err, client.ErrExists) {
		t.Errorf("the error is %v", err)
	}
}

func TestApplyIfAbsentRefusedWithoutRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	named := w.configMap("object", nil)
	named.UID, named.ResourceVersion = "u1", "7"
	for want, options := range map[string][]client.WriteOption{
		"IfUnchanged exclude":     {client.IfAbsent(), client.IfUnchanged()},
		"Force exclude":           {client.IfAbsent(), client.Force()},
		"status is a subresource": {client.IfAbsent(), client.Subresource("status")},
		"has a uid":               {client.IfAbsent()},
	} {
		ctx, requests := watched(t)
		if _, err := client.Apply(ctx, w.c, named, options...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
		requests.want(t)
	}
}
