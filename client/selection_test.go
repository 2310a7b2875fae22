package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// selecting are all functions that accept a selection.
func selecting[T kube.Object]() map[string]func(context.Context, *client.Client, kube.Selection) error {
	return map[string]func(context.Context, *client.Client, kube.Selection) error{
		"List": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			for _, err := range client.List[T](ctx, c, s) {
				return err
			}
			return nil
		},
		"All": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			_, err := client.All[T](ctx, c, s)
			return err
		},
		"Keys": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			_, err := client.Keys[T](ctx, c, s)
			return err
		},
		"ListPage": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			_, err := client.ListPage[T](ctx, c, s, "")
			return err
		},
		"Watch": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			w, err := client.Watch[T](ctx, c, s)
			if err == nil {
				w.Stop()
			}
			return err
		},
		"WaitForNone": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			s.LabelSelector = "copy=none"
			return client.WaitForNone[T](ctx, c, s, client.Timeout(time.Minute))
		},
		"WaitForObjects": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			_, err := client.WaitForObjects[T](ctx, c, s, 1, nil, client.Timeout(time.Minute))
			return err
		},
		"DeleteAllOf": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			return client.DeleteAllOf[T](ctx, c, s)
		},
		"DeleteMatching": func(ctx context.Context, c *client.Client, s kube.Selection) error {
			_, err := client.DeleteMatching(ctx, c, s, func(T) (bool, error) { return true, nil })
			return err
		},
	}
}

// A namespace that was computed from an empty value never selects all namespaces.
func TestEmptyNamespaceSelectsNothing(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	before := len(s.keys(t))
	for name, call := range selecting[*corev1.ConfigMap]() {
		for _, namespaces := range [][]string{{""}, {"shop", ""}} {
			err := call(t.Context(), s.client, copiesIn(namespaces...))
			if err == nil || len(namespaces) == 1 && !strings.Contains(err.Error(), "kube.AllNamespaces selects all") {
				t.Errorf("%s in %q: %v", name, namespaces, err)
			}
		}
	}
	if after := len(s.keys(t)); after != before {
		t.Errorf("%d of %d objects are left", after, before)
	}
	_, c := newServer(t)
	_, err := client.All[*corev1.Node](t.Context(), c, kube.Selection{Namespaces: []string{""}})
	if err != nil && strings.Contains(err.Error(), "kube.AllNamespaces") {
		t.Errorf("a cluster-scoped kind: %v", err)
	}
}

func TestAllNamespaces(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	limited, err := s.client.With(func(c *client.Config) { c.Namespace = "shop" })
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range selecting[*corev1.ConfigMap]() {
		if err := call(t.Context(), limited, copiesIn(kube.AllNamespaces)); err == nil || !strings.Contains(err.Error(), "namespace shop only") {
			t.Errorf("%s with Config.Namespace: %v", name, err)
		}
		if err := call(t.Context(), s.client, copiesIn(kube.AllNamespaces, "shop")); err == nil {
			t.Errorf("%s accepts AllNamespaces beside another one", name)
		}
		if name == "DeleteMatching" {
			continue // the last call
		}
		if err := call(t.Context(), s.client, copiesIn(kube.AllNamespaces)); (err == nil) != (name != "DeleteAllOf") {
			t.Errorf("%s: %v", name, err)
		}
	}
	matching := selecting[*corev1.ConfigMap]()["DeleteMatching"]
	if err := matching(t.Context(), s.client, copiesIn()); err == nil || !strings.Contains(err.Error(), "AllNamespaces") || len(s.keys(t)) != 8 {
		t.Errorf("no namespace: %v; left: %q", err, s.keys(t))
	}
	all := kube.Selection{Namespaces: []string{kube.AllNamespaces}, FieldSelector: "metadata.name!="}
	if err := matching(t.Context(), s.client, all); err != nil || len(s.keys(t)) != 0 {
		t.Errorf("%v; left: %q", err, s.keys(t))
	}
}

// Lists read several namespaces in the order of the selection. Calls that make one list or watch reject them.
func TestSeveralNamespaces(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	selection := copiesIn("shop", "bank", "shop")
	all, err := client.All[*corev1.ConfigMap](t.Context(), s.client, selection, client.PageSize(2), client.FromAPI())
	want := []string{"shop/a", "shop/b", "shop/c", "bank/a", "bank/b", "bank/c"}
	if diff := cmp.Diff(want, keysOf(all)); diff != "" || err != nil {
		t.Errorf("All: %v (-want +got):\n%s", err, diff)
	}
	var listed []*corev1.ConfigMap
	for obj, err := range client.List[*corev1.ConfigMap](t.Context(), s.client, selection, client.PageSize(2), client.FromAPI()) {
		if err != nil {
			t.Fatal(err)
		}
		if listed = append(listed, obj); len(listed) == 4 {
			break
		}
	}
	if diff := cmp.Diff(want[:4], keysOf(listed)); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if keys, err := client.Keys[*corev1.ConfigMap](t.Context(), s.client, selection, client.FromAPI()); err != nil || len(keys) != 6 {
		t.Errorf("Keys: %v, %v", keys, err)
	}
	s.Requests()
	for _, name := range []string{"ListPage", "Watch", "WaitForNone", "WaitForObjects"} {
		err := selecting[*corev1.ConfigMap]()[name](t.Context(), s.client, copiesIn("shop", "bank"))
		if err == nil || !strings.Contains(err.Error(), "2 Namespaces") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if requests := s.Requests(); len(requests) > 0 {
		t.Errorf("the requests are %q", requests)
	}
	if err := client.DeleteAllOf[*corev1.ConfigMap](t.Context(), s.client, selection); err != nil || len(s.keys(t)) != 2 {
		t.Errorf("DeleteAllOf: %v; left: %q", err, s.keys(t))
	}
}
