package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// WaitForOwnWrites waits until the informers that the controller runs (its own, those in Config.Reads, and those of
// sources) show what the run that ctx, a handler's context, belongs to has written so far. After that, the handler
// reads its own creations, changes and deletions from them.
//
// Most handlers do not need it: return from the handler, and the next run of the key sees the writes, without a worker
// that waits. Use it between two steps of one run, if the second step reads from an informer what the first one has
// written.
//
// It does not wait for writes that an informer cannot show: of objects that it does not select, of a kind without an
// informer, by an informer that is optional and degraded, and writes that a restore of etcd has undone. The response to
// a DeleteAllOf does not contain the deleted objects, so it does not wait for them either.
//
// Errors: context.DeadlineExceeded after Runs.ConsistencyTimeout, or the error of ctx, with the writes that an
// informer does not show and the reason, if the informer reports one. A ctx outside a handler. A negative
// ConsistencyTimeout.
func WaitForOwnWrites(ctx context.Context) error {
	r := runningFrom(ctx)
	if r == nil {
		return fmt.Errorf("wait for own writes: %w", errNoRun)
	}
	if err := r.own.WaitShown(ctx); err != nil {
		return fmt.Errorf("wait for own writes: %w", err)
	}
	return nil
}

// ownWrites records the completed writes of the runs until the informers show them. It is the first observer, and the
// gate that holds a key until the informers show what its last run wrote.
type ownWrites struct {
	ignore

	// Immutable.
	config   RunsConfig
	tracker  *ownwrites.Tracker
	enqueuer *enqueuer
	problems *problems
	content  *contentDecoder
}

// tracedWrite is a completed write.
type tracedWrite struct {
	call            kube.Call
	before          *ownwrites.State // the state of the object before the write; nil: not known
	ownwrites.Write                  // set by ownWrites
}

// began implements observer.
func (s *ownWrites) began(r *running) { r.own.Tracker, r.own.Key = s.tracker, r.run.Key }

// wrote implements observer.
func (s *ownWrites) wrote(_ context.Context, r *running, w *tracedWrite) {
	key := r.run.Key
	var echo *Cause
	removeCauses := func(isEcho func(ownwrites.Event) bool) { echo = s.enqueuer.removeEcho(key, isEcho) }
	if s.config.HandleOwnWrites {
		removeCauses = nil
	}
	w.Write = r.own.Record(w.call, w.before, s.content.of(w.call.Kind), removeCauses)
	if echo != nil {
		s.enqueuer.skip(SkipOwnWrite, key, *echo)
	}
}

// ended implements observer.
func (s *ownWrites) ended(_ context.Context, r *running) { r.own.End() }

// skips implements gate.
func (s *ownWrites) skips(key kube.Key, event ownwrites.Event) bool {
	return !s.config.HandleOwnWrites && s.tracker.IsEcho(key, event)
}

// hold implements gate.
func (s *ownWrites) hold(ctx context.Context, key kube.Key) workqueue.Hold {
	atMost, overdue := s.tracker.Hold(key)
	if len(overdue) > 0 {
		s.reportUnseen(ctx, key, overdue, atMost > 0)
	}
	return workqueue.Hold{AtMost: atMost}
}

// event returns the event that c is the cause of, for the detection of own writes.
func (c *Cause) event() ownwrites.Event {
	if c.Type != CauseAdded && c.Type != CauseUpdated {
		return ownwrites.Event{}
	}
	return ownwrites.Event{
		Kind: c.Kind, Object: c.Object, UID: c.UID, ResourceVersion: c.ResourceVersion,
		Added: c.Type == CauseAdded, Previous: c.previous,
	}
}

// reportUnseen reports that informers did not show in time what a run of key wrote.
func (s *ownWrites) reportUnseen(ctx context.Context, key kube.Key, unseen []string, waits bool) {
	slices.Sort(unseen)
	follows := "the handler runs without it"
	if waits {
		follows = fmt.Sprintf("the key waits until the informer can watch again, at most %s",
			rounded(ownwrites.MaxTimeouts*s.config.ConsistencyTimeout))
	}
	s.problems.begin(ctx, Problem{
		Type: ProblemUnseenWrite, Key: key, Since: time.Now(),
		Message: fmt.Sprintf("after %s an informer does not contain a write of the last run: %s; %s",
			rounded(s.config.ConsistencyTimeout), strings.Join(unseen, ", "), follows),
	}, false)
}

// contentDecoder decodes states of objects for comparison, with the Go types of the informers of their kinds.
type contentDecoder struct {
	informers func(kind schema.GroupKind) []cache.Informer // returns the informers that the controller runs
}

// typeOf returns a function that returns a new typed object of the kind; nil: no informer has its Go type. Another API
// version has other fields.
func (d *contentDecoder) typeOf(kind schema.GroupVersionKind) func() kube.Object {
	for _, informer := range d.informers(kind.GroupKind()) {
		model, whole := informer.NewObject()
		if _, isUnstructured := model.(runtime.Unstructured); whole && !isUnstructured && informer.Kind() == kind {
			return func() kube.Object { model, _ := informer.NewObject(); return model }
		}
	}
	return nil
}

// of returns a function that decodes states of objects of a kind.
func (d *contentDecoder) of(kind schema.GroupVersionKind) func(o *wire.Object) (map[string]any, error) {
	return func(o *wire.Object) (map[string]any, error) {
		if o.Format == wire.JSON {
			return wire.Content(o, nil) // JSON names its fields: no type is needed
		}
		return wire.Content(o, d.typeOf(kind))
	}
}

// differing returns a function that returns the fields of two states of an object of a kind that may differ.
func (d *contentDecoder) differing(
	kind schema.GroupVersionKind,
) func(before, after *wire.Object) (from, to map[string]any, err error) {
	return func(before, after *wire.Object) (from, to map[string]any, err error) {
		return wire.DifferingFields(before, after, d.typeOf(kind))
	}
}
