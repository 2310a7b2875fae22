package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// selecting are all functions that accept a selection.
func selecting[T kube.Object]() map[string]func(context.Context, *client.Client, client.DeleteAllOfOption) error {
	asList := func(o client.DeleteAllOfOption) client.ListOption { return o.(client.ListOption) }
	return map[string]func(context.Context, *client.Client, client.DeleteAllOfOption) error{
		"List": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			for _, err := range client.List[T](ctx, c, asList(o)) {
				return err
			}
			return nil
		},
		"All": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			_, err := client.All[T](ctx, c, asList(o))
			return err
		},
		"Keys": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			_, err := client.Keys[T](ctx, c, asList(o))
			return err
		},
		"ListPage": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			_, err := client.ListPage[T](ctx, c, "", asList(o))
			return err
		},
		"Watch": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			w, err := client.Watch[T](ctx, c, o.(client.WatchOption))
			if err == nil {
				w.Stop()
			}
			return err
		},
		"WaitForNone": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			return client.WaitForNone[T](ctx, c, o.(client.WaitObjectsOption), client.LabelSelector("copy=none"), client.Timeout(time.Minute))
		},
		"WaitForObjects": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			_, err := client.WaitForObjects[T](ctx, c, 1, nil, o.(client.WaitObjectsOption), client.Timeout(time.Minute))
			return err
		},
		"DeleteAllOf": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			return client.DeleteAllOf[T](ctx, c, o)
		},
		"DeleteMatching": func(ctx context.Context, c *client.Client, o client.DeleteAllOfOption) error {
			_, err := client.DeleteMatching(ctx, c, func(T) (bool, error) { return true, nil }, o)
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
		err := call(t.Context(), s.client, client.InNamespace(""))
		if err == nil || !strings.Contains(err.Error(), "InNamespace") || !strings.Contains(err.Error(), "AllNamespaces") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := len(s.keys(t)); after != before {
		t.Errorf("%d of %d objects are left", after, before)
	}
	_, c := newServer(t)
	if _, err := client.All[*corev1.Node](t.Context(), c, client.InNamespace("")); err != nil && strings.Contains(err.Error(), "InNamespace") {
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
		if err := call(t.Context(), limited, client.AllNamespaces()); err == nil || !strings.Contains(err.Error(), "namespace shop only") {
			t.Errorf("%s with Config.Namespace: %v", name, err)
		}
		if name == "DeleteMatching" {
			continue // the last call
		}
		if err := call(t.Context(), s.client, client.AllNamespaces()); (err == nil) != (name != "DeleteAllOf") {
			t.Errorf("%s: %v", name, err)
		}
	}
	matching := selecting[*corev1.ConfigMap]()["DeleteMatching"]
	if err := matching(t.Context(), s.client, isCopy()); err == nil || !strings.Contains(err.Error(), "AllNamespaces") || len(s.keys(t)) != 8 {
		t.Errorf("no namespace: %v; left: %q", err, s.keys(t))
	}
	if _, err := client.All[*corev1.ConfigMap](t.Context(), s.client, client.AllNamespaces(), client.InNamespace("shop")); err == nil {
		t.Error("both options are accepted")
	}
	if err := matching(t.Context(), s.client, client.AllNamespaces()); err != nil || len(s.keys(t)) != 0 {
		t.Errorf("%v; left: %q", err, s.keys(t))
	}
}
