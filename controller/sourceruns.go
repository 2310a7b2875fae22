package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// sources are the sources of one term of a controller. They may be added and removed while
// the term lasts.
type sources struct {
	// Immutable after newSources.
	controller string
	guard      *usercode.Guard
	enqueue    func(source string) Enqueue // of the source of that name

	mu      sync.Mutex
	waiting []*sourceRun // guarded by mu; added before the term began
	// start makes a source active. launch runs it, and must be called without mu: it waits for
	// informers that are just ending, and calls the source. nil: the term is ending.
	start  func(r *sourceRun) (launch func()) // guarded by mu; nil before the term begins and after it has ended
	active []*sourceRun                       // guarded by mu; started, and not removed
	errs   []error                            // guarded by mu
	runs   sync.WaitGroup
}

// sourceRun is one source in one term.
type sourceRun struct {
	source Source
	name   string     // for errors
	reads  []Readable // the informers that it reads
	broken error      // why they are not known
	// Set when it is made active.
	stop  context.CancelFunc
	over  <-chan struct{} // closed when it is to end
	ended chan struct{}   // closed when it has run
	leave []func()        // of the informers that it reads; set before it runs
}

func newSources(controller string, guard *usercode.Guard, enqueue func(source string) Enqueue, all []Source) *sources {
	s := &sources{controller: controller, guard: guard, enqueue: enqueue}
	for i, source := range all {
		s.waiting = append(s.waiting, s.newRun(source, fmt.Sprintf("source %d (%T)", i, source)))
	}
	return s
}

// newRun returns a source that is to be run. Its method Reads is called here only.
func (s *sources) newRun(source Source, name string) *sourceRun {
	r := &sourceRun{source: source, name: name}
	r.broken = guardedRun(s.guard, "Reads of "+name, func() error {
		r.reads = readsOf(source)
		return nil
	})
	return r
}

// begin starts the sources under intake. Their informers run until leave, under background.
// A source that fails calls stopIntake.
func (s *sources) begin(intake, background context.Context, stopIntake func()) {
	s.mu.Lock()
	s.start = func(r *sourceRun) func() {
		if intake.Err() != nil {
			return nil
		}
		var ctx context.Context
		ctx, r.stop = context.WithCancel(intake)
		r.over = ctx.Done()
		r.ended = make(chan struct{})
		s.active = append(s.active, r)
		s.runs.Add(1)
		return func() {
			for _, read := range r.reads {
				r.leave = append(r.leave, read.Join(background))
			}
			enqueue := s.enqueue(nameOf(r.source))
			run := s.begun(ctx, r, enqueue)
			go func() { // waited for by wait, and by remove
				err := errSourceNoReturn
				defer s.runs.Done()
				defer close(r.ended)
				defer func() {
					if err != nil && ctx.Err() == nil {
						s.failed(fmt.Errorf("controller %q: %s: %w", s.controller, r.name, err))
						stopIntake()
					}
				}()
				err = guardedRun(s.guard, "Run of "+r.name, func() error { return run(ctx, enqueue) })
			}()
		}
	}
	var launches []func()
	for _, r := range s.waiting {
		if launch := s.start(r); launch != nil {
			launches = append(launches, launch)
		}
	}
	s.waiting = nil
	s.mu.Unlock()
	for _, launch := range launches {
		launch()
	}
}

func (s *sources) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// add starts a source, at once or when the term begins. remove ends it.
func (s *sources) add(source Source) (remove func()) {
	r := s.newRun(source, fmt.Sprintf("added source (%T)", source))
	s.mu.Lock()
	launch := func() {}
	if s.start == nil { // the term has not begun, or will not be there any more
		s.waiting = append(s.waiting, r)
	} else {
		launch = s.start(r)
	}
	s.mu.Unlock()
	if launch == nil {
		return func() {} // the term is ending
	}
	launch()
	return func() { s.remove(r) }
}

func (s *sources) remove(r *sourceRun) {
	is := func(other *sourceRun) bool { return other == r }
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, is)
	started := slices.ContainsFunc(s.active, is)
	ending := s.start == nil
	if started && !ending {
		s.active = slices.DeleteFunc(s.active, is)
		s.runs.Add(1) // for the informers, which the term's end must not outrun
		defer s.runs.Done()
	}
	s.mu.Unlock()
	if !started {
		return
	}
	r.stop()
	<-r.ended
	if ending {
		return // the term leaves the informers
	}
	for _, leave := range r.leave {
		leave()
	}
}

// reads returns the informers of all sources.
func (s *sources) reads() []Readable {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Readable
	for _, r := range slices.Concat(s.active, s.waiting) {
		all = append(all, r.reads...)
	}
	return all
}

// notReady says what sources that can tell lack.
func (s *sources) notReady() (errs []error) {
	s.mu.Lock()
	active := slices.Clone(s.active)
	s.mu.Unlock()
	for _, r := range active {
		if telling, ok := r.source.(interface{ Ready() error }); ok {
			if err := guardedRun(s.guard, "Ready of "+r.name, telling.Ready); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// waitSynced waits until the informers of all sources have listed, or ctx ends. It does not
// wait for a source that is removed meanwhile, whose informers nobody may run any more, nor for
// one that is added.
func (s *sources) waitSynced(ctx context.Context) error {
	s.mu.Lock()
	active := slices.Clone(s.active)
	s.mu.Unlock()
	for _, r := range active {
		if err := r.waitSynced(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitSynced waits until the informers of an active source have listed, or it is removed.
func (r *sourceRun) waitSynced(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	var removed sync.WaitGroup
	removed.Go(func() { // waited for below
		select {
		case <-r.over:
			cancel()
		case <-waiting.Done():
		}
	})
	defer removed.Wait()
	defer cancel()
	for _, read := range r.reads {
		if err := read.WaitSynced(waiting); err != nil && waiting.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// wait waits until all sources have ended, and returns what they failed with.
func (s *sources) wait() error {
	s.mu.Lock()
	s.start = nil // nothing is started from here on
	s.mu.Unlock()
	s.runs.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// leave ends the informers of the sources, which have ended.
func (s *sources) leave() {
	s.mu.Lock()
	active := s.active
	s.active = nil
	s.mu.Unlock()
	for _, r := range active {
		r.stop()
		for _, leave := range r.leave {
			leave()
		}
	}
}

// begun begins what can be begun at once, and returns what is left to run.
func (s *sources) begun(ctx context.Context, r *sourceRun, enqueue Enqueue) func(context.Context, Enqueue) error {
	if r.broken != nil {
		return func(context.Context, Enqueue) error { return r.broken }
	}
	if beginning, ok := r.source.(interface {
		Begin(enqueue Enqueue) (run func(ctx context.Context) error)
	}); ok {
		var run func(ctx context.Context) error
		err := guardedRun(s.guard, "Begin of "+r.name, func() error {
			run = beginning.Begin(enqueue)
			return nil
		})
		return func(ctx context.Context, _ Enqueue) error {
			if err != nil {
				return err
			}
			return run(ctx)
		}
	}
	starting, ok := r.source.(interface {
		Start(ctx context.Context, enqueue Enqueue) (stop func())
	})
	if !ok {
		return r.source.Run
	}
	var stop func()
	err := guardedRun(s.guard, "Start of "+r.name, func() error {
		stop = starting.Start(ctx, enqueue)
		return nil
	})
	if err != nil {
		return func(context.Context, Enqueue) error { return err }
	}
	return func(ctx context.Context, _ Enqueue) error {
		<-ctx.Done()
		stop()
		return nil
	}
}

func readsOf(source Source) []Readable {
	if reading, ok := source.(interface{ Reads() []Readable }); ok {
		return reading.Reads()
	}
	return nil
}

// nameOf returns what a source is called in causes and metrics.
func nameOf(source Source) string {
	if named, ok := source.(interface{ Name() string }); ok && named.Name() != "" {
		return named.Name()
	}
	return strings.TrimLeft(fmt.Sprintf("%T", source), "*")
}
