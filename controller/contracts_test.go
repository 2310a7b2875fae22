package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/source"
)

// Other packages implement the contracts of this file, and their tests cover the details. These tests check that the
// user of a controller gets them.

// TestContract18_AProblemOfAnObjectIsAnEventOnce checks that an Event is about the key's own object, and is recorded
// once an episode. A success of the key ends the episode.
func TestContract18_AProblemOfAnObjectIsAnEventOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var told events
		var works atomic.Bool
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			if works.Load() {
				return nil
			}
			// The informer never shows this write, so each run starts before its informers show the writes of the run
			// before.
			return errors.Join(w.patch(ctx, "parts", "p", fmt.Sprintf(`{"spec":{"at":%d}}`, time.Now().Unix())), errors.New("no luck"))
		})
		c.Events, c.Reads = &told, []informer.Any{w.parts(informer.Selection{})}
		c.Retry.Every.Max = time.Second
		w.put("widgets", "a", 1)
		w.put("parts", "p", 1)
		w.HoldWatches("parts")
		ctrl := w.run(c)
		expect := func(what string) {
			t.Helper()
			if got := told.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning Widget/a (uid-1) UnseenWrite: ") {
				t.Errorf("%s made the Events %q, want one about the object", what, got)
			}
		}
		time.Sleep(5 * time.Minute)
		if runs := ctrl.RecentRuns(); len(runs) < 10 {
			t.Fatalf("%d runs, each of which was too early", len(runs))
		}
		expect("one episode")
		works.Store(true)
		time.Sleep(time.Minute)
		works.Store(false)
		w.put("widgets", "a", 2)
		time.Sleep(5 * time.Minute)
		expect("the next one")
	})
}

// TestContract22_AWatchThatIsSilentIsNamedAndMadeUpFor checks that a watch that is open and sends nothing is reported,
// and that the changes that it missed are handled.
func TestContract22_AWatchThatIsSilentIsNamedAndMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			runs.add("%v", widget.Object["spec"])
			return nil
		})
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		runs.take()
		w.HoldWatches("widgets")
		w.put("widgets", "a", 2)
		var ready error
		for began := time.Now(); ready == nil && time.Since(began) < 15*time.Minute; time.Sleep(time.Second) {
			ready = ctrl.Ready()
		}
		if !errors.Is(ready, informer.ErrSilentWatch) {
			t.Errorf("Ready: %v, want it to name the silent watch", ready)
		}
		time.Sleep(time.Minute)
		if got := runs.take(); !slices.Equal(got, []string{"map[value:2]"}) {
			t.Errorf("behind a silent watch, handled %q", got)
		}
		w.ReleaseWatches("widgets")
		w.put("widgets", "a", 3)
		time.Sleep(5 * time.Minute)
		if err := ctrl.Ready(); err != nil {
			t.Errorf("when the watch speaks again: %v", err)
		}
	})
}

// TestContract24_WhatAPollFindsIsHandled checks items that are listed, added, updated and removed. It also checks an
// object that was handled before the first successful poll and is in none of its items. Unchanged items and a failed
// poll must not cause runs.
func TestContract24_WhatAPollFindsIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		var found atomic.Pointer[[]source.Item]
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			runs.add("%s: %s", widget.GetName(), causesOf(ctx))
			return nil
		})
		c.Sources = []controller.Source{source.Poll(source.PollConfig{
			Name: "registry", Interval: time.Minute, Jitter: -1, Logger: slog.New(slog.DiscardHandler),
			Poller: source.ListFunc(func(context.Context) ([]source.Item, error) {
				if items := found.Load(); items != nil {
					return *items, nil
				}
				return nil, errors.New("the registry is down")
			}),
		})}
		poll := func(items ...source.Item) []string {
			found.Store(&items)
			time.Sleep(5 * time.Minute)
			return runs.sorted()
		}
		image := func(name, version string) source.Item {
			return source.Item{ID: name, Version: version, Keys: []kube.Key{key(name)}}
		}
		w.put("widgets", "a", 1)
		w.put("widgets", "b", 1)
		w.run(c)
		time.Sleep(time.Second)
		runs.take()
		got := [][]string{poll(image("a", "1")), poll(image("a", "1"), image("b", "1")), poll(image("a", "2"), image("b", "1"))}
		found.Store(nil) // the poll fails, which must not cause runs
		time.Sleep(5 * time.Minute)
		got = append(got, runs.take(), poll(image("a", "2")))
		want := [][]string{
			{"a: registry: listed (a)", "b: registry: triggered (the first poll has succeeded)"}, {"b: registry: added (b)"}, {"a: registry: updated (a)"}, nil, {"b: registry: deleted (b)"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// tracer is a middleware.Tracer, and its only Span.
type tracer struct{ journal }

func (tr *tracer) Start(ctx context.Context, run controller.RunRecord, _ kube.Object) (context.Context, middleware.Span) {
	tr.add("run of %s: %s, waited %s", run.Key, run.Causes, run.Wait.Round(time.Millisecond))
	return ctx, tr
}

func (tr *tracer) TraceID() string { return "4bf92f35" }

func (tr *tracer) CallBegan(ctx context.Context, _ kube.Call) context.Context { return ctx }

func (tr *tracer) CallEnded(_ context.Context, call kube.Call) {
	tr.add("%s %s: %d", call.Verb, call.Key, call.Status)
}

func (tr *tracer) End(_ context.Context, err error) { tr.add("end: %v", err) }

// TestContract27_ATraceHasTheRunItsCausesAndItsCalls checks that a trace has the run, its causes and its calls, and
// that the run's record has the trace.
func TestContract27_ATraceHasTheRunItsCausesAndItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tr := &tracer{}
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			return errors.Join(w.create(ctx, "parts", "Part", "p"), errors.New("no luck"))
		})
		c.Handler = controller.Chain(c.Handler, middleware.Trace[unstructuredObject](tr))
		c.Retry.Every.Base = time.Hour
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		synctest.Wait()
		want := []string{"run of ns/a: listed, waited 0s", "create ns/p: 201", "end: no luck"}
		got := tr.take()
		if len(got) > 1 && strings.HasPrefix(got[1], "create ns/:") { // the response has the name of the created object
			got[1] = strings.Replace(got[1], "ns/", "ns/p", 1)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("traced (-want +got):\n%s", diff)
		}
		if id := ctrl.RecentRuns()[0].TraceID; id != "4bf92f35" {
			t.Errorf("the record of the run has the trace %q", id)
		}
	})
}

// TestContract16_ANoisyNamespaceDelaysOthersLittle checks that keys are grouped by namespace by default, and that
// Config.Queue.GroupLimit bounds the number of workers of a group.
func TestContract16_ANoisyNamespaceDelaysOthersLittle(t *testing.T) {
	for name, test := range map[string]struct {
		limit int
		waits time.Duration
	}{
		"turns":        {0, time.Second},
		"and a limit":  {1, 0},
		"of all there": {2, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t)
				s.handler(func(context.Context, unstructuredObject) error { time.Sleep(time.Second); return nil })
				s.config.Workers, s.config.Queue.GroupLimit = 2, test.limit
				s.open()
				for i := range 200 {
					s.siteIn("noisy", fmt.Sprint("site-", i), 1)
				}
				time.Sleep(5*time.Second + time.Millisecond)
				s.site("web", 2)
				time.Sleep(10 * time.Second)
				runs := s.Explain(kube.Key{Namespace: "shop", Name: "web"}).Runs
				if len(runs) != 1 || runs[0].Wait > test.waits {
					t.Errorf("beside 200 keys of another namespace: %v, want one run after at most %s", runs, test.waits)
				}
			})
		})
	}
}
