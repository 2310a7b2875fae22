package informer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

type retriever = informer.Retriever[configMap]

// holding returns a server that has objects with value 1.
func holding(names ...string) *kindserver.Server[configMap] {
	server := newServer(true)
	for _, name := range names {
		server.Put(object(name, "1"))
	}
	return server
}

// set sets another Retriever, without an error.
func (f fixture) set(r retriever) {
	f.Helper()
	if err := f.informer.SetRetriever(f.Context(), r); err != nil {
		f.Fatal(err)
	}
}

func TestRetrieversAddedAndRemovedDuringRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := holding("l"), holding("r")
		f := start(t, left, nil)
		f.expect("listed l")

		f.set(informer.Combine[configMap](left, right))
		f.expect("added r")
		if _, watches, open := left.Counts(); watches != 1 || open != 1 {
			t.Errorf("what stays was watched %d times, %d are open; want its one watch to go on", watches, open)
		}
		left.Put(object("l", "2"))
		right.Put(object("r", "2"))
		f.expectOnce("updated l", "updated r")
		if h := f.informer.Health(); h.Objects != 2 || !h.Synced || h.Ready() != nil {
			t.Errorf("health with both: %+v", h)
		}

		f.set(right)
		f.expect("deleted l")
		if _, _, open := left.Counts(); open != 0 {
			t.Errorf("%d watches of what was removed are open", open)
		}
		if _, watches, open := right.Counts(); watches != 1 || open != 1 {
			t.Errorf("what stays was watched %d times, %d are open", watches, open)
		}
		left.Put(object("l", "3"))
		right.Put(object("r", "3"))
		f.expect("updated r")
		if cache.Of(f.informer).Has(key("l")) || f.value("r") != "3" {
			t.Error("what is kept is not what is retrieved")
		}
	})
}

// selecting is a Retriever of a server, but not the server itself.
type selecting struct {
	*kindserver.Server[configMap]
}

func TestObjectInBothSelectionsIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := holding("a", "b")
		f := start(t, server, nil)
		f.expectOnce("listed a", "listed b")
		gone := false
		defer f.informer.Subscribe(func(c informer.Change) { gone = gone || c.Type == informer.Deleted })()
		f.set(selecting{server}) // another Retriever of the same objects
		f.expectOnce("updated a", "updated b")
		if gone || f.informer.Len() != 2 {
			t.Errorf("something was announced as deleted, or is: %d objects", f.informer.Len())
		}
		if _, watches, open := server.Counts(); watches != 2 || open != 1 {
			t.Errorf("%d watches, %d open; want a second one in place of the first", watches, open)
		}
		server.Put(object("a", "2"))
		f.expect("updated a")
	})
}

func TestNewSelectionWithChangedObjectAnnouncesUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := holding("a", "b")
		other := newServer(true)
		other.Put(object("x", "other"))
		other.Put(object("a", "other"))
		f := start(t, old, nil)
		f.seen.take()
		seen := &states{T: t}
		defer f.informer.Subscribe(seen.notify)()
		seen.take()
		f.set(other)
		got := seen.take()
		slices.Sort(got)
		want := []string{
			"added x: -=- to 1001=other",
			"deleted b: 1002=1 to -=-",
			"updated a: 1001=1 to 1002=other", // it is added
			"updated a: 1001=1 to 1002=other", // the old one is removed
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := f.value("a"); got != "other" {
			t.Errorf("a is %q", got)
		}
	})
}

func TestRetrieverThatFailsToListIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right, third := holding("l"), holding("r"), holding("third")
		down := errors.New("right is down")
		fail(right, down)
		f := start(t, left, nil)
		f.expect("listed l")
		before := f.informer.Health()

		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := f.informer.SetRetriever(ctx, informer.Combine[configMap](third, right))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, down) {
			t.Errorf("SetRetriever: %v; want the deadline and the failure", err)
		}
		f.expect("added third", "deleted third")
		h := f.informer.Health()
		if h.Retrieves != before.Retrieves || h.Objects != 1 || h.Err != nil || h.Ready() != nil {
			t.Errorf("health afterwards: %+v", h)
		}
		_, _, thirdOpen := third.Counts()
		_, watches, open := left.Counts()
		if thirdOpen != 0 || watches != 1 || open != 1 {
			t.Errorf("watches: %d of the new, %d (%d open) of the old", thirdOpen, watches, open)
		}
		left.Put(object("l", "2"))
		third.Put(object("third", "2"))
		f.expect("updated l")

		// The new Retriever is set if access is granted before the call ends.
		done := make(chan error)
		go func() { done <- f.informer.SetRetriever(t.Context(), informer.Combine[configMap](third, right)) }() // received below
		time.Sleep(30 * time.Second)
		if h := f.informer.Health(); f.value("l") != "2" || h.Ready() != nil || h.Retrieves != before.Retrieves || h.Staleness > time.Minute {
			t.Errorf("while it waits, the informer must be as before: %+v", h)
		}
		if !cache.Of(f.informer).Has(key("third")) {
			t.Error("what the new part has listed is not shown")
		}
		// Another call waits for this one.
		limited, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := f.informer.SetRetriever(limited, left); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another call") {
			t.Errorf("an overlapping call: %v", err)
		}
		right.Fail("watch", nil)
		right.Fail("list", nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.expectOnce("added third", "added r", "deleted l")
	})
}

// A forbidden Retriever is set if another one can be read, and rejected if it is the only one.
func TestForbiddenRetrieverIsSetBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right, third := holding("l"), holding("r"), holding("third")
		fail(right, unavailable()["forbidden"])
		f := start(t, left, nil)
		f.expect("listed l")
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.informer.SetRetriever(limited, right); !errors.Is(err, context.DeadlineExceeded) || !apierrors.IsForbidden(err) {
			t.Errorf("with nothing that can be read: %v", err)
		}
		f.expect()
		if err := f.informer.Ready(); err != nil {
			t.Errorf("after a call that failed: %v", err)
		}

		f.set(informer.Combine[configMap](right, third))
		f.expectOnce("added third", "deleted l")
		if f.waits() || !apierrors.IsForbidden(f.informer.Ready()) {
			t.Errorf("with one of two: waits %t, Ready %v", f.waits(), f.informer.Ready())
		}
		fail(right, nil)
		time.Sleep(20 * time.Second)
		f.expect("added r")
		if h := f.informer.Health(); h.Ready() != nil || !h.Synced {
			t.Errorf("when it is permitted: %+v", h)
		}
	})
}

// Overlapping calls run one after another. The informer has the Retriever of the last call.
func TestOverlappingCallsOfSetRetriever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := []*kindserver.Server[configMap]{holding("s0"), holding("s1"), holding("s2"), holding("s3")}
		f := start(t, servers[0], nil)
		servers[1].Fail("watch", errors.New("away"))
		servers[1].Fail("list", errors.New("away"))
		var calls sync.WaitGroup
		for _, server := range servers[1:] {
			calls.Go(func() { // waited for below
				if err := f.informer.SetRetriever(t.Context(), server); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		servers[1].Fail("watch", nil)
		servers[1].Fail("list", nil)
		calls.Wait()
		if f.informer.Len() != 1 {
			t.Errorf("%d objects are kept", f.informer.Len())
		}
		watched := 0
		for _, server := range servers {
			_, _, open := server.Counts()
			watched += open
		}
		if watched != 1 {
			t.Errorf("%d watches are open, want one", watched)
		}
		servers[1].Put(object("s1", "2"))
		servers[2].Put(object("s2", "2"))
		servers[3].Put(object("s3", "2"))
		synctest.Wait()
		if f.informer.Len() != 1 {
			t.Errorf("%d objects are kept after changes", f.informer.Len())
		}
	})
}

func TestSetRetrieverOfStoppedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := holding("l"), holding("r")
		f := start(t, left, nil)
		f.expect("listed l")
		f.stop()
		f.set(right)
		if got := f.informer.Len(); got != 0 {
			t.Errorf("%d objects are kept of what is retrieved no longer", got)
		}
		f.seen.take()
		stop := testrun.Start(t, f.informer.Run)
		f.expect("listed r")
		stop()
		if _, watches, _ := left.Counts(); watches != 1 {
			t.Errorf("the old one was watched %d times", watches)
		}
		// The next session lists all objects, including those that were added while the informer was running.
		stop = testrun.Start(t, f.informer.Run)
		synctest.Wait()
		f.set(informer.Combine[configMap](left, right))
		f.expect("listed r", "added l")
		stop()
		testrun.Start(t, f.informer.Run)
		f.expectOnce("listed l", "listed r")
	})
}

func TestSetRetrieverReplacesRetrieverOfCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("own", "1"))
		own := ofKind[configMap]{server, configMapKind()}
		cluster, _ := selected(t)
		f := start(t, nil, own)
		f.expect("listed own")
		f.set(informer.Retrieve[configMap](cluster))
		f.expectOnce("added kept", "deleted own")
		f.set(own)
		f.expectOnce("added own", "deleted kept")
	})
}

func TestSetRetrieverWhileInformerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := holding("l"), holding("r")
		right.Fail("watch", errors.New("down"))
		right.Fail("list", errors.New("down"))
		f := start(t, left, nil)
		f.expect("listed l")
		done := make(chan error)
		go func() { done <- f.informer.SetRetriever(t.Context(), right) }() // received below
		time.Sleep(time.Second)
		f.stop()
		if err := <-done; err != nil {
			t.Errorf("the informer has ended, so there is nothing to wait for: %v", err)
		}
		right.Fail("watch", nil)
		right.Fail("list", nil)
		f.seen.take()
		testrun.Start(t, f.informer.Run)
		f.expect("listed r")
	})
}

// A write is not awaited from an added Retriever that has not listed, whether it fails or not.
func TestReadyForIgnoresAddedRetrieverThatHasNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := holding("l"), holding("r")
		right.Fail("watch", errors.New("down"))
		right.Fail("list", errors.New("down"))
		f := start(t, left, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- f.informer.SetRetriever(ctx, informer.Combine[configMap](left, right)) }() // received below
		time.Sleep(time.Second)
		if err := cache.Of(f.informer).ReadyFor(cache.Write{Key: key("l")}); err != nil {
			t.Errorf("ReadyFor: %v", err)
		}
		if err := <-done; err == nil {
			t.Error("the Retriever was set")
		}
	})
}

func TestSetRetrieverReportsMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := holding("a")
		f := start(t, server, nil)
		f.expect("listed a")
		for name, test := range map[string]struct {
			retriever retriever
			want      string
		}{
			"nil":          {nil, "it is nil"},
			"problem":      {informer.FromListerWatcher[configMap](nil), "ListerWatcher is nil"},
			"another kind": {ofKind[configMap]{server, configMapKind()}, `of "/v1, Kind=ConfigMap"`},
		} {
			err := f.informer.SetRetriever(t.Context(), test.retriever)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `informer "test"`) {
				t.Errorf("%s: %v, want %q in it", name, err, test.want)
			}
		}
		server.Put(object("a", "2"))
		f.expect("updated a")
	})
}

func TestOverlappingPartsAreOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := holding("x"), holding("a")
		f := start(t, nil, informer.Combine[configMap](left, right))
		f.expectOnce("listed a", "listed x")
		seen := &states{T: t}
		defer f.informer.Subscribe(seen.notify)()
		seen.take()
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := seen.take(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		left.Put(object("a", "left")) // the object is now in the left part too
		expect("updated a: 1001=1 to 1002=left")
		right.Delete(key("a"))
		expect("updated a: 1001=1 to 1002=left")
		if got := f.value("a"); got != "left" {
			t.Errorf("a is %q", got)
		}
		left.Delete(key("a"))
		expect("deleted a: 1002=left to -=-")
		if cache.Of(f.informer).Has(key("a")) {
			t.Error("a is still there")
		}
	})
}

// An object in two watches of one server is announced once. It is announced as deleted when both have lost it.
func TestSameStateInTwoPartsIsAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := holding("a")
		f := start(t, server, informer.Combine[configMap](server, selecting{server}))
		f.expect("listed a")
		server.Put(object("b", "1"))
		f.expect("added b")
		server.Delete(key("b"))
		f.expect("updated b", "deleted b")
		second := &recorder{}
		defer f.informer.Subscribe(second.notify)()
		if got := second.take(); !slices.Equal(got, []string{"listed a"}) {
			t.Errorf("who subscribes is told %v", got)
		}
	})
}

func TestSetRetrieverOfViewsIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, holding("a"), nil)
		view, err := informer.As[*metav1.PartialObjectMetadata](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		lw := informer.FromListerWatcher[*metav1.PartialObjectMetadata](nil)
		if err := view.SetRetriever(t.Context(), lw); err == nil || !strings.Contains(err.Error(), "*v1.ConfigMap") {
			t.Errorf("the view takes a Retriever of metadata: %v", err)
		}
		if n, err := view.Count(informer.Query{}); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}
