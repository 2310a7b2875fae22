package controller

import (
	"errors"
	"fmt"
	"reflect"
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
	// Waiting is how many keys wait for their time: retries, requeues, resyncs.
	Waiting int
	// Busy is how many workers are handling a key; Workers is how many there are.
	Busy    int
	Workers int
}

// Stats returns the controller's figures.
func (c *Controller[T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Phase: c.phase, Workers: c.config.Workers}
	if c.loop != nil {
		q := c.loop.queue.Stats()
		s.Queued, s.Waiting, s.Busy = q.Ready, q.Waiting, q.Taken
	}
	return s
}

// Ready returns nil when the controller does what it should: it works on a synced cache
// with a live watch, or stands by while another process leads (which its LeaderElector
// confirms, if that has a method Ready). Otherwise the error says
// what is missing, down to the kind, the verb and the user of a refused request.
//
// It suits a readiness probe; it makes no request.
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
		if err := readyAll(c.reads()); err != nil {
			return fmt.Errorf("controller %q is not ready: %w", c.config.Name, err)
		}
		if phase == PhaseSyncing {
			return fmt.Errorf("controller %q is not ready: it is starting", c.config.Name)
		}
		return nil
	}
	return fmt.Errorf("controller %q is not ready: it is %s", c.config.Name, phase)
}

// readyAll asks each informer once, however many sources share it.
func readyAll(informers []Readable) error {
	var errs []error
	asked := map[Readable]bool{}
	for _, inf := range informers {
		if reflect.TypeOf(inf).Comparable() {
			if asked[inf] {
				continue
			}
			asked[inf] = true
		}
		errs = append(errs, inf.Ready())
	}
	return errors.Join(errs...)
}
