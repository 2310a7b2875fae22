package informer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// offline breaks the connection to the server, calls do, and restores the connection.
func (f fixture) offline(do func()) {
	f.Helper()
	broken := errors.New("broken")
	f.server.Fail("watch", broken)
	f.server.Fail("list", broken)
	f.server.DropWatches()
	time.Sleep(time.Second)
	synctest.Wait()
	do()
	f.server.Fail("watch", nil)
	f.server.Fail("list", nil)
	time.Sleep(time.Minute)
	synctest.Wait()
}

// halves is a Retriever whose lists fail in the middle while broken is set: after the first page, or within the stream.
// The items are in the order of names.
type halves struct {
	*kindserver.Server[configMap]
	mu     sync.Mutex
	broken error
	within func() // called once, when a list has failed
}

func (h *halves) set(broken error, within func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken, h.within = broken, within
}

// breaks returns the error to fail with, if any.
func (h *halves) breaks() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if within := h.within; h.broken != nil && within != nil {
		h.within = nil
		within()
	}
	return h.broken
}

func (h *halves) sorted(ctx context.Context, opts metav1.ListOptions) (*corev1.ConfigMapList, error) {
	opts.Continue, opts.Limit = "", 0
	list, err := h.Server.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	all := list.(*corev1.ConfigMapList)
	slices.SortFunc(all.Items, func(a, b corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (h *halves) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.Continue != "" {
		if err := h.breaks(); err != nil {
			return nil, err
		}
	}
	list, err := h.sorted(ctx, opts)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if opts.Limit == 0 && opts.Continue == "" {
		if apierrors.IsResourceExpired(h.broken) {
			return list, nil
		}
		return list, h.broken
	}
	half := len(list.Items) / 2
	if opts.Continue == "" {
		list.Items, list.Continue = list.Items[:half], "second half"
	} else {
		list.Items = list.Items[half:]
	}
	return list, nil
}

func (h *halves) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	h.mu.Lock()
	broken := h.broken
	h.mu.Unlock()
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents || broken == nil {
		return h.Server.Watch(ctx, opts)
	}
	list, err := h.sorted(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var events []watch.Event
	for i := range len(list.Items) / 2 {
		events = append(events, watch.Event{Type: watch.Added, Object: &list.Items[i]})
	}
	if err := h.breaks(); !errors.Is(err, io.EOF) {
		events = append(events, watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus})
	}
	return breaking(events...), nil
}

func TestListThatFailsMidwayIsRetried(t *testing.T) {
	for name, test := range map[string]struct {
		watchList bool
		broken    error
	}{
		"second page":               {false, errors.New("no second page")},
		"second page, history gone": {false, apierrors.NewResourceExpired("the continue token is too old")},
		"stream with an error":      {true, errors.New("no second half")},
		"stream that ends":          {true, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(test.watchList)
				for _, name := range []string{"a", "b", "c", "d"} {
					server.Put(object(name, "1"))
				}
				h := &halves{Server: server}
				f := start(t, server, h)
				listed := f.seen.take()
				slices.Sort(listed)
				if diff := cmp.Diff([]string{"listed a", "listed b", "listed c", "listed d"}, listed); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}

				// Several changes happen while no watch is open. The first half of the list contains a and a2, and then
				// the list fails. Then a is deleted too, which only the next list shows.
				f.offline(func() {
					server.Put(object("a", "2"))
					server.Put(object("a2", "1"))
					server.Delete(key("d"))
					server.Compact()
					h.set(test.broken, func() { server.Delete(key("a")); server.Compact() })
				})
				if apierrors.IsResourceExpired(test.broken) { // the Reflector lists without pages immediately
					f.expectOnce("updated a", "added a2", "deleted a", "deleted d")
					return
				}
				f.expectOnce("updated a", "added a2")
				if err := f.informer.Ready(); err == nil {
					t.Error("ready while lists break")
				}
				if got := f.value("b") + f.value("c") + f.value("d"); got != "111" {
					t.Errorf("b, c and d are %q: half a list has removed something", got)
				}
				h.set(nil, nil)
				time.Sleep(time.Minute)
				f.expectOnce("deleted a", "deleted d")
				if err := f.informer.Ready(); err != nil {
					t.Error(err)
				}
				server.Put(object("e", "1"))
				f.expect("added e")
			})
		})
	}
}

// expectOnce does the same as expect, in any order.
func (f fixture) expectOnce(want ...string) {
	f.Helper()
	synctest.Wait()
	got := f.seen.take()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestFailedFirstListAnnouncesObjectsOnce(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList)
				for _, name := range []string{"a", "b", "c", "d"} {
					server.Put(object(name, "1"))
				}
				h := &halves{Server: server}
				h.set(errors.New("half"), func() { server.Delete(key("b")); server.Put(object("c", "2")) })
				f := start(t, server, h)
				f.expectOnce("listed a", "listed b")
				if h := f.informer.Health(); h.Synced || h.Objects != 2 {
					t.Errorf("with half a list: %+v", h)
				}
				h.set(nil, nil)
				time.Sleep(time.Minute)
				f.expectOnce("deleted b", "listed c", "listed d")
				if got := f.value("c"); got != "2" {
					t.Errorf("c is %q", got)
				}
			})
		})
	}
}

// Events immediately after a streamed list must not make the list look stale.
func TestEventsDirectlyAfterStreamedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		notServed := kube.ErrNotServed
		var script []watch.Event
		var mu sync.Mutex
		f := startWith(t, server, informer.Config[configMap]{Optional: true, Retriever: scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			if script == nil || opts.SendInitialEvents == nil {
				return nil, nil
			}
			w := watch.NewFakeWithChanSize(len(script), false) // stays open
			for _, e := range script {
				w.Action(e.Type, e.Object)
			}
			return w, nil
		}}})
		server.Put(object("z", "1"))
		f.expect("listed a", "added z")
		server.Fail("watch", notServed)
		server.Fail("list", notServed)
		server.DropWatches()
		time.Sleep(2 * time.Minute)
		f.expectOnce("deleted a", "deleted z")

		// The kind is served again (an aggregated API was unavailable). The objects are unchanged, and events follow
		// immediately.
		at := func(obj configMap, uid, version string) configMap {
			obj.UID, obj.ResourceVersion = types.UID(uid), version
			return obj
		}
		end := at(&corev1.ConfigMap{}, "", "1002")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		mu.Lock()
		script = []watch.Event{
			{Type: watch.Added, Object: at(object("a", "1"), "uid-1", "1001")},
			{Type: watch.Added, Object: at(object("z", "1"), "uid-2", "1002")},
			{Type: watch.Bookmark, Object: end},
			{Type: watch.Deleted, Object: at(object("z", "1"), "uid-2", "1003")},
			{Type: watch.Added, Object: at(object("b", "1"), "uid-3", "1004")},
		}
		mu.Unlock()
		server.Fail("watch", nil)
		server.Fail("list", nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		got := f.seen.take()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"added a", "added b", "added z", "deleted z"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if v := f.informer.Health().ResourceVersion; v != "1004" {
			t.Errorf("the informer is said to have come to %s, want 1004", v)
		}
	})
}

// A list from a stale cache must not restore deleted objects and must not remove new ones. Its valid content is used.
func TestStaleList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("deleted", "1"), object("changed", "1"), object("same", "1"))
		f := start(t, server, nil)
		server.ServeStale()
		server.Delete(key("deleted"))
		server.Put(object("changed", "2"))
		server.Put(object("new", "1"))
		synctest.Wait()
		f.seen.take()
		f.offlineWatch(func() { server.Put(object("later", "1")); server.Compact() })
		f.expect()
		if got := f.value("deleted") + f.value("changed") + f.value("same") + f.value("new"); got != "<gone>211" {
			t.Errorf("after a stale list: %q", got)
		}
		server.Fresh()
		time.Sleep(time.Minute)
		f.expect("added later")
	})
}

// offlineWatch does the same as offline, for watches only.
func (f fixture) offlineWatch(do func()) {
	f.Helper()
	f.server.Fail("watch", errors.New("broken"))
	f.server.DropWatches()
	synctest.Wait()
	do()
	f.server.Fail("watch", nil)
	time.Sleep(time.Minute)
	synctest.Wait()
}
