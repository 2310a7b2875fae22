package poll_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func TestPollEnqueuesKeysOfDifferences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("x", "1", key("a")), item("y", "1", key("b"), key("c")), item("nobody's", "1"))
		_, q, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		q.expect(t, "ns/a: listed x (low)", "ns/b: listed y (low)", "ns/c: listed y (low)")
		time.Sleep(time.Hour) // nothing changes
		q.expect(t)
		o.set(item("y", "1", key("b"), key("c")), item("x", "2", key("a")), item("z", "1", key("a"))) // in another order
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: added z", "ns/a: updated x")
		o.set(item("x", "2", key("a")))
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: deleted z", "ns/b: deleted y", "ns/c: deleted y")
		o.set(item("x", "2", key("a")), item("y", "1", key("b"))) // added again
		time.Sleep(time.Minute)
		q.expect(t, "ns/b: added y")
		o.set()
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: deleted x", "ns/b: deleted y")
	})
}

// Keys that an item had before its change must be enqueued too.
func TestPollEnqueuesOldAndNewKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("x", "1", key("a"), key("b")))
		_, q, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		q.expect(t, "ns/a: listed x (low)", "ns/b: listed x (low)")
		o.set(item("x", "1", key("b"), key("a"), key("b"))) // the same set
		time.Sleep(time.Minute)
		q.expect(t)
		o.set(item("x", "1", key("b"), key("c"))) // the version is the same
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: updated x", "ns/b: updated x", "ns/c: updated x")
		o.set(item("x", "2"))
		time.Sleep(time.Minute)
		q.expect(t, "ns/b: updated x", "ns/c: updated x")
		o.set()
		time.Sleep(time.Minute)
		q.expect(t)
	})
}

func TestPollComparesContentWithoutVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		set := func(version, content string) {
			o.set(poll.Item{ID: "x", Version: version, Content: []byte(content), Keys: []kube.Key{key("a")}})
			time.Sleep(time.Minute)
		}
		_, q, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		set("", "red")
		q.expect(t, "ns/a: listed x (low)")
		set("", "red")
		q.expect(t)
		set("", "green")
		q.expect(t, "ns/a: updated x")
		set("green", "blue") // a version that equals the previous content
		q.expect(t, "ns/a: updated x")
		set("green", "white")
		q.expect(t)
		set("", "")
		q.expect(t, "ns/a: updated x")
		set("", "")
		q.expect(t)
	})
}

func TestPollErrorChangesNoItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("x", "1", key("a")), item("y", "1", key("b")))
		s, q, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		q.expect(t, "ns/a: listed x (low)", "ns/b: listed y (low)")
		for name, broken := range map[string]func(){
			"half of the list":    func() { o.set(item("x", "2", key("a"))); o.fail(errors.New("half of it")) },
			"an item without ID":  func() { o.set(item("x", "2", key("a")), item("", "1")) },
			"two of the same one": func() { o.set(item("x", "2", key("a")), item("y", "1"), item("y", "2")) },
		} {
			broken()
			time.Sleep(4 * time.Minute)
			q.expect(t)
			if s.Ready() == nil {
				t.Errorf("%s: ready", name)
			}
			o.set(item("x", "1", key("a")), item("y", "1", key("b")))
			time.Sleep(10 * time.Minute)
			q.expect(t)
			ready(t, s, "")
		}
	})
}

func TestPollReportsInvalidLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("x", "1"), item("", "1"))
		s, _, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		ready(t, s, `source "outside" cannot poll: item 1 of 2 has no ID`)
		o.set(item("x", "1"), item("x", "2"))
		time.Sleep(time.Minute)
		ready(t, s, `two items have the ID "x"`)
	})
}

// Items that are found after failures at the start are listed, not added: they may have existed before.
func TestPollListsAtFirstSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.fail(errors.New("down"))
		s, q, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		ready(t, s, "down")
		o.set(item("x", "1", key("a")))
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: listed x (low)")
		ready(t, s, "")
	})
}

// A source without items is ready.
func TestPollIsReadyWithoutItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{hold: time.Second}
		s := poll.New(poll.Config{Name: "outside", Poller: o})
		ready(t, s, "not running")
		q, stop := rerun(t, s)
		ready(t, s, "the first poll is under way")
		time.Sleep(2 * time.Second)
		ready(t, s, "")
		q.expect(t)
		stop()
		ready(t, s, "not running")
	})
}

// A source runs again in each term of leadership, without state of the previous term.
func TestPollListsAgainInEachRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens := []any{}
		s, q, stop := runPoll(t, poll.Config{Poller: pollerFunc(func(_ context.Context, token any) (poll.Result, error) {
			tokens = append(tokens, token)
			if token != nil {
				return poll.Result{Unchanged: true, Token: token}, nil
			}
			return poll.Result{Items: []poll.Item{item("x", "1", key("a"))}, Token: "as it was"}, nil
		})})
		q.expect(t, "ns/a: listed x (low)")
		time.Sleep(90 * time.Second)
		stop()
		q, stop = rerun(t, s)
		q.expect(t, "ns/a: listed x (low)")
		// The source also runs in another controller at the same time.
		other, stopOther := rerun(t, s)
		other.expect(t, "ns/a: listed x (low)")
		stop()
		ready(t, s, "")
		stopOther()
		q.expect(t)
		if diff := cmp.Diff([]any{nil, "as it was", nil, nil}, tokens); diff != "" {
			t.Errorf("tokens (-want +got):\n%s", diff)
		}
	})
}

func TestPollRejectsUnchangedWithoutToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, q, stop := runPoll(t, poll.Config{Poller: pollerFunc(func(context.Context, any) (poll.Result, error) {
			return poll.Result{Unchanged: true}, nil
		})})
		defer stop()
		ready(t, s, "but was called without a token")
		q.expect(t)
	})
}

func TestPollAddsKeysOfItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("x", "1", key("a")), item("y", "1"))
		var asked []poll.Item
		var everybody atomic.Pointer[[]kube.Key]
		everybody.Store(&[]kube.Key{key("a"), key("b")})
		_, q, stop := runPoll(t, poll.Config{Poller: o, KeysOf: func(item poll.Item) []kube.Key {
			asked = append(asked, poll.Item{ID: item.ID, Keys: slices.Clone(item.Keys)})
			clear(item.Keys) // KeysOf may modify the keys
			if item.ID == "y" {
				return nil
			}
			return *everybody.Load()
		}})
		defer stop()
		q.expect(t, "ns/a: listed x (low)", "ns/b: listed x (low)")
		everybody.Store(&[]kube.Key{key("c"), key("c")})
		time.Sleep(time.Minute)
		q.expect(t) // other results of KeysOf are not a change of the item
		o.set(item("x", "2", key("d"), key("e")), item("y", "1"))
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: updated x", "ns/c: updated x", "ns/d: updated x", "ns/e: updated x")
		o.set(item("y", "1"))
		time.Sleep(time.Minute)
		q.expect(t, "ns/c: deleted x", "ns/d: deleted x", "ns/e: deleted x")
		want := []poll.Item{
			item("x", "", key("a")), item("y", ""), item("x", "", key("d"), key("e")), item("x", "", key("d"), key("e")),
		}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("asked about (-want +got):\n%s", diff)
		}
	})
}

// Items that were not announced are announced by the next poll, although the Poller could return Unchanged then.
func TestPollAnnouncesItemsAfterPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := &logBuffer{}
		var broken atomic.Bool
		broken.Store(true)
		s, q, stop := runPoll(t, poll.Config{
			Poller: pollerFunc(func(_ context.Context, token any) (poll.Result, error) {
				if token != nil {
					return poll.Result{Unchanged: true, Token: token}, nil
				}
				return poll.Result{Items: []poll.Item{item("x", "1", key("a")), item("y", "1", key("b"))}, Token: 1}, nil
			}),
			KeysOf: func(item poll.Item) []kube.Key {
				if broken.Load() && item.ID == "y" {
					panic("on y")
				}
				return nil
			},
		}, logs)
		defer stop()
		q.expect(t, "ns/a: listed x (low)")
		ready(t, s, `item "y", listed: KeysOf panicked: on y`)
		broken.Store(false)
		time.Sleep(time.Minute)
		q.expect(t, "ns/b: listed y (low)")
		ready(t, s, "")
		if got := logs.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "poll_test.go") {
			t.Errorf("the panic is not logged with its stack, once:\n%s", got)
		}
	})
}

func TestPollReturnsPanicAsError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := &logBuffer{}
		cause := errors.New("index out of range")
		s, _, stop := runPoll(t, poll.Config{Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			panic(cause)
		})}, logs)
		defer stop()
		time.Sleep(time.Hour)
		ready(t, s, "Poller panicked: index out of range")
		if !errors.Is(s.Ready(), cause) {
			t.Error("the error that was panicked with is hidden")
		}
		if got := logs.String(); strings.Count(got, "stack=") != 1 {
			t.Errorf("the stack is not logged once:\n%s", got)
		}
	})
}

func TestPollShowsIDsOnOneShortLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("a\nb\x1b[1m\xff", "", key("a")), item(strings.Repeat("x", 124)+"ééé", "", key("b")))
		_, q, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		q.expect(t, "ns/a: listed a?b?[1m\uFFFD (low)", "ns/b: listed "+strings.Repeat("x", 124)+"… (low)")
	})
}

// Keys and IDs may be substrings of a large result. Neither the source nor the queue may keep the result in memory
// because of them.
func TestPollRetainsNoContent(t *testing.T) {
	t.Parallel()
	const items, size = 64, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		s := poll.New(poll.Config{Name: "outside", Poller: poll.List(func(context.Context) (all []poll.Item, err error) {
			for i := range items {
				text := fmt.Sprintf("%04d", i) + strings.Repeat(" ", size)
				all = append(all, poll.Item{ID: text[:4], Content: []byte(text), Keys: []kube.Key{{Namespace: text[:2], Name: text[2:4]}}})
			}
			return all, nil
		})})
		ctx, cancel := context.WithCancel(t.Context())
		var queued []kube.Key
		var details []string
		ended := make(chan error)
		go func() { // waited for below
			ended <- run(ctx, s, func(key kube.Key, why controller.Trigger) {
				if why.All {
					return
				}
				queued, details = append(queued, key), append(details, why.Detail)
			})
		}()
		ready(t, s, "")
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		if memory.HeapAlloc > items*size/2 {
			t.Errorf("%d bytes are in use after %d were read", memory.HeapAlloc, items*size)
		}
		cancel()
		if err := <-ended; err != nil || len(queued) != items || len(details) != items {
			t.Errorf("Run returned %v after %d keys", err, len(queued))
		}
	})
}

// After a document has shrunk, its memory is released.
//
//nolint:paralleltest // it measures the heap
func TestPollReleasesMemory(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	synctest.Test(t, func(t *testing.T) {
		const storm = 100_000
		o := &outside{}
		o.set(item("x", "1"))
		_, q, stop := runPoll(t, poll.Config{Poller: o})
		synctest.Wait()
		before := heapOf()
		items := make([]poll.Item, storm)
		for n := range items {
			items[n] = item(fmt.Sprint("item-", n), "1", key("a"))
		}
		o.set(items...)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		during := heapOf()
		clear(items)
		o.set(item("x", "1"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		q.mu.Lock()
		q.all = nil
		q.mu.Unlock()
		after := heapOf()
		if after-before > 1<<20 {
			t.Errorf("%d of %d kB stay", (after-before)>>10, (during-before)>>10)
		}
		t.Logf("%d of %d kB stay", (after-before)>>10, (during-before)>>10)
		stop()
	})
}

func heapOf() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestPollListsEnqueuedKeys checks that a key is among PreparedSource.Keys when it is enqueued: otherwise a
// controller of NoObject could stop its resyncs. Keys of an item that could not be announced are not listed.
func TestPollListsEnqueuedKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("x", "1", key("a")), item("y", "1", key("b")), item("z", "1", key("c")))
		var broken atomic.Bool
		broken.Store(true)
		s := poll.New(poll.Config{Name: "poll", Poller: o, KeysOf: func(item poll.Item) []kube.Key {
			if broken.Load() && item.ID == "y" {
				panic("on y")
			}
			return nil
		}})
		prepared := prepare(t, s)
		listed := func() []string {
			var names []string
			for key := range prepared.Keys {
				names = append(names, key.Name)
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
		want := func(want ...string) {
			t.Helper()
			if synctest.Wait(); !slices.Equal(listed(), want) {
				t.Errorf("listed %s, want %s", listed(), want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		run, err := prepared.Start(ctx, func(key kube.Key, why controller.Trigger) {
			isFormer := key.Name == "b" && why.Type == controller.CauseUpdated
			if !why.All && !slices.Contains(listed(), key.Name) && !isFormer {
				t.Errorf("%s is enqueued and not listed", key)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- run() }() // received below
		want("a")
		broken.Store(false)
		time.Sleep(2 * time.Minute)
		want("a", "b", "c")
		broken.Store(true)
		o.set(item("x", "1", key("a")), item("y", "2", key("d")), item("z", "1", key("c")))
		time.Sleep(2 * time.Minute)
		want("a", "b", "c")
		broken.Store(false)
		o.set(item("x", "1", key("a")), item("y", "2", key("d")))
		time.Sleep(10 * time.Minute)
		want("a", "d")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
