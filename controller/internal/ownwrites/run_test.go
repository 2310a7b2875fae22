package ownwrites

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// part is a Part in JSON, with these metadata besides its name and uid.
func part(version, metadata, content string) string {
	return `{"kind":"Part","apiVersion":"example.com/v1","metadata":{"name":"p","uid":"1","resourceVersion":"` + version + `"` + metadata + `}` + content + `}`
}

func parse(t *testing.T, encoded string) *wire.Object {
	t.Helper()
	o, err := wire.Parse([]byte(encoded), nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func decode(o *wire.Object) (content map[string]any, err error) {
	return content, utiljson.Unmarshal(o.Bytes, &content)
}

// TestRecordOfEachWrite checks the effect of each kind of write, which of its events are echoes, and what the informer
// is asked to show. The informer shows the part at version 5.
func TestRecordOfEachWrite(t *testing.T) {
	t.Parallel()
	const deleting = `,"deletionTimestamp":"2026-11-22T09:00:00Z","deletionGracePeriodSeconds":0`
	status := func(details string) string { return `{"kind":"Status","apiVersion":"v1","details":{` + details + `}}` }
	for name, test := range map[string]struct {
		verb, subresource, request, patchType, response string
		status                                          int
		effect                                          Effect
		echo                                            string // the version before the event, or "added"; empty: the event is not an echo
		awaited                                         string // empty: nothing
	}{
		"creation": {
			verb: "create", request: part("", "", ""), response: part("6", "", ""), status: http.StatusCreated,
			effect: Changed, echo: "added", awaited: "Part.example.com p at 6",
		},
		"update with a precondition": {
			verb: "update", request: part("4", "", `,"spec":1`), response: part("6", "", `,"spec":1`),
			effect: Changed, echo: "4", awaited: "Part.example.com p at 6",
		},
		"update without a precondition": {
			verb: "update", request: part("", "", `,"spec":1`), response: part("6", "", `,"spec":1`),
			effect: Changed, awaited: "Part.example.com p at 6",
		},
		"update that changes nothing": {verb: "update", request: part("5", "", ""), response: part("5", "", ""), effect: Unchanged},
		"update that returns another client's state": {
			verb: "update", request: part("6", "", ""), response: part("6", "", ""), effect: Changed, awaited: "Part.example.com p at 6",
		},
		"merge patch": {
			verb: "patch", patchType: string(types.MergePatchType), request: `{"spec":1}`, response: part("6", "", `,"spec":1`),
			effect: Changed, echo: "5", awaited: "Part.example.com p at 6",
		},
		"merge patch after another client's change": {
			verb: "patch", patchType: string(types.MergePatchType), request: `{"spec":1}`, response: part("7", "", `,"spec":1,"other":1`),
			effect: Changed, awaited: "Part.example.com p at 7",
		},
		"JSON patch": {
			verb: "patch", patchType: string(types.JSONPatchType), request: `[{"op":"add","path":"/spec","value":1}]`, response: part("6", "", `,"spec":1`),
			effect: Changed, echo: "5", awaited: "Part.example.com p at 6",
		},
		"status patch": {
			verb: "patch", subresource: "status", patchType: string(types.JSONPatchType), request: `[{"op":"add","path":"/status","value":1}]`,
			response: part("6", "", `,"status":1`), effect: Changed, echo: "5", awaited: "Part.example.com p at 6",
		},
		"patch with a metadata-only response": {
			verb: "patch", patchType: string(types.MergePatchType), request: `{"spec":1}`,
			response: `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"p","uid":"1","resourceVersion":"6"}}`,
			effect:   Changed, awaited: "Part.example.com p at 6",
		},
		"removal of the last finalizer": {
			verb: "patch", patchType: string(types.MergePatchType), request: `{"metadata":{"finalizers":null}}`, response: part("6", deleting, ""),
			effect: Deleted, awaited: "deletion of Part.example.com p at 6",
		},
		"removal of one finalizer": {
			verb: "patch", patchType: string(types.MergePatchType), request: `{"metadata":{"finalizers":["a"]}}`,
			response: part("6", deleting+`,"finalizers":["a"]`, ""), effect: Changed, awaited: "Part.example.com p at 6",
		},
		"delete": {
			verb: "delete", response: status(`"uid":"1"`), effect: Deleted, awaited: "deletion of Part.example.com p at 5",
		},
		"delete with a precondition": {
			verb: "delete", request: `{"preconditions":{"resourceVersion":"6"}}`, response: status(`"uid":"1"`),
			effect: Deleted, awaited: "deletion of Part.example.com p at 6",
		},
		"delete of a newer object": {
			verb: "delete", response: status(`"uid":"2"`), effect: Deleted, awaited: "deletion of Part.example.com p at , after that of 1",
		},
		"delete with a finalizer": {
			verb: "delete", response: part("6", deleting+`,"finalizers":["a"]`, ""), effect: Changed, awaited: "Part.example.com p at 6",
		},
		"delete after the grace period": {
			verb: "delete", response: part("6", deleting, ""), effect: Deleted, awaited: "deletion of Part.example.com p at 6",
		},
		"delete without a uid":   {verb: "delete", response: status(``), effect: Unknown},
		"delete of a collection": {verb: "deletecollection", response: `{"kind":"PartList","apiVersion":"example.com/v1","items":[]}`, effect: Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := kube.Key{Name: "p"}
			informer := &slowInformer{shown: parse(t, part("5", "", ""))}
			tracker, _ := newTracker(informer)
			call := kube.Call{
				Verb: test.verb, Subresource: test.subresource, Kind: partKind(), Key: key, Status: test.status,
				Request: []byte(test.request), RequestType: test.patchType, Response: []byte(test.response),
			}
			run := &Run{Tracker: tracker, Key: key}
			var isEcho func(Event) bool
			w := run.Record(call, run.State("", partKind(), key), decode, func(match func(Event) bool) { isEcho = match })
			if w.Effect != test.effect || w.Key != key {
				t.Errorf("the effect on %s is %d, want %d", w.Key, w.Effect, test.effect)
			}
			if (isEcho != nil) != (test.effect == Changed || test.effect == Deleted) {
				t.Errorf("causes are removed: %t", isEcho != nil)
			}
			if w.Object != nil {
				event := Event{Kind: partKind().GroupKind(), Object: key, UID: "1", ResourceVersion: w.Object.ResourceVersion}
				for _, previous := range []string{"added", "3", "4", "5"} {
					event.Added, event.Previous = previous == "added", previous
					if got, want := tracker.IsEcho(key, event), previous == test.echo; got != want || isEcho != nil && isEcho(event) != want {
						t.Errorf("the event that follows %q is an echo: %t, want %t", previous, got, want)
					}
				}
				later := event
				later.Added, later.Previous, later.ResourceVersion = test.echo == "added", test.echo, "8"
				if tracker.IsEcho(key, later) || isEcho != nil && isEcho(later) {
					t.Errorf("the event that follows %q with another client's later change is an echo", test.echo)
				}
				event.Kind.Kind = "Other"
				if tracker.IsEcho(key, event) || tracker.IsEcho(kube.Key{Name: "another"}, event) {
					t.Error("the event of another kind is an echo")
				}
			}
			run.End()
			awaited := ""
			for _, w := range informer.awaits {
				if w.Deleted {
					awaited += "deletion of "
				}
				awaited += partKind().GroupKind().String() + " " + w.Key.String() + " at " + w.ResourceVersion
				if w.Earlier != "" {
					awaited += ", after that of " + string(w.Earlier)
				}
			}
			if awaited != test.awaited {
				t.Errorf("the informer is asked to show %q, want %q", awaited, test.awaited)
			}
		})
	}
}

// TestStateIsTheLastWritten checks that the known state of an object is the one that the run wrote last, and otherwise
// the one that the informer shows.
func TestStateIsTheLastWritten(t *testing.T) {
	t.Parallel()
	key := kube.Key{Name: "p"}
	informer := &slowInformer{shown: parse(t, part("5", "", ""))}
	tracker, _ := newTracker(informer)
	run := &Run{Tracker: tracker, Key: key}
	version := func(kind string) string {
		gvk := partKind()
		gvk.Version = kind
		state := run.State("", gvk, key)
		if state == nil {
			return "none"
		}
		if !state.Whole {
			return "part of " + state.Object.ResourceVersion
		}
		return state.Object.ResourceVersion
	}
	expect := func(when, whole, otherVersion string) {
		t.Helper()
		if got, other := version("v1"), version("v2"); got != whole || other != otherVersion {
			t.Errorf("%s, the state is %s, and in another API version %s, want %s and %s", when, got, other, whole, otherVersion)
		}
	}
	expect("before the writes", "5", "part of 5")
	call := kube.Call{Verb: "update", Kind: partKind(), Key: key, Request: []byte(part("5", "", "")), Response: []byte(part("6", "", ""))}
	run.Record(call, nil, decode, nil)
	expect("after an update", "6", "part of 6")
	run.Record(kube.Call{Verb: "delete", Kind: partKind(), Key: key, Response: []byte(`{"kind":"Status","details":{"uid":"1"}}`)}, nil, decode, nil)
	informer.shown = nil
	expect("after a delete", "none", "none")
}

// TestStateIsTheNewestShown checks that a state comes from the informer that shows the newest one, and that a whole state
// precedes a part of the same version.
func TestStateIsTheNewestShown(t *testing.T) {
	t.Parallel()
	shows := func(version string, parts bool) *slowInformer {
		return &slowInformer{shown: parse(t, part(version, "", "")), parts: parts}
	}
	for name, test := range map[string]struct {
		one, other *slowInformer
		version    string
		whole      bool
	}{
		"the same version":             {shows("5", true), shows("5", false), "5", true},
		"the whole object is newer":    {shows("5", true), shows("10", false), "10", true},
		"the whole object is older":    {shows("10", true), shows("9", false), "10", false},
		"both are whole":               {shows("9", false), shows("10", false), "10", true},
		"both are parts":               {shows("9", true), shows("10", true), "10", false},
		"one does not have the object": {&slowInformer{}, shows("5", true), "5", false},
	} {
		for _, order := range [][]cache.Informer{{test.one, test.other}, {test.other, test.one}} {
			tracker, _ := newTracker(order...)
			state := (&Run{Tracker: tracker}).State("", partKind(), kube.Key{Name: "p"})
			if state == nil || state.Object.ResourceVersion != test.version || state.Whole != test.whole {
				t.Errorf("%s: the state is %+v, want version %s, whole: %t", name, state, test.version, test.whole)
			}
		}
	}
}

// TestRecordAfterEnd checks that the write of a goroutine that has outlived its run is not tracked, and leaves the
// causes in the queue.
func TestRecordAfterEnd(t *testing.T) {
	t.Parallel()
	key := kube.Key{Name: "p"}
	tracker, _ := newTracker(&slowInformer{})
	run := &Run{Tracker: tracker, Key: key}
	run.End()
	call := kube.Call{Verb: "create", Kind: partKind(), Key: key, Status: http.StatusCreated, Response: []byte(part("6", "", ""))}
	w := run.Record(call, nil, decode, func(func(Event) bool) { t.Error("causes are removed after the run") })
	if w.Effect != Unknown || len(tracker.Unseen(key)) != 0 {
		t.Errorf("the effect is %d, and the key waits for %q", w.Effect, tracker.Unseen(key))
	}
	own, _ := newOwnWrite(call, nil, tracker.responses.Read(call.Response))
	if tracker.record(run, own, nil) { // the run ended after Record had checked it
		t.Error("a write is recorded after the end of its run")
	}
}
