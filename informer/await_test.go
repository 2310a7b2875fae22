package informer_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// await returns the number of calls of seen for w.
func await(f fixture, w cache.Write) *atomic.Int32 {
	f.Helper()
	var seen atomic.Int32
	cache.Of(f.informer).Await(w, func() { seen.Add(1) })
	synctest.Wait()
	return &seen
}

// expectSeen fails the test if seen was not called want times.
func expectSeen(t *testing.T, when string, seen *atomic.Int32, want int32) {
	t.Helper()
	synctest.Wait()
	if n := seen.Load(); n != want {
		t.Errorf("%s: seen was called %d times, want %d", when, n, want)
	}
}

func written(obj configMap) cache.Write {
	return cache.Write{Key: key(obj.Name), UID: obj.UID, ResourceVersion: obj.ResourceVersion}
}

func deleted(obj configMap, version string) cache.Write {
	return cache.Write{Key: key(obj.Name), UID: obj.UID, ResourceVersion: version, Deleted: true}
}

// Contract 7, second half: an informer reports when it shows a write.
func TestAwaitEndsWithWrite(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		for name, test := range map[string]struct {
			// write writes to the server, and returns the write to await.
			write func(f fixture) cache.Write
			// atOnce: the informer shows the write at once, or never will.
			atOnce bool
		}{
			"an update":  {write: func(f fixture) cache.Write { return written(f.server.Put(object("a", "2"))) }},
			"a creation": {write: func(f fixture) cache.Write { return written(f.server.Put(object("b", "1"))) }},
			"what is there": {write: func(f fixture) cache.Write {
				obj, _, _ := f.informer.Get(key("a"))
				return written(obj)
			}, atOnce: true},
			"an earlier state": {write: func(f fixture) cache.Write {
				obj, _, _ := f.informer.Get(key("a"))
				obj.ResourceVersion = "1000"
				return written(obj)
			}, atOnce: true},
			"an update, and a later one by somebody else": {write: func(f fixture) cache.Write {
				w := written(f.server.Put(object("a", "2")))
				f.server.Put(object("a", "3"))
				return w
			}},
			"an update of what somebody has deleted since": {write: func(f fixture) cache.Write {
				w := written(f.server.Put(object("a", "2")))
				f.server.Delete(key("a"))
				return w
			}},
			"a creation that somebody has deleted since": {write: func(f fixture) cache.Write {
				w := written(f.server.Put(object("b", "2")))
				f.server.Delete(key("b"))
				return w
			}},
			"a deletion of which nothing is known": {write: func(f fixture) cache.Write {
				obj, _, _ := f.informer.Get(key("a"))
				f.server.Delete(key("a"))
				return deleted(obj, "")
			}},
			"a deletion of which neither version nor UID is known": {write: func(f fixture) cache.Write {
				f.server.Delete(key("a"))
				return cache.Write{Key: key("a"), Deleted: true}
			}},
			"a deletion with the version of the last state": {write: func(f fixture) cache.Write {
				obj, _, _ := f.informer.Get(key("a"))
				f.server.Delete(key("a"))
				return deleted(obj, obj.ResourceVersion)
			}},
			"a deletion with its own version": {write: func(f fixture) cache.Write {
				obj, _, _ := f.informer.Get(key("a"))
				f.server.Delete(key("a"))
				return deleted(obj, "1003")
			}},
			"a deletion, and another object of the name": {write: func(f fixture) cache.Write {
				obj, _, _ := f.informer.Get(key("a"))
				f.server.Delete(key("a"))
				f.server.Put(object("a", "2"))
				return deleted(obj, "1003")
			}},
			"a deletion of what was created just before": {write: func(f fixture) cache.Write {
				obj := f.server.Put(object("b", "1"))
				f.server.Delete(key("b"))
				return deleted(obj, obj.ResourceVersion)
			}},
			"a deletion of what replaced the object that is kept": {write: func(f fixture) cache.Write {
				f.server.Delete(key("a"))
				obj := f.server.Put(object("a", "2"))
				f.server.Delete(key("a"))
				return deleted(obj, obj.ResourceVersion)
			}},
			"a deletion by name of what replaced the object that is kept": {write: func(f fixture) cache.Write {
				kept, _, _ := f.informer.Get(key("a"))
				f.server.Delete(key("a"))
				w := deleted(f.server.Put(object("a", "2")), "")
				f.server.Delete(key("a"))
				w.Earlier = kept.UID
				return w
			}},
			"a deletion of what is not there": {write: func(fixture) cache.Write {
				return cache.Write{Key: key("c"), UID: "u", Deleted: true}
			}, atOnce: true},
			"a deletion of what has another UID now": {write: func(fixture) cache.Write {
				return cache.Write{Key: key("a"), UID: "u", ResourceVersion: "1000", Deleted: true}
			}, atOnce: true},
		} {
			t.Run(fmt.Sprintf("%s, watchList=%v", name, watchList), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newServer(watchList, object("a", "1"), object("other", "1"))
					f := start(t, server, nil)
					server.Mute(true)
					w := test.write(f)
					seen := await(f, w)
					if test.atOnce {
						expectSeen(t, "at once", seen, 1)
						return
					}
					expectSeen(t, "before the event", seen, 0)
					time.Sleep(30 * time.Second)
					server.Mute(false)
					expectSeen(t, "after the event", seen, 1)
					if lag := f.informer.Health().Lag; lag != 30*time.Second {
						t.Errorf("the lag is %s", lag)
					}
					_, found, _ := f.informer.Get(w.Key)
					if found && w.Deleted && !strings.Contains(name, "another object") {
						t.Error("the object is there")
					}
					server.Put(object("a", "later"))
					server.Delete(key("a"))
					server.Bookmark()
					expectSeen(t, "later", seen, 1)
					if cache.Of(f.informer).Await(w, func() { seen.Add(1) }); seen.Load() != 2 {
						t.Error("it is not shown when it is awaited again")
					}
				})
			})
		}
	}
}

// A write is also seen if no event of its object arrives.
func TestAwaitEndsWithoutEventOfObject(t *testing.T) {
	missing := func(fixture) cache.Write { // the Retriever omits it
		return cache.Write{Key: key("hidden"), UID: "u", ResourceVersion: "1003"}
	}
	for name, test := range map[string]struct {
		write func(f fixture) cache.Write
		then  func(f fixture)
	}{
		"a bookmark": {missing, func(f fixture) {
			f.server.Put(object("b", "1")) // does not count; the bookmark needs a new version
			f.server.Bookmark()
		}},
		"a later event": {missing, func(f fixture) { f.server.Put(object("b", "1")); f.server.Put(object("b", "2")) }},
		"a list": {missing, func(f fixture) {
			f.offline(func() {
				f.server.Put(object("b", "1"))
				f.server.Put(object("b", "2"))
				f.server.Compact()
			})
		}},
		"a list that has it": {
			func(fixture) cache.Write { return cache.Write{Key: key("b"), ResourceVersion: "1003"} },
			func(f fixture) { f.offline(func() { f.server.Put(object("b", "1")); f.server.Compact() }) },
		},
		"a list that has it no more": {
			func(f fixture) cache.Write {
				obj, _, _ := f.informer.Get(key("a"))
				return deleted(obj, "")
			},
			func(f fixture) { f.offline(func() { f.server.Delete(key("a")); f.server.Compact() }) },
		},
		"the end of the run": {missing, func(f fixture) { f.stop() }},
		"a permission is gone": {missing, func(f fixture) {
			fail(f.server, apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no")))
			f.server.DropWatches()
			time.Sleep(time.Minute)
		}},
		"the kind is not there": {missing, func(f fixture) {
			fail(f.server, apierrors.NewNotFound(corev1.Resource("configmaps"), ""))
			f.server.DropWatches()
			time.Sleep(time.Minute)
		}},
		"another Retriever": {missing, func(f fixture) {
			if err := f.informer.SetRetriever(f.Context(), newServer(true)); err != nil {
				f.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(false, object("a", "1"), object("c", "1"))
				f := startWith(t, server, informer.Config[configMap]{Optional: true})
				seen := await(f, test.write(f))
				expectSeen(t, "before", seen, 0)
				test.then(f)
				expectSeen(t, "after", seen, 1)
				f.stop()
				second := await(f, cache.Write{Key: key("a"), ResourceVersion: "1000"})
				expectSeen(t, "of an informer that does not run", second, 1)
			})
		})
	}
}

func TestAwaitOnDegradedInformerReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		fail(server, apierrors.NewNotFound(corev1.Resource("configmaps"), ""))
		f := startWith(t, server, informer.Config[configMap]{Optional: true})
		time.Sleep(time.Minute)
		expectSeen(t, "degraded", await(f, cache.Write{Key: key("a"), ResourceVersion: "1000"}), 1)
	})
}

func TestAwaitIsCalledAfterSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		f := start(t, server, nil)
		var told []string
		defer f.informer.Subscribe(func(c informer.Change) { told = append(told, string(c.Type)) })()
		server.Mute(true)
		w := written(server.Put(object("a", "1")))
		cache.Of(f.informer).Await(w, func() { told = append(told, "seen") })
		server.Delete(key("a"))
		cache.Of(f.informer).Await(deleted(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: w.UID}}, w.ResourceVersion), func() { told = append(told, "seen") })
		server.Mute(false)
		synctest.Wait()
		if want := []string{"added", "seen", "deleted", "seen"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func TestCancelledAwaitIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		f := start(t, server, nil)
		server.Mute(true)
		w := written(server.Put(object("a", "1")))
		var cancelled, other atomic.Int32
		cancel := cache.Of(f.informer).Await(w, func() { cancelled.Add(1) })
		cancelOther := cache.Of(f.informer).Await(w, func() { other.Add(1) })
		cancel()
		server.Mute(false)
		expectSeen(t, "cancelled", &cancelled, 0)
		expectSeen(t, "not cancelled", &other, 1)
		cancel()
		cancelOther() // no effect, because seen was called
	})
}

// If Retrievers overlap, a reader may get the object of any of them.
func TestAwaitEndsWhenAllPartsShowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := newServer(true), newServer(true)
		one.Put(object("a", "1"))
		other.Put(object("a", "1"))
		f := start(t, one, informer.Combine[configMap](one, other))
		one.Mute(true)
		other.Mute(true)
		seen := await(f, written(one.Put(object("a", "2"))))
		other.Put(object("a", "2"))
		one.Mute(false)
		expectSeen(t, "by one", seen, 0)
		other.Mute(false)
		expectSeen(t, "by both", seen, 1)

		// A removed part is not awaited.
		one.Mute(true)
		seen = await(f, written(one.Put(object("a", "3"))))
		other.Put(object("a", "3"))
		expectSeen(t, "by the other", seen, 0)
		if err := f.informer.SetRetriever(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		expectSeen(t, "when one has gone", seen, 1)
	})
}

// A call of seen must not be lost between the check and the registration.
func TestAwaitDuringEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		f := start(t, server, nil)
		const writers, writes = 8, 200
		var seen atomic.Int32
		var writing sync.WaitGroup
		for n := range writers {
			writing.Go(func() { // waited for below
				name := fmt.Sprint("object-", n%3) // several goroutines write the same object
				for i := range writes {
					w := written(server.Put(object(name, fmt.Sprint(i))))
					cache.Of(f.informer).Await(w, func() { seen.Add(1) })
				}
			})
		}
		writing.Wait()
		expectSeen(t, "in the end", &seen, writers*writes)
	})
}

// hiding is a Retriever that omits objects. Its selection is unknown to the informer.
type hiding struct {
	informer.Retriever[configMap]
}

func (h hiding) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := h.Retriever.List(ctx, opts)
	if err == nil {
		list := list.(*corev1.ConfigMapList)
		list.Items = slices.DeleteFunc(list.Items, func(o corev1.ConfigMap) bool { return o.Labels["hide"] != "" })
	}
	return list, err
}

func (h hiding) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := h.Retriever.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		obj, ok := e.Object.(configMap)
		return e, !ok || obj.Labels["hide"] == ""
	}), nil
}

func TestAwaitWithCustomRetriever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		f := start(t, server, hiding{server})
		hidden := object("hidden", "1")
		hidden.Labels = map[string]string{"hide": "me"}
		seen := await(f, written(server.Put(hidden)))
		expectSeen(t, "before a bookmark", seen, 0)
		server.Bookmark()
		expectSeen(t, "after a bookmark", seen, 1)
	})
}

// Versions that cannot be compared can still be equal.
func TestAwaitOfIncomparableVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch.NewFakeWithChanSize(1, false)
		f := start(t, nil, listsAt{scripted{newServer(false), func(metav1.ListOptions) (watch.Interface, error) { return w, nil }}, "x-1"})
		obj := object("a", "1")
		obj.UID, obj.ResourceVersion = types.UID("u"), "x-2"
		seen := await(f, written(obj))
		expectSeen(t, "before", seen, 0)
		w.Add(obj)
		expectSeen(t, "after", seen, 1)
		gone := await(f, deleted(obj, "x-3"))
		w.Delete(obj)
		expectSeen(t, "deleted", gone, 1)
		f.stop()
	})
}

// The informer shows the objects of a list before the list has ended.
func TestAwaitEndsDuringList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		gone := map[string]configMap{}
		for _, name := range []string{"a", "b", "c", "d"} {
			gone[name] = server.Put(object(name, "1"))
		}
		release := make(chan struct{})
		f := startWith(t, server, informer.Config[configMap]{Retriever: limited{paged{server, func(context.Context, metav1.ListOptions) error { <-release; return nil }}}})
		if f.informer.Len() != 2 {
			t.Fatalf("%d objects of a list that has not come to its end", f.informer.Len())
		}
		earlier := written(gone["a"])
		earlier.ResourceVersion = "1000"
		expectSeen(t, "a state before that of the list", await(f, earlier), 1)
		before := deleted(gone["b"], "1001")
		before.UID = "uid-of-another"
		expectSeen(t, "the deletion of an earlier object", await(f, before), 1)
		later := await(f, written(gone["d"]))
		expectSeen(t, "what the list has yet to bring", later, 0)
		close(release)
		expectSeen(t, "after the list", later, 1)
	})
}

// limited is a Retriever that always lists in pages.
type limited struct{ paged }

func (l limited) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.Limit = 2
	return l.paged.List(ctx, opts)
}

// An awaited write may never arrive, so the informer must not keep the written object.
func TestAwaitDoesNotRetainObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		f := start(t, server, nil)
		written, err := wire.FromObject(object("a", "1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		kept := weak.Make(written)
		cancel := cache.Of(f.informer).Await(cache.Write{Key: key("a"), ResourceVersion: "1000", Object: written}, func() {})
		defer cancel()
		written = nil //nolint:ineffassign,wastedassign // nobody else keeps it
		goruntime.GC()
		if kept.Value() != nil {
			t.Error("the object is kept")
		}
	})
}
