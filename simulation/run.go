package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/observers"
)

const (
	// endTimeout is the time that programs have to end. It is longer than the drain timeouts of this library's
	// controllers and controller-runtime's managers.
	endTimeout = time.Minute
	// settleTimeout and settleWrites are the time and the number of writes after which Settle gives up.
	settleTimeout = 10 * time.Minute
	settleWrites  = 5000
	// runLimit is the number of runs of one key within a second after which its program is stopped. Without it, a key
	// that is requeued at once stops virtual time.
	runLimit = 5000
	// requeueLimit is the same for runs in a row that request another one within requeueSoon while nobody writes. After
	// one run more, a controller of this library slows the key down, which would hide the loop.
	requeueLimit = 99
	requeueSoon  = 10 * time.Millisecond
)

// runCounter counts the runs of each key within a second.
type runCounter struct {
	mu       sync.Mutex
	began    time.Time            // guarded by mu
	runs     map[string]int       // since began, by controller and key; guarded by mu
	requeues map[string]*requeues // by controller and key; guarded by mu
}

// requeues are runs in a row that were requested by the run before.
type requeues struct {
	runs   int
	last   time.Time
	writes int // to the cluster, before the last run
}

// atLimit counts a run. If it is the last one that is allowed, it returns the number of runs, otherwise 0.
func (r *runCounter) atLimit(name string, requeued bool, writes int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.runs == nil || now.Sub(r.began) >= time.Second {
		r.began, r.runs = now, map[string]int{}
	}
	if r.runs[name]++; r.runs[name] == runLimit {
		return runLimit
	}
	if r.requeues == nil {
		r.requeues = map[string]*requeues{}
	}
	known := r.requeues[name]
	if known == nil || !requeued || known.writes != writes || now.Sub(known.last) > requeueSoon {
		known = &requeues{writes: writes}
		r.requeues[name] = known
	}
	known.last = now
	if known.runs++; known.runs == requeueLimit {
		return requeueLimit
	}
	return 0
}

// program is a running function of Run or Go.
type program struct {
	name   string
	cancel context.CancelFunc
	ended  chan struct{} // closed when the function has returned
	// controller is nil if it is not a controller of this library.
	controller observed
	// queues are those of all controllers of this library in the program. Guarded by Cluster.mu.
	queues []func(limit int) []observers.QueuedKey
}

// observed is a controller of this library.
type observed interface {
	Ready() error
	Stats() controller.Stats
	RecentRuns() []controller.RunRecord
}

// Run runs a program, such as a controller of this library, until stop is called, and at the latest until the end of
// the test. stop waits until Run has returned. An error of Run fails the test. The report of a failed test has the runs
// of a controller of this library.
func (c *Cluster) Run(runner interface {
	Run(ctx context.Context) error
},
) (stop func()) {
	name := fmt.Sprintf("%T", runner)
	if named, ok := runner.(interface{ Name() string }); ok {
		name = named.Name()
	}
	p := &program{name: name}
	p.controller, _ = runner.(observed)
	return c.register(p, runner.Run)
}

// Go is Run for a function, such as the method Start of a manager of controller-runtime. name is used in messages.
func (c *Cluster) Go(name string, run func(ctx context.Context) error) (stop func()) {
	return c.register(&program{name: name}, run)
}

// register is start for programs that end before the models of Kubernetes' controllers.
func (c *Cluster) register(p *program, run func(ctx context.Context) error) (stop func()) {
	c.mu.Lock()
	c.programs = append(c.programs, p)
	c.mu.Unlock()
	return c.start(p, run)
}

func (c *Cluster) start(p *program, run func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx())
	ctx = c.withObservers(ctx, p, cancel)
	p.cancel, p.ended = cancel, make(chan struct{})
	go func() { // waited for by stop, which end calls
		defer close(p.ended)
		if err := run(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
			c.tb.Errorf("simulation: %s ended: %v", p.name, err)
		}
	}()
	return sync.OnceFunc(func() { c.stop(p) })
}

// runInstance runs a program of a Scenario until ctx ends. The caller waits for it, not the end of the cluster.
func (c *Cluster) runInstance(
	ctx context.Context, name string, config *rest.Config, run func(context.Context, *rest.Config) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &program{name: name, cancel: cancel, ended: make(chan struct{})}
	defer close(p.ended)
	c.mu.Lock()
	c.programs = append(c.programs, p)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.programs = slices.DeleteFunc(c.programs, func(other *program) bool { return other == p })
	}()
	return run(c.withObservers(ctx, p, cancel), config)
}

// withObservers returns a context with which the controllers of a program are observed. A controller that is never idle
// is stopped with cancel.
func (c *Cluster) withObservers(ctx context.Context, p *program, cancel context.CancelFunc) context.Context {
	ctx = observers.WithRun(ctx, func(name string, key, causes fmt.Stringer) {
		name, why := name+": "+key.String(), causes.String()
		writes, _ := c.log.activity()
		requeued := strings.HasPrefix(why, string(controller.CauseRequeue))
		if runs := c.runs.atLimit(name, requeued, writes); runs > 0 {
			c.tb.Errorf("simulation: stopped %s, which is never idle: %s ran %d times within a second, now "+
				"because of %s", p.name, name, runs, why)
			c.stopped.Store(true)
			cancel()
		}
	})
	return observers.WithQueue(ctx, func(queue func(limit int) []observers.QueuedKey) {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.queues = append(p.queues, queue)
	})
}

// stop ends programs and waits for them.
func (c *Cluster) stop(programs ...*program) {
	for _, p := range programs {
		p.cancel()
	}
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	for _, p := range programs {
		select {
		case <-p.ended:
		case <-timeout.C:
			// The bubble cannot end, so that the test cannot end and print its log.
			panic(fmt.Sprintf("simulation: %s has not ended %v after its context; pending keys: "+
				"%s\n%s\ngoroutines:\n\n%s",
				p.name, endTimeout, orNone(strings.Join(c.pending(time.Now()), "; ")), c.report(c.running()), stacks()))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.programs = slices.DeleteFunc(c.programs, func(p *program) bool { return slices.Contains(programs, p) })
}

func (c *Cluster) running() []*program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.programs)
}

// Advance lets time pass: everything that is due in it happens.
func (c *Cluster) Advance(d time.Duration) {
	time.Sleep(d)
	c.wait()
}

// wait waits until all goroutines of the bubble wait for time or for each other. It ends the test if a program was
// stopped because it is never idle.
func (c *Cluster) wait() {
	c.tb.Helper()
	c.log.dog.observe()
	if c.virtual {
		c.waiting <- struct{}{} // only one goroutine may call synctest.Wait
		synctest.Wait()
		<-c.waiting
	}
	if c.stopped.Load() {
		c.tb.FailNow()
	}
}

// Settle lets time pass until the cluster is idle. It is idle if for Config.IdleAfter, in which Settle was waiting,
//
//   - no client made a write (a request that could change an object, successful or not), except for Leases, and
//   - no controller of this library had a key that is ready, processing or held, or in backoff or delayed until a time
//     within Config.IdleAfter, and neither had a modelled controller of Kubernetes. A controller that stands by for
//     leadership is not asked.
//
// So a retry after an error, and a requeue, within Config.IdleAfter is waited for. A later one, a periodic resync,
// reads, watches and leader election are not. Settle fails the test, with the latest requests and runs, if the cluster
// is not idle after 10 minutes or 5,000 writes: something writes again and again.
//
// A controller of this library that runs one key 5,000 times within a second is stopped, and the test fails.
func (c *Cluster) Settle() {
	c.tb.Helper()
	c.settle(settleWrites, func() bool { return false })
}

// settle is Settle with another limit of writes, until stops returns true.
func (c *Cluster) settle(limit int, stops func() bool) {
	c.tb.Helper()
	began, busy := time.Now(), time.Now()
	before, _ := c.log.activity()
	for {
		c.wait()
		now := time.Now()
		writes, last := c.log.activity()
		if last.After(busy) {
			busy = last
		}
		pending := c.pending(now)
		if len(pending) > 0 {
			busy = now
		}
		switch {
		case now.Sub(busy) >= c.config.IdleAfter || stops():
			return
		case now.Sub(began) > settleTimeout || writes-before > limit:
			c.tb.Fatalf("simulation: not idle after %v and %d writes; pending keys: %s",
				now.Sub(began).Round(time.Millisecond), writes-before, orNone(strings.Join(pending, "; ")))
		}
		time.Sleep(busy.Add(c.config.IdleAfter).Sub(now))
	}
}

// pending returns the keys of controllers that are not idle.
func (c *Cluster) pending(now time.Time) []string {
	var pending []string
	if c.models != nil {
		for _, task := range c.models.Pending() {
			if task.Due.Sub(now) <= c.config.IdleAfter {
				pending = append(pending, task.Controller+": "+task.Key)
			}
		}
	}
	for _, p := range c.running() {
		c.mu.Lock()
		queues := slices.Clone(p.queues)
		c.mu.Unlock()
		for _, queue := range queues {
			for _, entry := range queue(1000) {
				later := entry.State == "delayed" || entry.State == "backoff"
				if later && entry.Due.Sub(now) > c.config.IdleAfter {
					continue
				}
				pending = append(pending, fmt.Sprintf("%s: %s is %s, %s", p.name, entry.Key, entry.State, entry.Causes))
			}
		}
	}
	return pending
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
