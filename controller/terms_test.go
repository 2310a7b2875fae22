package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// group is two controllers with one informer and one elector, and the results of their handlers.
type group struct {
	*testing.T
	controllers []*controller.Controller[configMap]

	mu      sync.Mutex
	working [2]map[string]bool   // guarded by mu
	last    [2]map[string]string // guarded by mu; the last value that was handled, by object
}

func newGroup(t *testing.T, server informer.Retriever[configMap]) *group {
	t.Helper()
	g := &group{T: t}
	shared := g.informer("shared", server)
	for i := range g.last {
		g.working[i], g.last[i] = map[string]bool{}, map[string]string{}
		c := config(nil, func(ctx context.Context, obj configMap) error { return g.handle(ctx, i, obj) })
		c.Name, c.Retriever, c.Informer, c.Runs.DrainQueue = fmt.Sprint("controller ", i), nil, shared, i == 1
		g.controllers = append(g.controllers, newController(t, c))
	}
	return g
}

func (g *group) informer(name string, from informer.Retriever[configMap]) *informer.Informer[configMap] {
	inf, err := informer.New(informer.Config[configMap]{Name: name, Retriever: from, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		g.Error(err)
	}
	return inf
}

func (g *group) handle(ctx context.Context, i int, obj configMap) error {
	g.mu.Lock()
	if g.working[i][obj.Name] {
		g.Errorf("controller %d handles %s twice at once", i, obj.Name)
	}
	g.working[i][obj.Name] = true
	g.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(300 * time.Millisecond)):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.working[i], obj.Name)
	if ctx.Err() == nil {
		g.last[i][obj.Name] = obj.Data["value"]
	}
	return ctx.Err()
}

// run is the work function for an elector.
func (g *group) run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, c := range g.controllers {
		running.Go(func() { // waited for below
			if err := c.Run(ctx); err != nil {
				g.Error(err)
			}
		})
	}
	running.Wait()
	return nil
}

// addSources adds a source to one of the controllers and removes it again, until stop is closed.
func (g *group) addSources(stop <-chan struct{}, children informer.Retriever[configMap]) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(200 * time.Millisecond)):
		}
		child := g.informer("child", children)
		remove, err := g.controllers[rand.N(2)].AddSource(source.Mapped(child, func(configMap) []kube.Key { return []kube.Key{key("a")} }))
		if err != nil {
			g.Error(err)
			return
		}
		time.Sleep(rand.N(200 * time.Millisecond))
		remove()
	}
}

// ask calls every reporting method of the controllers, until stop is closed.
func (g *group) ask(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(7 * time.Millisecond):
		}
		for _, c := range g.controllers {
			_, _, _, _ = c.Ready(), c.Stats(), c.Explain(key("a")), c.Problems()
		}
	}
}

// TestContract02_NoLostWakeUpOverTermsAndSources checks that both controllers handle the last state of each object in
// the last term. Before that, leadership is gained and lost while objects change and sources are added and removed.
func TestContract02_NoLostWakeUpOverTermsAndSources(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			server, children := newServer("a", "b", "c"), newServer("x")
			g := newGroup(t, server)
			e := &elector{terms: make(chan chan struct{}, 1)}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- e.Run(ctx, g.run) }() // waited for below
			stop := make(chan struct{})
			var clients sync.WaitGroup
			clients.Go(func() { g.ask(stop) }) // waited for below
			for range 3 {
				clients.Go(func() { g.addSources(stop, children) }) // waited for below
			}
			names := []string{"a", "b", "c"}
			for version := range 60 {
				if version%5 == 0 {
					term := make(chan struct{})
					e.terms <- term
					time.AfterFunc(rand.N(600*time.Millisecond), func() { close(term) })
				}
				time.Sleep(rand.N(150 * time.Millisecond))
				server.Put(object(names[rand.N(3)], fmt.Sprint(version)))
			}
			for _, name := range names {
				server.Put(object(name, "last"))
			}
			e.terms <- make(chan struct{})
			time.Sleep(10 * time.Second)
			close(stop)
			clients.Wait()
			g.mu.Lock()
			for i, handled := range g.last {
				for _, name := range names {
					if handled[name] != "last" {
						t.Errorf("controller %d handled %s with %q, and not with its last state", i, name, handled[name])
					}
				}
			}
			g.mu.Unlock()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// A later term must not wait for a source that the first term did not wait for: one that was added during a term, or
// between two terms.
func TestContract09_AddedSourceDoesNotBlockLaterTerm(t *testing.T) {
	for name, s := range map[string]func(parts *informer.Informer[unstructuredObject]) controller.Source{
		"an informer that may not list": func(parts *informer.Informer[unstructuredObject]) controller.Source {
			return source.Mapped(parts, func(unstructuredObject) []kube.Key { return nil })
		},
		"a source that waits in Start": func(*informer.Informer[unstructuredObject]) controller.Source {
			return waitingSource{errors.New("the parts cannot be read")}
		},
	} {
		for _, standby := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, standby %t", name, standby), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAddedSource(t, s, standby) })
			})
		}
	}
}

func testAddedSource(
	t *testing.T, s func(parts *informer.Informer[unstructuredObject]) controller.Source, standby bool,
) {
	t.Helper()
	w := newWorld(t)
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if strings.Contains(req.URL.Path, "parts") {
			return answerForbidden(), nil
		}
		return do(), nil
	})
	var runs journal
	c := w.config(func(context.Context, unstructuredObject) error { runs.add("run"); return nil })
	e := &elector{terms: make(chan chan struct{})}
	c.LeaderElector = e
	w.put("widgets", "a", 1)
	ctrl := w.run(c)
	lost := make(chan struct{})
	e.terms <- lost
	synctest.Wait()
	runs.take()
	if standby {
		close(lost)
		synctest.Wait()
	}
	addSource(t, ctrl, s(w.parts(kube.Selection{})))
	if !standby {
		close(lost)
		synctest.Wait()
	}
	again := make(chan struct{})
	e.terms <- again
	time.Sleep(time.Minute)
	if got := runs.take(); len(got) != 1 || ctrl.Stats().Phase != controller.PhaseRunning {
		t.Errorf("%d runs in the second term, want 1; the controller is %s", len(got), ctrl.Stats().Phase)
	}
	if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), "parts") {
		t.Errorf("Ready: %v, want the source's error", err)
	}
	close(again)
}
