package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// bucket is an ObjectStore in memory. The key of an object has its ID as the name.
type bucket struct {
	// between is called after a list, before the first read. Optional.
	between func()

	mu       sync.Mutex
	objects  map[string]string // contents by ID; guarded by mu
	versions bool              // lists have versions
	fails    string            // the ID of the object that cannot be read; guarded by mu
	reads    []string          // IDs; guarded by mu
}

func (b *bucket) set(id, content string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[id] = content
}

func (b *bucket) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, id)
}

func (b *bucket) fail(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = id
}

// List implements poll.ObjectStore.
func (b *bucket) List(context.Context) (items []poll.Item, err error) {
	b.mu.Lock()
	for id, content := range b.objects {
		listed := item(id, "", key(id))
		if b.versions {
			listed.Version = "v " + content
		}
		items = append(items, listed)
	}
	b.mu.Unlock()
	if b.between != nil {
		b.between()
	}
	return items, nil
}

// Read implements poll.ObjectStore.
func (b *bucket) Read(_ context.Context, listed poll.Item) (poll.Item, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads = append(b.reads, listed.ID)
	if listed.ID == b.fails {
		return poll.Item{}, true, errors.New("access denied")
	}
	text, found := b.objects[listed.ID]
	read := poll.Item{ID: "ignored", Content: []byte(text)}
	if b.versions {
		read.Version = "v " + text
	}
	return read, found, nil
}

// expectReads compares the IDs of the objects that were read since the last call.
func (b *bucket) expectReads(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.reads)
	if diff := cmp.Diff(want, b.reads); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
	b.reads = nil
}

func newBucket() *bucket {
	return &bucket{versions: true, objects: map[string]string{"a": "1", "b": "1"}}
}

func TestObjectStoreReadsOnlyChangedObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		s, q, stop := runPoll(t, poll.Config{Poller: poll.FromObjectStore(b), KeepItems: true})
		defer stop()
		q.expect(t, "ns/a: listed a (low)", "ns/b: listed b (low)")
		b.expectReads(t, "a", "b")
		for _, step := range []struct {
			change func()
			want   []string // keys
			reads  []string
			a, b   string
		}{
			{change: func() {}, a: "1", b: "1"},
			{change: func() { b.set("a", "2") }, want: []string{"ns/a: updated a"}, reads: []string{"a"}, a: "2", b: "1"},
			{change: func() { b.set("c", "1") }, want: []string{"ns/c: added c"}, reads: []string{"c"}, a: "2", b: "1"},
			{change: func() { b.remove("b") }, want: []string{"ns/b: deleted b"}, a: "2", b: "not found"},
			{change: func() { b.remove("a"); b.set("b", "1") }, want: []string{"ns/a: deleted a", "ns/b: added b"}, reads: []string{"b"}, a: "not found", b: "1"},
			{change: func() {}, a: "not found", b: "1"},
		} {
			step.change()
			time.Sleep(time.Minute)
			q.expect(t, step.want...)
			b.expectReads(t, step.reads...)
			if a, b := readItem(s, "a"), readItem(s, "b"); a != step.a || b != step.b {
				t.Errorf("the items are %q and %q, want %q and %q", a, b, step.a, step.b)
			}
		}
	})
}

// TestObjectStoreChangesDuringPoll: what is read may be newer than the list.
func TestObjectStoreChangesDuringPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.between = func() { b.between = nil; b.set("a", "2"); b.remove("b") }
		s, q, stop := runPoll(t, poll.Config{Poller: poll.FromObjectStore(b), KeepItems: true})
		defer stop()
		q.expect(t, "ns/a: listed a (low)")
		b.expectReads(t, "a", "b")
		if a, b := readItem(s, "a"), readItem(s, "b"); a != "2" || b != "not found" {
			t.Errorf("the items are %q and %q", a, b)
		}
		time.Sleep(time.Minute) // the list now has the version that was read
		q.expect(t)
		b.expectReads(t)
		b.set("a", "1") // the version of the first list
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: updated a")
		b.expectReads(t, "a")
	})
}

// TestObjectStoreWithoutVersions: all contents are read and compared in each poll.
func TestObjectStoreWithoutVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		b.versions = false
		_, q, stop := runPoll(t, poll.Config{Poller: poll.FromObjectStore(b)})
		defer stop()
		q.expect(t, "ns/a: listed a (low)", "ns/b: listed b (low)")
		b.expectReads(t, "a", "b")
		b.set("a", "2")
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: updated a")
		b.expectReads(t, "a", "b")
		time.Sleep(time.Minute)
		q.expect(t)
		b.expectReads(t, "a", "b")
	})
}

// TestObjectStoreFailureRemovesNoItems: objects that cannot be read are not removed objects.
func TestObjectStoreFailureRemovesNoItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		s, q, stop := runPoll(t, poll.Config{Poller: poll.FromObjectStore(b), KeepItems: true})
		defer stop()
		q.expect(t, "ns/a: listed a (low)", "ns/b: listed b (low)")
		b.fail("a")
		b.set("a", "2")
		b.set("c", "1")
		time.Sleep(time.Minute)
		q.expect(t)
		ready(t, s, `read object "a": access denied`)
		if got := readItem(s, "a"); got != "1" {
			t.Errorf("the item is %q, want the last one that could be read", got)
		}
		b.fail("")
		time.Sleep(2 * time.Minute)
		q.expect(t, "ns/a: updated a", "ns/c: added c")
		ready(t, s, "")
	})
}

func TestObjectStoreRejectsInvalidLists(t *testing.T) {
	t.Parallel()
	for want, listed := range map[string][]poll.Item{
		"has no ID":                 {{Version: "1"}},
		`two items have the ID "x"`: {item("x", "1"), item("x", "2")},
	} {
		_, err := poll.FromObjectStore(listedStore(listed)).Poll(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	_, err := poll.New(poll.Config{Name: "none", Poller: poll.FromObjectStore(nil)}).Prepare(controller.Target{})
	if err == nil || !strings.Contains(err.Error(), "the ObjectStore is nil") {
		t.Errorf("the error is %v", err)
	}
}

// listedStore is a store with an invalid list. It must not be read.
type listedStore []poll.Item

func (s listedStore) List(context.Context) ([]poll.Item, error) { return s, nil }

func (listedStore) Read(context.Context, poll.Item) (poll.Item, bool, error) {
	panic("read of an object of an invalid list")
}

// ExampleFromObjectStore polls a bucket. The keys of an object are enqueued when it is added, changed or removed; a
// handler reads its content from Source.Item.
func ExampleFromObjectStore() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	templates := newBucket() // in a program: a client of the store
	polled := poll.New(poll.Config{
		Name: "templates", Poller: poll.FromObjectStore(templates), KeepItems: true,
		Interval: time.Millisecond, // usually a minute
	})
	// A controller does this with its Sources.
	prepared, err := polled.Prepare(controller.Target{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := prepared.Start(ctx, func(key kube.Key, why controller.Trigger) {
		object, found, err := polled.Item("a") // in a handler
		switch {
		case key.Name != "a":
			return
		case why.Type == controller.CauseListed:
			fmt.Println(why.Type, found, string(object.Content), err)
			templates.set("a", "2")
		case why.Type == controller.CauseUpdated:
			fmt.Println(why.Type, found, string(object.Content), err)
			templates.remove("a")
		default:
			fmt.Println(why.Type, found, err)
			cancel()
		}
	})
	if err == nil {
		err = run()
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// listed true 1 <nil>
	// updated true 2 <nil>
	// deleted false <nil>
}
