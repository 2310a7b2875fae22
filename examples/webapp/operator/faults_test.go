package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/retry"
)

// One fault occurs at each request in the life of a WebApp; without EVENKEEL_LONG=1, each fault occurs at a quarter of the
// requests. The final state must always be the same. The name of a subtest contains the fault and the request, and
// repeats it with -run.
func TestWebappSurvivesEveryFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.faults = newFaults(w, point{}, fault{})
	w.operate()
	want := w.runUntilReady()
	w.deleted()
	if t.Failed() {
		t.Fatal("the life without a fault has a wrong result")
	}
	points := w.faults.log()
	run, wait := parallelSubtests(t, 16) // most of them wait most of the time
	var tested, faultDone atomic.Int64
	runLife := func(f fault, i int, act string, story func(w *world)) {
		run(fmt.Sprintf("%s%s at %d: %s", f.name, act, i+1, points[i]), func(t *testing.T) { //nolint:thelper // a subtest
			w := newWorld(t)
			w.faults = newFaults(w, points[i], f)
			story(w)
			tested.Add(1)
			if w.faults.isFaultDone() {
				faultDone.Add(1)
			}
		})
	}
	for n, f := range everyFault() {
		for _, i := range sampleOf(points, n, f.at) {
			runLife(f, i, "", func(w *world) { w.runWithFault(want) })
		}
		if !f.withUser {
			continue
		}
		for _, i := range sampleOf(points, n, func(points []point, i int) bool { return eachKind(points, i) && points[i].during != deletion }) {
			runLife(f, i, " and the WebApp is deleted", (*world).runWithDeletion)
		}
		for _, i := range sampleOf(points, n, func(points []point, i int) bool { return eachWrite(points, i) && points[i].during == change }) {
			runLife(f, i, " and the change is taken back", (*world).runWithRevert)
		}
	}
	wait()
	// The number of writes differs slightly between lives.
	if missed := tested.Load() - faultDone.Load(); missed > tested.Load()/10+1 {
		t.Errorf("%d of %d faults did not occur, because their request was not made", missed, tested.Load())
	}
}

// sampleOf returns the indexes of the selected points: all of them in "make test-long", otherwise every fourth. Different
// faults n begin at different points, so that every kind of request has faults.
func sampleOf(points []point, n int, selected func(points []point, i int) bool) []int {
	var all, sample []int
	for i := range points {
		if selected(points, i) {
			all = append(all, i)
		}
	}
	step := testlength.Count(4, 1)
	for k := n % max(1, min(step, len(all))); k < len(all); k += step {
		sample = append(sample, all[k])
	}
	return sample
}

// runWithFault runs the life of a WebApp with one fault.
func (w *world) runWithFault(want map[string]any) {
	w.Helper()
	end := w.operateWithFaults()
	last := w.runUntilReady()
	// The fault may occur after the WebApp was ready, which is then not ready for a short time.
	w.until("the end is that of an undisturbed life", func() error {
		diff := cmp.Diff(want, last)
		if diff == "" {
			return nil
		}
		last = w.end("shop")
		return fmt.Errorf("-want +got:\n%s", diff)
	})
	w.deleted()
	end()
}

// runWithDeletion runs the life of a WebApp that is deleted when the fault occurs. Nothing may remain at the end.
func (w *world) runWithDeletion() {
	w.Helper()
	w.faults.then = func() error { return w.tryDelete("shop") }
	end := w.operateWithFaults()
	w.createAndChange()
	if !w.faults.isFaultDone() {
		w.deleted()
	}
	w.untilReleased()
	end()
}

// runWithRevert runs the life of a WebApp with a change that the user reverts when the fault occurs. Nothing of the
// change may remain.
func (w *world) runWithRevert() {
	w.Helper()
	takeBack := func(app *v1.WebApp) { app.Spec = w.app("shop").Spec }
	w.faults.then = func() error { return w.tryChange("shop", takeBack) }
	end := w.operateWithFaults()
	w.createAndChange()
	if !w.faults.isFaultDone() {
		w.change("shop", takeBack)
	}
	w.untilReady("shop")
	w.check("shop", "shop:1", w.app("shop").Spec.Config)
	w.deleted()
	end()
}

// createAndChange waits after each step until the WebApp is ready, or the fault has occurred.
func (w *world) createAndChange() {
	w.Helper()
	w.create(w.app("shop"))
	w.untilReadyUnless("shop", w.faults.isFaultDone)
	if !w.changeUnlessMet(func(app *v1.WebApp) {
		app.Spec.Image, app.Spec.Host, app.Spec.Config["MOTTO"] = "shop:2", "store.example.com", "we never sleep"
	}) {
		w.untilFaultDone()
		return
	}
	w.untilReadyUnless("shop", w.faults.isFaultDone)
	if w.enter(afterwards) {
		w.untilFaultDone()
	}
}

// changeUnlessMet changes the WebApp, unless the request of the fault was made already.
func (w *world) changeUnlessMet(edit func(*v1.WebApp)) (changed bool) {
	w.Helper()
	w.faults.acting.Lock()
	defer w.faults.acting.Unlock()
	if w.enter(change) {
		return false
	}
	w.change("shop", edit)
	return true
}

// untilFaultDone waits until the fault is complete.
func (w *world) untilFaultDone() {
	w.Helper()
	w.until("the fault has occurred", func() error {
		if !w.faults.isFaultDone() {
			return errors.New("not yet")
		}
		return nil
	})
}

// deleted deletes the WebApp.
func (w *world) deleted() {
	w.Helper()
	w.enter(deletion)
	w.delete("shop")
	w.untilReleased()
}

// untilReleased waits until the WebApp and its record are deleted. The garbage collector may take longer for the
// children, but they must have their owner.
func (w *world) untilReleased() {
	w.Helper()
	w.until("the WebApp is gone", func() error {
		if _, err := w.get("shop"); !errors.Is(err, client.ErrGone) {
			return fmt.Errorf("the WebApp is there: %w", err)
		}
		if left := w.records.all(); len(left) > 0 {
			return fmt.Errorf("records are left: %v", left)
		}
		return nil
	})
	for child, obj := range w.children() {
		if owner := metav1.GetControllerOf(obj); owner == nil || owner.UID != w.uid {
			w.Errorf("%s is left, with the owners %v: none of them is %s", child, obj.GetOwnerReferences(), w.uid)
		}
	}
}

// operateWithFaults runs an operator with a fault. end stops it and checks the result.
func (w *world) operateWithFaults() (end func()) {
	w.Helper()
	if w.faults.fault.staleCaches {
		// The handler is called repeatedly with the current state of the caches.
		w.resync, w.consistency = 50*time.Millisecond, -1
	}
	ctrl, stop := w.operate()
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the fault has occurred: %t; requests: %v", w.faults.isFaultDone(), w.faults.log())
		}
	})
	return func() {
		w.Helper()
		stop()
		w.untilReleased() // no write came after the end
		for _, run := range ctrl.RecentRuns() {
			// A single fault must not be treated as an error that needs a user.
			if run.Class == retry.Invalid || run.Class == retry.Forbidden || run.Outcome == controller.OutcomeTerminal || run.Outcome == controller.OutcomePanic {
				w.Errorf("a run was treated as permanently failed: %s", run)
			}
		}
	}
}

// The requests of a life at which a fault is tested.

// everyWrite selects all writes. Of the writes to the records, which are repeated after each other write, it selects
// the first and the last of each kind.
func everyWrite(points []point, i int) bool {
	return points[i].writes() && (!points[i].outside() || eachWrite(points, i))
}

// eachWrite selects the first and the last of equal writes.
func eachWrite(points []point, i int) bool {
	return points[i].writes() && (!isIn(points[:i], points[i]) || !isIn(points[i+1:], points[i]))
}

// eachKind selects the first of equal writes, and the removal of the finalizer.
func eachKind(points []point, i int) bool {
	return points[i].writes() && (!isIn(points[:i], points[i]) || points[i].during == deletion)
}

func eachWriteOnWire(points []point, i int) bool { return eachWrite(points, i) && !points[i].outside() }

func eachKindOnWire(points []point, i int) bool { return eachKind(points, i) && !points[i].outside() }

// eachRead selects the first of equal reads.
func eachRead(points []point, i int) bool {
	return !points[i].writes() && !isIn(points[:i], points[i])
}

func eachRequest(points []point, i int) bool { return eachKindOnWire(points, i) || eachRead(points, i) }

// eachAnswer selects requests with an immediate response.
func eachAnswer(points []point, i int) bool {
	return eachRequest(points, i) && !strings.HasPrefix(points[i].request, "watch ")
}

// isIn reports whether points contains a request equal to p.
func isIn(points []point, p point) bool {
	return slices.ContainsFunc(points, func(other point) bool { return other.request == p.request })
}
