package informer_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// states records changes with the values before and after.
type states struct {
	*testing.T
	lines []string
	last  informer.Change
}

func (s *states) notify(c informer.Change) {
	s.last = c
	value := func(o *wire.Object, err error) string {
		if err != nil {
			s.Error(err)
		}
		if o == nil {
			return "-"
		}
		if o.Key != c.Key {
			s.Errorf("the change of %s has a state of %s", c.Key, o.Key)
		}
		return o.ResourceVersion
	}
	// New is read before Old, and both are read twice, because the order of reading must not matter.
	after, before := value(cache.Of(c).New()), value(cache.Of(c).Old())
	if value(cache.Of(c).New()) != after || value(cache.Of(c).Old()) != before {
		s.Error("read again, the states differ")
	}
	old, obj, err := informer.Decode[configMap](c)
	if err != nil {
		s.Error(err)
	}
	text := func(m configMap) string {
		if m == nil {
			return "-"
		}
		return m.Data["value"]
	}
	s.lines = append(s.lines, fmt.Sprintf("%s %s: %s=%s to %s=%s", c.Type, c.Key.Name, before, text(old), after, text(obj)))
	if obj != nil {
		obj.Data["value"] = "changed by a subscriber"
	}
}

func (s *states) take() []string {
	lines := s.lines
	s.lines = nil
	return lines
}

func TestSubscribersReadStatesOfChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, nil)
		early, later := &states{T: t}, &states{T: t}
		defer f.informer.Subscribe(early.notify)()
		server.Put(object("a", "2"))
		server.Put(object("b", "1"))
		synctest.Wait()
		defer f.informer.Subscribe(later.notify)()
		server.Delete(key("a"))
		synctest.Wait()
		last := "deleted a: 1002=2 to -=-"
		if diff := cmp.Diff([]string{"listed a: -=- to 1001=1", "updated a: 1001=1 to 1002=2", "added b: -=- to 1003=1", last}, early.take()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		got := later.take()
		slices.Sort(got[:2]) // present objects are announced in no particular order
		if diff := cmp.Diff([]string{"listed a: -=- to 1002=2", "listed b: -=- to 1003=1", last}, got); diff != "" {
			t.Errorf("who subscribed later (-want +got):\n%s", diff)
		}
		// The states cannot be read after the call.
		before, err := cache.Of(later.last).Old()
		after, err2 := cache.Of(later.last).New()
		if before != nil || after != nil || err != nil || err2 != nil {
			t.Errorf("after the call, the states are %v and %v (%v, %v)", before, after, err, err2)
		}
	})
}

func TestFailingSubscriberDoesNotStopInformer(t *testing.T) {
	for name, fails := range map[string]func(){"panicked": func() { panic("no index") }, "called runtime.Goexit": runtime.Goexit} {
		for when, late := range map[string]bool{"before the start": false, "later": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newServer(true, object("a", "1"))
					logs, calls, seen := &logBuffer{}, 0, &recorder{}
					inf, err := informer.New(informer.Config[configMap]{Name: "test", Retriever: server, Logger: logs.logger()})
					if err != nil {
						t.Fatal(err)
					}
					if late {
						defer joinSynced(t, inf)()
					}
					unsubscribe := inf.Subscribe(func(informer.Change) { calls++; fails() })
					defer inf.Subscribe(seen.notify)()
					if !late {
						defer joinSynced(t, inf)()
					}
					server.Put(object("b", "1"))
					synctest.Wait()
					server.Put(object("b", "2"))
					synctest.Wait()
					unsubscribe()
					server.Delete(key("b"))
					synctest.Wait()
					if diff := cmp.Diff([]string{"listed a", "added b", "updated b", "deleted b"}, seen.take()); diff != "" || calls != 3 {
						t.Errorf("%d calls, want 3; the other subscriber (-want +got):\n%s", calls, diff)
					}
					if err := inf.Ready(); err != nil {
						t.Error(err)
					}
					text := logs.String()
					if !strings.Contains(text, "function "+name) || strings.Count(text, "level=ERROR") != 1 || strings.Count(text, "stack=") != 1 {
						t.Errorf("the log does not have one stack:\n%s", text)
					}
				})
			})
		}
	}
}

// failingStop is a Retriever with watches whose Stop fails.
type failingStop struct {
	*kindserver.Server[configMap]
	fails func()
}

func (r failingStop) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := r.Server.Watch(ctx, opts)
	return stoppable{w, r.fails}, err
}

type stoppable struct {
	watch.Interface
	fails func()
}

func (s stoppable) Stop() { s.Interface.Stop(); s.fails() }

func TestFailingStopOfWatchDoesNotStopInformer(t *testing.T) {
	for name, fails := range map[string]func(){"panicked": func() { panic("closed twice") }, "called runtime.Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true, object("a", "1"))
				f := start(t, server, failingStop{server, fails})
				f.expect("listed a")
				f.offline(func() { server.Put(object("a", "2")) })
				f.expect("updated a")
				f.stop()
				if text := f.logs.String(); !strings.Contains(text, "function "+name) {
					t.Errorf("the log does not have the failure:\n%s", text)
				}
			})
		})
	}
}

func TestDeletedAndCreatedAgainHasBothStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		first := server.Put(object("a", "1"))
		var second configMap
		f := start(t, server, nil)
		seen := &states{T: t}
		uids := []string{}
		defer f.informer.Subscribe(func(c informer.Change) {
			seen.notify(c)
			if old, err := cache.Of(c).Old(); err == nil && old != nil {
				uids = append(uids, string(old.UID))
			}
			if obj, err := cache.Of(c).New(); err == nil && obj != nil {
				uids = append(uids, string(obj.UID))
			}
		})()
		f.offline(func() {
			server.Delete(key("a"))
			second = server.Put(object("a", "2"))
			server.Compact()
		})
		if diff := cmp.Diff([]string{"listed a: -=- to 1001=1", "updated a: 1001=1 to 1003=2"}, seen.take()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{string(first.UID), string(first.UID), string(second.UID)}, uids); diff != "" {
			t.Errorf("UIDs (-want +got):\n%s", diff)
		}
	})
}

// A subscriber may read the informer while it receives a change, and gets the new state.
func TestSubscribersReadAnnouncedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, nil)
		defer f.informer.Subscribe(func(c informer.Change) {
			obj, found, err := f.informer.Get(c.Key)
			if err != nil || found != (c.Type != informer.Deleted) {
				t.Errorf("%s: found %v, %v", c.Type, found, err)
			}
			if _, after, _ := informer.Decode[configMap](c); found && after.Data["value"] != obj.Data["value"] {
				t.Errorf("%s with %v, while Get finds %v", c.Type, after.Data, obj.Data)
			}
			f.informer.Health()
			f.informer.Len()
			f.informer.Snapshot()
			if f.informer.Ready() != nil {
				t.Error("not ready")
			}
		})()
		server.Put(object("a", "2"))
		server.Put(object("b", "1"))
		server.Delete(key("a"))
		synctest.Wait()
	})
}

func TestNewChangeHasStatesAndKey(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	c, err := informer.NewChange(informer.Updated, kind, object("a", "1"), object("a", "2"))
	if err != nil {
		t.Fatal(err)
	}
	old, obj, err := informer.Decode[configMap](c)
	if err != nil || old.Data["value"] != "1" || obj.Data["value"] != "2" || c.Kind() != kind || c.Key != key("a") {
		t.Errorf("%v, %v, %v of %s %s", old, obj, err, c.Kind(), c.Key)
	}
	if c, err := informer.NewChange(informer.Deleted, kind, object("a", "1"), nil); err != nil || c.Key != key("a") {
		t.Errorf("the key of a deletion is %s, %v", c.Key, err)
	}
	var zero informer.Change
	before, err := cache.Of(zero).Old()
	after, err2 := cache.Of(zero).New()
	if before != nil || after != nil || err != nil || err2 != nil || !zero.Kind().Empty() || zero.Key != (kube.Key{}) {
		t.Error("the zero Change has states")
	}
}

// The result of Later does not depend on later changes of the object.
func TestLaterReturnsDifferenceAtTimeOfChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		inf := start(t, server, nil).informer
		synctest.Wait()
		type told struct {
			now   kube.ChangedParts
			later func() kube.ChangedParts
		}
		var all []told
		defer inf.Subscribe(func(c informer.Change) {
			if c.Type == informer.Updated {
				later := cache.Of(c).Later()
				all = append(all, told{c.Changed(kube.ChangedAnything), later})
			}
		})()
		for _, value := range []string{"2", "3"} {
			server.Put(object("a", value))
		}
		labelled := object("a", "3")
		labelled.Labels = map[string]string{"x": "y"}
		server.Put(labelled)
		server.Delete(key("a"))
		synctest.Wait()
		if len(all) != 3 {
			t.Fatalf("%d updates", len(all))
		}
		for i, each := range all {
			if got := each.later(); got != each.now || got == 0 {
				t.Errorf("update %d: later it is %s, then it was %s", i, got, each.now)
			}
		}
		if all[2].now&kube.ChangedLabels == 0 {
			t.Errorf("the last update changed %s", all[2].now)
		}
	})
}

func TestChangedAndManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, nil)
		var lines []string
		notify := func(c informer.Change) {
			// The result must not depend on whether the parts are compared separately, all at once, or after the states
			// were read.
			head := c.Changed(kube.ChangedUID | kube.ChangedResourceVersion)
			all := c.Changed(kube.ChangedAnything)
			if _, err := cache.Of(c).Old(); err != nil {
				t.Error(err)
			}
			if second := c.Changed(kube.ChangedUID | kube.ChangedResourceVersion); second != head || !all.Has(head) && head != 0 {
				t.Errorf("%s: %s, then %s, of %s", c.Type, head, second, all)
			}
			lines = append(lines, fmt.Sprintf("%s: %s by %q", c.Type, all, c.Manager()))
		}
		defer f.informer.Subscribe(notify)()
		defer f.informer.Subscribe(notify)()
		time.Sleep(time.Second) // the manager of a change is the one with the latest time
		server.Edit("configmaps", key("a"), "other", func(obj map[string]any) bool {
			obj["data"] = map[string]any{"value": "2"}
			obj["metadata"].(map[string]any)["labels"] = map[string]any{"x": "y"}
			return true
		})
		time.Sleep(time.Second)
		// An apply that changes no other field than the managed ones has no time.
		server.Apply("configmaps", key("a"), "third", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"value":"2"}}`)
		server.Delete(key("a"))
		synctest.Wait()
		want := []string{
			`listed: nothing by ""`, `listed: nothing by ""`,
			`updated: resourceVersion,labels,spec by "other"`, `updated: resourceVersion,labels,spec by "other"`,
			`updated: resourceVersion by "other"`, `updated: resourceVersion by "other"`,
			`deleted: nothing by ""`, `deleted: nothing by ""`,
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestNewChangeEqualsWatchedChange(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	state := func(value string) configMap {
		obj := object("a", value)
		obj.UID = "u"
		return obj
	}
	newChange := func(c informer.ChangeType, before, after kube.Object) informer.Change {
		change, err := informer.NewChange(c, kind, before, after)
		if err != nil {
			t.Fatal(err)
		}
		return change
	}
	updated := newChange(informer.Updated, state("1"), state("2"))
	deleted := newChange(informer.Deleted, state("1"), nil)
	if cache.Of(updated).Complete() || !cache.Of(deleted).Complete() || updated.FromList() || deleted.FromList() {
		t.Error("an update is certain, or a deletion is not, or one is from a list")
	}
	if !updated.Changed(kube.ChangedAnything).Has(kube.ChangedSpec) {
		t.Errorf("changed %s", updated.Changed(kube.ChangedAnything))
	}
	for _, c := range []informer.Change{newChange(informer.Added, nil, state("2")), {}} {
		if cache.Of(c).Complete() || c.Changed(kube.ChangedAnything) != 0 {
			t.Errorf("%s is certain", c.Type)
		}
	}
}

// The first panic of each subscriber is logged.
func TestEachFailingSubscriberIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		logs := &logBuffer{}
		inf, err := informer.New(informer.Config[configMap]{Name: "test", Retriever: server, Logger: logs.logger()})
		if err != nil {
			t.Fatal(err)
		}
		defer inf.Subscribe(func(informer.Change) { panic("first cause") })()
		defer inf.Subscribe(func(informer.Change) { panic("second cause") })()
		defer joinSynced(t, inf)()
		synctest.Wait()
		if n := strings.Count(logs.String(), "level=ERROR"); n != 2 {
			t.Errorf("%d errors are logged, want one for each of the two functions:\n%s", n, logs.String())
		}
	})
}
