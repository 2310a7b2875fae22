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
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestOwnWriteIsRecognizedWhileItsResponseArrives checks that the event of an own write does not run the key again when
// it arrives at the same time as the response of the write.
func TestOwnWriteIsRecognizedWhileItsResponseArrives(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"}) // no request is sent
	if err != nil {
		t.Fatal(err)
	}
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Retriever: informer.Retrieve[*corev1.ConfigMap](cluster),
		Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, key := newLoop(ctrl, nil), kube.Key{Namespace: "ns", Name: "a"}
	defer l.queue.ShutDown()
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	const rounds = 3000
	for n := range rounds {
		uid := types.UID(fmt.Sprint("uid-", n))
		l.queue.Add(key, queueOptions{Cause: Cause{Type: CauseTriggered}})
		item, _ := l.queue.Get()
		r := l.begin(item)
		var event sync.WaitGroup
		event.Go(func() { // waited for below
			l.intake.offer(key, &Cause{
				Type: CauseAdded, Source: SourceSelf, Kind: kind.GroupKind(), Object: key, UID: uid, ResourceVersion: "7", Time: time.Now(), Count: 1,
			}, Trigger{})
		})
		w := l.ownWrites.completed(t.Context(), r, kube.Call{
			Verb: "create", Kind: kind, Key: key, Status: http.StatusCreated,
			Response: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a","uid":%q,"resourceVersion":"7"}}`, uid),
		}, nil)
		event.Wait()
		if w.Effect != ownwrites.Changed {
			t.Fatalf("the write has the effect %v", w.Effect)
		}
		if entry, _ := l.queue.Lookup(key); entry.State != workqueue.Processing {
			t.Fatalf("round %d: the key is %s, for %s", n, entry.State, Causes{entry.Causes})
		}
		if _, skips := ctrl.history.of(key); len(skips) == 0 || skips[0].Cause.UID != uid && skips[len(skips)-1].Cause.UID != uid {
			t.Fatalf("round %d: the event is not among the skips %v", n, skips)
		}
		l.queue.Done(key)
		l.ownWrites.tracker.Stop()
	}
}
