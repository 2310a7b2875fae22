package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// world is an API server with a clock, and one controller with runs that the tests simulate. Its cache shows every
// write at once, unless lagging is set.
type world struct {
	tb        testing.TB
	h         *HotLoops
	now       time.Time
	version   int
	objects   map[name]*wire.Object
	cached    map[name]*wire.Object
	lagging   bool // the cache gets no updates
	found     []Episode
	run       uint64
	owner     Owner // of the runs
	differing differingFunc
	causes    []Cause
}

//nolint:gochecknoglobals // names
var (
	shopWeb    = kube.Key{Namespace: "shop", Name: "web"}
	deployment = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	site       = schema.GroupKind{Group: "example.com", Kind: "Site"}
	pod        = schema.GroupKind{Kind: "Pod"}
)

func newWorld(tb testing.TB) *world {
	tb.Helper()
	return &world{
		tb: tb, h: NewHotLoops(4096, 0), now: time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), version: 1000,
		objects: make(map[name]*wire.Object), cached: make(map[name]*wire.Object),
	}
}

// newResyncedWorld returns a world whose controller has resyncs.
func newResyncedWorld(tb testing.TB, interval time.Duration) *world {
	tb.Helper()
	w := newWorld(tb)
	w.h = NewHotLoops(4096, interval)
	return w
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

type name struct {
	kind schema.GroupKind
	key  kube.Key
}

// fields are the top-level fields of an object except its metadata: spec, status, data.
type fields map[string]any

// put sets fields of an object, keeps its other fields, and returns the states before and after.
func (w *world) put(kind schema.GroupKind, key kube.Key, f fields) (before, after *wire.Object) {
	w.tb.Helper()
	id := name{kind, key}
	before = w.objects[id]
	content := map[string]any{}
	if before != nil {
		if err := json.Unmarshal(before.Bytes, &content); err != nil {
			w.tb.Fatal(err)
		}
	}
	old := encode(content)
	maps.Copy(content, f)
	// The comparison uses JSON, so that equal values of different types are equal.
	if before != nil && encode(content) == old {
		return before, before
	}
	w.version++
	content["apiVersion"], content["kind"] = "v1", kind.Kind
	content["metadata"] = map[string]any{
		"namespace": key.Namespace, "name": key.Name, "uid": "u-" + key.Name,
		"resourceVersion": fmt.Sprint(w.version), "generation": w.version / 7,
	}
	after, err := wire.Parse([]byte(encode(content)), nil)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.objects[id] = after
	if !w.lagging {
		w.cached[id] = after
	}
	return before, after
}

// runs starts a run.
func (w *world) runs(causes ...Cause) {
	w.run++
	w.causes = causes
}

// writes simulates a write of the key shop/web in its current run.
func (w *world) writes(kind schema.GroupKind, object kube.Key, f fields) {
	w.tb.Helper()
	cached := w.cached[name{kind, object}]
	_, after := w.put(kind, object, f)
	w.wrote(Step{Kind: kind, Object: object, Before: cached, After: after, Manager: "site-operator", Sent: []byte(encode(f))})
}

// creates simulates the creation of an object that does not exist.
func (w *world) creates(kind schema.GroupKind, object kube.Key, i int) {
	w.tb.Helper()
	_, after := w.put(kind, object, fields{"spec": i})
	created := after.Clone()
	created.UID = types.UID(fmt.Sprint("u", w.version))
	w.wrote(Step{Kind: kind, Object: object, Created: true, After: created, Manager: "site-operator"})
}

func (w *world) wrote(s Step) {
	s.Differing, s.Owner = w.differing, w.owner
	s.Run, s.Causes, s.CausesDropped = w.run, w.causes[:min(len(w.causes), maxCauses)], len(w.causes) > maxCauses
	if found, began := w.h.Wrote(shopWeb, &s, w.now); began {
		w.found = append(w.found, found)
	}
}

// somebody simulates a write of another client. The informer shows the write, and the write enqueues the key.
func (w *world) somebody(manager string, kind schema.GroupKind, object kube.Key, f fields) Cause {
	w.tb.Helper()
	before, after := w.put(kind, object, f)
	w.h.Changed(shopWeb, &Step{Kind: kind, Object: object, Before: before, After: after, Manager: manager, Differing: w.differing}, w.now)
	return w.changed(kind, object)
}

// changed returns the cause for the last change of an object.
func (w *world) changed(kind schema.GroupKind, object kube.Key) Cause {
	after := w.objects[name{kind, object}]
	return Cause{Changed: true, Kind: kind, Object: object, ResourceVersion: after.ResourceVersion}
}

// one returns the only episode that was detected, and fails if there is not exactly one.
func (w *world) one() Episode {
	w.tb.Helper()
	if len(w.found) != 1 {
		w.tb.Fatalf("found %d episodes, want 1: %+v", len(w.found), w.found)
	}
	return w.found[0]
}

// none fails if an episode was detected.
func (w *world) none() {
	w.tb.Helper()
	for _, e := range w.found {
		w.tb.Errorf("called a hot loop (%s): %s", e.Pattern, e.Message)
	}
}

// maxCauses is the maximum number of causes of a run.
const maxCauses = 8
