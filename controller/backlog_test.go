package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/fakeapi"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// What a list has found of a key with many causes ends its back-off, also when the cause that does had no place.
func TestDroppedCausesOfAListEndABackOff(t *testing.T) {
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Retriever: fakeapi.New[*corev1.ConfigMap](func() runtime.Object { return &corev1.ConfigMapList{} }, true),
		Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, key := newLoop(ctrl), kube.Key{Namespace: "ns", Name: "a"}
	l.queue.Add(key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseRetry}, After: time.Hour, BackOff: true, WakeIf: l.config.Queue.EndBackoffIf})
	child := func(n int) workqueue.Cause {
		return workqueue.Cause{Type: workqueue.CauseUpdated, Source: "children", Kind: schema.GroupKind{Kind: "Part"}, Object: kube.Key{Namespace: "ns", Name: fmt.Sprint(n)}}
	}
	for n := range workqueue.MaxCauses {
		l.backlog.add(key, child(n))
	}
	l.backlog.add(key, workqueue.Cause{Type: workqueue.CauseUpdated, Source: workqueue.SourceSelf, Kind: schema.GroupKind{Kind: "ConfigMap"}, Object: key, Changed: kube.ChangedSpec})
	l.feedBacklog(t.Context(), 10)
	state, _ := l.queue.Lookup(key)
	if state.Place != workqueue.PlaceReady || state.Causes.Dropped() != 2 {
		t.Errorf("%s with causes %s", state.Place, state.Causes)
	}
	l.queue.ShutDown()
	// A cause alone is counted once.
	l = newLoop(ctrl)
	l.backlog.add(key, child(1))
	l.feedBacklog(t.Context(), 10)
	if state, _ := l.queue.Lookup(key); state.Causes.List()[0].Count != 1 {
		t.Errorf("causes %+v", state.Causes.List())
	}
	l.queue.ShutDown()
}
