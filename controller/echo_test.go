package controller_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestContract13_NoOpWriteIsNotAnOwnWrite checks a handler that, while its cache lags, gets the live object and
// writes it back unchanged. The response has the version of another client's write. The handler has not seen that
// change yet.
func TestContract13_NoOpWriteIsNotAnOwnWrite(t *testing.T) {
	for name, write := range map[string]func(ctx context.Context, w *world, live *unstructured.Unstructured) error{
		"update": func(ctx context.Context, w *world, live *unstructured.Unstructured) error {
			_, err := w.objects("widgets").Update(ctx, live, metav1.UpdateOptions{})
			return err
		},
		"update without a precondition": func(ctx context.Context, w *world, live *unstructured.Unstructured) error {
			live.SetResourceVersion("")
			_, err := w.objects("widgets").Update(ctx, live, metav1.UpdateOptions{})
			return err
		},
		"patch with a precondition": func(ctx context.Context, w *world, live *unstructured.Unstructured) error {
			return w.patch(ctx, "widgets", "a", `{"metadata":{"resourceVersion":"`+live.GetResourceVersion()+`"},"spec":{"value":"foreign"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				first := true
				c := w.config(func(ctx context.Context, widget *unstructured.Unstructured) error {
					value, _, _ := unstructured.NestedString(widget.Object, "spec", "value")
					runs.add("%s", value)
					if !first {
						return nil
					}
					first = false
					w.HoldWatches("widgets")
					w.put("widgets", "a", "foreign")
					live, err := w.objects("widgets").Get(ctx, "a", metav1.GetOptions{})
					if err != nil {
						return err
					}
					return write(ctx, w, live)
				})
				w.put("widgets", "a", "1")
				ctrl := w.run(c)
				synctest.Wait()
				w.ReleaseWatches("widgets")
				time.Sleep(time.Minute)
				if got := runs.take(); !slices.Contains(got, "foreign") {
					t.Errorf("the handler has seen %q, not the change by another client\n%s", got, ctrl.Explain(key("a")))
				}
			})
		})
	}
}
