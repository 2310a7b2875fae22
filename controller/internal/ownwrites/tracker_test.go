package ownwrites

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// slowInformer is an informer of Parts that shows a write when the test calls seen.
type slowInformer struct {
	cache.Informer
	ready  func() error
	awaits []cache.Write // without their objects
	seen   []func()
	shown  *wire.Object // the object that it shows, or nil
	parts  bool         // it does not keep whole objects
}

func (i *slowInformer) ReadsFrom(string) bool { return true }

func (i *slowInformer) ReadyFor(cache.Write) error { return i.ready() }

func (i *slowInformer) Await(w cache.Write, seen func()) (cancel func()) {
	w.Object = nil
	i.awaits, i.seen = append(i.awaits, w), append(i.seen, seen)
	return func() {}
}

func (i *slowInformer) Kind() schema.GroupVersionKind { return partKind() }

func (i *slowInformer) NewObject() (kube.Object, bool) { return &unstructured.Unstructured{}, !i.parts }

func (i *slowInformer) Encoded(key kube.Key) (*wire.Object, bool) {
	return i.shown, i.shown != nil && i.shown.Key == key
}

func partKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Part"}
}

// newTracker returns a Tracker that waits until informers show the writes, and the keys that it has released.
func newTracker(informers ...cache.Informer) (t *Tracker, released *[]kube.Key) {
	released = new([]kube.Key)
	return New(Config{
		Timeout: time.Second, Release: func(key kube.Key) { *released = append(*released, key) },
		Informers: func(schema.GroupKind) []cache.Informer { return informers },
	}), released
}

// write simulates a run of key that writes version.
func write(t *Tracker, key kube.Key, object *wire.Object, version string) {
	r := &Run{Tracker: t, Key: key}
	t.record(r, ownWrite{
		kind:  partKind().GroupKind(),
		Write: cache.Write{Key: key, UID: "1", ResourceVersion: version, Object: object},
	}, nil)
	r.End()
}

// TestHoldChecksAgainAfterInformersReport checks an informer that shows the write while Hold checks whether the
// informer can show it.
func TestHoldChecksAgainAfterInformersReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer, key := &slowInformer{}, kube.Key{Name: "a"}
		informer.ready = func() error {
			informer.seen[0]()
			return errors.New("it cannot watch")
		}
		tracker, _ := newTracker(informer)
		write(tracker, key, nil, "1")
		time.Sleep(2 * time.Second)
		if atMost, _ := tracker.Hold(key); atMost != 0 {
			t.Errorf("the key waits %s, although the informer shows its write", atMost)
		}
	})
}

// TestLateReportKeepsWritesOfNextRun checks a write that the informer shows after the wait for it has ended and
// the next run has written too.
func TestLateReportKeepsWritesOfNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer, key := &slowInformer{ready: func() error { return nil }}, kube.Key{Name: "a"}
		tracker, released := newTracker(informer)
		write(tracker, key, nil, "1")
		time.Sleep(2 * time.Second)
		if atMost, overdue := tracker.Hold(key); atMost != 0 || len(overdue) != 1 {
			t.Fatalf("the key waits %s, overdue is %v after the deadline", atMost, overdue)
		}
		write(tracker, key, nil, "2")
		informer.seen[0]()
		if got := tracker.Unseen(key); len(got) != 1 {
			t.Errorf("the key waits for %q, want the write of the last run", got)
		}
		if atMost, _ := tracker.Hold(key); atMost != time.Second {
			t.Error("the key does not wait for the write of its last run")
		}
		informer.seen[1]()
		if len(*released) != 1 || tracker.tracked.Load() != 0 {
			t.Errorf("when the informer shows all writes, %v are released, and %d keys are tracked", *released, tracker.tracked.Load())
		}
	})
}

func TestHoldHasLimitWhileInformerCannotWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer, key := &slowInformer{ready: func() error { return errors.New("it cannot watch") }}, kube.Key{Name: "a"}
		tracker, _ := newTracker(informer)
		write(tracker, key, nil, "1")
		began, reports := time.Now(), 0
		for {
			atMost, overdue := tracker.Hold(key)
			reports += len(overdue)
			if atMost == 0 {
				break
			}
			time.Sleep(atMost)
		}
		if waited := time.Since(began); waited != MaxTimeouts*time.Second || reports != 1 {
			t.Errorf("the key was held for %s and reported %d times", waited, reports)
		}
	})
}

// TestUnseenWritesKeepNoObjects checks that a wait for a write does not keep the body of the response in memory.
func TestUnseenWritesKeepNoObjects(t *testing.T) {
	informer, key := &slowInformer{ready: func() error { return nil }}, kube.Key{Name: "a"}
	tracker, _ := newTracker(informer)
	answered := func() weak.Pointer[wire.Object] {
		object := &wire.Object{Bytes: make([]byte, 1<<20)}
		write(tracker, key, object, "1")
		return weak.Make(object)
	}()
	for range 10 {
		runtime.GC()
	}
	if answered.Value() != nil {
		t.Error("the object is kept")
	}
	if got := tracker.Unseen(key); len(got) != 1 {
		t.Errorf("the key waits for %q", got)
	}
}
