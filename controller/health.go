package controller

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
)

// Phase is where a controller is in its life.
type Phase int

// The phases, in the order in which they follow each other.
const (
	// PhaseStopped: Run has not been called, or has returned.
	PhaseStopped Phase = iota
	// PhaseStandby: another process leads.
	PhaseStandby
	// PhaseSyncing: the first list is under way.
	PhaseSyncing
	// PhaseRunning: workers handle keys.
	PhaseRunning
	// PhaseDraining: no further key is begun, and handlers finish.
	PhaseDraining
)

// String returns the phase in a word.
func (p Phase) String() string {
	switch p {
	case PhaseStopped:
		return "stopped"
	case PhaseStandby:
		return "standby"
	case PhaseSyncing:
		return "syncing"
	case PhaseRunning:
		return "running"
	case PhaseDraining:
		return "draining"
	}
	return fmt.Sprintf("phase %d", int(p))
}

// Stats are a controller's figures at one moment.
type Stats struct {
	Phase Phase
	// Queued is how many keys are due and wait for a worker.
	Queued int
	// Waiting is how many keys wait for their time: requeues, and what is debounced.
	Waiting int
	// Busy is how many workers are handling a key; Workers is how many there are.
	Busy    int
	Workers int
	// BackOff is how many keys have failed and wait for their retry, and Held how many are kept
	// back (see Run.Held). Neither is among those that are Waiting.
	BackOff int
	Held    int
	// Found is how many keys lists and polls have found that wait for room in the queue.
	Found int
	// OldestWait is how long the key that has been due for longest waits for a worker.
	OldestWait time.Duration
	// Failing is how many keys have failed at their last run, and FailingSince when the one that
	// has failed for longest began to. Zero: none.
	Failing      int
	FailingSince time.Time
	// Problems is how many episodes of each type of problem last.
	Problems map[ProblemType]int
}

// Stats returns the controller's figures.
func (c *Controller[T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Phase: c.phase, Workers: c.config.Workers}
	if c.loop != nil {
		q := c.loop.queue.Stats()
		s.Queued, s.Waiting, s.BackOff, s.Held, s.Busy = q.Ready, q.Delayed, q.Backoff, q.Held, q.Processing
		s.Found = int(c.loop.backlog.n.Load())
		if !q.OldestReady.IsZero() {
			s.OldestWait = time.Since(q.OldestReady)
		}
		s.Failing, s.FailingSince = c.loop.failures.figures()
	}
	s.Problems = c.problems.counts()
	return s
}

// Ready returns nil when the controller does what it should: it works on a synced cache
// with a live watch, or stands by while another process leads (which its LeaderElector
// confirms, if that has a method Ready). Otherwise the error says
// what is missing, down to the kind, the verb and the user of a refused request.
//
// It suits a readiness probe; it makes no request. Controllers that are run in the work of one elector
// do not run while their process stands by, and Ready then says that they are stopped: the probe of such
// a program asks leader.Elector.ReadyWith.
func (c *Controller[T]) Ready() error {
	c.mu.Lock()
	phase := c.phase
	c.mu.Unlock()
	switch phase {
	case PhaseStandby:
		if elector, ok := c.config.LeaderElector.(interface{ Ready() error }); ok {
			if err := elector.Ready(); err != nil {
				return fmt.Errorf("controller %q is not ready: %w", c.config.Name, err)
			}
		}
		return nil
	case PhaseSyncing, PhaseRunning:
		if err := errors.Join(readyAll(c.reads()), c.sourcesReady(), c.stuck()); err != nil {
			return fmt.Errorf("controller %q is not ready: %w", c.config.Name, err)
		}
		if phase == PhaseSyncing {
			return fmt.Errorf("controller %q is not ready: it is starting", c.config.Name)
		}
		return nil
	}
	if phase == PhaseStopped && c.config.LeaderElector == nil {
		return fmt.Errorf("controller %q is not ready: it is stopped: when an elector runs it together with others, the probe has to ask leader.Elector.ReadyWith", c.config.Name)
	}
	return fmt.Errorf("controller %q is not ready: it is %s", c.config.Name, phase)
}

// sourcesReady says what the sources lack.
func (c *Controller[T]) sourcesReady() error {
	c.mu.Lock()
	l := c.loop
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	return errors.Join(l.sources.notReady()...)
}

// stuck names the handlers that are stuck, if that is to make the controller unready.
func (c *Controller[T]) stuck() error {
	if !c.config.Stuck.Unready {
		return nil
	}
	var errs []error
	for _, t := range c.problems.all() {
		if t.Type == ProblemStuck {
			errs = append(errs, fmt.Errorf("the handler of %s has been running since %s", t.Key, t.Since.Format(time.RFC3339)))
		}
	}
	return errors.Join(errs...)
}

// readyAll is notReady as one error.
func readyAll(informers []informer.Any) error { return errors.Join(notReady(informers)...) }

// notReady asks each informer once, however many sources share it, and returns what they lack.
func notReady(informers []informer.Any) (errs []error) {
	asked := map[informer.Any]bool{}
	for _, inf := range informers {
		if reflect.TypeOf(inf).Comparable() {
			if asked[inf] {
				continue
			}
			asked[inf] = true
		}
		if err := inf.Ready(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
