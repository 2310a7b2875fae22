package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// deletions records changes, and which of them are Certain.
type deletions struct {
	mu    sync.Mutex
	lines []string
}

func (l *deletions) notify(c informer.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Sprintf("%s %s", c.Type, c.Key.Name)
	if c.Type == informer.Deleted && cache.Of(c).Complete() {
		line += ", certain"
	}
	l.lines = append(l.lines, line)
}

func (l *deletions) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if diff := cmp.Diff(want, l.lines); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	l.lines = nil
}

// recorded starts an informer and records its changes from then on.
func recorded(t *testing.T, server *kindserver.Server[configMap], r informer.Retriever[configMap]) (fixture, *deletions) {
	t.Helper()
	f := start(t, server, r)
	l := &deletions{}
	f.informer.Subscribe(l.notify)
	l.lines = nil
	return f, l
}

func TestCertainDeletionsComeFromWatches(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("a", "1"))
				f, l := recorded(t, server, nil)
				// The list shows one time, and the watch starts there.
				server.Put(object("a", "2"))
				server.Put(object("a", "3"))
				server.Put(object("b", "1"))
				server.Put(object("b", "2"))
				server.Delete(key("b"))
				l.expect(t, "updated a", "updated a", "added b", "updated b", "deleted b, certain")

				// A watch that continues where the last one ended has missed nothing.
				server.DropWatches()
				server.Put(object("a", "4"))
				server.Put(object("a", "5"))
				server.Put(object("c", "1"))
				server.Delete(key("c"))
				time.Sleep(time.Minute)
				l.expect(t, "updated a", "updated a", "added c", "deleted c, certain")

				// An object that is deleted and created again is another object.
				server.Delete(key("a"))
				server.Put(object("a", "6"))
				l.expect(t, "deleted a, certain", "added a")

				// The deletion of an object that a list no longer contains is not certain.
				server.Put(object("d", "1"))
				l.expect(t, "added d")
				f.offline(func() {
					server.Put(object("a", "7"))
					server.Put(object("a", "8"))
					server.Delete(key("d"))
					server.Compact()
				})
				l.mu.Lock()
				slices.Sort(l.lines)
				l.mu.Unlock()
				l.expect(t, "deleted d", "updated a")
				server.Put(object("a", "9"))
				server.Delete(key("a"))
				l.expect(t, "updated a", "deleted a, certain")
			})
		})
	}
}

// listsAt is a Retriever whose lists have a given version.
type listsAt struct {
	informer.Retriever[configMap]
	version string
}

func (l listsAt) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := l.Retriever.List(ctx, opts)
	if err == nil {
		list.(*corev1.ConfigMapList).ResourceVersion = l.version
	}
	return list, err
}

// watched starts an informer of one object "a" at version 101. The informer lists at version listed, and then receives
// the events of the returned watch.
func watched(t *testing.T, listed string) (*deletions, *watch.FakeWatcher) {
	t.Helper()
	server := newServer(false, object("a", "1"))
	w := watch.NewFakeWithChanSize(10, false)
	var once sync.Once
	_, l := recorded(t, server, listsAt{scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
		first := false
		once.Do(func() { first = true })
		if first {
			return w, nil
		}
		return nil, errors.New("one is enough")
	}}, listed})
	return l, w
}

// A watch from version "0" or without a version begins with the present objects, so it may have missed states of a
// deleted object.
func TestCertainDeletionRequiresWatchFromVersion(t *testing.T) {
	at := func(value, version string) configMap {
		obj := object("a", value)
		obj.UID, obj.ResourceVersion = "uid-1", version
		return obj
	}
	for listed, want := range map[string][]string{
		"1001": {"updated a", "updated a", "deleted a, certain"},
		"0":    {"updated a", "updated a", "deleted a"},
		"":     {"updated a", "updated a", "deleted a"},
		"x":    {"updated a", "updated a", "deleted a"},
	} {
		t.Run("list at "+listed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, w := watched(t, listed)
				w.Modify(at("2", "1002"))
				w.Modify(at("3", "1003"))
				w.Delete(at("3", "1004"))
				l.expect(t, want...)
			})
		})
	}
	tests := map[string]struct {
		events []watch.Event
		want   []string
	}{
		"a creation of what is kept": {[]watch.Event{{Type: watch.Added, Object: at("2", "1002")}}, []string{"updated a"}},
		"another object": {[]watch.Event{{Type: watch.Modified, Object: func() configMap {
			obj := at("2", "1002")
			obj.UID = "uid-2"
			return obj
		}()}}, []string{"updated a"}},
		"another object's end": {[]watch.Event{{Type: watch.Deleted, Object: func() configMap {
			obj := at("2", "1002")
			obj.UID = "uid-2"
			return obj
		}()}}, []string{"deleted a"}},
		"versions that cannot be compared": {[]watch.Event{{Type: watch.Modified, Object: at("2", "x")}}, []string{"updated a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, w := watched(t, "1001")
				for _, e := range test.events {
					w.Action(e.Type, e.Object)
				}
				l.expect(t, test.want...)
			})
		})
	}
}

// An object that one of two combined Retrievers loses is updated to the state of the other one.
func TestDeletionInOneOfTwoJoinedRetrievers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := newServer(true), newServer(true)
		one.Put(object("both", "1"))
		one.Put(object("alone", "1"))
		other.Put(object("both", "1"))
		_, l := recorded(t, one, informer.Combine[configMap](one, other))
		one.Put(object("alone", "2"))
		one.Put(object("both", "2"))
		l.expect(t, "updated alone", "updated both")
		other.Delete(key("both"))
		l.expect(t, "updated both")
		one.Put(object("both", "3"))
		one.Delete(key("both"))
		l.expect(t, "updated both", "deleted both, certain")
	})
}

// The last states of objects are not known if their kind is removed.
func TestDeletionWithKindIsNotCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := startWith(t, server, informer.Config[configMap]{Optional: true})
		l := &deletions{}
		f.informer.Subscribe(l.notify)
		l.lines = nil
		fail(server, kube.ErrNotServed)
		server.DropWatches()
		time.Sleep(2 * time.Minute)
		l.expect(t, "deleted a")
		fail(server, nil)
		time.Sleep(time.Minute)
		server.Put(object("a", "2"))
		l.expect(t, "added a", "updated a")
	})
}

// After any failures of watches and lists, a certain deletion has the last state of its object.
func TestCertainDeletionHasLastState(t *testing.T) {
	for seed := range 100 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			server := newServer(seed%2 == 0)
			var mu sync.Mutex
			final := map[types.UID]string{} // guarded by mu; the last version of each object
			last := map[string]string{}     // guarded by mu; the current version of each name
			put := func(name string) {
				mu.Lock()
				defer mu.Unlock()
				obj := server.Put(object(name, fmt.Sprint(random.Int())))
				final[obj.UID], last[name] = obj.ResourceVersion, obj.ResourceVersion
			}
			names := []string{"a", "b", "c"}
			for _, name := range names {
				put(name)
			}
			f := start(t, server, nil)
			certain := 0
			defer f.informer.Subscribe(func(c informer.Change) {
				if c.Type != informer.Deleted || !cache.Of(c).Complete() {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				certain++
				before, _ := cache.Of(c).Old()
				if final[before.UID] != before.ResourceVersion {
					t.Errorf("seed %d: the certain deletion of %s has version %s, but the last version was %s",
						seed, c.Key, before.ResourceVersion, final[before.UID])
				}
			})()
			broken := errors.New("broken")
			for range 150 {
				name := names[random.IntN(len(names))]
				switch random.IntN(14) {
				case 0:
					server.DropWatches()
				case 1:
					server.Fail("watch", broken)
				case 2:
					server.Fail("list", broken)
				case 3:
					server.Compact()
				case 4:
					server.ServeStale()
				case 5:
					server.Bookmark()
				case 6:
					if last[name] != "" {
						server.Delete(key(name))
						last[name] = ""
					}
				case 7, 8:
					server.Fail("watch", nil)
					server.Fail("list", nil)
					server.Fresh()
				case 9:
					time.Sleep(time.Duration(random.IntN(10_000)) * time.Millisecond)
				default:
					put(name)
				}
				if random.IntN(2) == 0 {
					synctest.Wait()
				}
			}
			server.Fail("watch", nil)
			server.Fail("list", nil)
			server.Fresh()
			time.Sleep(time.Minute)
			put("a")
			synctest.Wait()
			server.Delete(key("a"))
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if certain == 0 {
				t.Errorf("seed %d: no deletion is certain", seed)
			}
		})
	}
}
