package detect

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

func five(int) int { return 5 }

// TestEpisodeBeginsAndEnds checks that a hot loop is one episode for any duration, that the episode ends one window
// after the last sign, and that the next loop is a new episode.
func TestEpisodeBeginsAndEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fight(w, 10, time.Second, five)
	w.one()
	for range 20 { // the slowed loop continues the episode
		w.pass(4 * time.Minute)
		fight(w, 1, 0, five)
	}
	if e := w.one(); len(w.h.Episodes(w.now)) != 1 || w.h.Episodes(w.now)[0].Since != e.Since {
		t.Errorf("episodes that last: %+v, want the one", w.h.Episodes(w.now))
	}
	w.pass(Window - time.Second)
	w.runs(Cause{})
	w.writes(deployment, shopWeb, fields{"data": "something new"}) // not a sign of a hot loop
	w.pass(time.Second)
	if w.h.Pause(shopWeb, w.now) == 0 {
		t.Error("the episode was over before the window had passed")
	}
	w.pass(time.Second)
	if d := w.h.Pause(shopWeb, w.now); d != 0 || len(w.h.Episodes(w.now)) != 0 || w.h.some.Load() {
		t.Errorf("a window after the last sign: pause %s, episodes %+v", d, w.h.Episodes(w.now))
	}
	w.pass(Window)
	fight(w, 10, time.Second, five)
	if len(w.found) != 2 {
		t.Errorf("found %d episodes, want another", len(w.found))
	}
}

func TestPauseDoubles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if d := w.h.Pause(shopWeb, w.now); d != 0 {
		t.Errorf("pause %s without an episode", d)
	}
	fight(w, 6, 10*time.Millisecond, five)
	w.one()
	var got []string
	for range 9 {
		pause := w.h.Pause(shopWeb, w.now)
		if other := w.h.Pause(kube.Key{Name: "other"}, w.now); other != 0 {
			t.Fatalf("another key is held back for %s", other)
		}
		got = append(got, pause.String())
		w.pass(pause)
		fight(w, 2, 0, five) // two writes count as one step
	}
	want := []string{"1s", "2s", "4s", "8s", "16s", "32s", "1m0s", "1m0s", "1m0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestSuspectDetectsRepeatedWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, want := range []bool{false, false, true, true} {
		w.runs(Cause{})
		w.writes(site, shopWeb, fields{"status": i})
		if w.h.Suspect(shopWeb) != want {
			t.Errorf("after %d writes: Suspect %t, want %t", i+1, !want, want)
		}
	}
	if other := (kube.Key{Name: "somebody-else"}); w.h.Suspect(other) {
		t.Errorf("%s is a suspect", other)
	}
	// Any event after a window clears the suspicion. Its states are not compared.
	compared := 0
	w.differing = func(before, after *wire.Object) (from, to map[string]any, err error) {
		compared++
		return wire.DifferingFields(before, after, nil)
	}
	w.somebody("kubectl", site, shopWeb, fields{"spec": "w"})
	if compared != 1 {
		t.Errorf("compared %d pairs of states of a suspect's object, want 1", compared)
	}
	w.pass(Window + time.Second)
	w.somebody("kubectl", site, shopWeb, fields{"spec": "x"})
	if compared != 1 {
		t.Errorf("compared %d pairs of states after a window without writes, want 0", compared-1)
	}
	if w.h.Suspect(shopWeb) || w.h.kept != 0 {
		t.Errorf("a suspect for ever; %d bytes kept", w.h.kept)
	}
	// The next write of the key clears it as well.
	for i := range 4 {
		w.writes(site, shopWeb, fields{"status": 10 + i})
	}
	w.pass(Window + time.Second)
	w.writes(site, shopWeb, fields{"status": 20})
	if w.h.Suspect(shopWeb) || w.h.kept != 0 {
		t.Errorf("a suspect after one write; %d bytes kept", w.h.kept)
	}
}

// TestWritesWithoutChangesAreIgnored checks that a write that changes nothing does not count, even if no cache has the
// state before it.
func TestWritesWithoutChangesAreIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 20 {
		w.pass(time.Second)
		w.runs(Cause{})
		_, after := w.put(site, shopWeb, fields{"spec": "x"})
		w.wrote(Step{Kind: site, Object: shopWeb, After: after})
	}
	if w.h.Suspect(shopWeb) {
		t.Error("it is a suspect")
	}
}

// TestComparisonOfInconspicuousObjectsPauses checks that an object that is written often without a hot loop is not
// compared all the time.
func TestComparisonOfInconspicuousObjectsPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	compared := 0
	for i := range 600 {
		w.pass(time.Second)
		w.runs(Cause{})
		w.writes(site, shopWeb, fields{"status": i})
		if w.h.Suspect(shopWeb) {
			compared++
		}
	}
	if compared < 2*(dullLimit-1) || compared > 3*dullLimit {
		t.Errorf("compared after %d writes of 600, want two or three times %d", compared, dullLimit)
	}
	w.none()
	// A later loop of this object is still detected.
	w.pass(Window)
	fight(w, 10, time.Second, five)
	w.one()
}

func TestDeletedObjectsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fight(w, 4, time.Second, five)
	w.wrote(Step{Kind: deployment, Object: shopWeb})
	if w.h.Suspect(shopWeb) || w.h.kept != 0 {
		t.Errorf("suspect %t, %d bytes kept", w.h.Suspect(shopWeb), w.h.kept)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := schema.GroupKind{Kind: "Secret"}
	for range 10 {
		w.pass(time.Second)
		w.runs(w.somebody("vault", secret, shopWeb, fields{"data": fields{"password": "aHVudGVyMg=="}}))
		w.writes(secret, shopWeb, fields{"data": fields{"password": "c2VjcmV0"}})
	}
	e := w.one()
	if text := fmt.Sprint(e); strings.Contains(text, "aHVud") || strings.Contains(text, "c2Vj") ||
		!strings.Contains(text, "data.password") {
		t.Errorf("got %s", text)
	}
}

// TestKeysBelowHiddenFieldsAreNotShown checks that the key of a map below a hidden field is hidden like a value.
func TestKeysBelowHiddenFieldsAreNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hides := func(path string) bool { return strings.HasPrefix(path, "spec.tokens") }
	for i := range 10 {
		w.pass(time.Second)
		w.runs(w.somebody("other", site, shopWeb, fields{"spec": fields{"tokens": fields{"hunter2": i, "hunter3": i}}}))
		cached := w.cached[name{site, shopWeb}]
		_, after := w.put(site, shopWeb, fields{"spec": fields{"tokens": fields{"hunter2": "x", "hunter3": "x"}}})
		w.wrote(Step{Kind: site, Object: shopWeb, Before: cached, After: after, Hides: hides})
	}
	e := w.one()
	if text := fmt.Sprint(e); strings.Contains(text, "hunter") || len(e.Fields) != 1 || e.Fields[0].Path != "spec.tokens" {
		t.Errorf("got %s", text)
	}
}

// A hidden key with a dot stays hidden below an element of a list, whatever the name of the element.
func TestHiddenKeysOfNamedElements(t *testing.T) {
	t.Parallel()
	for _, element := range []string{"main", "my.store"} {
		var hidden apiobject.HiddenFields
		if err := hidden.Add(site, `spec.stores["a.b/key"]`); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t)
		for range 10 {
			for n, author := range []string{"vault", ""} {
				value := fmt.Sprint("hush-", n)
				spec := fields{"spec": fields{"stores": []any{fields{
					"name": element, "a.b/key": value,
				}}}}
				if author != "" {
					w.runs(w.somebody(author, site, shopWeb, spec))
					continue
				}
				before := w.cached[name{site, shopWeb}]
				_, after := w.put(site, shopWeb, spec)
				w.wrote(Step{
					Kind: site, Object: shopWeb, Before: before, After: after, Manager: "site-operator",
					Hides: func(path string) bool { return hidden.Hides(site, path) },
				})
			}
		}
		if text := fmt.Sprint(w.one()); strings.Contains(text, "hush") || !strings.Contains(text, "(hidden)") {
			t.Errorf("element %s: %s", element, text)
		}
	}
}

func TestManyFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := func(value string) fields {
		all := fields{}
		for i := range 20 {
			all[fmt.Sprintf("f%02d", i)] = strings.Repeat(value, 30)
		}
		return fields{"spec": all}
	}
	for range 10 {
		w.pass(time.Second)
		w.runs(w.somebody("other", site, shopWeb, spec("ü")))
		w.writes(site, shopWeb, spec("b"))
	}
	e := w.one()
	if len(e.Fields) != 8 || e.MoreFields != 12 || e.Fields[0].Path != "spec.f00" {
		t.Errorf("%d fields and %d more, the first %v", len(e.Fields), e.MoreFields, e.Fields[0])
	}
	if from := e.Fields[0].Values[0]; from != `"`+strings.Repeat("ü", 19)+"..." {
		t.Errorf("shortened to %q", from)
	}
	if !strings.Contains(e.Message, "17 more") {
		t.Errorf("message: %s", e.Message)
	}
}

// TestUndecodableObjects checks that loops of states that cannot be decoded are detected by the number of states alone.
func TestUndecodableObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.differing = func(_, _ *wire.Object) (from, to map[string]any, err error) { return nil, nil, fmt.Errorf("no") }
	w.runs(Cause{})
	for i := range 310 {
		w.writes(site, shopWeb, fields{"status": i % 2})
		w.pass(10 * time.Millisecond)
		w.runs(w.changed(site, shopWeb))
	}
	if e := w.one(); e.Pattern != PatternEndless || len(e.Fields) != 0 || !strings.Contains(e.Message, "not known") {
		t.Errorf("got %+v", e)
	}
}

// TestKeptStatesAreBounded checks that memory is bounded even if every object is large.
func TestKeptStatesAreBounded(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	w := newWorld(t)
	large := strings.Repeat("x", 1<<20)
	for i := range 18 {
		object := kube.Key{Name: fmt.Sprint("large-", i)}
		for j := range 3 {
			w.runs(Cause{})
			w.writes(site, object, fields{"spec": large, "status": j})
		}
	}
	sum := 0
	for _, tr := range w.h.tracks {
		if k := tr.history; k != nil && k.last != nil {
			sum += len(k.last.Bytes)
		}
	}
	if sum != w.h.kept || sum > maxKept || sum < maxKept*3/4 {
		t.Errorf("%d bytes are kept, %d are counted, want at most %d", sum, w.h.kept, maxKept)
	}
}

// TestHotLoopsConcurrently gives the race detector concurrent calls of all methods.
func TestHotLoopsConcurrently(t *testing.T) {
	t.Parallel()
	shared := newWorld(t).h
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { // the Wait below waits for it
			w := newWorld(t)
			w.h = shared
			fight(w, 50, time.Second, five)
			shared.Pause(shopWeb, w.now)
			shared.Episodes(w.now)
			shared.Suspect(kube.Key{Name: fmt.Sprint(i)})
		})
	}
	all.Wait()
	if n := len(shared.Episodes(newWorld(t).now)); n > 1 {
		t.Errorf("%d episodes of one key", n)
	}
}

// TestIdleObjectsAreForgotten checks that objects without recent writes are forgotten together with their states, even
// if no other write comes.
func TestIdleObjectsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 50 {
		for j := range 4 {
			w.runs(Cause{})
			w.writes(site, kube.Key{Name: fmt.Sprint(i)}, fields{"spec": strings.Repeat("x", 1000), "status": j})
		}
	}
	w.h.Episodes(w.now)
	if len(w.h.tracks) != 50 || w.h.kept < 50_000 {
		t.Fatalf("%d objects, %d bytes kept, want 50 that are written", len(w.h.tracks), w.h.kept)
	}
	w.pass(Window + time.Second)
	w.h.Episodes(w.now)
	if len(w.h.tracks) != 0 || w.h.kept != 0 || len(w.h.suspects) != 0 {
		t.Errorf("a window later, %d objects, %d bytes kept, %d suspects", len(w.h.tracks), w.h.kept,
			len(w.h.suspects))
	}
}

// TestStateOfDeletedKeysIsRemoved checks that the state of a key is removed with its object, including an episode.
func TestStateOfDeletedKeysIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fight(w, 6, time.Second, five)
	w.one()
	w.h.Gone(kube.Key{Name: "another"})
	if len(w.h.Episodes(w.now)) != 1 || len(w.h.tracks) != 1 {
		t.Fatalf("when another object is gone, episodes %v, %d objects", w.h.Episodes(w.now), len(w.h.tracks))
	}
	w.h.ObjectGone(shopWeb, site, shopWeb)
	if len(w.h.tracks) != 1 {
		t.Fatal("the end of another object has made the written one forgotten")
	}
	key := w.h.Episodes(w.now)[0].Key
	w.h.Gone(key)
	if len(w.h.Episodes(w.now)) != 0 || w.h.Pause(key, w.now) != 0 || len(w.h.tracks) != 0 || w.h.kept != 0 ||
		w.h.Suspect(key) {
		t.Errorf("when its object is gone, episodes %v, %d objects, %d bytes kept", w.h.Episodes(w.now),
			len(w.h.tracks), w.h.kept)
	}
}
