package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// An open watch that delivers nothing, although there are changes, is reported, and the missing changes are listed.
func TestSilentWatchIsReportedAndReplaced(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		for name, test := range map[string]struct {
			bookmarks bool
			happens   func(f fixture)
			names     string
			within    time.Duration
			tells     []string
		}{
			"an update":  {true, func(f fixture) { f.server.Put(object("a", "2")) }, "ns/a at resource version 1003", 3 * time.Minute, []string{"updated a"}},
			"a creation": {true, func(f fixture) { f.server.Put(object("c", "1")) }, "ns/c at resource version 1003", 3 * time.Minute, []string{"added c"}},
			"a deletion": {true, func(f fixture) { f.server.Delete(key("b")) }, "that ns/b is gone", 3 * time.Minute, []string{"deleted b"}},
			"another object of the name": {true, func(f fixture) {
				f.server.Delete(key("b"))
				f.server.Put(object("b", "1"))
			}, "ns/b at resource version 1004", 3 * time.Minute, []string{"updated b"}},
			"much": {true, func(f fixture) {
				f.server.Delete(key("b"))
				for i := range 200 {
					f.server.Put(object("a", fmt.Sprint(i)))
				}
			}, "one of at least 2 differences", 3 * time.Minute, []string{"deleted b", "updated a"}},
			"without bookmarks": {false, func(f fixture) { f.server.Put(object("a", "2")) }, "ns/a at resource version 1003", 11 * time.Minute, []string{"updated a"}},
		} {
			t.Run(fmt.Sprintf("%s, watchList=%v", name, watchList), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newServer(watchList, object("a", "1"), object("b", "1"))
					f := start(t, server, nil)
					if test.bookmarks {
						server.Bookmark()
					}
					f.expectOnce("listed a", "listed b")
					server.Mute(true)
					test.happens(f)
					time.Sleep(test.within - time.Minute)
					f.expect()
					if err := f.informer.Ready(); err != nil {
						t.Fatalf("too early: %v", err)
					}
					time.Sleep(time.Minute)
					err := f.informer.Health().Err
					if !errors.Is(err, cache.ErrSilentWatch) || !strings.Contains(err.Error(), test.names) {
						t.Errorf("the error is %v, want it to name %q", err, test.names)
					}
					f.expectOnce(test.tells...)
					if n := strings.Count(f.logs.String(), "level=WARN"); n != 1 {
						t.Errorf("logged %d times, want once:\n%s", n, f.logs)
					}

					// The new watch is open, but it has delivered nothing either.
					time.Sleep(time.Minute)
					if err := f.informer.Ready(); err == nil {
						t.Error("a watch that has brought nothing is believed")
					}
					server.Mute(false)
					server.Bookmark()
					synctest.Wait()
					if err := f.informer.Ready(); err != nil {
						t.Errorf("after a bookmark: %v", err)
					}
				})
			})
		}
	}
}

// patient is a server that does not end watches after the time that the client asks for.
type patient struct {
	*kindserver.Server[configMap]
}

func (p patient) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.TimeoutSeconds = nil
	return p.Server.Watch(ctx, options)
}

// A quiet watch is verified periodically, which also updates the staleness. The error ends when a list shows no
// difference.
func TestQuietWatchIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "1"))
		f := start(t, server, patient{server})
		first, watches, _ := server.Counts()
		for round := range 2 { // the server ends a watch after half an hour at the earliest
			time.Sleep(9 * time.Minute)
			if stale := cache.Of(f.informer).Staleness(); stale < 8*time.Minute || stale > 9*time.Minute+10*time.Second || stale != f.informer.Health().Staleness {
				t.Errorf("round %d: stale for %s", round, stale)
			}
			time.Sleep(time.Minute + time.Second)
			if stale := cache.Of(f.informer).Staleness(); stale > 10*time.Second {
				t.Errorf("round %d: stale for %s after it was verified", round, stale)
			}
			if lists, _, _ := server.Counts(); lists != first+round+1 {
				t.Errorf("round %d: %d lists", round, lists-first)
			}
		}
		if _, opened, _ := server.Counts(); opened != watches {
			t.Error("a quiet watch was ended")
		}
		f.expect("listed a")
		if err := f.informer.Ready(); err != nil || strings.Contains(f.logs.String(), "level=WARN") {
			t.Errorf("Ready: %v; logged:\n%s", err, f.logs)
		}

		server.Bookmark()
		synctest.Wait()
		server.Mute(true)
		server.Put(object("a", "2"))
		time.Sleep(3 * time.Minute)
		if err := f.informer.Ready(); !errors.Is(err, cache.ErrSilentWatch) {
			t.Fatalf("Ready: %v", err)
		}
		time.Sleep(3 * time.Minute)
		if err := f.informer.Ready(); err != nil {
			t.Errorf("after a list that agrees: %v", err)
		}
	})
}

// A failed list does not show whether the watch is silent.
func TestUnverifiedSilenceIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "1"))
		f := start(t, server, nil)
		server.Bookmark()
		synctest.Wait()
		server.Fail("list", errors.New("too busy"))
		server.Mute(true)
		server.Put(object("a", "2"))
		before, _, _ := server.Counts()
		time.Sleep(8 * time.Minute)
		if err := f.informer.Ready(); err != nil || strings.Contains(f.logs.String(), "level=WARN") {
			t.Errorf("Ready: %v; logged:\n%s", err, f.logs)
		}
		if after, _, _ := server.Counts(); after != before+3 {
			t.Errorf("%d lists", after-before)
		}
		if stale := cache.Of(f.informer).Staleness(); stale < 8*time.Minute {
			t.Errorf("stale for %s, though nothing was verified", stale)
		}
		server.Fail("list", nil)
		time.Sleep(3 * time.Minute)
		if err := f.informer.Ready(); !errors.Is(err, cache.ErrSilentWatch) {
			t.Errorf("Ready: %v", err)
		}
	})
}

func TestEventsInFlightAreNotReportedAsSilence(t *testing.T) {
	for name, arrive := range map[string]func(f fixture){
		"they come":        func(f fixture) { f.server.Mute(false) },
		"a bookmark comes": func(f fixture) { f.server.Mute(false); f.server.Bookmark() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true, object("a", "1"))
				f := start(t, server, nil)
				server.Bookmark()
				synctest.Wait()
				server.Mute(true)
				server.Put(object("a", "2"))
				time.Sleep(150*time.Second + time.Second)
				if lists, _, _ := server.Counts(); lists != 1 {
					t.Fatalf("%d lists", lists)
				}
				arrive(f)
				f.expectOnce("listed a", "updated a")
				time.Sleep(2 * time.Minute)
				if _, watches, _ := server.Counts(); watches != 1 {
					t.Errorf("%d watches", watches)
				}
				if err := f.informer.Ready(); err != nil || strings.Contains(f.logs.String(), "level=WARN") {
					t.Errorf("Ready: %v; logged:\n%s", err, f.logs)
				}
			})
		})
	}
}

// Watches end and are opened again every few minutes. A new watch does not end the silence.
func TestSilenceLastsAcrossWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, nil)
		server.Mute(true)
		server.Put(object("a", "2"))
		for range 11 {
			time.Sleep(time.Minute)
			server.DropWatches()
		}
		time.Sleep(time.Minute)
		f.expectOnce("listed a", "updated a")
	})
}

// If the watches of a server deliver nothing, its cache may be stale too, so the list must not come from the cache.
func TestListAfterSilenceReadsCurrentState(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("a", "1"))
				c := &cached{Server: server}
				f := startWith(t, server, informer.Config[configMap]{Retriever: c})
				server.Bookmark()
				f.expect("listed a")
				server.Mute(true)
				c.stuck.Store(true)
				server.Put(object("a", "2"))
				time.Sleep(3 * time.Minute)
				f.expect("updated a")
				// Later lists may use the server's cache.
				c.stuck.Store(false)
				server.Mute(false)
				c.named.Store(false)
				f.offline(func() { server.Put(object("a", "3")); server.Compact() })
				f.expect("updated a")
				if !c.named.Load() {
					t.Error("no list asks for a version any more")
				}
			})
		})
	}
}

// cached is a server with a cache that can be stuck. Then a list that is not a consistent read fails.
type cached struct {
	*kindserver.Server[configMap]
	stuck, named atomic.Bool
}

func (c *cached) lists(opts metav1.ListOptions) error {
	if opts.ResourceVersion == "" {
		return nil
	}
	c.named.Store(true)
	if c.stuck.Load() {
		return errors.New("stuck")
	}
	return nil
}

func (c *cached) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if err := c.lists(opts); err != nil {
		return nil, err
	}
	return c.Server.List(ctx, opts)
}

func (c *cached) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		if err := c.lists(opts); err != nil {
			return nil, err
		}
	}
	return c.Server.Watch(ctx, opts)
}

// paged is a server that lists in pages of two, in the order of names. between is called before each page except the
// first.
type paged struct {
	*kindserver.Server[configMap]
	between func(context.Context, metav1.ListOptions) error
}

// Watch requests a watch that lasts longer than the test.
func (p paged) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return patient{p.Server}.Watch(ctx, options)
}

func (p paged) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	from := 0
	if opts.Continue != "" {
		if err := p.between(ctx, opts); err != nil {
			return nil, err
		}
		_, _ = fmt.Sscan(opts.Continue, &from)
	}
	all, err := p.Server.List(ctx, metav1.ListOptions{})
	if err != nil || opts.Limit == 0 {
		return all, err
	}
	list := all.(*corev1.ConfigMapList)
	slices.SortFunc(list.Items, func(a, b corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	if end := from + 2; end < len(list.Items) {
		list.Continue = fmt.Sprint(end)
		list.Items = list.Items[:end]
	}
	list.Items = list.Items[from:]
	return list, nil
}

func TestVerificationReadsAllPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			server.Put(object(name, "1"))
		}
		pages := 0
		f := startWith(t, server, informer.Config[configMap]{Retriever: paged{server, func(context.Context, metav1.ListOptions) error { pages++; return nil }}})
		server.Bookmark()
		time.Sleep(3 * time.Minute)
		if err := f.informer.Ready(); err != nil || pages != 2 || cache.Of(f.informer).Staleness() > time.Minute {
			t.Errorf("after %d further pages: stale for %s, Ready: %v", pages, cache.Of(f.informer).Staleness(), err)
		}
		f.seen.take()
		server.Mute(true)
		server.Put(object("e", "2"))
		time.Sleep(3 * time.Minute)
		f.expect("updated e")
	})
}

// The end of the run, the end of the watch, and the timeout each end a verification.
func TestVerificationThatHangs(t *testing.T) {
	var hung atomic.Int32
	hang := func(ctx context.Context, _ metav1.ListOptions) error { hung.Add(1); <-ctx.Done(); return ctx.Err() }
	for name, test := range map[string]func(f fixture){
		"the end of the run": func(f fixture) {
			began := time.Now()
			f.stop()
			if took := time.Since(began); took > 0 {
				f.Errorf("it took %s to stop", took)
			}
		},
		"the end of the watch": func(f fixture) {
			f.server.Mute(false)
			f.server.DropWatches()
			time.Sleep(10 * time.Second)
			f.expect("updated a")
			f.stop()
		},
		"its patience": func(f fixture) {
			before := hung.Load()
			time.Sleep(4 * time.Minute)
			if n := hung.Load() - before; n != 1 {
				f.Errorf("tried again %d times", n)
			}
			if err := f.informer.Ready(); err != nil || strings.Contains(f.logs.String(), "level=WARN") {
				f.Errorf("Ready: %v; logged:\n%s", err, f.logs)
			}
			f.stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true)
				for _, name := range []string{"a", "b", "c"} {
					server.Put(object(name, "1"))
				}
				f := startWith(t, server, informer.Config[configMap]{Retriever: paged{server, hang}})
				server.Bookmark()
				f.expectOnce("listed a", "listed b", "listed c")
				server.Mute(true)
				server.Put(object("a", "2"))
				time.Sleep(155 * time.Second)
				test(f)
			})
		})
	}
}

// A slow subscriber must not look like a silent server.
func TestSlowSubscriberIsNotReportedAsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		f := start(t, server, nil)
		f.stop()
		f.seen.take()
		defer f.informer.Subscribe(func(informer.Change) { time.Sleep(time.Hour) })()
		stop := testrun.Start(t, f.informer.Run)
		defer stop()
		time.Sleep(time.Second)
		server.Bookmark()
		server.Put(object("a", "1"))
		server.Put(object("b", "1"))
		time.Sleep(3 * time.Hour)
		f.expect("added a", "added b")
		if logs := f.logs.String(); strings.Contains(logs, "silent") {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

func TestStalenessIsMaximumOfParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := newServer(true), newServer(false)
		f := start(t, one, informer.Combine[configMap](one, other))
		time.Sleep(3 * time.Minute)
		one.Put(object("a", "1"))
		synctest.Wait()
		if stale := cache.Of(f.informer).Staleness(); stale != 3*time.Minute {
			t.Errorf("stale for %s", stale)
		}
		other.Bookmark()
		time.Sleep(time.Second)
		if stale := cache.Of(f.informer).Staleness(); stale != time.Second {
			t.Errorf("stale for %s", stale)
		}
		fail(one, errors.New("down"))
		one.DropWatches()
		time.Sleep(time.Minute)
		if stale := cache.Of(f.informer).Staleness(); stale < time.Minute {
			t.Errorf("stale for %s, though nothing can be read", stale)
		}
		f.stop()
		if stale := cache.Of(f.informer).Staleness(); stale != 0 || f.informer.Health().Staleness != 0 {
			t.Errorf("stale for %s, though it does not run", stale)
		}
	})
}

// Any event shows that a watch is not silent, even if others are missing.
func TestWatchWithAnyEventIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "1"))
		w := watch.NewFakeWithChanSize(10, false)
		f := start(t, server, scripted{server, func(metav1.ListOptions) (watch.Interface, error) { return w, nil }})
		mark := func() {
			w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1001"}})
			synctest.Wait()
		}
		mark()
		server.Put(object("a", "2"))
		time.Sleep(152 * time.Second)
		mark()
		time.Sleep(2 * time.Minute)
		if err := f.informer.Ready(); err != nil {
			t.Errorf("Ready: %v", err)
		}
		time.Sleep(time.Minute)
		if logs := f.logs.String(); !strings.Contains(logs, cache.ErrSilentWatch.Error()) {
			t.Errorf("when nothing came after that, it logged:\n%s", logs)
		}
	})
}

// A new watch has some time to deliver earlier changes. Watches that repeatedly end at once must not make the informer
// list.
func TestNewWatchIsNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		start(t, server, nil)
		for range 300 {
			time.Sleep(3 * time.Second)
			server.DropWatches()
		}
		if lists, watches, _ := server.Counts(); lists != 0 || watches < 250 {
			t.Errorf("%d lists, %d watches", lists, watches)
		}
	})
}

// Without bookmarks, only a list can show that a silent watch works again.
func TestSilenceEndsWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		f := start(t, server, nil)
		server.Mute(true)
		server.Put(object("a", "2"))
		time.Sleep(11 * time.Minute)
		if err := f.informer.Ready(); !errors.Is(err, cache.ErrSilentWatch) {
			t.Fatalf("Ready: %v", err)
		}
		server.Mute(false)
		time.Sleep(3 * time.Minute)
		if err := f.informer.Ready(); err != nil {
			t.Errorf("Ready: %v", err)
		}
	})
}
