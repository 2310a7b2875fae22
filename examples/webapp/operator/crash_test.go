package operator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// concurrentWorlds is the number of concurrent worlds: each of them mostly waits.
const concurrentWorlds = 8

// The operator is killed before or after each write in the life of a WebApp, and restarted. In memory, each write has four
// lives: with a crash before it, and three with a crash after it. Without EVENKEEL_LONG=1, each write has one life with a
// crash after it, and every fourth write one with a crash before it. With WebApps that are stored in v2, and on a real
// cluster, each write has one life; without EVENKEEL_LONG=1, every fifth write. The final state must always be the same.
func TestWebappKilledBetweenAnyTwoWrites(t *testing.T) {
	t.Parallel()
	run, wait := parallelSubtests(t, concurrentWorlds)
	defer wait()
	type place struct {
		name  string
		in    func(story func(w *world)) func(t *testing.T)
		every int // a crash at every nth write
		// isRun reports whether a life is run that has its crash at the nth write.
		isRun func(n, life int) bool
	}
	one := func(n, life int) bool { return life == n%4 }
	places := []place{
		{"memory", inMemory, 1, func(n, life int) bool {
			return clustertest.Count(0, 1) == 1 || life == 1+n%3 || life == 0 && n%4 == 0
		}},
		{"memory, stored in v2", inMemoryWithV2, clustertest.Count(5, 1), one},
	}
	if clustertest.Real() {
		places = append(places, place{"cluster", onCluster, clustertest.Count(5, 1), one})
	}
	for _, place := range places {
		undisturbed := &gate{}
		var want map[string]any
		t.Run(place.name+": no crash", place.in(func(w *world) { want = runLife(w, undisturbed) }))
		if t.Failed() {
			t.Fatal("the life without a crash has a wrong result")
		}
		writes := undisturbed.log()
		t.Logf("%s: %d writes of an undisturbed life:\n%s", place.name, len(writes), strings.Join(writes, "\n"))
		if len(writes) < 12 {
			t.Errorf("only %d writes: the gate does not see all of them", len(writes))
		}
		for n := place.every; n <= len(writes); n += place.every {
			for i, life := range livesWithCrash(n, want) {
				if place.isRun(n, i) {
					run(place.name+": "+life.name, place.in(life.story))
				}
			}
		}
	}
}

type lifeWithCrash struct {
	name  string
	story func(w *world)
}

// livesWithCrash returns lives with a crash at the nth write. want is the final state of an undisturbed life.
func livesWithCrash(n int, want map[string]any) []lifeWithCrash {
	crash := func(when string, after bool) lifeWithCrash {
		return lifeWithCrash{fmt.Sprintf("%s write %d", when, n), func(w *world) {
			g := &gate{at: n, after: after}
			got := runLife(w, g)
			if !g.killed() {
				w.logIfReal("no crash, because this life had only %d writes", len(g.log()))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				w.Errorf("the end differs from that of an undisturbed life (-want +got):\n%s\nwrites:\n%s", diff, strings.Join(g.log(), "\n"))
			}
		}}
	}
	lives := []lifeWithCrash{crash("before", false), crash("after", true)}
	// The state after a crash is worse if the user changes more before the next operator starts.
	for _, act := range slices.Sorted(maps.Keys(outages())) {
		lives = append(lives, lifeWithCrash{fmt.Sprintf("after write %d, and %s", n, act), func(w *world) {
			runWithOutage(w, &gate{at: n, after: true}, outages()[act])
		}})
	}
	return lives
}

// parallelSubtests returns a function that runs up to atOnce subtests at the same time, and one that waits for their
// end, which must be called before t ends.
func parallelSubtests(t *testing.T, atOnce int) (run func(name string, story func(*testing.T)), wait func()) {
	t.Helper()
	places := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	run = func(name string, story func(*testing.T)) {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			t.Run(name, story)
		})
	}
	return run, running.Wait
}

// outages returns actions of users while no operator runs, each with a check of the result.
func outages() map[string]func(w *world, revive func()) {
	return map[string]func(w *world, revive func()){
		"the WebApp is deleted": func(w *world, revive func()) {
			w.delete("shop")
			revive()
		},
		"the host is changed": func(w *world, revive func()) {
			w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "meanwhile.example.com" })
			revive()
			app := w.untilReady("shop")
			w.check("shop", app.Spec.Image, app.Spec.Config)
			w.delete("shop")
		},
	}
}

// runWithOutage runs the life of a WebApp with a killed operator, and actions of users before the next one starts.
// Nothing may remain at the end.
func runWithOutage(w *world, g *gate, meanwhile func(w *world, revive func())) {
	w.Helper()
	_, stop := w.operate(g)
	w.create(w.app("shop"))
	w.untilReadyUnless("shop", g.killed)
	if !g.killed() {
		w.change("shop", func(app *v1.WebApp) { app.Spec.Image, app.Spec.Host = "shop:2", "store.example.com" })
		w.untilReadyUnless("shop", g.killed)
	}
	stop()
	meanwhile(w, func() { w.operate() })
	w.untilGone("shop")
}

// runLife runs the life of a WebApp with an operator that may be killed once, and returns the final state before the
// WebApp was deleted.
func runLife(w *world, g *gate) map[string]any {
	w.Helper()
	_, stop := w.operate(g)
	revived := make(chan struct{})
	done := make(chan struct{})
	go func() { // waited for below; starts another operator when the first is killed
		defer close(revived)
		select {
		case <-g.death():
			stop()
			w.operate()
		case <-done:
		}
	}()
	defer func() { close(done); <-revived }()
	end := w.runUntilReady()
	w.delete("shop")
	w.untilGone("shop")
	return end
}

// runUntilReady runs the life of a WebApp without its deletion, and returns the final state.
func (w *world) runUntilReady() map[string]any {
	w.Helper()
	w.create(w.app("shop"))
	w.untilReady("shop")
	// Changes of the operator's objects that other clients make must not be lost.
	w.annotate(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shop"}})
	w.annotate(&v1.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shop"}})
	w.foreignCondition("shop")
	w.enter(change)
	w.change("shop", func(app *v1.WebApp) {
		app.Spec.Image, app.Spec.Config, app.Spec.Host = "shop:2", map[string]string{"GREETING": "good day"}, "store.example.com"
	})
	w.untilReady("shop")
	w.until("the record has moved", func() error {
		if got := w.records.all(); len(got) != 1 || got["store.example.com"] == "" {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	w.check("shop", "shop:2", map[string]string{"GREETING": "good day"})
	return w.end("shop")
}

const foreignAnnotation = "example.com/team"

func (w *world) annotate(obj kube.Object) {
	w.Helper()
	if _, _, err := client.EditMetadata(w.Context(), w.client, obj, func(_, annotations map[string]string) { annotations[foreignAnnotation] = "shop" }); err != nil {
		w.Fatal(err)
	}
}

// foreignCondition sets a condition of another controller.
func (w *world) foreignCondition(name string) {
	w.Helper()
	w.until("the foreign condition is set", func() error {
		app, err := w.get(name)
		if err != nil {
			return err
		}
		after := app.DeepCopy()
		after.Status.Conditions = append(after.Status.Conditions, metav1.Condition{
			Type: "Audited", Status: metav1.ConditionTrue, Reason: "Audited", LastTransitionTime: metav1.Now(),
		})
		_, err = client.Patch(w.Context(), w.client, app, client.MergeFrom(app, after).Locked(app), client.Subresource("status"))
		return err
	})
}

// end returns the final state, without parts that differ between worlds.
func (w *world) end(name string) map[string]any {
	w.Helper()
	app, err := w.get(name)
	if err != nil {
		w.Fatal(err)
	}
	end := map[string]any{}
	children := w.children()
	w.checkForeignWrites(app, children)
	for child, obj := range children {
		end[child+" labels"] = without(obj.GetLabels(), "evenkeel.dev/owner-uid")
		switch obj := obj.(type) {
		case *appsv1.Deployment:
			end[child], end[child+" annotation"] = obj.Spec, obj.Annotations[foreignAnnotation]
		case *corev1.Service:
			obj.Spec.ClusterIP, obj.Spec.ClusterIPs = "", nil
			end[child] = obj.Spec
		case *corev1.ConfigMap:
			end[child] = obj.Data
		}
	}
	end["finalizers"], end["annotation"] = app.Finalizers, app.Annotations[foreignAnnotation]
	conditions := slices.DeleteFunc(slices.Clone(app.Status.Conditions), func(c metav1.Condition) bool { return c.Type == otherClient })
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	for i := range conditions {
		conditions[i].LastTransitionTime, conditions[i].ObservedGeneration = metav1.Time{}, 0
	}
	end["conditions"] = conditions
	return end
}

func without(labels map[string]string, key string) map[string]string {
	labels = maps.Clone(labels)
	delete(labels, key)
	return labels
}
