package controller

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// creating is a term that is not started, whose runs create the object of their key.
type creating struct {
	t *testing.T
	*loop[*corev1.ConfigMap]
	skips func() []skip // of the key, latest first
}

func newCreating(t *testing.T, runs RunsConfig) creating {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"}) // no request is sent
	if err != nil {
		t.Fatal(err)
	}
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Retriever: informer.Retrieve[*corev1.ConfigMap](cluster), Runs: runs,
		Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := creating{t, newLoop(ctrl, nil), func() []skip { _, skips := ctrl.history.of(createdKey()); return skips }}
	t.Cleanup(c.queue.ShutDown)
	return c
}

func createdKey() kube.Key { return kube.Key{Namespace: "ns", Name: "a"} }

// run begins a run. write records its creation, and offer passes the event of it to the intake.
func (c creating) run(uid string) (write func() ownwrites.Effect, offer func()) {
	kind, key := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, createdKey()
	c.queue.Add(key, queueOptions{Cause: Cause{Type: CauseTriggered}})
	item, _ := c.queue.Get()
	r := c.begin(item)
	write = func() ownwrites.Effect {
		w := &tracedWrite{call: kube.Call{
			Verb: "create", Kind: kind, Key: key, Status: http.StatusCreated,
			Response: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a","uid":%q,"resourceVersion":"7"}}`, uid),
		}}
		c.ownWrites.wrote(c.t.Context(), r, w)
		return w.Effect
	}
	return write, func() {
		c.intake.offer(key, &Cause{
			Type: CauseAdded, Source: SourceSelf, Kind: kind.GroupKind(), Object: key, UID: types.UID(uid), ResourceVersion: "7",
			Time: time.Now(), Count: 1,
		}, Trigger{})
	}
}

// TestOwnWriteIsRecognizedWhileItsResponseArrives checks that the event of an own write does not run the key again when
// it arrives at the same time as the response of the write.
func TestOwnWriteIsRecognizedWhileItsResponseArrives(t *testing.T) {
	t.Parallel()
	c := newCreating(t, RunsConfig{})
	for n := range testlength.Count(1000, 3000) {
		uid := types.UID(fmt.Sprint("uid-", n))
		write, offer := c.run(string(uid))
		var event sync.WaitGroup
		event.Go(offer) // waited for below
		effect := write()
		event.Wait()
		if effect != ownwrites.Changed {
			t.Fatalf("the write has the effect %v", effect)
		}
		if entry, _ := c.queue.Lookup(createdKey()); entry.State != workqueue.Processing {
			t.Fatalf("round %d: the key is %s, for %s", n, entry.State, Causes{entry.Causes})
		}
		if skips := c.skips(); len(skips) == 0 || skips[0].Cause.UID != uid && skips[len(skips)-1].Cause.UID != uid {
			t.Fatalf("round %d: the event is not among the skips %v", n, skips)
		}
		c.queue.Done(createdKey())
		c.ownWrites.tracker.Stop()
	}
}

// lateGate is a gate that calls a function when an event has passed the gates before it for the first time.
type lateGate struct {
	ignore
	once sync.Once
	call func()
}

func (g *lateGate) skips(kube.Key, ownwrites.Event) bool {
	g.once.Do(g.call)
	return false
}

func (*lateGate) hold(context.Context, kube.Key) workqueue.Hold { return workqueue.Hold{} }

// TestOwnWriteIsRecognizedInEachOrder checks the orders of an own write's event and its response, and that
// RunsConfig.HandleOwnWrites turns the recognition off.
func TestOwnWriteIsRecognizedInEachOrder(t *testing.T) {
	t.Parallel()
	for order, do := range map[string]func(c creating, write, offer func()){
		"response first": func(_ creating, write, offer func()) { write(); offer() },
		"event first":    func(_ creating, write, offer func()) { offer(); write() },
		"response while the event is added": func(c creating, write, offer func()) {
			c.intake.gates = append(c.intake.gates, &lateGate{call: write})
			offer()
		},
	} {
		for handles, want := range map[bool]workqueue.KeyState{false: workqueue.Processing, true: workqueue.ProcessingAgain} {
			t.Run(fmt.Sprintf("%s, HandleOwnWrites %t", order, handles), func(t *testing.T) {
				t.Parallel()
				c := newCreating(t, RunsConfig{HandleOwnWrites: handles})
				write, offer := c.run("uid")
				do(c, func() { write() }, offer)
				if entry, _ := c.queue.Lookup(createdKey()); entry.State != want || len(c.skips()) == 1 == handles {
					t.Errorf("the key is %s, for %s; skips: %v", entry.State, Causes{entry.Causes}, c.skips())
				}
				c.ownWrites.tracker.Stop()
			})
		}
	}
}
