package controllerruntime_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestHandlersReceiveEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		old := configMap("shop", "old")
		w.create(old)
		early, registration := w.follow()
		if events := early.take(); registration.HasSynced() || len(events) > 0 {
			w.Error("the handler was called before the start")
		}
		stop := w.start()
		w.wantEvents(early, "add old red true")
		if !registration.HasSynced() || !toolscache.IsDone(registration.HasSyncedChecker()) {
			w.Error("the registration has not synced")
		}
		fresh := configMap("shop", "new")
		w.create(fresh)
		w.wantEvents(early, "add new red false")
		late, _ := w.follow()
		w.paint(old, "blue")
		w.must(w.user.Delete(w.Context(), fresh))
		w.wantEvents(early, "update old red to blue", "delete new red known")
		events := late.take()
		slices.Sort(events[:2])
		want := []string{"add new red true", "add old red true", "update old red to blue", "delete new red known"}
		if !slices.Equal(events, want) {
			w.Errorf("events %q, want %q", events, want)
		}
		stop()
	})
}

// A handler that is registered gets the changes that are made after its registration as changes.
func TestHandlerMissesNothingAfterRegistration(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		cm := configMap("shop", "a")
		w.create(cm)
		w.follow()
		stop := w.start()
		l, _ := w.follow()
		w.must(w.user.Delete(w.Context(), cm))
		w.wantEvents(l, "add a red true", "delete a red known")
		stop()
	})
}

// An object that was deleted and created again while the watch was interrupted is a deletion and an addition.
func TestReplacedObjectIsDeletedAndAdded(t *testing.T) {
	t.Parallel()
	inStartedBubble(t, cache.Options{}, func(w *world, cm *corev1.ConfigMap, l *log) {
		w.withoutWatch(func() {
			w.must(w.user.Delete(w.Context(), cm))
			again := configMap("shop", "a")
			again.Data["color"] = "green"
			w.create(again)
		})
		w.wantEvents(l, "delete a red unknown shop/a", "add a green false")
	})
}

// The last state of an object whose deletion was missed may be unknown.
func TestMissedDeletion(t *testing.T) {
	t.Parallel()
	inStartedBubble(t, cache.Options{}, func(w *world, cm *corev1.ConfigMap, l *log) {
		w.withoutWatch(func() { w.must(w.user.Delete(w.Context(), cm)) })
		w.wantEvents(l, "delete a red unknown shop/a")
	})
}

// Each handler has a queue: a handler that is slow, and reads from the cache, delays neither another one nor the cache.
func TestSlowHandlerDelaysNoOther(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		cm := configMap("shop", "a")
		w.create(cm)
		var calls atomic.Int32
		key := client.ObjectKeyFromObject(cm)
		slow := func() {
			calls.Add(1)
			time.Sleep(time.Hour)
			if err := w.cache.Get(w.Context(), key, &corev1.ConfigMap{}); err != nil {
				w.Error(err)
			}
		}
		w.handle(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { slow() }, UpdateFunc: func(before, after any) {
				if before.(*corev1.ConfigMap).Data["color"] == after.(*corev1.ConfigMap).Data["color"] {
					w.Error("an update without a change")
				}
				slow()
			},
		})
		quick, _ := w.follow()
		stop := w.start()
		w.paint(cm, "blue")
		w.paint(cm, "green")
		w.wantEvents(quick, "add a red true", "update a red to blue", "update a blue to green")
		if got := calls.Load(); got != 1 {
			w.Errorf("the slow handler was called %d times, want once", got)
		}
		var read corev1.ConfigMap
		w.must(w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), &read))
		if read.Data["color"] != "green" {
			w.Errorf("read %v", read.Data)
		}
		time.Sleep(4 * time.Hour)
		if got := calls.Load(); got != 3 {
			w.Errorf("the slow handler was called %d times, want 3", got)
		}
		stop()
	})
}

// A handler that is slower than its events lags by the objects that change, not by their changes. Each object's states
// follow each other, and a deletion is not joined.
func TestUpdatesThatWaitAreJoined(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		var all []*corev1.ConfigMap
		for i := range 3 {
			all = append(all, configMap("shop", fmt.Sprint(i)))
			w.create(all[i])
		}
		release, calls, deletions, known := make(chan struct{}), 0, 0, map[string]string{}
		follow := func(obj any, before string) {
			<-release
			calls++
			cm := obj.(*corev1.ConfigMap)
			if known[cm.Name] != before {
				w.Errorf("%s was %q, and its next change is from %q", cm.Name, known[cm.Name], before)
			}
			known[cm.Name] = cm.Data["color"]
		}
		w.handle(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { follow(obj, "") },
			UpdateFunc: func(before, after any) {
				if before := before.(*corev1.ConfigMap); before.Name != after.(*corev1.ConfigMap).Name {
					w.Errorf("%s became another object", before.Name)
				}
				follow(after, before.(*corev1.ConfigMap).Data["color"])
			},
			DeleteFunc: func(obj any) {
				deletions++
				delete(known, obj.(*corev1.ConfigMap).Name)
			},
		})
		quick, _ := w.follow()
		stop := w.start()
		paint := func(from, to int) {
			for i := range to - from {
				for _, cm := range all {
					w.paint(cm, fmt.Sprint(from+i))
				}
				synctest.Wait()
			}
		}
		paint(0, 1000)
		w.must(w.user.Delete(w.Context(), all[0]))
		all[0] = configMap("shop", "0")
		w.create(all[0])
		paint(1000, 2000)
		close(release)
		synctest.Wait()
		if calls < 100 || calls > 120 || deletions != 1 {
			w.Errorf("%d calls and %d deletions", calls, deletions)
		}
		paint(2000, 2100)
		if want := map[string]string{"0": "2099", "1": "2099", "2": "2099"}; !maps.Equal(known, want) {
			w.Errorf("the handler knows %v, want %v", known, want)
		}
		if got := len(quick.take()); got != 3+3*2100+2 {
			w.Errorf("a handler that is quick got %d events", got)
		}
		stop()
	})
}

func TestRemovedHandler(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		cm := configMap("shop", "a")
		w.create(cm)
		informer, err := w.cache.GetInformer(w.Context(), cm)
		w.must(err)
		l, registration := w.follow()
		_, neverStarted := w.follow()
		w.must(informer.RemoveEventHandler(neverStarted))
		stop := w.start()
		w.wantEvents(l, "add a red true")
		for range 2 {
			w.must(informer.RemoveEventHandler(registration))
		}
		synctest.Wait()
		w.paint(cm, "blue")
		w.wantEvents(l)
		wantError(w, informer.RemoveEventHandler(nil), "remove an event handler: <nil> is not a registration")
		stop()
		if !informer.IsStopped() {
			w.Error("the informer has not stopped")
		}
		_, err = informer.AddEventHandler(l)
		wantError(w, err, "handler of type *controllerruntime_test.log was not added", "has stopped already")
		wantError(w, informer.AddIndexers(nil), "add indexers: the informer has stopped")
		if err := w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), cm); err == nil || apierrors.IsNotFound(err) {
			w.Errorf("read after the end: %v", err)
		}
	})
}

func TestRemovedInformer(t *testing.T) {
	t.Parallel()
	inStartedBubble(t, cache.Options{ReaderFailOnMissingInformer: true}, func(w *world, cm *corev1.ConfigMap, l *log) {
		w.must(w.cache.RemoveInformer(w.Context(), cm))
		synctest.Wait()
		if n := w.server.OpenWatches(); n != 0 {
			w.Errorf("%d watches are open", n)
		}
		w.paint(cm, "blue")
		w.wantEvents(l)
		if err := w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), cm); err == nil {
			w.Error("read from a removed informer")
		}
	})
}

func TestResync(t *testing.T) {
	t.Parallel()
	period := time.Hour
	inStartedBubble(t, cache.Options{SyncPeriod: &period}, func(w *world, cm *corev1.ConfigMap, l *log) {
		time.Sleep(70 * time.Minute) // the period is spread by a tenth
		w.wantEvents(l, "update a red to red")
		w.must(w.user.Delete(w.Context(), cm))
		w.wantEvents(l, "delete a red known")
		time.Sleep(2 * time.Hour)
		w.wantEvents(l)
		never, none := &log{}, time.Duration(0)
		informer, err := w.cache.GetInformer(w.Context(), cm)
		w.must(err)
		_, err = informer.AddEventHandlerWithOptions(never, toolscache.HandlerOptions{ResyncPeriod: &none})
		w.must(err)
		w.create(configMap("shop", "b"))
		time.Sleep(3 * time.Hour)
		w.wantEvents(never, "add b red false")
	})
}

func TestWatchErrorHandler(t *testing.T) {
	t.Parallel()
	var failed atomic.Int32
	handler := func(ctx context.Context, r *toolscache.Reflector, err error) {
		failed.Add(1)
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
	inBubble(t, cache.Options{DefaultWatchErrorHandler: handler}, func(w *world) {
		l, _ := w.follow()
		w.must(w.server.Withdraw(corev1.Resource("configmaps")))
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- w.cache.Start(ctx) }() // waited for below
		if w.cache.WaitForCacheSync(ctx) {
			w.Error("the cache synced without the kind")
		}
		w.must(<-ended)
		if failed.Load() == 0 {
			w.Error("the handler was not called")
		}
		w.wantEvents(l)
	})
}

// Metadata-only objects have their kind in events, as in controller-runtime.
func TestMetadataEventsHaveKinds(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		w.create(configMap("shop", "a"))
		partial := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		informer, err := w.cache.GetInformer(w.Context(), partial)
		w.must(err)
		var kinds []string
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			kinds = append(kinds, obj.(*metav1.PartialObjectMetadata).GroupVersionKind().String())
		}})
		w.must(err)
		stop := w.start()
		synctest.Wait()
		if want := []string{"/v1, Kind=ConfigMap"}; !slices.Equal(kinds, want) {
			w.Errorf("kinds %q, want %q", kinds, want)
		}
		stop()
	})
}

// A handler that is removed, or whose informer ends, is not called again. The cache waits for a call at its end.
func TestEndDuringCall(t *testing.T) {
	t.Parallel()
	for name, removed := range map[string]bool{"removed": true, "ended": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, cache.Options{}, func(w *world) {
				w.create(configMap("shop", "a"), configMap("shop", "b"))
				var calls, returned atomic.Int32
				registration := w.handle(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
					calls.Add(1)
					time.Sleep(time.Hour)
					returned.Add(1)
				}})
				stop := w.start()
				synctest.Wait()
				if removed {
					informer, err := w.cache.GetInformer(w.Context(), &corev1.ConfigMap{})
					w.must(err)
					w.must(informer.RemoveEventHandler(registration))
					time.Sleep(3 * time.Hour)
				}
				stop()
				if calls.Load() != 1 || returned.Load() != 1 {
					w.Errorf("%d calls, of which %d have returned", calls.Load(), returned.Load())
				}
			})
		})
	}
}
