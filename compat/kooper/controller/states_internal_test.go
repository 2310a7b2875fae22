package controller

import (
	"context"
	"errors"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// table is an objects whose engine is the test.
type table struct {
	*testing.T
	objects
}

func newTable(t *testing.T) *table {
	t.Helper()
	return &table{T: t, objects: objects{states: map[kube.Key][]state{}}}
}

// passes passes a state of the object a to the engine.
func (s *table) passes(version int, uid types.UID, listed bool) *metav1.PartialObjectMetadata {
	s.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: strconv.Itoa(version)}}
	about, err := metadataOf(obj)
	if err != nil {
		s.Fatal(err)
	}
	s.keep(about, obj, listed)
	return about
}

// announces announces a change, as the engine does.
func (s *table) announces(t informer.ChangeType, before, after *metav1.PartialObjectMetadata) {
	s.Helper()
	change, err := informer.NewChange(t, schema.GroupVersionKind{}, before, after)
	if err != nil {
		s.Fatal(err)
	}
	s.announced(change)
}

// expect checks which resource version a handler gets that runs for about; "": it is not called.
func (s *table) expect(about *metav1.PartialObjectMetadata, want string) {
	s.Helper()
	got := ""
	if obj := s.copyOf(about); obj != nil {
		got = obj.(*corev1.ConfigMap).ResourceVersion
	}
	if got != want {
		s.Errorf("the handler gets version %q, want %q", got, want)
	}
}

func (s *table) keeps(want int) {
	s.Helper()
	n := 0
	for _, states := range s.states {
		n += len(states)
	}
	if n != want {
		s.Errorf("%d states are kept, want %d", n, want)
	}
}

func TestHandlerGetsStateThatTheEngineHas(t *testing.T) {
	t.Parallel()
	s := newTable(t)
	first := s.passes(5, "1", true)
	s.announces(informer.Listed, nil, first)
	second := s.passes(6, "1", false) // not announced yet
	s.expect(first, "5")
	s.expect(second, "6")
	s.announces(informer.Updated, first, second)
	s.expect(first, "6") // a run that has read the metadata before
	s.keeps(1)
}

// The engine drops what a stale list shows.
func TestStateOfStaleListIsNotUsed(t *testing.T) {
	t.Parallel()
	s := newTable(t)
	current := s.passes(5, "1", true)
	s.announces(informer.Listed, nil, current)
	for range 3 {
		s.passes(4, "1", true)
		s.passes(5, "1", true)
	}
	s.expect(current, "5")
	s.keeps(2)
	s.announces(informer.Deleted, current, nil)
	s.keeps(0)
}

func TestDeletionKeepsObjectCreatedAfterIt(t *testing.T) {
	t.Parallel()
	for name, uids := range map[string][2]types.UID{"with uids": {"1", "2"}, "without uids": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTable(t)
			deleted := s.passes(5, uids[0], true)
			s.announces(informer.Listed, nil, deleted)
			created := s.passes(7, uids[1], false)
			s.announces(informer.Deleted, deleted, nil)
			s.expect(created, "7")
			s.keeps(1)
			s.announces(informer.Added, nil, created)
			s.announces(informer.Deleted, created, nil)
			s.expect(created, "")
			s.keeps(0)
		})
	}
}

// The lists with which the engine verifies a quiet watch are not announced. An object may differ there from that of the
// event, for example in apiVersion and kind.
func TestListThatIsNotAnnouncedKeepsNoFurtherState(t *testing.T) {
	t.Parallel()
	s := newTable(t)
	for range 3 {
		listed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "5"}}
		for _, kind := range []string{"", "ConfigMap"} {
			listed.Kind = kind
			about, err := metadataOf(listed)
			if err != nil {
				t.Fatal(err)
			}
			s.keep(about, listed.DeepCopy(), true)
			s.expect(about, "5")
		}
	}
	s.keeps(1)
}

// After a restore of etcd, versions go back.
func TestEarlierVersionThatTheEngineTakesIsUsed(t *testing.T) {
	t.Parallel()
	s := newTable(t)
	newer := s.passes(9, "1", true)
	s.announces(informer.Listed, nil, newer)
	restored := s.passes(3, "1", true)
	s.announces(informer.Updated, newer, restored)
	s.expect(restored, "3")
	s.keeps(1)
}

func TestRunOfObjectThatWasJustDeletedCallsNoHandler(t *testing.T) {
	t.Parallel()
	s := newTable(t)
	deleted := s.passes(5, "1", true)
	handler := HandlerFunc(func(context.Context, runtime.Object) error { return errors.New("called") })
	handle := engineConfig(Config{Handler: handler, MetricsRecorder: DummyMetricsRecorder}, nil, &s.objects, nil).Handler
	if err := handle(t.Context(), deleted); err == nil {
		t.Error("the handler is not called for a kept object")
	}
	s.announces(informer.Deleted, deleted, nil)
	if err := handle(t.Context(), deleted); err != nil {
		t.Errorf("the handler is called with a deleted object: %v", err)
	}
}

// fixed is a Retriever of one list.
type fixed struct{ list *corev1.ConfigMapList }

func (f fixed) List(context.Context, metav1.ListOptions) (runtime.Object, error) { return f.list, nil }

func (f fixed) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

// A state that pointed into the items would keep all of them in memory.
func TestStatesDoNotKeepListInMemory(t *testing.T) {
	t.Parallel()
	s := newTable(t)
	list := &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "5"}}}}
	s.from = fixed{list}
	partial, err := s.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list.Items[0] = corev1.ConfigMap{}
	s.expect(&partial.(*metav1.PartialObjectMetadataList).Items[0], "5")
}
