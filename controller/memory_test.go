package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/fakeapi"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestNothingIsKeptOfObjectsThatAreGone lets objects come, be handled in all the ways there are,
// and go, and looks at what the loop remembers.
func TestNothingIsKeptOfObjectsThatAreGone(t *testing.T) {
	type config = Config[*corev1.ConfigMap]
	fail := errors.New("no")
	for name, set := range map[string]func(c *config){
		"handler": func(c *config) {
			c.Handler = HandlerFunc[*corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) error { return nil })
		},
		"handler that sets timers, and a hook": func(c *config) {
			c.Handler = HandlerFunc[*corev1.ConfigMap](func(ctx context.Context, _ *corev1.ConfigMap) error {
				return SetTimer(ctx, "t", time.Hour)
			})
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return nil }
		},
		"handler and hook that fail": func(c *config) {
			c.Handler = HandlerFunc[*corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) error { return fail })
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return Terminal(fail) }
		},
		"hook that is given up": func(c *config) {
			c.Handler = HandlerFunc[*corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) error { return nil })
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return fail }
			c.Retry.Every.MaxRetries = 1
		},
		"hook, and a predicate that drops deletions": func(c *config) {
			c.Handler = HandlerFunc[*corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) error { return Terminal(fail) })
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return nil }
			c.Predicate = func(c informer.Change) bool { return c.Type != informer.Deleted }
		},
		"reconciler": func(c *config) {
			c.Reconciler = ReconcilerFunc(func(context.Context, kube.Key) error { return nil })
		},
		"reconciler that is given up": func(c *config) {
			c.Reconciler = ReconcilerFunc(func(context.Context, kube.Key) error { return fail })
			c.Retry.Every.MaxRetries = 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakeapi.New[*corev1.ConfigMap](func() runtime.Object { return &corev1.ConfigMapList{} }, true)
				c := config{Name: "test", Retriever: server, Logger: slog.New(slog.DiscardHandler)}
				set(&c)
				ctrl, err := New(c)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- ctrl.Run(ctx) }() // waited for below
				synctest.Wait()
				for i := range 20 {
					name := fmt.Sprint("c", i)
					server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
					time.Sleep(time.Second)
					server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"a": "b"}})
					time.Sleep(time.Second)
					server.Delete(kube.Key{Namespace: "ns", Name: name})
				}
				time.Sleep(time.Hour)
				synctest.Wait() // also for the race detector
				l := ctrl.loop
				if len(l.successes.at) != 0 || len(l.failures.keys) != 0 || len(l.ends.keys) != 0 || len(l.timers.keys) != 0 || len(l.troubles.open) != 0 {
					t.Errorf("of objects that are gone are kept: %d successes, %d failures, %d ends, %d timers, %d troubles",
						len(l.successes.at), len(l.failures.keys), len(l.ends.keys), len(l.timers.keys), len(l.troubles.open))
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestNoPauseIsKeptOfAKeyThatNeverRunsAgain: the pause of a hot loop is looked at before a run.
func TestNoPauseIsKeptOfAKeyThatNeverRunsAgain(t *testing.T) {
	t.Parallel()
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Retriever: fakeapi.New[*corev1.ConfigMap](func() runtime.Object { return &corev1.ConfigMapList{} }, true),
		Handler: HandlerFunc[*corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) error { return nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	l, now := newLoop(ctrl), time.Now()
	l.pauses[kube.Key{Name: "over"}], l.pauses[kube.Key{Name: "lasting"}] = now.Add(-time.Second), now.Add(time.Second)
	l.endHotLoops(now)
	if _, lasts := l.pauses[kube.Key{Name: "lasting"}]; len(l.pauses) != 1 || !lasts {
		t.Errorf("kept: %v", l.pauses)
	}
}

// TestManyTroublesDoNotHideAStuckHandler: readiness and metrics read it from the troubles, of which
// only so many are kept.
func TestManyTroublesDoNotHideAStuckHandler(t *testing.T) {
	t.Parallel()
	all := troubles{open: map[troubleID]Trouble{}}
	all.begun(func(context.Context, Trouble, bool) {})
	for i := range 2 * maxTroubles {
		all.begin(t.Context(), Trouble{Type: TroubleStalled, Key: kube.Key{Name: fmt.Sprint(i)}}, true)
	}
	all.begin(t.Context(), Trouble{Type: TroubleStuck, Key: kube.Key{Name: "a"}}, true)
	all.begin(t.Context(), Trouble{Type: TroubleQueueGrowing}, true)
	counts := all.counts()
	if counts[TroubleStalled] != maxTroubles || counts[TroubleStuck] != 1 || counts[TroubleQueueGrowing] != 1 {
		t.Errorf("kept: %v", counts)
	}
}

// TestAStuckWorkerIsReplacedWhileTheTermLasts, and no more often than is allowed: the drain waits
// for the workers that there are when it begins.
func TestAStuckWorkerIsReplacedWhileTheTermLasts(t *testing.T) {
	t.Parallel()
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Workers: 2,
		Retriever: fakeapi.New[*corev1.ConfigMap](func() runtime.Object { return &corev1.ConfigMapList{} }, true),
		Handler:   HandlerFunc[*corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) error { return nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(ctrl)
	t.Cleanup(func() { l.queue.ShutDown(); l.working.Wait() })
	l.startWorker(t.Context())
	l.startWorker(t.Context())
	for n := 2; n < 2*(1+replacements); n++ {
		if ended, replaced := l.replace(t.Context(), &worker{}); ended || !replaced {
			t.Errorf("with %d workers: ended %v, replaced %v", n, ended, replaced)
		}
	}
	if ended, replaced := l.replace(t.Context(), &worker{}); ended || replaced {
		t.Errorf("with %d workers: ended %v, replaced %v", len(l.workers), ended, replaced)
	}
	l.ending = true
	l.mu.Lock()
	clear(l.workers)
	l.mu.Unlock()
	if ended, replaced := l.replace(t.Context(), &worker{}); !ended || replaced {
		t.Errorf("while the term ends: ended %v, replaced %v", ended, replaced)
	}
}
