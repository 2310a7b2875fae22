package controller

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/kube"
)

// maxWrites is the maximum number of writes in a RunRecord.
const maxWrites = 16

// writeOutcome is how a write ended.
type writeOutcome string

// The outcomes of writes.
const (
	// writeDone: the API server performed the write.
	writeDone writeOutcome = "done"
	// writeNoChange: the API server accepted the write, and nothing changed.
	writeNoChange writeOutcome = "no change"
	// writeDryRun: the API server would perform the write.
	writeDryRun writeOutcome = "dry run"
	// writeRejected: the API server rejected the write; see Status.
	writeRejected writeOutcome = "rejected"
	// writeUnknown: no response was received. The write may have been performed.
	writeUnknown writeOutcome = "unknown"
)

// write is one write of a run.
type write struct {
	// Verb is create, update, patch, delete or deletecollection. Kind is the kind, or the resource if the kind is not
	// known. Subresource is empty for the object itself.
	Verb        string
	Kind        string
	Subresource string
	Key         kube.Key
	Outcome     writeOutcome
	// Status is the HTTP status of the response. 0: no response was received.
	Status int
	// ResourceVersion is the object's after the write, if the response contains it.
	ResourceVersion string
	Duration        time.Duration
}

// String returns the write in one line: "patch Deployment/status shop/web: done (resource version 4711)".
func (w write) String() string {
	what := w.Kind
	if w.Subresource != "" {
		what += "/" + w.Subresource
	}
	switch {
	case w.Key.Name != "":
		what += " " + w.Key.String()
	case w.Key.Namespace != "": // the response to a rejected create contains no name
		what += " in " + w.Key.Namespace
	}
	s := fmt.Sprintf("%s %s: %s", w.Verb, what, w.Outcome)
	switch {
	case w.Outcome == writeRejected:
		s += fmt.Sprintf(" (%s)", strings.TrimSpace(fmt.Sprintf("%d %s", w.Status, http.StatusText(w.Status))))
	case w.ResourceVersion != "":
		s += fmt.Sprintf(" (resource version %s)", w.ResourceVersion)
	}
	return s
}

type stateKey struct{}

// CallBegan implements kube.CallObserver.
func (r *running) CallBegan(ctx context.Context, call kube.Call) context.Context {
	if !call.IsWrite() || call.Key.Name == "" || call.Kind.Kind == "" {
		return ctx
	}
	if state := r.own.State(call.Server, call.Kind, call.Key); state != nil {
		return context.WithValue(ctx, stateKey{}, state)
	}
	return ctx
}

// CallEnded implements kube.CallObserver.
func (r *running) CallEnded(ctx context.Context, call kube.Call) {
	writes := call.IsWrite() || call.DryRun
	var w write
	if writes {
		before, _ := ctx.Value(stateKey{}).(*ownwrites.State)
		w = r.writeOf(ctx, call, before)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Calls++
	r.run.callTime += call.Duration
	if w.Outcome == writeDone {
		r.run.Writes++
	}
	switch {
	case !writes:
	case len(r.run.writes) == maxWrites:
		r.run.writesDropped++
	default:
		r.run.writes = append(r.run.writes, w)
	}
}

// writeOf returns the record of a write, and tracks the write if the API server performed it.
func (r *running) writeOf(ctx context.Context, call kube.Call, before *ownwrites.State) write {
	w := write{
		Verb: call.Verb, Kind: cmp.Or(call.Kind.Kind, call.Resource.Resource), Subresource: call.Subresource,
		Key: call.Key, Status: call.Status, Duration: call.Duration,
	}
	switch {
	case call.Err != nil:
		w.Outcome = writeUnknown
	case !call.Succeeded():
		w.Outcome = writeRejected
	case call.DryRun:
		w.Outcome = writeDryRun
	default:
		w.Outcome = writeDone
		own := &tracedWrite{call: call, before: before}
		r.observers.each(func(o observer) { o.wrote(ctx, r, own) })
		w.Key = own.Key
		if own.Object != nil {
			w.ResourceVersion = own.Object.ResourceVersion
		}
		if own.Effect == ownwrites.Unchanged {
			w.Outcome = writeNoChange
		}
	}
	return w
}
