package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// The following histories are hot loops.

// fight simulates two controllers that set different numbers of replicas, while a third one reports each change in the
// status, with a counter.
func fight(w *world, rounds int, pause time.Duration, theirs func(round int) int) {
	w.runs(Cause{})
	w.writes(deployment, shopWeb, fields{"spec": fields{"replicas": 3}})
	for i := range rounds {
		w.pass(pause)
		cause := w.somebody("autoscaler", deployment, shopWeb, fields{"spec": fields{"replicas": theirs(i)}})
		w.runs(cause)
		w.writes(deployment, shopWeb, fields{"spec": fields{"replicas": 3}})
		w.somebody("kube-controller-manager", deployment, shopWeb,
			fields{"status": fields{"observedGeneration": 10 + i}})
	}
}

func TestLoopOfTwoClients(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]func(round int) int{
		"over one value":       func(int) int { return 5 },
		"with changing values": func(round int) int { return 5 + round },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			fight(w, 20, 300*time.Millisecond, theirs)
			e := w.one()
			if e.Pattern != PatternUndone || e.Key != shopWeb || e.Object != shopWeb || e.Kind != deployment ||
				e.Writes != 5 {
				t.Errorf("got %+v", e)
			}
			want := []FieldValues{{"spec.replicas", [2]string{fmt.Sprint(theirs(6 - 1)), "3"}}}
			if diff := cmp.Diff(want, e.Fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"site-operator", "autoscaler"}, e.Managers); diff != "" {
				t.Errorf("managers (-want +got):\n%s", diff)
			}
			for _, word := range []string{"Deployment shop/web", "spec.replicas", "autoscaler", "5 times"} {
				if !strings.Contains(e.Message, word) {
					t.Errorf("the message does not contain %q: %s", word, e.Message)
				}
			}
		})
	}
}

func TestLoopOfTwoClientsWithOneFieldManager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 20 {
		w.pass(time.Second)
		w.runs(w.somebody("site-operator", deployment, shopWeb, fields{"spec": fields{"color": "red"}}))
		w.writes(deployment, shopWeb, fields{"spec": fields{"color": "blue"}})
	}
	if e := w.one(); !strings.Contains(e.Message, "another copy") || len(e.Managers) != 1 {
		t.Errorf("got %+v", e)
	}
}

func TestLoopOfOwnWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  func(i int) fields
		pattern Pattern
		path    string
		message string
		writes  int // number until the loop is detected
	}{
		"two values": {
			status:  func(i int) fields { return fields{"phase": []string{"A", "B"}[i%2], "fixed": "x"} },
			pattern: PatternReturning, path: "status.phase", message: `"A"`, writes: 13,
		},
		"three values": {
			status:  func(i int) fields { return fields{"phase": []string{"A", "B", "C"}[i%3]} },
			pattern: PatternReturning, path: "status.phase", writes: 16,
		},
		"the time": {
			status: func(i int) fields {
				return fields{"conditions": []any{fields{
					"type": "Ready", "status": "True",
					"lastTransitionTime": time.Unix(int64(i), 0).UTC().Format(time.RFC3339),
				}}}
			},
			pattern: PatternReturning, path: "status.conditions[Ready].lastTransitionTime",
			message: "nothing but times", writes: 8,
		},
		"the time in microseconds": {
			status: func(i int) fields {
				return fields{"seen": time.UnixMicro(int64(i)).UTC().Format("2006-01-02T15:04:05.000000Z07:00")}
			},
			pattern: PatternReturning, path: "status.seen", message: "nothing but times", writes: 8,
		},
		"a counter": {
			status:  func(i int) fields { return fields{"runs": i} },
			pattern: PatternEndless, path: "status.runs", message: "301 writes", writes: 303,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.runs(Cause{})
			for i := range 400 {
				w.writes(site, shopWeb, fields{"status": test.status(i)})
				w.pass(20 * time.Millisecond)
				w.runs(w.changed(site, shopWeb))
				if len(w.found) == 1 && test.writes > 0 {
					if i+1 > test.writes {
						t.Errorf("found after %d writes, want at most %d", i+1, test.writes)
					}
					test.writes = 0
				}
			}
			e := w.one()
			if e.Pattern != test.pattern || len(e.Fields) != 1 || e.Fields[0].Path != test.path ||
				!strings.Contains(e.Message, test.message) {
				t.Errorf("got %+v", e)
			}
			if diff := cmp.Diff([]string{"site-operator"}, e.Managers); diff != "" {
				t.Errorf("managers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLoopNamesOverwritingManagers checks that only a manager that overwrites the key's value is named. A manager that
// merely writes the same field is not.
func TestLoopNamesOverwritingManagers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 20 {
		w.pass(time.Second)
		w.somebody("first", deployment, shopWeb, fields{"spec": fields{"replicas": 5}})
		w.runs(w.somebody("second", deployment, shopWeb, fields{"spec": fields{"replicas": 6}}))
		w.writes(deployment, shopWeb, fields{"spec": fields{"replicas": 3}})
	}
	if diff := cmp.Diff([]string{"site-operator", "first"}, w.one().Managers); diff != "" {
		t.Errorf("managers (-want +got):\n%s", diff)
	}
}

// TestLoopWithoutCache checks a kind without an informer, for which only the key's own writes are known.
func TestLoopWithoutCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lagging = true
	w.runs(Cause{})
	for i := range 20 {
		w.writes(site, shopWeb, fields{"status": fields{"phase": i % 2}})
		w.runs(w.changed(site, shopWeb))
	}
	if e := w.one(); e.Pattern != PatternReturning || e.Fields[0].Path != "status.phase" {
		t.Errorf("got %+v", e)
	}
}

// writesInTurn makes a handler write numbers in turn, each after another client's reaction to the one before.
func (w *world) writesInTurn(numbers int) {
	w.tb.Helper()
	for i := range 200 {
		w.pass(time.Second)
		w.runs(w.somebody("kube-controller-manager", deployment, shopWeb,
			fields{"status": fields{"observedGeneration": i}}))
		w.writes(deployment, shopWeb, fields{"spec": fields{"replicas": i % numbers}})
	}
}

// TestAlternatingValuesAreReported checks a handler that alternates between two values because of another client's
// reactions. Without own echoes, this is the remaining form of a loop between two clients.
func TestAlternatingValuesAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.writesInTurn(2)
	if e := w.one(); e.Pattern != PatternFlipping || e.Fields[0].Path != "spec.replicas" {
		t.Errorf("got %+v", e)
	}
}

// TestLongCyclesAreNotReported checks that a cycle of more than maxStates states is not reported, because no more
// states are kept.
func TestLongCyclesAreNotReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.writesInTurn(2 * maxStates)
	w.none()
}

func TestLoopOfManyKeysIsFoundInSome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.h = NewHotLoops(100, 0)
	found := 0
	for round := range 60 {
		w.pass(time.Second)
		for i := range 500 {
			key := kube.Key{Namespace: "shop", Name: fmt.Sprint("web-", i)}
			before, after := w.put(site, key, fields{"spec": fields{"x": round % 2}})
			step := Step{Kind: site, Object: key, Before: before, After: after, Run: uint64(round)}
			if before != nil {
				step.Causes = causedBy(site, key, before.ResourceVersion)
			}
			if _, began := w.h.Wrote(key, &step, w.now); began {
				found++
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d loops, want some", found)
	}
	if n := len(w.h.tracks); n > 100 {
		t.Errorf("%d objects are remembered, want at most 100", n)
	}
}

// TestRatesThatNoWorkExplainsAreReported checks loops by their rate: runs that bring nothing new, one after the other,
// although nothing new has happened in between.
func TestRatesThatNoWorkExplainsAreReported(t *testing.T) {
	t.Parallel()
	stamp := func(w *world) string { return w.now.Format(time.RFC3339Nano) }
	annotations := func(w *world) fields { return fields{"annotations": fields{"example.com/seen": stamp(w)}} }
	for name, test := range map[string]struct {
		step    time.Duration
		play    func(w *world, i int)
		pattern Pattern
	}{
		"two programs stamp times into one status": {100 * time.Millisecond, func(w *world, _ int) {
			w.runs(w.somebody("other", site, shopWeb, fields{"seen": stamp(w)}))
			w.writes(site, shopWeb, fields{"status": fields{"a": stamp(w)}})
		}, PatternIdle},
		"two programs stamp times into the spec": {100 * time.Millisecond, func(w *world, _ int) {
			w.runs(w.somebody("other", site, shopWeb, fields{"seen": stamp(w)}))
			w.writes(site, shopWeb, fields{"spec": fields{"a": stamp(w)}})
		}, PatternIdle},
		"times in annotations, after which another controller reports " +
			"the generation": {100 * time.Millisecond, func(w *world, i int) {
			w.runs(w.somebody("kube-controller-manager", deployment, shopWeb,
				fields{"status": fields{"observedGeneration": i}}))
			w.writes(deployment, shopWeb, annotations(w))
		}, PatternIdle},
		"times, of which every second write is a retry " +
			"after a conflict": {100 * time.Millisecond, func(w *world, i int) {
			if cause := w.somebody("other", site, shopWeb, fields{"seen": stamp(w)}); i%2 == 0 {
				w.runs(cause)
			} else {
				w.runs(Cause{})
			}
			w.writes(site, shopWeb, fields{"status": fields{"a": stamp(w)}})
		}, PatternIdle},
		"times, by requeues": {10 * time.Millisecond, func(w *world, _ int) {
			w.runs(Cause{})
			w.writes(site, shopWeb, fields{"status": fields{"a": stamp(w)}})
		}, PatternIdle},
		"two values in turn, by requeues": {10 * time.Millisecond, func(w *world, i int) {
			w.runs(Cause{})
			w.writes(site, shopWeb, fields{"status": fields{"phase": i % 2}})
		}, PatternIdle},
		"two programs count": {50 * time.Millisecond, func(w *world, i int) {
			w.runs(w.somebody("other", site, shopWeb, fields{"steps": i}))
			w.writes(site, shopWeb, fields{"status": fields{"a": i}})
		}, PatternEndless},
		"an object deleted and created in turn": {5 * time.Second, func(w *world, i int) {
			w.runs(w.somebody("kubelet", pod, shopWeb, fields{"status": fields{"ready": i}}))
			w.wrote(Step{Kind: site, Object: shopWeb, Manager: "site-operator"})
			w.creates(site, shopWeb, i)
		}, PatternRecreated},
		"an object created again as soon as another client deletes it": {10 * time.Millisecond, func(w *world, i int) {
			w.runs(Cause{})
			w.creates(site, shopWeb, i)
			w.h.ObjectGone(shopWeb, site, shopWeb)
		}, PatternRecreated},
		"random content at each resync": {3 * time.Minute, func(w *world, i int) {
			w.runs(Cause{Resync: true})
			w.writes(site, shopWeb, fields{"data": fields{"password": fmt.Sprintf("x%dy", i*i)}})
		}, PatternRestless},
		"random content of an object that no informer shows": {3 * time.Minute, func(w *world, i int) {
			w.lagging = true
			w.runs(Cause{Resync: true})
			w.writes(site, shopWeb, fields{"data": fields{"password": fmt.Sprintf("x%dy", i*i)}})
		}, PatternRestless},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newResyncedWorld(t, 3*time.Minute)
			rounds := 0
			for len(w.found) == 0 && rounds < 4000 {
				w.pass(test.step)
				test.play(w, rounds)
				rounds++
			}
			if e := w.one(); e.Pattern != test.pattern || w.h.Pause(shopWeb, w.now) == 0 {
				t.Errorf("got %+v", e)
			}
			for range 100 { // one episode, however long it lasts
				w.pass(max(test.step, 10*time.Second))
				test.play(w, rounds)
				rounds++
			}
			w.one()
		})
	}
}

// The following histories are not hot loops.

func TestOrdinaryRunsAreNotReported(t *testing.T) {
	t.Parallel()
	child := func(i int) kube.Key { return kube.Key{Namespace: "shop", Name: fmt.Sprint("web-", i)} }
	drift := func(w *world) {
		for i := range 100 {
			w.pass(3 * time.Minute)
			w.put(site, shopWeb, fields{"data": fields{"mode": fmt.Sprint("theirs ", i)}})
			w.runs(Cause{Resync: true})
			w.writes(site, shopWeb, fields{"data": fields{"mode": fmt.Sprint("ours ", i/2)}})
		}
	}
	for name, play := range map[string]func(w *world){
		"progress, by requeues": func(w *world) {
			for i := range 101 {
				w.pass(time.Second)
				w.runs(Cause{})
				w.writes(site, shopWeb, fields{"status": fields{"percent": i, "time": w.now.Format(time.RFC3339)}})
			}
		},
		"progress, in one run": func(w *world) {
			w.runs(w.somebody("kubectl", site, shopWeb, fields{"spec": fields{"version": 2}}))
			for i := range 1000 {
				w.pass(100 * time.Millisecond)
				w.writes(site, shopWeb, fields{"status": fields{"percent": i}})
			}
		},
		"progress, step by step through own echoes": func(w *world) {
			w.runs(w.somebody("kubectl", site, shopWeb, fields{"spec": fields{"version": 2}}))
			for i := range 101 {
				w.pass(100 * time.Millisecond)
				w.writes(site, shopWeb, fields{"status": fields{"percent": i, "phase": fmt.Sprint("step", i%4)}})
				w.runs(w.changed(site, shopWeb))
			}
		},
		"drift, repaired now and then": func(w *world) {
			for range 100 {
				w.pass(2 * time.Minute)
				w.runs(w.somebody("kubectl-edit", deployment, shopWeb, fields{"spec": fields{"replicas": 5}}))
				w.writes(deployment, shopWeb, fields{"spec": fields{"replicas": 3}})
			}
		},
		"a thousand children, each run, one write each": func(w *world) {
			for run := range 4 {
				w.pass(10 * time.Second)
				w.runs(w.somebody("kubectl", site, shopWeb, fields{"spec": fields{"version": run}}))
				for i := range 1000 {
					w.writes(deployment, child(i), fields{"spec": fields{"version": run}})
				}
			}
		},
		"others' flapping field, and a cache that is behind every other write": func(w *world) {
			for i := range 600 {
				w.pass(time.Second)
				w.lagging = i%2 == 1
				w.runs(w.somebody("kubelet", site, shopWeb, fields{"status": fields{"ready": i%2 == 1}}))
				w.lagging = true
				w.writes(site, shopWeb, fields{"data": fields{"count": i}})
			}
		},
		"others' flapping field, that changes during the writes now and then": func(w *world) {
			for i := range 600 {
				w.pass(time.Second)
				w.runs(w.somebody("kubelet", site, shopWeb, fields{"status": fields{"ready": i%2 == 0}}))
				if i%20 == 1 {
					w.lagging = true
					w.somebody("kubelet", site, shopWeb, fields{"status": fields{"ready": true}})
				}
				w.lagging = false
				w.writes(site, shopWeb, fields{"data": fields{"count": i}})
			}
		},
		"a lock that is handed over": func(w *world) {
			for i := range 20 {
				w.pass(15 * time.Second)
				w.runs(w.somebody("site-operator", site, shopWeb,
					fields{"spec": fields{"holder": fmt.Sprint("b", i), "renewed": w.now.Format(time.RFC3339)}}))
				w.writes(site, shopWeb,
					fields{"spec": fields{"holder": fmt.Sprint("a", i), "renewed": w.now.Format(time.RFC3339)}})
			}
		},
		"two heartbeats in one object": func(w *world) {
			for range 100 {
				w.pass(time.Second)
				w.somebody("site-operator", site, shopWeb, fields{"status": fields{"beat": w.now.Format(time.RFC3339)}})
				w.pass(time.Second)
				w.runs(Cause{})
				w.writes(site, shopWeb, fields{"status": fields{"beat": w.now.Format(time.RFC3339)}})
			}
		},
		"the time of every event of the object": func(w *world) {
			for i := range 200 {
				w.pass(time.Second)
				w.runs(w.somebody("kube-controller-manager", deployment, shopWeb, fields{"status": fields{"ready": i}}))
				w.writes(deployment, shopWeb, fields{"data": fields{"seen": w.now.Format(time.RFC3339)}})
			}
		},
		"a status that follows Pods that flap": func(w *world) {
			for i := range 200 {
				w.pass(time.Second)
				w.runs(w.somebody("kubelet", pod, shopWeb, fields{"status": fields{"ready": i%2 == 0}}))
				w.writes(site, shopWeb, fields{"status": fields{"ready": i%2 == 0}})
				// Own echoes are not suppressed here, so a run follows that changes nothing.
				w.runs(w.changed(site, shopWeb))
				w.writes(site, shopWeb, fields{"status": fields{"ready": i%2 == 0}})
			}
		},
		"a status that follows a probe that flaps": func(w *world) {
			for i := range 200 {
				w.pass(time.Second)
				w.runs(Cause{})
				w.writes(site, shopWeb, fields{"status": fields{"up": i%2 == 0}})
			}
		},
		"busy at the beginning of each run, ready at its end": func(w *world) {
			for i := range 200 {
				w.pass(time.Second)
				w.runs(w.somebody("kube-controller-manager", deployment, shopWeb, fields{"status": fields{"ready": i}}))
				w.writes(deployment, shopWeb, fields{"data": fields{"state": "busy"}})
				w.writes(deployment, shopWeb, fields{"data": fields{"state": "ready"}})
			}
		},
		"the same, with a cache that is behind": func(w *world) {
			for i := range 200 {
				w.pass(time.Second)
				w.lagging = false
				w.runs(w.somebody("kubelet", deployment, shopWeb, fields{"status": fields{"ready": i}}))
				w.lagging = true
				w.writes(deployment, shopWeb, fields{"data": fields{"state": "busy"}})
				w.writes(deployment, shopWeb, fields{"data": fields{"state": "ready"}})
			}
		},
		"a part that the handler takes away and adds, while others write": func(w *world) {
			for i := range 50 {
				w.pass(time.Second)
				w.runs(w.somebody("kubelet", pod, shopWeb, fields{"status": fields{"ready": i}}))
				switch i % 4 { // 0 -> 1, removed, back with 0: no other client has set it to 0
				case 0, 3:
					w.writes(site, shopWeb, fields{"spec": fields{"part": fields{"x": 0, "y": 1}}})
				case 1:
					w.writes(site, shopWeb, fields{"spec": fields{"part": fields{"x": 1, "y": 1}}})
				case 2:
					w.writes(site, shopWeb, fields{"spec": fields{}})
				}
			}
		},
		"retries that report that they have begun and failed": func(w *world) {
			for range 30 {
				w.pass(time.Second)
				w.runs(Cause{})
				w.writes(site, shopWeb, fields{"status": fields{"state": "trying"}})
				w.writes(site, shopWeb, fields{"status": fields{"state": "failed"}})
			}
		},
		"values that others change a few times each": func(w *world) {
			for i := range 100 {
				w.pass(10 * time.Second)
				w.runs(w.somebody("kubectl-edit", deployment, shopWeb, fields{"spec": fields{"replicas": 1}}))
				w.writes(deployment, shopWeb, fields{"spec": fields{"replicas": 3 + i/4}})
			}
		},
		"the time of every event, and once more for the own echo": func(w *world) {
			for i := range 100 {
				w.pass(time.Second)
				w.runs(w.somebody("kubelet", pod, shopWeb, fields{"status": fields{"ready": i}}))
				w.writes(site, shopWeb, fields{"status": fields{"seen": w.now.Format(time.RFC3339)}})
				w.pass(time.Second)
				w.runs(w.changed(site, shopWeb))
				w.writes(site, shopWeb, fields{"status": fields{"seen": w.now.Format(time.RFC3339)}})
			}
		},
		"a ping-pong by own echoes that ends": func(w *world) {
			for range 10 {
				w.pass(10 * time.Second)
				w.runs(w.somebody("kubectl", site, shopWeb, fields{"spec": fields{"version": w.version}}))
				for i := range 8 {
					w.writes(site, shopWeb, fields{"status": fields{"phase": i % 2}})
					w.runs(w.changed(site, shopWeb))
				}
			}
		},
		"a mind that is changed now and then": func(w *world) {
			for i := range 200 {
				w.pass(11 * time.Second)
				w.runs(w.somebody("kubelet", deployment, shopWeb, fields{"status": fields{"ready": i}}))
				w.writes(deployment, shopWeb, fields{"spec": fields{"replicas": 3 + i%2}})
			}
		},
		"echoes of so many objects that other causes are dropped": func(w *world) {
			for i := range 50 {
				causes := []Cause{}
				for j := range min(i, 1) * (maxCauses + 1) {
					causes = append(causes, w.changed(site, child(j)))
				}
				w.pass(time.Second)
				w.runs(append(causes, w.somebody("kubelet", pod, shopWeb, fields{"status": fields{"ready": i}}))...)
				for j := range maxCauses + 1 {
					w.writes(site, child(j), fields{"status": fields{"ready": i % 2}})
				}
			}
		},
		"a Pod that is created again and again": func(w *world) {
			for i := range 50 {
				w.pass(time.Second)
				w.runs(Cause{Kind: pod, Object: shopWeb})
				_, after := w.put(pod, shopWeb, fields{"spec": fields{"node": fmt.Sprint("n", i%2)}})
				created := after.Clone()
				created.UID = types.UID(fmt.Sprint("u", i))
				w.wrote(Step{Kind: pod, Object: shopWeb, After: created, Manager: "site-operator"})
			}
		},
		"times of a rollout that another controller reports": func(w *world) {
			for i := range 3000 {
				w.pass(200 * time.Millisecond)
				w.runs(w.somebody("kube-controller-manager", deployment, shopWeb, fields{"status": fields{"ready": i}}))
				w.writes(deployment, shopWeb, fields{"data": fields{"seen": w.now.Format(time.RFC3339Nano)}})
			}
		},
		"a status that follows a thousand Pods": func(w *world) {
			for i := range 4000 {
				w.pass(50 * time.Millisecond)
				w.runs(w.somebody("kubelet", pod, kube.Key{Namespace: "shop", Name: fmt.Sprint("web-", i%1000)},
					fields{"status": fields{"ready": i}}))
				w.writes(site, shopWeb, fields{"status": fields{"ready": i, "seen": w.now.Format(time.RFC3339)}})
			}
		},
		"events of an external system": func(w *world) {
			for i := range 4000 {
				w.pass(50 * time.Millisecond)
				w.runs(Cause{External: true})
				w.writes(site, shopWeb,
					fields{"status": fields{"up": i%2 == 0, "seen": w.now.Format(time.RFC3339Nano)}})
			}
		},
		"a user who edits the spec again and again": func(w *world) {
			for i := range 300 {
				w.pass(time.Second)
				w.runs(w.somebody("kubectl-edit", site, shopWeb, fields{"spec": fields{"color": i}}))
				w.writes(site, shopWeb,
					fields{"status": fields{"phase": "Progressing", "at": w.now.Format(time.RFC3339)}})
				w.runs(Cause{})
				w.writes(site, shopWeb, fields{"status": fields{"phase": "Done", "at": w.now.Format(time.RFC3339)}})
			}
		},
		"a canary that two programs move forward step by step": func(w *world) {
			for i := range 100 {
				for _, phase := range []string{"Paused", "Progressing"} {
					w.pass(time.Second)
					w.runs(w.somebody("judge", site, shopWeb, fields{"metadata2": fields{"verdict": phase}}))
					w.writes(site, shopWeb, fields{"spec": fields{"weight": i}, "status": fields{"phase": phase}})
				}
			}
		},
		"the time of each resync": func(w *world) {
			for range 100 {
				w.pass(3 * time.Minute)
				w.runs(Cause{Resync: true})
				w.writes(site, shopWeb, fields{"data": fields{"checked": w.now.Format(time.RFC3339)}})
			}
		},
		"a status of an external system at each resync": func(w *world) {
			for i := range 100 {
				w.pass(3 * time.Minute)
				w.runs(Cause{Resync: true})
				w.writes(site, shopWeb, fields{"status": fields{"text": fmt.Sprint("load ", i, " %")}})
			}
		},
		"steps of a rollout at each resync": func(w *world) {
			for i := range 100 {
				w.pass(3 * time.Minute)
				w.runs(Cause{Resync: true})
				w.writes(site, shopWeb, fields{"spec": fields{"weight": fmt.Sprint(i)}})
			}
		},
		"drift of a kind without an informer, repaired at each resync": drift,
		"drift of a kind without any informer, repaired at each resync": func(w *world) {
			w.lagging = true
			drift(w)
		},
		"text of another client in an object that no informer shows": func(w *world) {
			w.lagging = true
			for i := range 100 {
				w.pass(3 * time.Minute)
				w.put(site, shopWeb, fields{"data": fields{"mode": fmt.Sprint("theirs ", i)}})
				w.runs(Cause{Resync: true})
				w.writes(site, shopWeb, fields{"seen": w.now.Format(time.RFC3339)})
			}
		},
		"external data that changes at some resyncs": func(w *world) {
			for i := range 100 {
				w.pass(3 * time.Minute * time.Duration(1+i%3*2))
				w.runs(Cause{Resync: true})
				w.writes(site, shopWeb, fields{"data": fields{"text": fmt.Sprint("news ", i)}})
			}
		},
		"a worker that another client deletes after each job": func(w *world) {
			for i := range 200 {
				w.pass(time.Second)
				w.runs(Cause{})
				w.creates(site, shopWeb, i)
				w.h.ObjectGone(shopWeb, site, shopWeb)
			}
		},
		"runs that write nothing": func(w *world) {
			w.put(site, shopWeb, fields{"status": fields{"ready": true}})
			for range 10_000 {
				w.pass(time.Millisecond)
				w.runs(w.changed(site, shopWeb))
				w.writes(site, shopWeb, fields{"status": fields{"ready": true}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newResyncedWorld(t, 3*time.Minute)
			play(w)
			w.none()
			if d := w.h.Pause(shopWeb, w.now); d != 0 {
				t.Errorf("the key is held back for %s", d)
			}
		})
	}
}

func causedBy(kind schema.GroupKind, key kube.Key, version string) []Cause {
	return []Cause{{Changed: true, Kind: kind, Object: key, ResourceVersion: version}}
}
