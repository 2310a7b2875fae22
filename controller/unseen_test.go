package controller

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// slowInformer is an informer that shows a write when the test calls seen.
type slowInformer struct {
	cache.Informer
	ready func() error
	seen  []func()
}

func (i *slowInformer) ReadyFor(cache.Write) error { return i.ready() }

func (i *slowInformer) Await(_ cache.Write, seen func()) (cancel func()) {
	i.seen = append(i.seen, seen)
	return func() {}
}

// newUnseen returns a consistency that waits until an informer shows the writes.
func newUnseen(by *slowInformer) *consistency {
	return &consistency{
		timeout: time.Second, queue: newQueue(nil, 0), keys: map[kube.Key]*unseen{},
		watched: func(schema.GroupKind) []cache.Informer { return []cache.Informer{by} },
	}
}

// write simulates a run of key that writes version.
func (c *consistency) write(key kube.Key, object *wire.Object, version string) {
	r := &running{record: &record{run: RunRecord{Key: key}}}
	c.wrote(r, ownWrite{
		kind:  schema.GroupKind{Kind: "Part"},
		Write: cache.Write{Key: key, UID: "1", ResourceVersion: version, Object: object},
	}, false)
	c.ended(r)
}

// TestHoldLooksAgainAfterAskingTheInformers checks an informer that shows the write while hold checks whether the
// informer can show it.
func TestHoldLooksAgainAfterAskingTheInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by, key := &slowInformer{}, kube.Key{Name: "a"}
		by.ready = func() error {
			by.seen[0]()
			return errors.New("it cannot watch")
		}
		c := newUnseen(by)
		c.write(key, nil, "1")
		time.Sleep(2 * time.Second)
		c.queue.Add(key, queueOptions{})
		c.queue.Get()
		if held, _ := c.hold(key); held {
			entry, _ := c.queue.Lookup(key)
			t.Errorf("the key is %s, although all that it wrote has been seen", entry.State)
		}
	})
}

// TestSeenDoesNotForgetTheWritesOfTheNextRun checks a write that the informer shows after the wait for it has ended and
// the next run has written too.
func TestSeenDoesNotForgetTheWritesOfTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by, key := &slowInformer{ready: func() error { return nil }}, kube.Key{Name: "a"}
		c := newUnseen(by)
		c.write(key, nil, "1")
		time.Sleep(2 * time.Second)
		c.queue.Add(key, queueOptions{})
		c.queue.Get()
		if held, late := c.hold(key); held || len(late) != 1 {
			t.Fatalf("held %v, late %v: the time is over", held, late)
		}
		c.write(key, nil, "2")
		by.seen[0]()
		if got := c.unseenOf(key); len(got) != 1 {
			t.Errorf("the key waits for %q, want the write of the last run", got)
		}
		if held, _ := c.hold(key); !held {
			t.Error("the key does not wait for the write of its last run")
		}
		by.seen[1]()
		if entry, _ := c.queue.Lookup(key); entry.State != workqueue.Ready || c.any.Load() != 0 {
			t.Errorf("when all has been seen, the key is %s, and %d keys are remembered", entry.State, c.any.Load())
		}
	})
}

// TestUnseenWritesKeepNoObjects checks that a wait for a write does not keep the body of the response in memory.
func TestUnseenWritesKeepNoObjects(t *testing.T) {
	by, key := &slowInformer{ready: func() error { return nil }}, kube.Key{Name: "a"}
	c := newUnseen(by)
	answered := func() weak.Pointer[wire.Object] {
		object := &wire.Object{Bytes: make([]byte, 1<<20)}
		c.write(key, object, "1")
		return weak.Make(object)
	}()
	for range 10 {
		runtime.GC()
	}
	if answered.Value() != nil {
		t.Error("the object is kept")
	}
	if got := c.unseenOf(key); len(got) != 1 {
		t.Errorf("the key waits for %q", got)
	}
}
