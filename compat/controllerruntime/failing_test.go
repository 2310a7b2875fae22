package controllerruntime_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A Reconciler often returns an error until the status of an object changes that it owns, which here is JSON as a custom
// resource is. That change runs the key at once, also late in a long backoff.
func TestStatusOfOwnedObjectRunsFailingKey(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		mgr := w.newManager(nil)
		newPod := func() *unstructured.Unstructured {
			pod := &unstructured.Unstructured{}
			pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			return pod
		}
		var succeeded time.Time
		r := reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			pod := newPod()
			if err := mgr.GetCache().Get(ctx, req.NamespacedName, pod); err != nil {
				return ctrl.Result{}, err
			}
			if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase != "Running" {
				return ctrl.Result{}, errors.New("the Pod does not run")
			}
			if succeeded.IsZero() {
				succeeded = time.Now()
			}
			return ctrl.Result{}, nil
		})
		w.must(controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(newPod()).Complete(r))
		cm := configMap("shop", "a")
		w.create(cm)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}
		w.must(controllerutil.SetControllerReference(cm, pod, w.user.Scheme()))
		w.create(pod)
		stop := w.run(mgr)
		time.Sleep(20 * time.Minute)
		running := time.Now()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`))
		w.must(w.user.Status().Patch(w.Context(), pod, patch))
		time.Sleep(time.Hour)
		w.must(stop())
		if after := succeeded.Sub(running); after < 0 || after > time.Second {
			w.Errorf("the run that sees the Pod began after %s", after)
		}
	})
}

// Each kind of error has the delays of controller-runtime's rate limiter.
func TestRetriesAreThoseOfControllerRuntime(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"invalid":   apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), "a", nil),
		"forbidden": apierrors.NewForbidden(corev1.Resource("secrets"), "a", nil),
		"conflict":  apierrors.NewConflict(corev1.Resource("secrets"), "a", nil),
		"other":     errors.New("x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbleWithoutCache(t, func(w *world) {
				var delays [2][]time.Duration
				for i, onEngine := range []bool{false, true} {
					mgr := w.newManager(nil)
					var last time.Time
					failing := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
						if !last.IsZero() {
							delays[i] = append(delays[i], time.Since(last).Round(time.Millisecond))
						}
						last = time.Now()
						return ctrl.Result{}, err
					})
					w.must(w.complete(mgr, onEngine, failing))
					if i == 0 {
						w.create(configMap("shop", "a"))
					}
					stop := w.run(mgr)
					time.Sleep(time.Minute)
					w.must(stop())
				}
				if len(delays[0]) < 10 || !slices.Equal(delays[0], delays[1]) {
					w.Errorf("controller-runtime: %s; here: %s", delays[0], delays[1])
				}
			})
		})
	}
}

// A key in a hot loop is reported and held back: if another client reverts each write, and if the Reconciler's own writes
// run it.
func TestHotLoopOfReconciler(t *testing.T) {
	t.Parallel()
	for name, reverted := range map[string]bool{"fight": true, "own writes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbleWithoutCache(t, func(w *world) {
				mgr := w.newManager(nil)
				var runs atomic.Int64
				r := reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
					runs.Add(1)
					var cm corev1.ConfigMap
					if err := mgr.GetClient().Get(ctx, req.NamespacedName, &cm); err != nil {
						return ctrl.Result{}, err
					}
					color := "blue"
					if !reverted {
						time.Sleep(100 * time.Millisecond)
						color = time.Now().Format(time.RFC3339Nano)
					}
					if cm.Data["color"] == color {
						return ctrl.Result{}, nil
					}
					cm.Data = map[string]string{"color": color}
					return ctrl.Result{}, mgr.GetClient().Update(ctx, &cm)
				})
				c, err := controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Build(r)
				w.must(err)
				cm := configMap("shop", "a")
				w.create(cm)
				stop := w.run(mgr)
				red := client.RawPatch(types.MergePatchType, []byte(`{"data":{"color":"red"}}`))
				count := func(d time.Duration) int64 {
					before := runs.Load()
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
						if reverted {
							w.must(w.user.Patch(w.Context(), cm.DeepCopy(), red))
						}
					}
					return runs.Load() - before
				}
				if n := count(10 * time.Minute); n < 10 || n > 60 {
					w.Errorf("%d runs in the first ten minutes", n)
				}
				if n := count(10 * time.Minute); n < 5 || n > 15 {
					w.Errorf("%d runs in the next ten minutes", n)
				}
				if text := c.Explain(kube.KeyOf(cm)); !strings.Contains(text, "hot-loop") {
					w.Errorf("Explain lacks the hot loop:\n%s", text)
				}
				w.must(stop())
			})
		})
	}
}
