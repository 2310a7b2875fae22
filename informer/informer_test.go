package informer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	modulecache "github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type configMap = *corev1.ConfigMap

func newServer(watchList bool, objects ...configMap) *kindserver.Server[configMap] {
	server := kindserver.New[configMap](apiserver.ConfigMaps(), watchList)
	for _, obj := range objects {
		server.Put(obj)
	}
	return server
}

func object(name, value string) configMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func key(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

// recorder is a subscriber that records changes.
type recorder struct {
	mu      sync.Mutex
	changes []string
}

func (r *recorder) notify(c informer.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, string(c.Type)+" "+c.Key.Name)
}

// take returns the changes since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := r.changes
	r.changes = nil
	return changes
}

// logBuffer is a buffer to which the informer writes while the test reads.
type logBuffer struct{ testlog.Buffer }

func (b *logBuffer) logger() *slog.Logger {
	return b.Logger(&slog.HandlerOptions{Level: slog.LevelDebug})
}

// joinSynced runs an informer until stop, and waits until it is synced.
func joinSynced(t *testing.T, i informer.Any) (stop func()) {
	t.Helper()
	stop = i.Join(t.Context())
	if err := i.WaitSynced(t.Context()); err != nil {
		stop()
		t.Fatal(err)
	}
	return stop
}

// fixture is an informer of a fake server that runs in a synctest bubble.
type fixture struct {
	*testing.T
	server   *kindserver.Server[configMap]
	informer *informer.Informer[configMap]
	seen     *recorder
	logs     *logBuffer
	stop     func() // called at the end of the test, too
}

// start runs an informer of r, by default of the server.
func start(t *testing.T, server *kindserver.Server[configMap], r informer.Retriever[configMap]) fixture {
	t.Helper()
	return startWith(t, server, informer.Config[configMap]{Retriever: r})
}

func (f fixture) expect(want ...string) {
	f.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, f.seen.take()); diff != "" {
		f.Errorf("changes (-want +got):\n%s", diff)
	}
}

func (f fixture) value(name string) string {
	f.Helper()
	obj, found, err := f.informer.Get(key(name))
	if err != nil {
		f.Fatalf("Get %s: %v", name, err)
	}
	if !found {
		return "<gone>"
	}
	return obj.Data["value"]
}

func TestInformerShowsChangesOfServer(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("a", "1"))
				f := start(t, server, nil)
				f.expect("listed a")
				if err := f.informer.Ready(); err != nil {
					t.Errorf("Ready after the first list: %v", err)
				}
				if lists, _, _ := server.Counts(); watchList != (lists == 0) {
					t.Errorf("with watchList=%v there were %d lists", watchList, lists)
				}
				server.Put(object("a", "2"))
				server.Put(object("b", "1"))
				f.expect("updated a", "added b")
				server.Delete(key("a"))
				f.expect("deleted a")
				if got := f.value("a") + f.value("b"); got != "<gone>1" {
					t.Errorf("a and b are %s", got)
				}
				if n := f.informer.Len(); n != 1 {
					t.Errorf("Len is %d, want 1", n)
				}
				if !modulecache.Of(f.informer).Has(key("b")) || modulecache.Of(f.informer).Has(key("a")) {
					t.Error("Has disagrees with Get")
				}
			})
		})
	}
}

func TestReadersReceiveCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, nil)
		obj, _, _ := f.informer.Get(key("a"))
		obj.Data["value"] = "mine"
		for obj, err := range f.informer.List(informer.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			obj.Data["value"] = "mine too"
		}
		if got := f.value("a"); got != "1" {
			t.Errorf("a reader changed the cache to %q", got)
		}
	})
}

// Contract 10, first half: a reconnect or a relist alone announces nothing.
func TestContract10_ReconnectAnnouncesNoChanges(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("same", "1"), object("changes", "1"), object("goes", "1"))
				f := start(t, server, nil)
				f.seen.take()

				server.DropWatches()
				time.Sleep(time.Minute)
				f.expect()

				// While no watch is open, two changes happen and the history is lost.
				server.Fail("watch", errors.New("broken"))
				server.Fail("list", errors.New("broken"))
				server.DropWatches()
				time.Sleep(time.Second)
				server.Put(object("changes", "2"))
				server.Delete(key("goes"))
				server.Compact()
				server.Fail("watch", nil)
				server.Fail("list", nil)
				time.Sleep(time.Minute)
				f.expect("updated changes", "deleted goes")
			})
		})
	}
}

// Contract 10, second half: for each object, the cache only moves forward.
func TestContract10_StaleListsDoNotRevertCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "old"))
		f := start(t, server, nil)
		server.ServeStale() // lists return the present state from now on
		server.Put(object("a", "new"))
		server.Put(object("b", "new"))
		f.expect("listed a", "updated a", "added b")

		// The watch breaks, the history is lost, and the server returns a stale list.
		server.Fail("watch", errors.New("broken"))
		server.DropWatches()
		server.Put(object("c", "new"))
		server.Compact()
		lists, _, _ := server.Counts()
		server.Fail("watch", nil)
		time.Sleep(time.Minute)
		if after, _, _ := server.Counts(); after == lists {
			t.Fatal("there was no relist")
		}
		if got := f.value("a") + f.value("b"); got != "newnew" {
			t.Errorf("after a stale list a and b are %q: the view went back", got)
		}
		f.expect()

		server.Fresh()
		server.Delete(key("b"))
		time.Sleep(time.Minute)
		f.expect("added c", "deleted b")
	})
}

func TestDeletedAndCreatedAgainIsAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "first"))
		f := start(t, server, nil)
		f.expect("listed a")
		server.Fail("watch", errors.New("broken"))
		server.Fail("list", errors.New("broken"))
		server.DropWatches()
		server.Delete(key("a"))
		server.Put(object("a", "second"))
		server.Compact()
		server.Fail("watch", nil)
		server.Fail("list", nil)
		time.Sleep(time.Minute)
		f.expect("updated a")
		if got := f.value("a"); got != "second" {
			t.Errorf("a is %q", got)
		}
	})
}

// Contract 9: a failing list or watch is reported within seconds, and its recovery too.
func TestContract09_InformerReportsProblem(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "",
		errors.New(`User "jane" cannot list resource "configmaps" in API group "" at the cluster scope`))
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(false)
				server.Fail(verb, forbidden)
				f := start(t, server, nil)
				time.Sleep(3 * time.Second)
				err := f.informer.Ready()
				if err == nil || !strings.Contains(err.Error(), "jane") || !strings.Contains(err.Error(), "configmaps") {
					t.Fatalf("Ready does not name user and resource: %v", err)
				}
				if !apierrors.IsForbidden(err) {
					t.Errorf("Ready's error does not wrap the API's: %v", err)
				}
				since := f.informer.Health().ErrSince
				time.Sleep(time.Minute)
				if n := strings.Count(f.logs.String(), "cannot retrieve"); n != 1 {
					t.Errorf("logged %d times, want once:\n%s", n, f.logs)
				}
				if got := f.informer.Health().ErrSince; !got.Equal(since) {
					t.Errorf("ErrSince moved from %s to %s", since, got)
				}
				server.Fail(verb, nil)
				time.Sleep(20 * time.Second)
				if err := f.informer.Ready(); err != nil {
					t.Errorf("Ready after the permission was granted: %v", err)
				}
				if !strings.Contains(f.logs.String(), "retrieves again") {
					t.Errorf("the recovery is not logged:\n%s", f.logs)
				}
			})
		})
	}
	t.Run("a watch that breaks later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newServer(true)
			f := start(t, server, nil)
			server.Fail("watch", forbidden)
			server.Fail("list", forbidden)
			server.DropWatches()
			time.Sleep(5 * time.Second)
			if err := f.informer.Ready(); !apierrors.IsForbidden(err) {
				t.Errorf("Ready while the watch is refused: %v", err)
			}
			if h := f.informer.Health(); !h.Synced {
				t.Error("the informer forgot that it was synced")
			}
		})
	})
}

func TestObjectOfAnotherTypeIsReported(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			pods := kindserver.New[*corev1.Pod](apitest.Pods(), watchList)
			pods.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}})
			f := start(t, nil, informer.FromListerWatcher[configMap](cache.ToListWatcherWithWatchListSemantics(
				&cache.ListWatch{ListWithContextFunc: pods.List, WatchFuncWithContext: pods.Watch}, pods,
			)))
			time.Sleep(3 * time.Second)
			err := f.informer.Ready()
			if err == nil || !strings.Contains(err.Error(), "*v1.Pod") || !strings.Contains(err.Error(), "*v1.ConfigMap") {
				t.Errorf("Ready does not name both types: %v", err)
			}
		})
	}
}

// Predecessors of Kooper panic on a tombstone, or on a tombstone without an object. An event that cannot be decoded may
// have been any change, so the informer lists again.
func TestTombstonesDoNotPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events *watch.FakeWatcher
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				a := object("a", "1")
				a.UID, a.ResourceVersion = "u", "5"
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []corev1.ConfigMap{*a}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				if opts.SendInitialEvents != nil {
					return nil, errors.New("no streamed lists")
				}
				events = watch.NewFakeWithChanSize(10, false)
				return events, nil
			},
		}
		f := start(t, nil, informer.FromListerWatcher[configMap](lw))
		f.expect("listed a")
		events.Delete(object("unknown", "")) // never seen
		old := object("a", "")
		old.UID, old.ResourceVersion = "earlier incarnation", "3"
		events.Delete(old)
		f.expect()
		for _, odd := range []runtime.Object{nil, &corev1.Pod{}, configMap(nil)} {
			before := events
			events.Action(watch.Deleted, odd)
			synctest.Wait()
			if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "*v1.ConfigMap") {
				t.Errorf("Ready does not tell of the odd event: %v", err)
			}
			time.Sleep(15 * time.Second)
			if synctest.Wait(); events == before {
				t.Fatal("no new watch was opened")
			}
			f.expect()
		}
		last := object("a", "")
		last.UID, last.ResourceVersion = "u", "6"
		events.Delete(last)
		f.expect("deleted a")
		if err := f.informer.Ready(); err != nil {
			t.Errorf("Ready after an event that can be understood: %v", err)
		}
	})
}

func TestSharedInformerListsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, nil)
		f.expect("listed a")

		second := &recorder{}
		unsubscribe := f.informer.Subscribe(second.notify)
		stopSecond := testrun.Start(t, f.informer.Run)
		synctest.Wait()
		if diff := cmp.Diff([]string{"listed a"}, second.take()); diff != "" {
			t.Errorf("who joins is not told what is there (-want +got):\n%s", diff)
		}
		f.stop() // the first user leaves; the watch continues
		server.Put(object("a", "2"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"updated a"}, second.take()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		_, watches, open := server.Counts()
		if watches != 1 || open != 1 {
			t.Errorf("%d watches, %d open; want one of each", watches, open)
		}
		unsubscribe()
		stopSecond()
		if _, _, open := server.Counts(); open != 0 {
			t.Errorf("%d watches are open after the last Run has returned", open)
		}
		if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "not running") {
			t.Errorf("Ready of an ended informer: %v", err)
		}
		if _, _, err := f.informer.Get(key("a")); !errors.Is(err, informer.ErrNotRunning) {
			t.Errorf("Get of an ended informer: %v", err)
		}
		f.seen.take()

		server.Put(object("b", "1"))
		stopThird := testrun.Start(t, f.informer.Run)
		defer stopThird()
		synctest.Wait()
		if got := len(f.seen.take()); got != 2 {
			t.Errorf("run again, the informer told of %d objects, want 2", got)
		}
		if len(second.take()) != 0 {
			t.Error("who has unsubscribed is still told")
		}
	})
}

func TestOverlappingRunsShareInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		inf, err := informer.New(informer.Config[configMap]{Retriever: server})
		if err != nil {
			t.Fatal(err)
		}
		var runs sync.WaitGroup
		for i := range 20 {
			runs.Go(func() { // waited for below
				for j := range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*7+j*3)%11)*time.Millisecond)
					if err := inf.Run(ctx); err != nil {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		runs.Wait()
		if _, _, open := server.Counts(); open != 0 {
			t.Errorf("%d watches are left", open)
		}
	})
}

// Contract 5, the informer's part: Run returns only when no call of the Retriever is running.
func TestContract05_InformerRunWaitsForItsList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, release := make(chan struct{}), make(chan struct{})
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				close(began)
				<-release // a list that ignores its context
				return nil, errors.New("late")
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, errors.New("no watch")
			},
		}
		logs := &logBuffer{}
		inf, err := informer.New(informer.Config[configMap]{Retriever: informer.FromListerWatcher[configMap](lw), Logger: logs.logger()})
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, inf.Run)
		<-began
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }() // waited for below
		time.Sleep(time.Hour)
		select {
		case <-stopped:
			t.Error("Run returned while a list was under way")
		default:
		}
		if strings.Contains(logs.String(), "level=WARN") {
			t.Errorf("a list that nobody waits for was reported:\n%s", logs)
		}
		close(release)
		<-stopped
	})
}

func TestRefusedWatchDoesNotDelayShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		server.Fail("watch", apierrors.NewTooManyRequests("slow down", 1))
		server.Fail("list", apierrors.NewTooManyRequests("slow down", 1))
		f := start(t, server, nil)
		time.Sleep(time.Minute + time.Second)
		begin := time.Now()
		f.stop()
		if took := time.Since(begin); took > 0 {
			t.Errorf("Run returned %s after its context ended", took)
		}
	})
}

func TestJoinedRetrieversAreOneView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := newServer(true), newServer(false)
		left.Put(object("a", "left"))
		right.Put(object("b", "right"))
		f := start(t, left, informer.Combine[configMap](left, right))
		if n := len(f.seen.take()); n != 2 {
			t.Errorf("told of %d objects, want 2", n)
		}
		if got := f.value("a") + f.value("b"); got != "leftright" {
			t.Errorf("a and b are %q", got)
		}
		n := 0
		for _, err := range f.informer.List(informer.Query{}) {
			if err != nil {
				t.Error(err)
			}
			n++
		}
		if n != 2 || f.informer.Len() != 2 {
			t.Errorf("All has %d, Len is %d; want 2", n, f.informer.Len())
		}
		// A relist of one part must not affect the objects of the other.
		left.Compact()
		left.DropWatches()
		time.Sleep(time.Minute)
		f.expect()
		right.Fail("watch", errors.New("right is broken"))
		right.DropWatches()
		time.Sleep(time.Minute)
		if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "right is broken") {
			t.Errorf("Ready hides one side's trouble: %v", err)
		}
	})
}

func TestJoinedRetrieverIsNotReadyBeforeAllParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := newServer(true), newServer(true)
		right.Fail("watch", errors.New("broken"))
		right.Fail("list", errors.New("broken"))
		f := start(t, left, informer.Combine[configMap](left, right))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := f.informer.WaitSynced(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "broken") {
			t.Errorf("WaitSynced: %v; want the deadline and what stands in the way", err)
		}
		right.Fail("watch", nil)
		right.Fail("list", nil)
		if err := f.informer.WaitSynced(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type embedded struct{ informer.Retriever[configMap] }

func TestNewReportsMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		retriever informer.Retriever[configMap]
		want      string
	}{
		"no retriever":      {nil, "Retriever is required"},
		"nil ListerWatcher": {informer.FromListerWatcher[configMap](nil), "ListerWatcher is nil"},
		"nil *ListWatch":    {informer.FromListerWatcher[configMap]((*cache.ListWatch)(nil)), "ListerWatcher is nil"},
		"nil cluster":       {informer.Retrieve[configMap](nil), "cluster is nil"},
		"nothing combined":  {informer.Combine[configMap](), "there is none"},
		"combined with nil": {informer.Combine[configMap](newServer(true), nil), "number 1 is nil"},
		"wrapped":           {embedded{informer.FromListerWatcher[configMap](nil)}, "ListerWatcher is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := informer.New(informer.Config[configMap]{Name: "x", Retriever: test.retriever})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestWrappedJoinIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil, embedded{informer.Combine[configMap](newServer(true), newServer(true))})
		time.Sleep(3 * time.Second)
		if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "wrap its parts") {
			t.Errorf("Ready of a wrapped combined Retriever: %v", err)
		}
	})
}

// scripted is a Retriever whose watches come from the test.
type scripted struct {
	informer.Retriever[configMap]
	watch func(opts metav1.ListOptions) (watch.Interface, error)
}

func (s scripted) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if w, err := s.watch(opts); w != nil || err != nil {
		return w, err
	}
	return s.Retriever.Watch(ctx, opts)
}

func breaking(events ...watch.Event) watch.Interface {
	w := watch.NewFakeWithChanSize(len(events), false)
	for _, e := range events {
		w.Action(e.Type, e.Object)
	}
	w.Stop()
	return w
}

func TestContract09_BrokenWatchIsReported(t *testing.T) {
	conversion := apierrors.NewInternalError(errors.New("conversion webhook failed"))
	broken := watch.Event{Type: watch.Error, Object: &conversion.ErrStatus}
	for name, test := range map[string]struct {
		watchList bool
		events    []watch.Event
		want      string
	}{
		"error event":                 {false, []watch.Event{broken}, "conversion webhook failed"},
		"error event after an object": {false, []watch.Event{{Type: watch.Modified, Object: object("a", "")}, broken}, "conversion webhook failed"},
		"ends at once":                {false, nil, "ends as soon as it is opened"},
		"streamed list breaks":        {true, []watch.Event{broken}, "conversion webhook failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(test.watchList)
				server.Put(object("a", "1"))
				if test.watchList {
					server.Fail("list", conversion)
				}
				var healed atomic.Bool
				f := start(t, server, scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
					if healed.Load() {
						return nil, nil
					}
					return breaking(test.events...), nil
				}})
				time.Sleep(time.Minute)
				for range 10 {
					if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), test.want) {
						t.Fatalf("Ready: %v, want %q in it", err, test.want)
					}
					time.Sleep(time.Minute)
				}
				if since := time.Since(f.informer.Health().ErrSince); since < 10*time.Minute && !strings.Contains(name, "object") {
					t.Errorf("the trouble is said to have begun %s ago", since)
				}
				if n := strings.Count(f.logs.String(), "retrieves again"); n != 0 && !strings.Contains(name, "object") {
					t.Errorf("it is said %d times to work again, which it never did", n)
				}
				healed.Store(true)
				server.Fail("list", nil)
				time.Sleep(30 * time.Second)
				if err := f.informer.Ready(); err != nil {
					t.Errorf("Ready after it was healed: %v", err)
				}
			})
		})
	}
}

// An API server that ends all watches also ends those that have just been opened.
func TestContract09_OneShortWatchIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "1"))
		f := start(t, server, server)
		for range 3 {
			for _, _, open := server.Counts(); open == 0; _, _, open = server.Counts() {
				time.Sleep(10 * time.Millisecond)
			}
			server.DropWatches() // a short watch
			for range 15 {
				time.Sleep(time.Second)
				if err := f.informer.Ready(); err != nil {
					t.Fatalf("Ready after one short watch: %v", err)
				}
			}
			server.DropWatches() // a long one
			synctest.Wait()
		}
		if logs := f.logs.String(); strings.Contains(logs, "cannot retrieve") {
			t.Errorf("logged: %s", logs)
		}
	})
}

// Short watches are not consecutive if a longer one is between them.
func TestShortWatchesThatAreNotConsecutiveAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "1"))
		f := start(t, server, server)
		awaitWatch := func() {
			for _, _, open := server.Counts(); open == 0; _, _, open = server.Counts() {
				time.Sleep(10 * time.Millisecond)
			}
		}
		for range 4 {
			awaitWatch()
			server.DropWatches() // a short watch
			synctest.Wait()
			awaitWatch()
			time.Sleep(3 * time.Second)
			server.DropWatches() // not short, and too short to count as working
			synctest.Wait()
			if err := f.informer.Ready(); err != nil {
				t.Fatalf("Ready: %v", err)
			}
		}
	})
}

func TestErrorWithChangingPortIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		port := 40000
		f := start(t, server, scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
			port++
			return nil, fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:6443: reset", port)
		}})
		time.Sleep(10 * time.Minute)
		if n := strings.Count(f.logs.String(), "cannot retrieve"); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}
	})
}

// A fake that ignores SendInitialEvents costs time but works. client-go's fake clientsets behind a plain
// cache.ListWatch are such fakes.
func TestStreamedListWithoutEventsIsReplacedByList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil {
				return nil, nil
			}
			return watch.NewFake(), nil
		}})
		time.Sleep(11 * time.Second)
		f.expect("listed a")
		if err := f.informer.Ready(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(f.logs.String(), "Description.WatchList") {
			t.Errorf("the log does not say what to do:\n%s", f.logs)
		}
		server.Fail("watch", errors.New("broken"))
		server.DropWatches()
		time.Sleep(time.Second)
		server.Put(object("a", "2"))
		server.Compact()
		server.Fail("watch", nil)
		time.Sleep(12 * time.Second)
		f.expect("updated a")
	})
}

// An occasional 410, with events in between, is not a problem.
func TestOccasional410IsNotAnError(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("a", "1"))
				f := start(t, server, nil)
				for round := range 8 {
					time.Sleep(5 * time.Second)
					server.DropWatches()
					server.Put(object("a", fmt.Sprint("missed ", round)))
					server.Compact()
					time.Sleep(30 * time.Second)
					server.Put(object("a", fmt.Sprint("seen ", round)))
					time.Sleep(time.Second)
					if got := f.value("a"); got != fmt.Sprint("seen ", round) {
						t.Errorf("round %d: a is %q", round, got)
					}
				}
				if err := f.informer.Ready(); err != nil || strings.Contains(f.logs.String(), "level=WARN") {
					t.Errorf("Ready: %v\n%s", err, f.logs)
				}
			})
		})
	}
}

// Streamed lists are requested again after some time. The time grows if they fail again.
func TestStreamedListsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		var stalls atomic.Bool
		var asked atomic.Int32
		stalls.Store(true)
		start(t, server, scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil {
				return nil, nil
			}
			asked.Add(1)
			if stalls.Load() {
				return watch.NewFake(), nil
			}
			return nil, nil
		}})
		relist := func(after time.Duration, want int32) {
			t.Helper()
			time.Sleep(after)
			before := asked.Load()
			server.Mute(true) // the watch does not see the change
			server.Put(object("a", time.Now().String()))
			server.Compact()
			server.DropWatches()
			server.Mute(false)
			time.Sleep(15 * time.Second)
			if n := asked.Load() - before; n != want {
				t.Errorf("after %s a list was streamed %d times, want %d", after, n, want)
			}
		}
		relist(0, 0)
		relist(9*time.Minute, 0)
		relist(2*time.Minute, 1) // fails; the next attempt is later
		relist(15*time.Minute, 0)
		stalls.Store(false)
		relist(6*time.Minute, 1)
		relist(0, 1)
		stalls.Store(true)
		relist(0, 1)
		relist(11*time.Minute, 1)
	})
}

// A server that ignores SendInitialEvents is also detected if it sends events.
func TestStreamedListWithoutInitialEventsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		event  watch.EventType
		within time.Duration
	}{
		"updates":   {watch.Modified, 15 * time.Second},
		"deletions": {watch.Deleted, 15 * time.Second},
		"bookmarks": {watch.Bookmark, 15 * time.Second},
		"creations": {watch.Added, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true, object("a", "1"))
				f := start(t, server, scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents == nil {
						return nil, nil
					}
					w := watch.NewRaceFreeFake()
					send := time.NewTicker(time.Second)
					var version atomic.Int32
					go func() { // ends when the watch is stopped
						defer send.Stop()
						for range send.C {
							if w.IsStopped() {
								return
							}
							obj := object(fmt.Sprint("traffic-", version.Add(1)), "1")
							obj.UID, obj.ResourceVersion = types.UID(obj.Name), fmt.Sprint(200+version.Load())
							w.Action(test.event, obj)
						}
					}()
					return w, nil
				}})
				time.Sleep(test.within)
				if err := f.informer.Ready(); err != nil {
					t.Errorf("after %s: %v", test.within, err)
				}
				if _, found, err := f.informer.Get(key("a")); err != nil || !found {
					t.Errorf("the object is found: %t, %v", found, err)
				}
				if n := strings.Count(f.logs.String(), "Description.WatchList"); n != 1 {
					t.Errorf("logged %d times, want once", n)
				}
			})
		})
	}
}

// A streamed list may be slow while it makes progress.
func TestSlowStreamedListContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		lists := 0
		f := start(t, server, scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil {
				return nil, nil
			}
			lists++
			w := watch.NewRaceFreeFake()
			go func() { // ends by itself
				for n := range 10 {
					time.Sleep(8 * time.Second)
					obj := object(fmt.Sprint("slow-", n), "1")
					obj.UID, obj.ResourceVersion = types.UID(obj.Name), fmt.Sprint(50+n)
					w.Action(watch.Added, obj)
				}
				end := &corev1.ConfigMap{}
				end.ResourceVersion = "1000"
				end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
				w.Action(watch.Bookmark, end)
			}()
			return w, nil
		}})
		time.Sleep(90 * time.Second)
		if err := f.informer.Ready(); err != nil || lists != 1 || f.informer.Len() != 10 {
			t.Errorf("%d objects of %d streamed lists, %v\n%s", f.informer.Len(), lists, err, f.logs)
		}
		time.Sleep(time.Minute)
		if strings.Contains(f.logs.String(), "WARN") {
			t.Errorf("the list was given up:\n%s", f.logs)
		}
	})
}

// Errors that differ in IDs are logged a limited number of times.
func TestErrorWithChangingIDsIsLoggedRarely(t *testing.T) {
	letters := func(n int) string {
		var id strings.Builder
		for ; id.Len() < 20; n = n*7 + 3 {
			id.WriteByte(byte('a' + n%26))
			n /= 2
		}
		return id.String()
	}
	for name, test := range map[string]struct {
		id   func(n int) string
		most int
	}{
		"uuid":         {func(n int) string { return fmt.Sprintf("%08x-9c1f-4a7e-b00d-%012x", n*2654435761, n*40503) }, 1},
		"hexadecimal":  {func(n int) string { return fmt.Sprintf("0x%x", n*2654435761) }, 1},
		"only letters": {letters, 8 + 6},
		"long text":    {func(n int) string { return strings.Repeat("a ", 1000) + letters(n) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(false)
				n := 0
				f := start(t, server, scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
					n++
					return nil, fmt.Errorf("the proxy refuses the request %s", test.id(n))
				}})
				time.Sleep(6 * time.Hour)
				if logged := strings.Count(f.logs.String(), "cannot retrieve"); logged < 1 || logged > test.most || n < 500 {
					t.Errorf("%d attempts were logged %d times in six hours, want at most %d", n, logged, test.most)
				}
			})
		})
	}
}

func TestUnclosedWatchChannelDoesNotBlockShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		f := start(t, server, scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
			return watch.NewProxyWatcher(make(chan watch.Event)), nil
		}})
		began := time.Now()
		f.stop()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("Run took %s to end", took)
		}
		if !strings.Contains(f.logs.String(), "has not closed its channel") {
			t.Errorf("it is not logged:\n%s", f.logs)
		}
	})
}

func TestStaleListDoesNotRestoreDeletedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "1"))
		server.ServeStale() // lists return the present state from now on
		f := start(t, server, nil)
		server.Delete(key("a"))
		f.expect("listed a", "deleted a")
		server.Fail("watch", errors.New("broken"))
		server.DropWatches()
		server.Put(object("b", "1"))
		server.Compact()
		server.Fail("watch", nil)
		time.Sleep(time.Minute)
		f.expect()
		server.Fresh()
		time.Sleep(time.Minute)
		f.expect("added b")
	})
}

// The end of one session must not affect the next session.
func TestEndingSessionDoesNotSyncNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		inf, err := informer.New(informer.Config[configMap]{Retriever: server, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		inf.Subscribe(func(informer.Change) { <-release }) // storing the list takes a long time
		leave := inf.Join(t.Context())
		synctest.Wait()
		left := make(chan struct{})
		go func() { leave(); close(left) }() // waited for below
		synctest.Wait()
		server.Fail("list", errors.New("down"))
		server.Fail("watch", errors.New("down"))
		close(release)
		<-left
		defer inf.Join(t.Context())()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := inf.WaitSynced(ctx); err == nil {
			t.Error("an informer that has listed nothing is said to be synced")
		}
	})
}

// observer is a Recorder that calls health at the start and at the end.
type observer struct{ healths chan informer.Health }

func (o observer) ObserveInformer(_ string, health func() informer.Health) func() {
	o.healths <- health()
	return func() { o.healths <- health() }
}

func TestRecorderMayCallHealthAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := observer{make(chan informer.Health, 2)}
		inf, err := informer.New(informer.Config[configMap]{Retriever: newServer(true), Metrics: o})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, inf.Run)()
		if first, last := <-o.healths, <-o.healths; first.Informer != "v1.ConfigMap" || last.Running {
			t.Errorf("health at the beginning %+v, at the end %+v", first, last)
		}
	})
}

// ending is a watch that sends an error at the end of its context, like a decoder whose connection is closed.
type ending struct {
	watch.Interface
	events chan watch.Event
}

func (e ending) ResultChan() <-chan watch.Event { return e.events }

func TestErrorOfStoppedWatchIsIgnored(t *testing.T) {
	for name, events := range map[string][]watch.Event{
		"error":  {{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: "context canceled"}}},
		"closed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(false)
				e := ending{watch.NewEmptyWatch(), make(chan watch.Event, 1)}
				f := start(t, server, contextual{server, func(ctx context.Context) watch.Interface {
					context.AfterFunc(ctx, func() {
						for _, event := range events {
							e.events <- event
						}
						close(e.events)
					})
					return e
				}})
				f.stop()
				if logs := f.logs.String(); strings.Contains(logs, "cannot retrieve") {
					t.Errorf("an ordinary end is logged as trouble:\n%s", logs)
				}
			})
		})
	}
}

// contextual is a Retriever whose watches come from the test, which gets their context.
type contextual struct {
	informer.Retriever[configMap]
	watch func(ctx context.Context) watch.Interface
}

func (c contextual) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	return c.watch(ctx), nil
}
