package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/retry"
)

// One fault occurs at each request in the life of a WebApp, in memory; without EVENKEEL_LONG=1, each fault occurs at a
// twelfth of the requests. With WebApps that are stored in v2, and on a real cluster, some faults occur at one request each,
// with EVENKEEL_LONG=1 all of them. The final state must always be the same. The name of a subtest contains the place, the
// fault and the request, and repeats it with -run.
func TestWebappSurvivesEveryFault(t *testing.T) {
	t.Parallel()
	run, wait := parallelSubtests(t, 16) // those on the cluster wait most of the time
	memory := &faultTest{t: t, place: "memory", in: inMemory, run: run, attempts: 1}
	others := []*faultTest{{t: t, place: "memory, stored in v2", in: inMemoryWithV2, run: run, attempts: 1}}
	if clustertest.Real() {
		others = append(others, &faultTest{t: t, place: "cluster", in: onCluster, run: run, attempts: 5})
	}
	for _, place := range append(others, memory) {
		place.undisturbed()
	}
	for n, f := range everyFault() {
		for _, plot := range plots(f) {
			at := memory.selected(f, plot)
			if len(at) == 0 {
				t.Errorf("%s%s: no life has a request for this fault", f.name, plot.act)
			}
			// Different faults begin at different points, so that every kind of request has faults.
			step := clustertest.Count(12, 1)
			for k := n % max(1, min(step, len(at))); k < len(at); k += step {
				memory.life(f, plot, at[k])
			}
			for _, other := range others {
				if at := other.selected(f, plot); len(at) > 0 && n%step == 0 {
					other.life(f, plot, at[n%len(at)])
				}
			}
		}
	}
	wait()
}

// plot is what a user does in a life with a fault.
type plot struct {
	act   string
	story func(w *world, want map[string]any)
	at    func(points []point, i int) bool // selects the requests at which the fault is tested
}

// plots returns the plots of a fault.
func plots(f fault) []plot {
	all := []plot{{"", (*world).runWithFault, f.at}}
	if f.withUser {
		all = append(all, plot{" and the WebApp is deleted", func(w *world, _ map[string]any) { w.runWithDeletion() }, func(points []point, i int) bool {
			return eachKind(points, i) && points[i].during != deletion
		}}, plot{" and the change is taken back", func(w *world, _ map[string]any) { w.runWithRevert() }, func(points []point, i int) bool {
			return eachWrite(points, i) && points[i].during == change
		}})
	}
	return all
}

// faultTest runs lives with faults in one place.
type faultTest struct {
	t     *testing.T
	place string
	in    func(story func(w *world)) func(t *testing.T)
	run   func(name string, story func(*testing.T))
	// attempts limits the lives until the request of a fault is made. In virtual time, all lives make the same requests
	// until the fault occurs: one is enough.
	attempts int

	want   map[string]any     // the final state of a life without a fault
	points map[string][]point // the requests of lives without a fault, by kindOfLife
}

// kindOfLife identifies lives with the same requests until a fault occurs.
func kindOfLife(f fault, plot plot) string { return fmt.Sprint(plot.act, f.staleCaches) }

// undisturbed runs a life of each kind without a fault.
func (ft *faultTest) undisturbed() {
	ft.t.Run(ft.place+": no fault", ft.in(func(w *world) {
		w.operate()
		ft.want = w.runUntilReady()
		w.delete("shop")
		w.untilReleased()
	}))
	ft.points = map[string][]point{}
	for _, stale := range []bool{false, true} {
		f := fault{staleCaches: stale, withUser: true}
		for _, plot := range plots(f) {
			ft.t.Run(fmt.Sprintf("%s: no fault%s, stale caches: %t", ft.place, plot.act, stale), ft.in(func(w *world) {
				w.faults = newFaults(w, point{}, f)
				plot.story(w, ft.want)
				ft.points[kindOfLife(f, plot)] = w.faults.log()
			}))
		}
	}
	if ft.t.Failed() {
		ft.t.Fatal("a life without a fault has a wrong result")
	}
}

// selected returns the requests at which a fault is tested.
func (ft *faultTest) selected(f fault, plot plot) []point {
	var selected []point
	points := ft.points[kindOfLife(f, plot)]
	for i := range points {
		// In real time, the numbers of equal requests differ from life to life.
		if plot.at(points, i) && (ft.attempts == 1 || points[i].nth == 1) {
			selected = append(selected, points[i])
		}
	}
	return selected
}

// life runs a life with a fault, which must occur.
func (ft *faultTest) life(f fault, plot plot, at point) {
	ft.run(fmt.Sprintf("%s: %s%s at %s", ft.place, f.name, plot.act, at), func(t *testing.T) {
		t.Helper()
		occurred := false
		for n := 0; n < ft.attempts && !occurred; n++ {
			ft.in(func(w *world) {
				w.faults = newFaults(w, at, f)
				plot.story(w, ft.want)
				occurred = w.faults.isFaultDone()
			})(t)
		}
		if !occurred {
			t.Errorf("the fault did not occur, because its request was not made")
		}
	})
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
