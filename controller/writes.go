package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// writes receives the writes of the runs: it implements writer. It passes each to consistency, which keeps it until the
// informers show it, and to the detector of hot loops. A write of a goroutine that has outlived its run is ignored.
type writes struct {
	// Immutable.
	config      OwnWritesConfig
	enqueuer    *enqueuer
	consistency *consistency
	hot         *hotLoops
	problems    *problems
	content     *contentDecoder
}

// known implements writer.
func (s *writes) known(r *running, kind schema.GroupVersionKind, object kube.Key) *before {
	if own := s.consistency.last(r.run.Key, kind, object); own != nil {
		return own
	}
	for _, informer := range s.content.informers(kind.GroupKind()) {
		if obj, found := informer.Encoded(object); found {
			_, whole := informer.NewObject()
			return &before{obj, whole && informer.Kind() == kind}
		}
	}
	return nil
}

// wrote implements writer.
func (s *writes) wrote(ctx context.Context, r *running, call kube.Call, was *before, a answer) WriteOutcome {
	seen, ok := writeOf(call, a)
	kind := call.Kind.GroupKind()
	if r.finished.Load() {
		return WriteDone // by a goroutine that has outlived its handler: nothing waits for this write
	}
	w := ownWrite{Write: seen, kind: kind, created: call.Status == http.StatusCreated && call.Subresource == ""}
	if !ok || kind.Kind == "" {
		return WriteDone
	}
	if was != nil && was.object.UID == w.UID && was.object.ResourceVersion == w.ResourceVersion && call.Verb != "delete" {
		return WriteNoChange
	}
	if w.Deleted {
		// Without a version, an informer that does not show the object yet would seem to show its deletion.
		w.ResourceVersion = lastVersion(call, was, a)
	}
	content := s.content.once(kind)
	w.base = baseOf(call, was, a, content)
	if a.kind == call.Kind {
		w.whole = a.kind
	}
	echo, forgiven, noted := s.consistency.wrote(r, w, !s.config.Handle)
	if !noted {
		return WriteDone
	}
	if forgiven {
		s.enqueuer.skip(SkipOwnWrite, r.run.Key, echo)
	}
	switch {
	case w.Deleted:
		s.hot.deleted(r.run.Key, kind, w.Key)
	case a.object != nil:
		s.hot.wrote(ctx, r, kind, w.Key, was, a.object, content)
	}
	return WriteDone
}

// reportUnseen reports that informers did not show in time what a run of key wrote.
func (s *writes) reportUnseen(ctx context.Context, key kube.Key, late []*unseenWrite, waits bool) {
	var names []string
	for _, w := range late {
		names = append(names, w.String())
	}
	slices.Sort(names)
	follows := "the handler runs without it"
	if waits {
		follows = "the key waits until the informer can watch again"
	}
	s.problems.begin(ctx, Problem{
		Type: ProblemUnseenWrite, Key: key, Since: time.Now(),
		Message: fmt.Sprintf("an informer does not show after %s what the last run wrote: %s; %s", rounded(s.config.ConsistencyTimeout), strings.Join(names, ", "), follows),
	}, false)
}

// contentDecoder decodes states of objects for comparison, with the Go types of the informers of their kinds.
type contentDecoder struct {
	informers func(kind schema.GroupKind) []cache.Informer // returns the informers that the controller runs
}

// decode decodes an object of a kind.
func (d *contentDecoder) decode(kind schema.GroupKind, o *wire.Object) (map[string]any, error) {
	if o.Format == wire.JSON {
		return detect.Content(o, nil) // JSON names its fields: no type is needed
	}
	for _, informer := range d.informers(kind) {
		if _, whole := informer.NewObject(); whole {
			return detect.Content(o, func() kube.Object { model, _ := informer.NewObject(); return model })
		}
	}
	return detect.Content(o, nil)
}

// contentFunc decodes the states of one object.
type contentFunc func(o *wire.Object) (map[string]any, error)

// once returns a contentFunc for an object of a kind that decodes each state once. The func must be used by one
// goroutine only, and its results must not be changed.
func (d *contentDecoder) once(kind schema.GroupKind) contentFunc {
	decoded := map[*wire.Object]map[string]any{}
	return func(o *wire.Object) (map[string]any, error) {
		if content, found := decoded[o]; found {
			return content, nil
		}
		content, err := d.decode(kind, o)
		if err == nil {
			decoded[o] = content
		}
		return content, err
	}
}
