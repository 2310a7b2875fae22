package informer_test

import (
	"context"
	"errors"
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
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// streaming is a Retriever whose streamed lists contain the object a, and end after a time: with the end of the list,
// or by closing the stream. It counts requests.
type streaming struct {
	*kindserver.Server[configMap]
	after    time.Duration
	complete bool
	streams  atomic.Int32
	requests atomic.Int32
}

func (s *streaming) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	s.requests.Add(1)
	return s.Server.List(ctx, opts)
}

func (s *streaming) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.requests.Add(1)
	if s.after == 0 || opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
		return s.Server.Watch(ctx, opts)
	}
	s.streams.Add(1)
	stream, first := watch.NewRaceFreeFake(), s.Get(key("a"))
	stream.Add(first)
	time.AfterFunc(s.after, func() {
		if !s.complete {
			stream.Stop()
			return
		}
		stream.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "bookmark", ResourceVersion: first.ResourceVersion,
			Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	})
	return stream, nil
}

// reads returns the results of all reads of an object.
func reads(inf *informer.Informer[configMap], key kube.Key) map[string]error {
	_, _, get := inf.Get(key)
	_, has := inf.Has(key)
	_, count := inf.Count(informer.Query{Namespace: key.Namespace})
	snapshot := inf.Snapshot()
	_, _, snapped := snapshot.Get(key)
	_, countSnapped := snapshot.Count(informer.Query{})
	errs := map[string]error{"Get": get, "Has": has, "Count": count, "Snapshot.Get": snapped, "Snapshot.Count": countSnapped}
	for _, err := range inf.List(informer.Query{}) {
		errs["All"] = err
	}
	for _, err := range snapshot.List(informer.Query{}) {
		errs["Snapshot.List"] = err
	}
	return errs
}

// An object that is not cached yet must not look missing.
func TestReadsOfUnlistedObjectsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &streaming{Server: holding("a", "b"), after: 5 * time.Second, complete: true}
		inf, err := informer.New(informer.Config[configMap]{Retriever: server})
		if err != nil {
			t.Fatal(err)
		}
		for read, err := range reads(inf, key("b")) {
			if !errors.Is(err, informer.ErrNotRunning) {
				t.Errorf("%s before Run: %v", read, err)
			}
		}
		testrun.Start(t, inf.Run)
		synctest.Wait()
		if obj, found, err := inf.Get(key("a")); err != nil || !found || obj.Name != "a" {
			t.Errorf("Get of an object that has arrived: %t, %v", found, err)
		}
		if found, err := inf.Has(key("a")); err != nil || !found {
			t.Errorf("Has of an object that has arrived: %t, %v", found, err)
		}
		errs := reads(inf, key("b"))
		if len(errs) != 7 {
			t.Errorf("reads: %v", errs)
		}
		for read, err := range errs {
			if err == nil || errors.Is(err, informer.ErrNotRunning) || retry.Classify(err) != retry.Transient {
				t.Errorf("%s during the first list: %v", read, err)
			}
		}
		time.Sleep(6 * time.Second)
		for read, err := range reads(inf, key("missing")) {
			if err != nil {
				t.Errorf("%s after the first list: %v", read, err)
			}
		}
	})
}
