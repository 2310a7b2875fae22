package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestDroppedCausesOfListEndBackoff checks that a list ends the backoff of a key with many causes, even if the cause
// that ends it was dropped because the maximum number of causes was reached.
func TestDroppedCausesOfListEndBackoff(t *testing.T) {
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Retriever: kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true),
		Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, key := newLoop(ctrl, nil), kube.Key{Namespace: "ns", Name: "a"}
	l.queue.Add(key, queueOptions{Cause: Cause{Type: CauseRetry}, After: time.Hour, Backoff: true, EndBackoffIf: l.config.Queue.EndBackoffIf})
	child := func(n int) Cause {
		return Cause{Type: CauseUpdated, Source: "children", Kind: schema.GroupKind{Kind: "Part"}, Object: kube.Key{Namespace: "ns", Name: fmt.Sprint(n)}}
	}
	for n := range workqueue.MaxCauses {
		l.feeder.backlog.add(key, child(n))
	}
	l.feeder.backlog.add(key, Cause{Type: CauseUpdated, Source: SourceSelf, Kind: schema.GroupKind{Kind: "ConfigMap"}, Object: key, Changed: kube.ChangedSpec})
	l.feeder.feedBacklog(t.Context(), 10)
	entry, _ := l.queue.Lookup(key)
	if entry.State != workqueue.Ready || entry.Causes.Dropped() != 2 {
		t.Errorf("%s with causes %s", entry.State, Causes{entry.Causes})
	}
	l.queue.ShutDown()
	// A single cause is counted once.
	l = newLoop(ctrl, nil)
	l.feeder.backlog.add(key, child(1))
	l.feeder.feedBacklog(t.Context(), 10)
	if entry, _ := l.queue.Lookup(key); entry.Causes.List()[0].Count != 1 {
		t.Errorf("causes %+v", entry.Causes.List())
	}
	l.queue.ShutDown()
}
