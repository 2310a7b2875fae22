package controller

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
)

// Phase is a controller's lifecycle phase.
type Phase string

// The phases, in their order. They are label values of metrics.
const (
	// PhaseStopped: Run has not been called, or has returned.
	PhaseStopped Phase = "stopped"
	// PhaseStandby: another process leads.
	PhaseStandby Phase = "standby"
	// PhaseSyncing: the first list is under way.
	PhaseSyncing Phase = "syncing"
	// PhaseRunning: workers handle keys.
	PhaseRunning Phase = "running"
	// PhaseDraining: no new run starts; running handlers finish.
	PhaseDraining Phase = "draining"
)

// Stats are a controller's figures at one time.
type Stats struct {
	Phase Phase
	// Ready is the number of keys that are ready and wait for a worker.
	Ready int
	// ReadyByPriority are the parts of Ready. Priorities without ready keys may be missing.
	ReadyByPriority map[Priority]int
	// Delayed is the number of delayed keys: requeued or debounced.
	Delayed int
	// Processing is the number of keys that workers are processing. Workers is Config.Workers.
	Processing int
	Workers    int
	// UnfinishedRuns is the sum of the durations of the current runs so far. LongestRun is the longest of them.
	UnfinishedRuns time.Duration
	LongestRun     time.Duration
	// Backoff is the number of keys that failed and wait for their retry. Held is the number of keys that are held
	// back (see RunRecord.Held). Delayed includes neither.
	Backoff int
	Held    int
	// WaitingForRoom is the number of keys that were found by lists and polls and wait for room in the queue.
	WaitingForRoom int
	// OldestWait is how long the oldest ready key has waited for a worker.
	OldestWait time.Duration
	// Failing is the number of keys that failed in their last run. FailingSince is the time of the first failure of
	// the key that has failed for longest; zero if no key fails.
	Failing      int
	FailingSince time.Time
	// Problems is the number of active problems, by type.
	Problems map[ProblemType]int
}

// Stats returns the controller's figures.
func (c *Controller[T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Phase: c.phase, Workers: c.config.Workers}
	if c.loop != nil {
		q := c.loop.queue.Stats()
		s.Ready, s.Delayed, s.Backoff, s.Held, s.Processing = q.Ready, q.Delayed, q.Backoff, q.Held, q.Processing
		s.ReadyByPriority = map[Priority]int{
			PriorityLow: q.ReadyLow, PriorityNormal: q.ReadyNormal, PriorityHigh: q.ReadyHigh,
		}
		s.WaitingForRoom = c.loop.feeder.backlog.size()
		s.UnfinishedRuns, s.LongestRun = c.loop.pool.unfinished(time.Now())
		if !q.OldestReady.IsZero() {
			s.OldestWait = time.Since(q.OldestReady)
		}
		s.Failing, s.FailingSince = c.loop.failures.figures()
	}
	s.Problems = c.problems.counts()
	return s
}

// Ready returns nil if the controller works as it should: it runs with synced caches and live watches, or it stands
// by while another process leads, and the LeaderElector is ready then.
// Otherwise the error names what is missing, including the kind, the verb and the user of a refused request.
//
// Ready is suitable for a readiness probe; it makes no request. Controllers that one elector runs together do not run
// while their process stands by, and Ready then returns an error. The readiness probe of such a program
// must call leader.Elector.ReadyWith instead.
func (c *Controller[T]) Ready() error {
	phase, l := c.current()
	switch phase {
	case PhaseDraining:
		if l.pool.handled() != nil {
			return fmt.Errorf("controller %q is not ready: it is draining, %s have not returned", c.config.Name,
				l.pool.remaining())
		}
	case PhaseStandby:
		if err := c.config.LeaderElector.Ready(); err != nil {
			return fmt.Errorf("controller %q is not ready: %w", c.config.Name, err)
		}
		return nil
	case PhaseSyncing, PhaseRunning:
		errs := notReady(c.reads())
		if l != nil {
			errs = append(errs, l.sources.notReady()...)
		}
		if err := errors.Join(append(errs, c.stuck())...); err != nil {
			return fmt.Errorf("controller %q is not ready: %w", c.config.Name, err)
		}
		if phase == PhaseSyncing {
			return fmt.Errorf("controller %q is not ready: it is starting", c.config.Name)
		}
		return nil
	}
	if phase == PhaseStopped && c.config.LeaderElector == nil {
		return fmt.Errorf("controller %q is not ready: it is stopped: when an elector runs it together with others, "+
			"the probe has to ask leader.Elector.ReadyWith", c.config.Name)
	}
	return fmt.Errorf("controller %q is not ready: it is %s", c.config.Name, phase)
}

// stuck returns an error that names the stuck handlers if Config.Runs.UnreadyWhenStuck is set, or nil.
func (c *Controller[T]) stuck() error {
	if !c.config.Runs.UnreadyWhenStuck {
		return nil
	}
	var errs []error
	for _, t := range c.problems.all() {
		if t.Type == ProblemStuck {
			errs = append(errs, fmt.Errorf("the handler of %s has been running since %s", t.Key,
				t.Since.Format(time.RFC3339)))
		}
	}
	return errors.Join(errs...)
}

// readyAll returns the errors of notReady as one error.
func readyAll(informers []informer.Any) error { return errors.Join(notReady(informers)...) }

// notReady calls Ready of each informer once, even if several sources share it, and returns the errors.
func notReady(informers []informer.Any) (errs []error) {
	checked := map[informer.Any]bool{}
	for _, inf := range informers {
		if reflect.TypeOf(inf).Comparable() {
			if checked[inf] {
				continue
			}
			checked[inf] = true
		}
		if err := inf.Ready(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
