package controllerruntime

import (
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
