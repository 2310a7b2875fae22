package controller

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// comparedRuns is the number of a controller's first runs whose objects are compared: a comparison takes a copy.
const comparedRuns = 20

// unwritten warns once if a handler changes its copy of the object and nothing writes the change, as if the copy were
// the object in the API server.
type unwritten struct {
	runs   atomic.Int32
	warned atomic.Bool
}

// before returns a copy of the object that a handler is about to receive, or nil if its changes are not compared.
func (u *unwritten) before(obj kube.Object) runtime.Object {
	if u.runs.Load() >= comparedRuns || u.runs.Add(1) > comparedRuns {
		return nil
	}
	return obj.DeepCopyObject()
}

// after compares obj, which a handler has returned without an error, with before.
func (u *unwritten) after(ctx context.Context, r *running, kind string, before runtime.Object, obj kube.Object) {
	old := before.(kube.Object)
	if old.GetResourceVersion() != obj.GetResourceVersion() {
		return // the handler has received a later state: it has written the object
	}
	var from, to map[string]any
	var err error
	// The Go type may have its own MarshalJSON.
	panicked := usercode.Recover("MarshalJSON", func() { from, to, err = difference.States(old, obj) })
	if panicked != nil || err != nil {
		return // the client reports it when the object is written
	}
	run := r.snapshot()
	objectWritten, statusWritten := run.writesDropped > 0, run.writesDropped > 0
	for _, w := range run.writes {
		if w.Key == run.Key && (w.Kind == kind || kind == "") {
			objectWritten, statusWritten = objectWritten || w.Subresource == "", true
		}
	}
	var fields []string // the first of each path
	w := difference.Walker{Report: func(path difference.Path, _, _ any) { fields = append(fields, path[0].Name) }}
	w.Walk(difference.Without(from, nil, "managedFields"), difference.Without(to, nil, "managedFields"))
	for _, field := range fields {
		hint := "write it with package client, or change a copy if it is for the memory only"
		if field == "status" {
			hint = "wrap the handler in middleware.Status, or write it with package status"
		}
		if objectWritten || field == "status" && statusWritten {
			continue
		}
		if u.warned.Swap(true) {
			return
		}
		u.runs.Store(comparedRuns)
		r.log().WarnContext(ctx, "handler changed its copy of the object, which nothing writes", "field", field,
			"hint", hint)
		return
	}
}
