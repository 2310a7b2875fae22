package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// gate gives one goroutine a turn at a time, so that a run of a scenario can be repeated. Each request of the programs
// and of the models of Kubernetes' controllers waits here, each call of Call, and each part of a watch that a program
// receives. When all goroutines of the bubble wait, the gate chooses one of those that wait here.
//
// Discovery does not wait: clients hold a mutex while they ask for it, and a goroutine that waits for a mutex stops the
// virtual time.
type gate struct {
	// beforeTurn is called before each choice. It may make requests, as the test.
	beforeTurn func()
	wake       chan struct{} // has room for one value, which is there if something waits

	mu     sync.Mutex
	waits  []*waiting         // guarded by mu; in the order of arrival
	turns  int                // guarded by mu; the number of choices
	held   map[held]time.Time // guarded by mu; until when watches deliver nothing
	random *rand.Rand         // guarded by mu; nil: the first one is chosen
}

// held identifies watches of a program.
type held struct {
	program  string
	resource schema.GroupResource
}

// waiting is a goroutine that waits for its turn.
type waiting struct {
	program  string
	instance *instance // nil: of the models
	request  Request
	isEvent  bool // a part of a watch, otherwise a request
	arrived  int  // the number of turns before
	turn     chan struct{}
}

func newGate(seed uint64) *gate {
	g := &gate{beforeTurn: func() {}, wake: make(chan struct{}, 1), held: map[held]time.Time{}}
	if seed != 0 {
		g.random = rand.New(rand.NewPCG(seed, 1))
	}
	return g
}

// run gives turns until ctx ends. All that still waits then gets one.
func (g *gate) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			g.releaseAll()
			return
		case <-g.wake:
		}
		for {
			// Virtual time advances when all other goroutines wait.
			time.Sleep(time.Nanosecond)
			g.beforeTurn()
			next, until := g.next()
			if next != nil {
				close(next.turn)
				continue
			}
			if !until.IsZero() {
				time.AfterFunc(time.Until(until), g.wakeUp)
			}
			break
		}
	}
}

func (g *gate) wakeUp() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// next removes the goroutine whose turn it is. If only held watches wait, until is when the first of them may go on.
func (g *gate) next() (next *waiting, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	var ready []*waiting
	for _, w := range g.waits {
		end := g.held[held{w.program, w.request.Resource.GroupResource()}]
		if w.isEvent && end.After(now) && !w.instance.isDead() {
			if until.IsZero() || end.Before(until) {
				until = end
			}
			continue
		}
		ready = append(ready, w)
	}
	if len(ready) == 0 {
		return nil, until
	}
	slices.SortStableFunc(ready, func(a, b *waiting) int {
		return cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.sortKey(), b.sortKey()))
	})
	next = ready[0]
	if g.random != nil {
		next = ready[g.random.IntN(len(ready))]
	}
	g.waits = slices.DeleteFunc(g.waits, func(w *waiting) bool { return w == next })
	g.turns++
	return next, time.Time{}
}

func (w *waiting) sortKey() string {
	number := 0
	if w.instance != nil {
		number = w.instance.number
	}
	return fmt.Sprintf("%s/%d/%t/%s", w.program, number, w.isEvent, w.request)
}

// wait waits for the turn of a request or a part of a watch, or until stop is closed.
func (g *gate) wait(w *waiting, stop <-chan struct{}) {
	w.turn = make(chan struct{})
	g.mu.Lock()
	w.arrived = g.turns
	g.waits = append(g.waits, w)
	g.mu.Unlock()
	g.wakeUp()
	select {
	case <-w.turn:
	case <-stop:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waits = slices.DeleteFunc(g.waits, func(other *waiting) bool { return other == w })
	}
}

func (g *gate) releaseAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waits {
		close(w.turn)
	}
	g.waits = nil
}

// hold delivers nothing to watches until d has passed.
func (g *gate) hold(h held, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[h] = time.Now().Add(d)
}

// releaseWatches delivers to all watches again.
func (g *gate) releaseWatches() {
	g.mu.Lock()
	clear(g.held)
	g.mu.Unlock()
	g.wakeUp()
}

type modelKey struct{}

// modelTransport is the http.RoundTripper of the models of Kubernetes' controllers.
type modelTransport struct {
	gate *gate
	log  *requestLog
}

// RoundTrip implements http.RoundTripper.
func (m *modelTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.WithContext(context.WithValue(req.Context(), modelKey{}, true))
	if r, ok := parse(req); ok {
		m.gate.wait(&waiting{program: "kubernetes", request: r}, req.Context().Done())
	}
	return m.log.RoundTrip(req)
}
