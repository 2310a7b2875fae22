package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// mixed is a controller with features chosen at random, and the states that its handler has seen.
type mixed struct {
	*testing.T
	random      *rand.Rand // guarded by mu
	own, joined *kindserver.Server[configMap]
	children    *kindserver.Server[configMap]
	objects     *informer.Informer[configMap]
	child       *informer.Informer[configMap]
	config      controller.Config[configMap]
	ctrl        *controller.Controller[configMap]
	features    []string

	mu      sync.Mutex
	seen    map[string]string // by key; guarded by mu
	running map[string]int    // by namespace; guarded by mu
	busy    map[kube.Key]bool // guarded by mu
	told    map[string]int    // requests of a source by name; guarded by mu
	epoch   int               // requests of a source for all objects; guarded by mu
	quiet   bool              // the source stops its requests; guarded by mu
	exists  map[kube.Key]bool // on the servers; used only by the test's goroutine
}

func (m *mixed) chance(n int) bool { m.mu.Lock(); defer m.mu.Unlock(); return m.random.IntN(n) == 0 }
func (m *mixed) n(n int) int       { m.mu.Lock(); defer m.mu.Unlock(); return m.random.IntN(n) }
func (m *mixed) feature(name string) bool {
	if m.chance(2) {
		m.features = append(m.features, name)
		return true
	}
	return false
}

func newMixed(t *testing.T, seed int) *mixed {
	t.Helper()
	m := &mixed{
		T: t, random: rand.New(rand.NewPCG(uint64(seed), 11)), own: newServer(), joined: newServer(), children: newServer(),
		seen: map[string]string{}, running: map[string]int{}, busy: map[kube.Key]bool{}, told: map[string]int{},
		exists: map[kube.Key]bool{},
	}
	newInformer := func(name string, from informer.Retriever[configMap]) *informer.Informer[configMap] {
		inf, err := informer.New(informer.Config[configMap]{Name: name, Retriever: from, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return inf
	}
	m.objects = newInformer("objects", informer.Combine[configMap](m.own, m.joined))
	m.child = newInformer("children", m.children)
	c := config(nil, nil)
	c.Handler, c.Retriever, c.Informer = nil, nil, m.objects
	if m.feature("reconciler") {
		c.Reconciler = m.handle
	} else {
		c.Handler = handlerFunc(func(ctx context.Context, obj configMap) error { return m.handle(ctx, kube.KeyOf(obj)) })
	}
	c.Workers = 1 + m.n(4)
	if m.feature("debounce") {
		c.Queue.Debounce = 50 * time.Millisecond
	}
	if m.feature("group limit") {
		c.Queue.GroupLimit = 1 + m.n(2)
	}
	if m.feature("stuck") {
		c.Runs.StuckAfter = 400 * time.Millisecond
	}
	c.Runs.DrainQueue = m.feature("drain queue")
	c.Runs.DrainTimeout = 2 * time.Second
	if m.feature("resync") {
		c.ResyncInterval = 5 * time.Second
	}
	if m.feature("deleted hook") {
		c.Deleted = func(context.Context, configMap, bool) error {
			if m.chance(3) {
				return errors.New("not now")
			}
			return nil
		}
	}
	if m.feature("priority") {
		c.Queue.Priority = func(informer.Change) controller.Priority { return controller.Priority(m.n(3) - 1) }
	}
	c.Retry.Every = retry.Policy{Base: 10 * time.Millisecond, Max: 200 * time.Millisecond}
	if m.feature("few retries") {
		c.Retry.Every.MaxRetries = 2
	}
	c.Sources = []controller.Source{controller.SourceFunc(m.ask)}
	if m.feature("child source") {
		c.Sources = append(c.Sources, source.OwnerLabel(m.child, "owner"))
	} else {
		c.Reads = []informer.Any{m.child}
	}
	m.config = c
	m.ctrl = newController(t, c)
	return m
}

// has reports whether a feature is on.
func (m *mixed) has(feature string) bool { return slices.Contains(m.features, feature) }

// ask is a source that enqueues keys and all objects.
func (m *mixed) ask(ctx context.Context, enqueue controller.Enqueue) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(m.n(100)) * time.Millisecond):
		}
		name := fmt.Sprint("o", m.n(6))
		namespace := fmt.Sprint("ns", m.n(3))
		m.mu.Lock()
		if m.quiet {
			m.mu.Unlock()
			continue
		}
		switch what := m.random.IntN(8); what {
		case 0:
			m.epoch++
			m.mu.Unlock()
			enqueue(kube.Key{}, controller.Trigger{All: true})
		case 1, 2, 3:
			m.told[namespace+"/"+name]++
			m.mu.Unlock()
			enqueue(kube.Key{Namespace: namespace, Name: name}, controller.Trigger{FromList: true})
		default:
			m.told[namespace+"/"+name]++
			m.mu.Unlock()
			enqueue(kube.Key{Namespace: namespace, Name: name}, controller.Trigger{Priority: controller.Priority(what % 3)})
		}
	}
}

// state returns the state that a handler of key reads now.
func (m *mixed) state(key kube.Key) string {
	value := "absent"
	if obj, found, err := m.objects.Get(key); err != nil {
		return "unreadable " + err.Error()
	} else if found {
		value = obj.Data["value"]
	}
	if m.has("child source") {
		if child, found, err := m.child.Get(kube.Key{Namespace: key.Namespace, Name: key.Name + "-0"}); err != nil {
			return "unreadable"
		} else if found {
			value += " child " + child.Data["value"]
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(value, " told ", m.told[key.String()], " epoch ", m.epoch)
}

func (m *mixed) handle(ctx context.Context, key kube.Key) error {
	m.mu.Lock()
	if m.busy[key] {
		m.Errorf("%s is handled twice at once", key)
	}
	m.busy[key] = true
	m.running[key.Namespace]++
	if limit := m.config.Queue.GroupLimit; limit > 0 && m.running[key.Namespace] > limit && !m.has("stuck") {
		m.Errorf("%d of %s are handled at once", m.running[key.Namespace], key.Namespace)
	}
	m.mu.Unlock()
	state := m.state(key)
	m.mu.Lock()
	m.seen[key.String()] = state
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.busy[key] = false
		m.running[key.Namespace]--
	}()
	took := time.Duration(m.n(60)) * time.Millisecond
	if m.has("stuck") && m.chance(20) {
		took = time.Second
	}
	time.Sleep(took)
	switch m.n(8) {
	case 0:
		return controller.Terminal(errors.New("terminal"))
	case 1:
		return controller.RequeueAfter(time.Duration(m.n(300)) * time.Millisecond)
	case 2:
		return errors.New("failed")
	case 3:
		panic("panicked")
	case 4:
		return controller.SetTimer(ctx, "t", time.Duration(m.n(200))*time.Millisecond)
	}
	return nil
}

// change makes one random change.
func (m *mixed) change(step int) {
	server := m.own
	namespace := fmt.Sprint("ns", m.n(3))
	if namespace == "ns2" {
		server = m.joined
	}
	key := kube.Key{Namespace: namespace, Name: fmt.Sprint("o", m.n(6))}
	obj := object(key.Name, fmt.Sprint(step))
	obj.Namespace = namespace
	switch what := m.n(20); {
	case what == 0:
		server.DropWatches()
		server.Compact()
	case what == 1:
		m.children.DropWatches()
		m.children.Compact()
	case what < 5 && m.exists[key]:
		server.Delete(key)
		if m.exists[key] = m.chance(2); m.exists[key] {
			server.Put(obj)
		}
	case what < 10:
		c := child(key.Name, 0, fmt.Sprint(step))
		c.Namespace = namespace
		m.children.Put(c)
	default:
		server.Put(obj)
		m.exists[key] = true
	}
}

// expect fails unless each object was last handled with its present state.
func (m *mixed) expect(seed int) {
	m.Helper()
	for n := range 18 {
		key := kube.Key{Namespace: fmt.Sprint("ns", n%3), Name: fmt.Sprint("o", n/3)}
		want := m.state(key)
		if strings.HasPrefix(want, "absent") {
			continue
		}
		m.mu.Lock()
		got := m.seen[key.String()]
		m.mu.Unlock()
		if got != want {
			m.Errorf("seed %d, %q: %s was handled last with %q, want %q\n%s", seed, m.features, key, got, want, m.ctrl.Explain(key))
		}
	}
}

// TestFeaturesCombinedLoseNoWakeUp checks that features chosen at random work together. No wake-up is lost, no key is
// handled concurrently with itself, and no group exceeds its limit. During the test, objects are created, changed and
// deleted, watches break, sources are added and removed, and leadership moves.
func TestFeaturesCombinedLoseNoWakeUp(t *testing.T) {
	for seed := range testlength.Count(2, 15) {
		synctest.Test(t, func(t *testing.T) {
			m := newMixed(t, seed)
			elects := m.feature("hand-over")
			term := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			e := &elector{terms: make(chan chan struct{}, 1)}
			if elects {
				go func() { ended <- e.Run(ctx, m.ctrl.Run) }() // waited for below
				e.terms <- term
			} else {
				go func() { ended <- m.ctrl.Run(ctx) }() // waited for below
			}
			addSources := m.feature("sources added and removed")
			switches := m.feature("retrievers switched")
			stop := make(chan struct{})
			var clients sync.WaitGroup
			if addSources {
				clients.Go(func() { // waited for below
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Duration(m.n(300)) * time.Millisecond):
						}
						remove, err := m.ctrl.AddSource(source.OwnerLabel(m.child, "owner"))
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(time.Duration(m.n(300)) * time.Millisecond)
						remove()
					}
				})
			}
			if switches {
				clients.Go(func() { // waited for below
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Duration(m.n(500)) * time.Millisecond):
						}
						limited, end := context.WithTimeout(ctx, time.Second)
						_ = m.objects.SetRetriever(limited, m.own)
						time.Sleep(time.Duration(m.n(500)) * time.Millisecond)
						_ = m.objects.SetRetriever(limited, informer.Combine[configMap](m.own, m.joined))
						end()
					}
				})
			}
			for step := range 150 {
				if elects && step%20 == 5 {
					close(term)
					time.Sleep(time.Duration(m.n(300)) * time.Millisecond)
					term = make(chan struct{})
					e.terms <- term // the previous term may still drain
				}
				time.Sleep(time.Duration(m.n(60)) * time.Millisecond)
				m.change(step)
			}
			close(stop)
			clients.Wait()
			time.Sleep(20 * time.Second)
			m.settle()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			m.expect(seed)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// settle stops the requests of the source, so that the present state is the last one.
func (m *mixed) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quiet = true
}
