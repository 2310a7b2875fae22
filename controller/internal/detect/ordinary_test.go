package detect

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func (w *world) as(uid string, s Step) Step {
	if s.Before != nil {
		s.Before = s.Before.Clone()
		s.Before.UID = types.UID(uid)
	}
	if s.After != nil {
		s.After = s.After.Clone()
		s.After.UID = types.UID(uid)
	}
	return s
}

// A user creates and deletes an object 40 times; the handler only adds and removes its finalizer.
func TestObjectsThatUsersRecreateAreNotReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 40 {
		uid := fmt.Sprint("user", i)
		w.pass(4 * time.Second)
		w.put(site, shopWeb, fields{"spec": fields{"i": i}, "fin": nil})
		before := w.objects[name{site, shopWeb}]
		w.runs(w.changed(site, shopWeb))
		_, after := w.put(site, shopWeb, fields{"fin": []any{"f"}})
		w.wrote(w.as(uid, Step{Kind: site, Object: shopWeb, Before: before, After: after, Manager: "site-operator"}))
		w.pass(4 * time.Second)
		w.runs(w.changed(site, shopWeb))
		w.wrote(Step{Kind: site, Object: shopWeb, Before: after, Manager: "site-operator"}) // the last finalizer
		w.h.Gone(shopWeb)
	}
	w.none()
}

// A user creates and deletes a parent 40 times; the handler creates its child, and deletes it for the finalizer.
func TestChildrenOfRecreatedParentsAreNotReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 40 {
		w.owner = Owner{UID: types.UID(fmt.Sprint("user", i)), Generation: 1}
		w.pass(4 * time.Second)
		w.runs(w.somebody("kubectl", site, shopWeb, fields{"spec": fields{"i": i}}))
		w.creates(deployment, shopWeb, i)
		w.wrote(Step{Kind: deployment, Object: shopWeb, Manager: "site-operator"})
		w.h.ObjectGone(shopWeb, deployment, shopWeb)
		w.h.Gone(shopWeb)
	}
	w.none()
}

// A user edits the owner 60 times; the handler replaces its Job each time, in one run or when the old one is gone.
func TestReplacementsForNewGenerationsAreNotReported(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		w := newWorld(t)
		for i := range 60 {
			w.owner = Owner{UID: "site", Generation: int64(i + 1)}
			w.pass(4 * time.Second)
			w.runs(w.somebody("kubectl", site, shopWeb, fields{"spec": fields{"i": i}}))
			w.wrote(Step{Kind: deployment, Object: shopWeb, Manager: "site-operator"})
			if waits {
				w.h.ObjectGone(shopWeb, deployment, shopWeb)
				w.runs(Cause{})
			}
			w.creates(deployment, shopWeb, i)
		}
		w.none()
	}
}

// Few edits by a user do not hide a handler that replaces a child again and again.
func TestReplacementsBetweenGenerationsAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 200 {
		w.owner = Owner{UID: "site", Generation: int64(1 + i/50)}
		w.pass(time.Second)
		w.runs(Cause{})
		w.wrote(Step{Kind: deployment, Object: shopWeb, Manager: "site-operator"})
		w.creates(deployment, shopWeb, i)
	}
	if e := w.one(); e.Pattern != PatternRecreated {
		t.Errorf("got %+v", e)
	}
}

// External events, 9 s apart, replace a Job.
func TestRecreationsForExternalEventsAreNotReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 60 {
		w.pass(9 * time.Second)
		w.runs(Cause{External: true})
		w.wrote(Step{Kind: deployment, Object: shopWeb, Manager: "site-operator"})
		w.creates(deployment, shopWeb, i)
	}
	w.none()
}

// A lock annotation that each resync sets and resets.
func TestValueRestoredInResyncIsNotReported(t *testing.T) {
	t.Parallel()
	w := newResyncedWorld(t, 3*time.Minute)
	for i := range 30 {
		w.pass(3 * time.Minute)
		w.runs(Cause{Resync: true})
		w.writes(site, shopWeb, fields{"lock": "checking"})
		w.writes(site, shopWeb, fields{"lock": "free"})
		if len(w.found) > 0 {
			t.Errorf("after %d resyncs", i+1)
			break
		}
	}
	w.none()
}

// A rewrite that takes two writes counts as two resyncs.
func TestTwoWritesOfResyncCountOnce(t *testing.T) {
	t.Parallel()
	w := newResyncedWorld(t, 3*time.Minute)
	for i := range 15 {
		w.pass(3 * time.Minute)
		w.runs(Cause{Resync: true})
		w.writes(site, shopWeb, fields{"data": fields{"v": fmt.Sprintf("a%dx", i)}})
		w.writes(site, shopWeb, fields{"data": fields{"v": fmt.Sprintf("b%dx", i)}})
	}
	w.none()
}

// The time of the last check, in formats of package time.
func TestTimesInTextAreNotReported(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{time.RFC1123, time.DateTime, time.UnixDate, "2006-01-02 15:04:05.999999999 -0700 MST"} {
		w := newResyncedWorld(t, 10*time.Minute)
		for range 30 {
			w.pass(10 * time.Minute)
			w.runs(Cause{Resync: true})
			w.writes(site, shopWeb, fields{"data": fields{"checked": w.now.Format(layout)}})
		}
		w.none()
	}
}

// The state that is kept for an object without an informer is counted as long as it is kept, also if an owner of the
// same name follows.
func TestKeptStateOfEarlierOwnerIsNotCounted(t *testing.T) {
	t.Parallel()
	w := newResyncedWorld(t, 3*time.Minute)
	for i := range 5 {
		w.owner = Owner{UID: types.UID(fmt.Sprint("owner", i)), Generation: 1}
		w.pass(3 * time.Minute)
		w.runs(Cause{Resync: true})
		w.lagging = true
		w.writes(deployment, shopWeb, fields{"spec": fields{"password": fmt.Sprint("p", i)}})
	}
	kept := 0
	for _, tr := range w.h.tracks {
		if tr.resynced != nil {
			kept += len(tr.resynced.Bytes)
		}
	}
	if kept == 0 || kept != w.h.kept {
		t.Errorf("%d bytes are kept, %d are counted", kept, w.h.kept)
	}
}

// A second patch of the same run, which changes no text, does not hide random content of an object without an informer.
func TestSecondPatchDoesNotHideRandomContent(t *testing.T) {
	t.Parallel()
	w := newResyncedWorld(t, 10*time.Minute)
	w.lagging = true
	for i := range 40 {
		w.pass(10 * time.Minute)
		w.runs(Cause{Resync: true})
		w.writes(site, shopWeb, fields{"data": fields{"password": fmt.Sprintf("a%dx", i)}})
		w.writes(site, shopWeb, fields{"count": i})
	}
	if len(w.found) != 1 || w.found[0].Pattern != PatternRestless {
		t.Errorf("found %v, want random content", w.found)
	}
}
