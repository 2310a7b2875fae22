package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// hotObjects is the number of written objects that are tracked for hot loops. Only objects that are written
// repeatedly within minutes take more than 200 B.
const hotObjects = 1024

// known implements writer.
func (l *loop[T]) known(r *running, kind schema.GroupVersionKind, object kube.Key) *before {
	if own := l.consistency.last(r.run.Key, kind, object); own != nil {
		return own
	}
	for _, informer := range l.watched(kind.GroupKind()) {
		if obj, found := informer.Encoded(object); found {
			_, whole := informer.NewObject()
			return &before{obj, whole && informer.Kind() == kind}
		}
	}
	return nil
}

// content decodes an object of a kind for comparison.
func (l *loop[T]) content(kind schema.GroupKind, o *wire.Object) (map[string]any, error) {
	if o.Format == wire.JSON {
		return detect.Content(o, nil) // JSON names its fields: no type is needed
	}
	for _, informer := range l.watched(kind) {
		if _, whole := informer.NewObject(); whole {
			return detect.Content(o, func() kube.Object { model, _ := informer.NewObject(); return model })
		}
	}
	return detect.Content(o, nil)
}

// contentFunc decodes the states of one object.
type contentFunc func(o *wire.Object) (map[string]any, error)

// contentOnce returns a contentFunc for an object of a kind that decodes each state once. The func must be used by
// one goroutine only, and its results must not be changed.
func (l *loop[T]) contentOnce(kind schema.GroupKind) contentFunc {
	decoded := map[*wire.Object]map[string]any{}
	return func(o *wire.Object) (map[string]any, error) {
		if content, found := decoded[o]; found {
			return content, nil
		}
		content, err := l.content(kind, o)
		if err == nil {
			decoded[o] = content
		}
		return content, err
	}
}

// wroteAgain passes a write to the hot loop detector, and reports a hot loop if one starts.
func (l *loop[T]) wroteAgain(ctx context.Context, r *running, kind schema.GroupKind, object kube.Key, was *before, is *wire.Object, content contentFunc) {
	step := detect.Step{Content: content, Kind: kind, Object: object, After: is, Manager: is.Manager, Run: r.run.ID}
	step.Causes, step.CausesDropped = detectCauses(r.run.Causes)
	if was != nil && was.whole {
		step.Before = was.object
	}
	found, began := l.hot.Wrote(r.run.Key, &step, time.Now())
	if !began {
		return
	}
	problem := Problem{Type: ProblemHotLoop, Key: r.run.Key, Since: found.Since, Message: found.Message, Details: []slog.Attr{
		slog.String("object", kind.Kind+" "+object.String()),
		slog.String("managers", strings.Join(found.Managers, ", ")),
	}}
	for _, field := range found.Fields {
		problem.Details = append(problem.Details, slog.String(field.Path, field.Values[0]+" <-> "+field.Values[1]))
	}
	if found.MoreFields > 0 {
		problem.Details = append(problem.Details, slog.String("further fields", fmt.Sprint(found.MoreFields)))
	}
	l.problems.begin(ctx, problem, false)
}

// othersChange passes a change by another client, of an object that a suspect writes, to the hot loop detector.
func (l *loop[T]) othersChange(key kube.Key, c informer.Change, manager string) {
	if !l.hot.Suspect(key) {
		return
	}
	if c.Type == informer.Deleted {
		l.hot.ObjectGone(key, c.Kind().GroupKind(), c.Key)
	}
	if c.Type != informer.Updated {
		return
	}
	before, errBefore := c.States().Old()
	after, errAfter := c.States().New()
	if errBefore == nil && errAfter == nil {
		l.hot.Changed(key, &detect.Step{Kind: c.Kind().GroupKind(), Object: c.Key, Before: before, After: after, Manager: manager}, time.Now())
	}
}

// forgetHotLoops removes the write history of an object that was deleted.
func (l *loop[T]) forgetHotLoops(key kube.Key) {
	l.hot.Gone(key)
	l.mu.Lock()
	delete(l.pauses, key)
	l.mu.Unlock()
	l.problems.endOf(key, ProblemHotLoop)
}

// pauseAfter sets for how long the next run of key is held back, after a run has ended.
func (l *loop[T]) pauseAfter(key kube.Key) (pause time.Duration) {
	now := time.Now()
	pause = l.hot.Pause(key, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case pause > 0:
		l.pauses[key] = now.Add(pause)
	case len(l.pauses) > 0:
		delete(l.pauses, key)
	}
	return pause
}

// paused returns for how much longer key is held back.
func (l *loop[T]) paused(key kube.Key) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pauses) == 0 {
		return 0
	}
	until, paused := l.pauses[key]
	if !paused {
		return 0
	}
	return time.Until(until)
}
