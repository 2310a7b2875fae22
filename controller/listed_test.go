package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// family is a controller of owners with children, and the runs that it made.
type family struct {
	t                 *testing.T
	owners, children  *kindserver.Server[configMap]
	childInformer     *informer.Informer[configMap]
	config            controller.Config[configMap]
	ctrl              *controller.Controller[configMap]
	mu                sync.Mutex
	runs              map[string]int
	order             []string
	mostQueued        int
	causes            map[string]string // of the last run
	handlingTime      time.Duration
	childrenOfAnOwner int
}

// child returns a child of an owner, marked in every way that sources support.
func child(owner string, n int, value string) configMap {
	obj := object(fmt.Sprintf("%s-%d", owner, n), value)
	obj.Labels = map[string]string{"owner": owner}
	yes := true
	obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: "u", Controller: &yes}}
	return obj
}

func ownerName(n int) string { return fmt.Sprint("o", n) }

func newFamily(t *testing.T, owners, childrenOfAnOwner int) *family {
	t.Helper()
	f := &family{
		t: t, handlingTime: time.Millisecond, childrenOfAnOwner: childrenOfAnOwner,
		runs: map[string]int{}, causes: map[string]string{},
	}
	f.owners, f.children = familyServers(owners, childrenOfAnOwner)
	f.childInformer = f.informer(f.children, false)
	f.config = config(f.owners, nil)
	f.config.Handler = nil
	f.config.Reconciler = f.reconcile
	return f
}

// families are the servers with the objects of families, by their sizes. Tests get forks of them.
var families sync.Map //nolint:gochecknoglobals // the servers in it never change

// familyServers returns servers with the owners and their children.
func familyServers(owners, childrenOfAnOwner int) (ownerServer, childServer *kindserver.Server[configMap]) {
	type servers struct{ owners, children *kindserver.Server[configMap] }
	size := [2]int{owners, childrenOfAnOwner}
	prepared, found := families.Load(size)
	if !found {
		both := servers{newServer(), newServer()}
		for n := range owners {
			both.owners.Put(object(ownerName(n), "1"))
			for c := range childrenOfAnOwner {
				both.children.Put(child(ownerName(n), c, "1"))
			}
		}
		prepared, _ = families.LoadOrStore(size, both)
	}
	return prepared.(servers).owners.Fork(), prepared.(servers).children.Fork()
}

func (f *family) informer(retriever informer.Retriever[configMap], optional bool) *informer.Informer[configMap] {
	f.t.Helper()
	inf, err := informer.New(informer.Config[configMap]{Name: "children", Retriever: retriever, Optional: optional, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	return inf
}

// source returns the source of the children.
func (f *family) source() controller.Source { return source.OwnerLabel(f.childInformer, "owner") }

func (f *family) reconcile(ctx context.Context, key kube.Key) error {
	run, _ := controller.RunFrom(ctx)
	queued := f.ctrl.Stats().Ready + f.ctrl.Stats().Delayed
	f.mu.Lock()
	f.runs[key.Name]++
	f.order = append(f.order, key.Name)
	f.causes[key.Name] = run.Causes.String()
	f.mostQueued = max(f.mostQueued, queued)
	f.mu.Unlock()
	time.Sleep(f.handlingTime)
	return nil
}

// start runs the controller.
func (f *family) start() (stop func() error) {
	f.t.Helper()
	if f.ctrl == nil {
		f.ctrl = newController(f.t, f.config)
	}
	return start(f.t, f.ctrl)
}

// take returns the number of runs of each key since the last call, and the order of the runs.
func (f *family) take() (runs map[string]int, order []string) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	runs, order = f.runs, f.order
	f.runs, f.order = map[string]int{}, nil
	return runs, order
}

// expectEachOnce fails unless n keys ran once each and the queue stayed small.
func (f *family) expectEachOnce(runs map[string]int, n int) {
	f.t.Helper()
	total := 0
	for _, times := range runs {
		total += times
	}
	if len(runs) != n || total != n {
		f.t.Errorf("%d runs of %d keys, want one of each of %d", total, len(runs), n)
	}
	if f.mostQueued > 1024 {
		f.t.Errorf("%d keys were queued at a time", f.mostQueued)
	}
}

// TestContract03_FirstPassWithSourcesHandlesEachObjectOnce checks that every owner is handled once at a start, and once
// when the controller leads again. This must hold for every kind of source that maps children to owners, for each order
// of the lists, and with Debounce. The queue must always have fewer keys than there are owners.
func TestContract03_FirstPassWithSourcesHandlesEachObjectOnce(t *testing.T) {
	owner := source.Owner{Kind: schema.GroupKind{Kind: "ConfigMap"}}
	sources := map[string]func(f *family) controller.Source{
		"owned": func(f *family) controller.Source { return source.OwnedIn(f.childInformer, owner) },
		"owned by": func(f *family) controller.Source {
			return source.OwnedBy(f.childInformer, func(o *metav1.PartialObjectMetadata) []kube.Key { return []kube.Key{key(o.Labels["owner"])} })
		},
		"owner label": func(f *family) controller.Source { return f.source() },
		"mapped": func(f *family) controller.Source {
			return source.Mapped(f.childInformer, func(o configMap) []kube.Key { return []kube.Key{key(o.Labels["owner"])} })
		},
		"own code": func(f *family) controller.Source { return &watching{objects: f.childInformer, owners: true} },
	}
	all := func(informer.Change) bool { return true }
	for name, test := range map[string]struct {
		source    string
		debounce  time.Duration
		late      string // the server with a list that comes a minute late
		predicate informer.Predicate
	}{
		"owned":                       {"owned", 0, "", nil},
		"owned by":                    {"owned by", 0, "children", nil},
		"mapped":                      {"mapped", 0, "owners", nil},
		"own code":                    {"own code", 0, "", nil},
		"owner label":                 {"owner label", 0, "", nil},
		"debounce":                    {"owner label", time.Second, "", nil},
		"debounce, owners late":       {"owner label", time.Second, "owners", nil},
		"predicate":                   {"owner label", 0, "", all},
		"predicate, owners late":      {"owned", 0, "owners", all},
		"predicate, children late":    {"mapped", 0, "children", all},
		"all of it":                   {"owned by", time.Second, "owners", all},
		"own code, debounce and late": {"own code", time.Second, "owners", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const owners = 1200 // more than may be queued
				f := newFamily(t, owners, 2)
				f.config.Sources = []controller.Source{sources[test.source](f)}
				f.config.Queue.Debounce, f.config.Predicate = test.debounce, test.predicate
				if server := map[string]*kindserver.Server[configMap]{"owners": f.owners, "children": f.children}[test.late]; server != nil {
					server.Fail("list", errors.New("not yet"))
					server.Fail("watch", errors.New("not yet"))
					time.AfterFunc(time.Minute, func() {
						server.Fail("list", nil)
						server.Fail("watch", nil)
					})
				}
				for range testlength.Count(1, 2) {
					stop := f.start()
					time.Sleep(time.Duration(testlength.Count(5, 10)) * time.Minute)
					runs, _ := f.take()
					f.expectEachOnce(runs, owners)
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// TestContract03_ChangesRunBeforeListedKeys checks that changed objects go first, even if all owners are about to
// be handled because of their children: in the first pass, and when a source is added.
func TestContract03_ChangesRunBeforeListedKeys(t *testing.T) {
	const owners = 1500
	first := func(f *family) {
		f.config.Sources = []controller.Source{f.source()}
		f.start()
	}
	added := func(f *family) {
		f.start()
		time.Sleep(time.Minute)
		f.take()
		if _, err := f.ctrl.AddSource(f.source()); err != nil {
			f.t.Fatal(err)
		}
	}
	for name, begin := range map[string]func(*family){"first pass": first, "added source": added} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFamily(t, owners, 2)
				f.config.Workers = 1
				begin(f)
				time.Sleep(100 * time.Millisecond)
				before, _ := f.take()
				waits, parent := "", "" // two owners that have not been handled yet
				for n := range owners {
					name := ownerName(n)
					if before[name] > 0 {
						continue
					}
					if waits != "" {
						parent = name
						break
					}
					waits = name
				}
				f.owners.Put(object(waits, "2"))
				f.children.Put(child(parent, 0, "2"))
				time.Sleep(time.Minute)
				after, order := f.take()
				if early := order[:4]; !slices.Contains(early, waits) || !slices.Contains(early, parent) {
					t.Errorf("%s and a child of %s changed; the next runs were %v", waits, parent, early)
				}
				for name, times := range before {
					after[name] += times
				}
				f.expectEachOnce(after, owners)
			})
		})
	}
}

// TestContract03_LaterListsAreHandledOnceAfterChanges checks that objects of lists that come while the
// controller works are handled once, after changes, and that a bounded number of them is queued at a time. The lists
// come from an added source, added namespaces, an informer that could not list before, and changes during a broken
// watch.
func TestContract03_LaterListsAreHandledOnceAfterChanges(t *testing.T) {
	owners := testlength.Count(1200, 3000)
	long := time.Duration(testlength.Count(11, 60)) * time.Minute // the informers check their watches every 10 minutes
	cut := func(server *kindserver.Server[configMap], meanwhile func()) {
		server.Fail("list", errors.New("away"))
		server.Fail("watch", errors.New("away"))
		server.DropWatches()
		time.Sleep(time.Minute)
		meanwhile()
		server.Compact()
		server.Fail("list", nil)
		server.Fail("watch", nil)
		time.Sleep(time.Minute) // the longest retry delay of an informer
	}
	withOwners := func(names ...string) *kindserver.Server[configMap] { return newServer(names...) }
	for name, test := range map[string]struct {
		children int
		optional bool
		lists    func(f *family) (want int)
	}{
		"added source": {2, false, func(f *family) int {
			if _, err := f.ctrl.AddSource(f.source()); err != nil {
				f.t.Error(err)
			}
			return owners
		}},
		"children's informer recovers": {2, true, func(f *family) int {
			f.children.Fail("list", nil)
			f.children.Fail("watch", nil)
			return owners
		}},
		"children's namespaces are added": {1, false, func(f *family) int {
			more := withOwners()
			for n := range owners {
				for c := range 2 {
					more.Put(child(ownerName(n), 10+c, "1"))
				}
			}
			if err := f.childInformer.SetRetriever(f.t.Context(), informer.Combine[configMap](f.children, more)); err != nil {
				f.t.Error(err)
			}
			return owners
		}},
		"children's namespaces are dropped": {2, false, func(f *family) int {
			if err := f.childInformer.SetRetriever(f.t.Context(), withOwners()); err != nil {
				f.t.Error(err)
			}
			return owners
		}},
		"namespaces are added": {0, false, func(f *family) int {
			more := withOwners()
			for n := range owners {
				more.Put(object(fmt.Sprint("more", n), "1"))
			}
			if err := f.ctrl.Informer().SetRetriever(f.t.Context(), informer.Combine[configMap](f.owners, more)); err != nil {
				f.t.Error(err)
			}
			return owners
		}},
		"children change while the watch is broken": {2, false, func(f *family) int {
			cut(f.children, func() {
				for n := range owners {
					f.children.Put(child(ownerName(n), 0, "2"))
					f.children.Delete(key(child(ownerName(n), 1, "").Name))
					f.children.Put(child(ownerName(n), 2, "1"))
				}
			})
			return owners
		}},
		"objects change while the watch is broken": {0, false, func(f *family) int {
			cut(f.owners, func() {
				for n := range owners {
					f.owners.Put(object(ownerName(n), "2"))
				}
			})
			return owners
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFamily(t, owners, test.children)
				f.config.Workers = 1
				f.owners.Put(object("changes", "1"))
				f.childInformer = f.informer(f.children, test.optional)
				if name != "added source" {
					f.config.Sources = []controller.Source{f.source()}
				}
				if test.optional {
					f.children.Fail("list", kube.ErrNotServed)
					f.children.Fail("watch", kube.ErrNotServed)
				}
				f.start()
				time.Sleep(long)
				runs, _ := f.take()
				f.expectEachOnce(runs, owners+1)

				f.handlingTime = 100 * time.Millisecond // slow enough that many keys are left when the list has come
				want := test.lists(f)
				time.Sleep(time.Minute)
				before, _ := f.take()
				if len(before) == 0 || len(before) == want {
					t.Fatalf("%d of %d keys have been handled: this is not the middle", len(before), want)
				}
				f.owners.Put(object("changes", "2"))
				time.Sleep(long)
				after, order := f.take()
				if !slices.Contains(order[:2], "changes") {
					t.Errorf("an object changed; the next runs were of %v", order[:2])
				}
				delete(after, "changes")
				for name, times := range before {
					after[name] += times
				}
				f.expectEachOnce(after, want)
			})
		})
	}
}

// TestContract02_ListedChildrenEnqueueUnselectedOwners checks keys that the first pass skips: keys without an
// object, and keys that a predicate drops. They are handled when their children are listed.
func TestContract02_ListedChildrenEnqueueUnselectedOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, 3, 1)
		f.children.Put(child("gone", 0, "1"))
		f.config.Sources = []controller.Source{f.source()}
		f.config.Predicate = func(c informer.Change) bool { return c.Key.Name != "o1" }
		f.start()
		time.Sleep(time.Minute)
		runs, _ := f.take()
		if want := map[string]int{"o0": 1, "o1": 1, "o2": 1, "gone": 1}; !maps.Equal(runs, want) {
			t.Errorf("runs %v, want %v", runs, want)
		}
		if got := f.causes["gone"]; got != "owner label children: gone-0 listed" && got != "owner label children: ns/gone-0 listed" {
			t.Errorf("causes of a key without an object: %s", got)
		}
		if got := f.causes["o0"]; got != "listed" {
			t.Errorf("causes of an object that the first pass handles: %s", got)
		}
	})
}

// TestContract02_KeyListedDuringRunIsHandledAgain checks that a key that is listed during its run is handled
// again, because the handler may have read the state before.
func TestContract02_KeyListedDuringRunIsHandledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, 1, 1)
		f.handlingTime = time.Minute
		f.start()
		time.Sleep(time.Second)
		if _, err := f.ctrl.AddSource(f.source()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if e := f.ctrl.Explained(key("o0")); e.Queued == nil || e.Queued.State != string(workqueue.ProcessingAgain) {
			t.Errorf("during the run:\n%s", e)
		}
		time.Sleep(time.Hour)
		if runs, _ := f.take(); runs["o0"] != 2 {
			t.Errorf("%d runs, want 2", runs["o0"])
		}
	})
}

// TestKeysInBacklogAreExplained checks that a key that waits for room in the queue is explained and counted.
func TestKeysInBacklogAreExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, 2000, 2)
		f.config.Workers, f.handlingTime = 1, time.Second
		f.config.Handler, f.config.Reconciler = handlerFunc(func(context.Context, configMap) error {
			time.Sleep(f.handlingTime)
			return nil
		}), nil
		f.handlingTime = 0
		f.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		f.handlingTime = time.Second
		if _, err := f.ctrl.AddSource(f.source()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		s := f.ctrl.Stats()
		if s.WaitingForRoom == 0 || s.WaitingForRoom+s.Ready+s.Processing < 1980 {
			t.Errorf("stats %+v", s)
		}
		waits := ""
		for n := range 2000 {
			if e := f.ctrl.Explained(key(ownerName(n))); len(e.WaitingForRoom.List()) > 0 {
				waits = e.String()
				break
			}
		}
		want := fmt.Sprintf("listed\n  busy workers: 1 of 1; ready keys: %d; keys that wait for room: %d\n", s.Ready, s.WaitingForRoom)
		if !strings.Contains(waits, "waits for room in the queue: owner label children: ") || !strings.Contains(waits, want) {
			t.Errorf("explained:\n%s\nwant:\n%s", waits, want)
		}
	})
}

// TestTriggerAll checks that a source that enqueues all objects causes one more run of each. An object that has not
// been handled yet runs only once, even if the source enqueues all during the first pass.
func TestTriggerAll(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		want  func(handled int) int // total of runs, by the number of objects handled before
	}{
		"before the first pass":    {-1, func(int) int { return 2000 }},
		"during the first pass":    {300 * time.Millisecond, func(handled int) int { return 2000 + handled }},
		"after the first pass":     {time.Hour, func(int) int { return 4000 }},
		"shortly before its end":   {1900 * time.Millisecond, func(handled int) int { return 2000 + handled }},
		"when it has just started": {time.Millisecond, func(handled int) int { return 2000 + handled }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFamily(t, 2000, 0)
				f.config.Workers = 1
				f.config.Predicate = func(c informer.Change) bool { return c.Key.Name != "dropped" }
				f.owners.Put(object("dropped", "1"))
				var enqueue controller.Enqueue
				f.config.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, e controller.Enqueue) error {
					enqueue = e
					<-ctx.Done()
					return nil
				})}
				all := controller.Trigger{All: true, Detail: "why"}
				if test.after < 0 {
					f.owners.Fail("list", errors.New("not yet"))
					f.owners.Fail("watch", errors.New("not yet"))
					f.start()
					synctest.Wait()
					enqueue(kube.Key{}, all)
					f.owners.Fail("list", nil)
					f.owners.Fail("watch", nil)
				} else {
					f.start()
					time.Sleep(test.after)
				}
				synctest.Wait()
				f.mu.Lock()
				handled := len(f.runs)
				f.mu.Unlock()
				if test.after >= 0 {
					for range 3 {
						enqueue(kube.Key{}, all)
					}
				}
				time.Sleep(time.Hour)
				runs, order := f.take()
				// A key runs twice if a worker has taken it and not yet started it when the pass reaches it.
				if want := test.want(handled); len(order) < want || len(order) > want+f.config.Workers {
					t.Errorf("%d runs, want %d; %d had run before", len(order), want, handled)
				}
				for name, times := range runs {
					if times > 2 || name == "dropped" {
						t.Errorf("%s ran %d times", name, times)
					}
				}
				if f.mostQueued > 1024 {
					t.Errorf("%d keys were queued at a time", f.mostQueued)
				}
				if test.after == time.Hour && f.causes["o7"] != "func: triggered (why)" {
					t.Errorf("causes: %s", f.causes["o7"])
				}
			})
		})
	}
}

// TestRunsDuringFirstPassAreFirstRuns checks that a run that starts before the first pass reaches its object
// counts as the object's first run, for any cause, including a child that a source lists.
func TestRunsDuringFirstPassAreFirstRuns(t *testing.T) {
	for name, why := range map[string]controller.Trigger{
		"triggered":               {Priority: controller.PriorityHigh},
		"listed by a source":      {Type: controller.CauseListed, Priority: controller.PriorityHigh},
		"listed, at low priority": {Type: controller.CauseListed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const objects = 1500
				f := newFamily(t, objects, 0)
				f.config.Workers = 1
				f.config.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
					time.Sleep(10 * time.Millisecond)
					for n := range objects {
						enqueue(key(ownerName(n)), why)
					}
					<-ctx.Done()
					return nil
				})}
				f.start()
				time.Sleep(time.Hour)
				runs, order := f.take()
				if len(runs) != objects || len(order) > objects+12 { // keys that started within 10 ms run again
					t.Errorf("%d runs of %d objects", len(order), len(runs))
				}
			})
		})
	}
}

// TestPassRunsKeyWithRevertedOwnWrite checks a run that enqueues all objects and then writes. The watch shows the
// write before its response comes, so the cause is removed. The key must still run again for the pass.
func TestPassRunsKeyWithRevertedOwnWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		enqueue := make(chan controller.Enqueue, 1)
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			if fmt.Sprint(widget.Object["spec"]) != "map[value:2]" || strings.Contains(causesOf(ctx), "why") {
				return nil
			}
			(<-enqueue)(kube.Key{}, controller.Trigger{All: true, Detail: "why"})
			return w.patch(ctx, "widgets", widget.GetName(), `{"status":{"n":1}}`, "status")
		})
		c.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, e controller.Enqueue) error {
			enqueue <- e
			<-ctx.Done()
			return nil
		})}
		w.after(http.MethodPatch, func() { time.Sleep(time.Second) })
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Second)
		w.put("widgets", "a", 2)
		time.Sleep(time.Minute)
		if got := runs.take(); len(got) != 3 || got[2] != "func: triggered (why)" {
			t.Errorf("runs %q, want one more, for the pass\n%s", got, ctrl.Explain(key("a")))
		}
	})
}

// TestConstantListsDoNotStopResyncsAndPasses checks that resyncs and passes make progress although a source
// enqueues more keys than can be handled.
func TestConstantListsDoNotStopResyncsAndPasses(t *testing.T) {
	for name, resync := range map[string]time.Duration{"resync": time.Minute, "pass": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFamily(t, 1, 0)
				f.config.Workers, f.config.ResyncInterval = 1, resync
				f.handlingTime = 50 * time.Millisecond
				all := make(chan struct{})
				f.config.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
					for ctx.Err() == nil {
						for n := range 1200 {
							enqueue(key(fmt.Sprint("found", n)), controller.Trigger{FromList: true})
						}
						select {
						case <-all:
							enqueue(kube.Key{}, controller.Trigger{All: true})
						case <-time.After(10 * time.Second): // 1200 keys take a minute
						}
					}
					return nil
				})}
				f.start()
				time.Sleep(time.Minute)
				want := 6 // of 10 resyncs; each of them waits for a round of the other keys
				if f.take(); resync < 0 {
					all <- struct{}{}
					want = 1
				}
				time.Sleep(10 * time.Minute)
				if runs, _ := f.take(); runs[ownerName(0)] < want {
					t.Errorf("in 10 min the object was handled %d times, want %d", runs[ownerName(0)], want)
				}
			})
		})
	}
}

// TestContract11_RunHasBacklogCauses checks that a run that another cause starts has the causes for which its
// key waits in the backlog.
func TestContract11_RunHasBacklogCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, 1, 0)
		changed := make(chan struct{})
		f.config.Sources = []controller.Source{controller.SourceFunc(func(_ context.Context, enqueue controller.Enqueue) error {
			<-changed
			enqueue(key(ownerName(0)), controller.Trigger{Type: controller.CauseUpdated, Detail: "machine 7", FromList: true})
			enqueue(key(ownerName(0)), controller.Trigger{Detail: "other"})
			return nil
		})}
		f.start()
		time.Sleep(time.Minute)
		f.take()
		close(changed)
		time.Sleep(time.Minute)
		runs, _ := f.take()
		causes := f.causes[ownerName(0)] // as the handler reads them
		if want := "func: triggered (other), func: updated (machine 7)"; runs[ownerName(0)] != 1 || causes != want {
			t.Errorf("%d runs, the last for %q, want one for %q", runs[ownerName(0)], causes, want)
		}
	})
}

// TestPassEndsBackoffOfEnqueuedKey checks that a pass ends the backoff of a key, even if a cause
// that does not end it is enqueued for the key at the same time.
func TestPassEndsBackoffOfEnqueuedKey(t *testing.T) {
	change := informer.Change{Type: informer.Listed, Key: key("child")}
	for name, meanwhile := range map[string]controller.Trigger{
		"nothing":                  {All: true, Detail: "why"},
		"a change":                 {Change: change, Priority: controller.PriorityHigh},
		"what a list has found":    {Change: change},
		"a child that was updated": {Type: controller.CauseUpdated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFamily(t, 1, 1)
				var enqueue controller.Enqueue
				f.config.Sources = []controller.Source{f.source(), controller.SourceFunc(func(ctx context.Context, e controller.Enqueue) error {
					enqueue = e
					<-ctx.Done()
					return nil
				})}
				f.config.Retry.Every = retry.Policy{Base: time.Hour, Max: time.Hour, Jitter: -1}
				f.config.Reconciler = func(ctx context.Context, k kube.Key) error {
					_ = f.reconcile(ctx, k)
					return errors.New("no")
				}
				f.start()
				time.Sleep(time.Minute)
				f.take()
				enqueue(kube.Key{}, controller.Trigger{All: true, Detail: "why"})
				if name == "a child that was updated" {
					f.children.Put(child(ownerName(0), 0, "2"))
				} else {
					enqueue(key(ownerName(0)), meanwhile)
				}
				time.Sleep(time.Minute)
				// A child brings the run forward: it is a run since the pass was requested.
				runs, _ := f.take()
				isWhy := strings.Contains(f.causes[ownerName(0)], "why") || name == "a child that was updated"
				if runs[ownerName(0)] != 1 || !isWhy {
					t.Errorf("%d runs, the last for %q\n%s", runs[ownerName(0)], f.causes[ownerName(0)], f.ctrl.Explain(key(ownerName(0))))
				}
			})
		})
	}
}

// TestPassRunsKeyWithRevertedListedWrite checks a list that shows the write of a running handler, and a pass over
// all objects that is enqueued at that time. The cause is removed when the response to the write comes. The key must
// run again for the pass.
func TestPassRunsKeyWithRevertedListedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		var enqueue atomic.Value // a controller.Enqueue
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			runs.add("%s", causesOf(ctx))
			if fmt.Sprint(widget.Object["spec"]) != "map[value:2]" || strings.Contains(causesOf(ctx), "why") {
				return nil
			}
			return w.patch(ctx, "widgets", widget.GetName(), `{"status":{"n":1}}`, "status")
		})
		c.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, e controller.Enqueue) error {
			enqueue.Store(e)
			<-ctx.Done()
			return nil
		})}
		var writing atomic.Bool
		w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			switch {
			case req.Method == http.MethodPatch:
				w.HoldWatches("widgets")
				resp := do()
				writing.Store(true)
				w.Break("widgets", true)
				w.ReleaseWatches("widgets")
				time.Sleep(30 * time.Second)
				return resp, nil
			case writing.Load() && (req.URL.Query().Get("sendInitialEvents") == "true" || !req.URL.Query().Has("watch")):
				time.AfterFunc(time.Millisecond, func() { enqueue.Load().(controller.Enqueue)(kube.Key{}, controller.Trigger{All: true, Detail: "why"}) })
			}
			return do(), nil
		})
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Second)
		w.put("widgets", "a", 2)
		time.Sleep(3 * time.Minute)
		if got := runs.take(); len(got) == 0 || !strings.Contains(got[len(got)-1], "why") {
			t.Errorf("runs %q, want one more, for the pass\n%s", got, ctrl.Explain(key("a")))
		}
	})
}
