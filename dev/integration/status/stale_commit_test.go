package status_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/status"
)

// runStale runs a handler that sets Ready, under middleware.Status, with a stale state of the Shop.
func (e env) runStale(shop *Shop, c *client.Client, value metav1.ConditionStatus, message string, since time.Time) error {
	handler := controller.Chain(func(_ context.Context, shop *Shop) error {
		status.Set(&shop.Status.Conditions, metav1.Condition{
			Type: "Ready", Status: value, ObservedGeneration: shop.Generation, Reason: "Run", Message: message, LastTransitionTime: metav1.NewTime(since),
		})
		return nil
	}, middleware.Status(c, middleware.StatusOptions[*Shop]{
		SetObservedGeneration: func(shop *Shop, generation int64) { shop.Status.ObservedGeneration = generation },
	}))
	return handler(e.Context(), shop.copy())
}

// A run after a lost response, or of another replica after a handover, starts with a stale state. It must not change
// what was written since: the lastTransitionTime, and conditions of a later generation.
func TestStaleCommitsOnServer(t *testing.T) {
	e := newEnv(t)
	losing, err := e.Client.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				return errors.Join(next(ctx, r), context.DeadlineExceeded)
			}
		}, client.VerbPatch)}
	})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	e.create("books")
	if err := e.runStale(e.live("books"), e.Client, metav1.ConditionFalse, "", first); err != nil {
		t.Fatal(err)
	}
	old := e.live("books")
	if err := e.runStale(old, losing, metav1.ConditionTrue, "", first.Add(time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the response was lost, and the error is %v", err)
	}
	for n := range 3 {
		message := fmt.Sprint("again ", n/2) // two runs have the same message
		if err := e.runStale(old, e.Client, metav1.ConditionTrue, message, first.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		got := cmp.Or(meta.FindStatusCondition(e.live("books").Status.Conditions, "Ready"), &metav1.Condition{})
		if got.Message != message || got.Status != metav1.ConditionTrue || !got.LastTransitionTime.Time.Equal(first.Add(time.Hour)) {
			t.Errorf("run %d: %+v, want the transition at %s", n, got, first.Add(time.Hour))
		}
	}

	before := e.live("books")
	changed, err := client.Patch(t.Context(), e.Client, before, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":2}}`)))
	if err != nil || changed.Generation <= before.Generation {
		t.Fatalf("generation %d after %d: %v", changed.Generation, before.Generation, err)
	}
	if err := e.runStale(changed, e.Client, metav1.ConditionFalse, "of the later generation", first.Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	want := e.live("books")
	for _, stale := range []*Shop{old, before} {
		if err := e.runStale(stale, e.Client, metav1.ConditionTrue, "of the earlier generation", first.Add(4*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if now := e.live("books"); now.ResourceVersion != want.ResourceVersion {
			t.Errorf("the status of the later generation was changed: %+v", now.Status)
		}
	}
}
