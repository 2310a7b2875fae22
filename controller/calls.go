package controller

import (
	"cmp"
	"context"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/kube"
)

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
	var write Write
	if writes {
		before, _ := ctx.Value(stateKey{}).(*ownwrites.State)
		write = r.writeOf(ctx, call, before)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Calls++
	r.run.CallTime += call.Duration
	if write.Outcome == WriteDone {
		r.run.writesDone++
	}
	switch {
	case !writes:
	case len(r.run.Writes) == maxWrites:
		r.run.WritesDropped++
	default:
		r.run.Writes = append(r.run.Writes, write)
	}
}

// writeOf returns the record of a write, and tracks the write if the API server performed it.
func (r *running) writeOf(ctx context.Context, call kube.Call, before *ownwrites.State) Write {
	w := Write{
		Verb: call.Verb, Kind: cmp.Or(call.Kind.Kind, call.Resource.Resource), Subresource: call.Subresource,
		Key: call.Key, Status: call.Status, Duration: call.Duration,
	}
	switch {
	case call.Err != nil:
		w.Outcome = WriteUnknown
	case !call.Succeeded():
		w.Outcome = WriteRejected
	case call.DryRun:
		w.Outcome = WriteDryRun
	default:
		w.Outcome = WriteDone
		own := r.writes.completed(ctx, r, call, before)
		w.Key = own.Key
		if own.Object != nil {
			w.ResourceVersion = own.Object.ResourceVersion
		}
		if own.Effect == ownwrites.Unchanged {
			w.Outcome = WriteNoChange
		}
	}
	return w
}
