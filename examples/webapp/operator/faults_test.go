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
	"github.com/evenkeel-go/evenkeel/retry"
)

// Something goes wrong on the way, once, at each request that the operator makes in the life of a
// WebApp. Every time the same comes out of it. The name of a subtest says what went wrong at which
// request, and repeats it (-run).
func TestWebappSurvivesEveryFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.faults = newFaults(w, point{}, fault{})
	w.operate()
	want := w.live()
	w.deleted()
	if t.Failed() {
		t.Fatal("not even the undisturbed life ends as it should")
	}
	points := w.faults.log()
	run, wait := parallelStories(t, 16) // at each moment most of them wait
	var told, struck atomic.Int64
	tell := func(f fault, i int, act string, story func(w *world)) {
		run(fmt.Sprintf("%s%s at %d: %s", f.name, act, i+1, points[i]), func(t *testing.T) { //nolint:thelper // a subtest
			w := newWorld(t)
			w.faults = newFaults(w, points[i], f)
			story(w)
			told.Add(1)
			if w.faults.hasStruck() {
				struck.Add(1)
			}
		})
	}
	for _, f := range everyFault() {
		for i := range points {
			if f.at(points, i) {
				tell(f, i, "", func(w *world) { w.tellFault(want) })
			}
			if f.nasty && eachKind(points, i) && points[i].during != deletion {
				tell(f, i, " and the WebApp is deleted", (*world).tellDeletion)
			}
			if f.nasty && eachWrite(points, i) && points[i].during == change {
				tell(f, i, " and the change is taken back", (*world).tellChangeOfMind)
			}
		}
	}
	wait()
	// How many writes there are differs a little from life to life.
	if missed := told.Load() - struck.Load(); missed > told.Load()/10+1 {
		t.Errorf("%d of %d faults did not strike: their lives did not come to the request", missed, told.Load())
	}
}

// tellFault tells the life of a WebApp in which something goes wrong once.
func (w *world) tellFault(want map[string]any) {
	w.Helper()
	end := w.operateWithFaults()
	if diff := cmp.Diff(want, w.live()); diff != "" {
		w.Errorf("the end differs from that of an undisturbed life (-want +got):\n%s", diff)
	}
	w.deleted()
	end()
}

// tellDeletion tells of a WebApp that is deleted at the moment when something goes wrong. Nothing may
// be left in the end.
func (w *world) tellDeletion() {
	w.Helper()
	w.faults.then = func() error { return w.tryDelete("shop") }
	end := w.operateWithFaults()
	w.createAndChange()
	if !w.faults.hasStruck() {
		w.deleted()
	}
	w.untilLetGo()
	end()
}

// tellChangeOfMind tells of a WebApp whose user takes a change back at the moment when something goes
// wrong. Nothing may be left of the change.
func (w *world) tellChangeOfMind() {
	w.Helper()
	takeBack := func(app *v1.WebApp) { app.Spec = w.app("shop").Spec }
	w.faults.then = func() error { return w.tryChange("shop", takeBack) }
	end := w.operateWithFaults()
	w.createAndChange()
	if !w.faults.hasStruck() {
		w.change("shop", takeBack)
	}
	w.untilReady("shop")
	w.check("shop", "shop:1", w.app("shop").Spec.Config)
	w.deleted()
	end()
}

// createAndChange waits each time until the WebApp is as it should be, or something has gone wrong.
func (w *world) createAndChange() {
	w.Helper()
	w.create(w.app("shop"))
	w.untilReadyUnless("shop", w.faults.hasStruck)
	if !w.changeUnlessMet(func(app *v1.WebApp) {
		app.Spec.Image, app.Spec.Host, app.Spec.Config["MOTTO"] = "shop:2", "store.example.com", "we never sleep"
	}) {
		w.untilStruck()
		return
	}
	w.untilReadyUnless("shop", w.faults.hasStruck)
	if w.enter(afterwards) {
		w.untilStruck()
	}
}

// changeUnlessMet lets the user change the WebApp, unless the request at which something goes wrong
// has come before that.
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

// untilStruck waits until all that was to happen at a request has happened.
func (w *world) untilStruck() {
	w.Helper()
	w.until("the fault has struck", func() error {
		if !w.faults.hasStruck() {
			return errors.New("not yet")
		}
		return nil
	})
}

// deleted tells of the WebApp's deletion.
func (w *world) deleted() {
	w.Helper()
	w.enter(deletion)
	w.delete("shop")
	w.untilLetGo()
}

// untilLetGo waits until the WebApp and its record are gone. The garbage collector takes its time for
// the children, but it has to know them.
func (w *world) untilLetGo() {
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

// operateWithFaults runs an operator to which something happens, until end, which looks whether all
// is well after the life of the WebApp.
func (w *world) operateWithFaults() (end func()) {
	w.Helper()
	if w.faults.fault.impatient {
		// The handler is called on and on, with what the caches have.
		w.resync, w.consistency = 50*time.Millisecond, -1
	}
	ctrl, stop := w.operate()
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the fault has struck: %t; requests: %v", w.faults.hasStruck(), w.faults.log())
		}
	})
	return func() {
		w.Helper()
		stop()
		w.untilLetGo() // nothing has come after the end
		for _, run := range ctrl.Runs() {
			// One accident on the way is no reason to wait for a person.
			if run.Class == retry.Invalid || run.Class == retry.Forbidden || run.Outcome == controller.OutcomeTerminal || run.Outcome == controller.OutcomePanic {
				w.Errorf("a run was taken for hopeless: %s", run)
			}
		}
	}
}

// The requests at which a fault is tried, of those of a life.

// everyWrite are all writes; of those outside, which are repeated after each of the others, the first
// and the last of each kind.
func everyWrite(points []point, i int) bool {
	return points[i].writes() && (!points[i].outside() || eachWrite(points, i))
}

// eachWrite are the first and the last of the writes that ask for the same.
func eachWrite(points []point, i int) bool {
	return points[i].writes() && (!isIn(points[:i], points[i]) || !isIn(points[i+1:], points[i]))
}

// eachKind are the first of them, and what removes the finalizer.
func eachKind(points []point, i int) bool {
	return points[i].writes() && (!isIn(points[:i], points[i]) || points[i].during == deletion)
}

func eachWriteOnWire(points []point, i int) bool { return eachWrite(points, i) && !points[i].outside() }

func eachKindOnWire(points []point, i int) bool { return eachKind(points, i) && !points[i].outside() }

// eachRead are the first of the reads that ask for the same.
func eachRead(points []point, i int) bool {
	return !points[i].writes() && !isIn(points[:i], points[i])
}

func eachRequest(points []point, i int) bool { return eachKindOnWire(points, i) || eachRead(points, i) }

// eachAnswer are those whose answers come at once.
func eachAnswer(points []point, i int) bool {
	return eachRequest(points, i) && !strings.HasPrefix(points[i].request, "watch ")
}

// isIn reports whether some of points ask for the same as p.
func isIn(points []point, p point) bool {
	return slices.ContainsFunc(points, func(other point) bool { return other.request == p.request })
}
