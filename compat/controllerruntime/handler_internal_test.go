package controllerruntime

import (
	"fmt"
	"slices"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/kube"
)

// A removed handler keeps no events in memory, also while its last call runs.
func TestRemovedHandlerHasNoEvents(t *testing.T) {
	t.Parallel()
	s := &sharedInformer{ended: make(chan struct{})}
	registration, err := s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		t.Fatal(err)
	}
	h := registration.(*handler)
	h.add(&event{key: kube.Key{Name: "a"}})
	if err := s.RemoveEventHandler(h); err != nil {
		t.Fatal(err)
	}
	if events := h.take(); len(events) > 0 {
		t.Errorf("%d events after the removal", len(events))
	}
	h.add(&event{key: kube.Key{Name: "b"}})
	if events := h.take(); len(events) > 0 {
		t.Errorf("%d events that were added after the removal", len(events))
	}
}

// Only updates that follow an update of the same object are joined: not with an addition, and not over a deletion, also
// if the object that follows it counts as one of the first list.
func TestUpdatesAreJoinedOnlyWithUpdates(t *testing.T) {
	t.Parallel()
	h := &handler{ended: make(chan struct{}), filled: make(chan struct{}, 1)}
	for i := range joinFrom {
		h.add(&event{eventType: updated, key: kube.Key{Name: fmt.Sprint(i)}})
	}
	a, b := kube.Key{Name: "a"}, kube.Key{Name: "b"}
	all := []*event{
		{eventType: updated, key: a},
		{eventType: added, key: b},
		{eventType: updated, key: a},
		{eventType: updated, key: b},
		{eventType: updated, key: a},
		{eventType: deleted, key: a},
		{eventType: added, key: a, existed: true},
		{eventType: updated, key: a},
		{eventType: resynced, key: a},
		{eventType: updated, key: a},
		{eventType: updated, key: b},
	}
	h.add(all...)
	var got [][2]int
	for _, p := range h.take()[joinFrom:] {
		got = append(got, [2]int{slices.Index(all, p.first), slices.Index(all, p.last)})
	}
	want := [][2]int{{0, 4}, {1, 1}, {3, 10}, {5, 5}, {6, 6}, {7, 7}, {8, 8}, {9, 9}}
	if !slices.Equal(got, want) {
		t.Errorf("the first and last event of each call are %v, want %v", got, want)
	}
	h.add(all[0])
	if got := h.take(); len(got) != 1 || got[0].last != all[0] {
		t.Error("an event was joined to one that the handler has taken")
	}
}
