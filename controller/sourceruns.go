package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// sources are the sources of one term of a controller. Sources may be added and removed during the term.
type sources struct {
	// Immutable after newSources.
	controller string
	guard      *usercode.Guard
	enqueue    func(source *namedSource) Enqueue // for that source

	mu      sync.Mutex
	waiting []*sourceRun // guarded by mu; added before the term started
	// start makes a source active. join runs its informers, and then launch runs the source. Both must be called
	// without mu, because they wait for informers that are ending and call the source. They are nil if the term is
	// ending.
	start  func(r *sourceRun) (join, launch func()) // guarded by mu; nil before the term starts and after it has ended
	active []*sourceRun                             // guarded by mu; started, and not removed
	errs   []error                                  // guarded by mu
	runs   sync.WaitGroup
}

// namedSource is a prepared source and its name in errors.
type namedSource struct {
	PreparedSource
	label string
}

// prepare prepares a source for the controller.
func (c *Controller[T]) prepare(source Source, label string) (*namedSource, error) {
	if usercode.IsNil(source) {
		return nil, errors.New("is nil")
	}
	target := Target{
		Controller: c.config.Name, Logger: c.config.Logger.With("controller", c.config.Name),
	}
	if c.informer != nil {
		target.Kind = c.informer.Kind()
	}
	s := &namedSource{label: label}
	err := c.guard.Try("Prepare of "+label, func() (err error) {
		s.PreparedSource, err = source.Prepare(target)
		return err
	})
	s.Name = cmp.Or(s.Name, strings.TrimLeft(fmt.Sprintf("%T", source), "*"))
	switch {
	case err != nil:
	case s.Name == SourceSelf || s.Name == SourceLoop:
		err = fmt.Errorf("has the name %q, which is reserved for the controller's own causes", s.Name)
	case (s.Run == nil) == (s.Start == nil):
		err = errors.New("must set exactly one of PreparedSource.Run and Start")
	}
	if err != nil {
		return nil, fmt.Errorf("(%T): %w", source, err)
	}
	s.Reads = slices.Clone(s.Reads)
	return s, nil
}

// sourceRun is one source in one term.
type sourceRun struct {
	*namedSource
	// late is true for a source that was added after the first term had begun: no term waits for it.
	late bool
	// Set when the source becomes active.
	stop   context.CancelFunc
	over   <-chan struct{} // closed when it must end
	joined chan struct{}   // closed when leave is set
	ended  chan struct{}   // closed when the source has ended
	leave  []func()        // of the informers that it reads; set before the source starts
	// launched is true when Start or Run is called, or will be. A source that was removed before is not launched.
	launched bool // guarded by sources.mu
	// starts is true while Start is called.
	starts atomic.Bool
}

func newSources(
	controller string, guard *usercode.Guard, enqueue func(source *namedSource) Enqueue, all []*namedSource,
) *sources {
	s := &sources{controller: controller, guard: guard, enqueue: enqueue}
	for _, source := range all {
		s.waiting = append(s.waiting, &sourceRun{namedSource: source})
	}
	return s
}

// begin starts the sources under intake. Their informers run until leave, under background. A source that fails calls
// stopIntake.
func (s *sources) begin(intake, background context.Context, stopIntake func()) {
	s.mu.Lock()
	s.start = func(r *sourceRun) (join, launch func()) {
		if intake.Err() != nil {
			return nil, nil
		}
		var ctx context.Context
		ctx, r.stop = context.WithCancel(intake)
		r.over = ctx.Done()
		r.joined, r.ended = make(chan struct{}), make(chan struct{})
		s.active = append(s.active, r)
		s.runs.Add(1)
		join = func() {
			for _, read := range r.Reads {
				r.leave = append(r.leave, read.Join(background))
			}
			close(r.joined)
		}
		launch = func() {
			if !s.launches(r) {
				s.runs.Done()
				return
			}
			end := func(err error) {
				defer s.runs.Done()
				defer close(r.ended)
				if err != nil && ctx.Err() == nil {
					s.mu.Lock()
					s.errs = append(s.errs, fmt.Errorf("controller %q: %s: %w", s.controller, r.label, err))
					s.mu.Unlock()
					stopIntake()
				}
			}
			run, err := s.launch(ctx, r, s.enqueue(r.namedSource))
			if err != nil || run == nil {
				end(err) // before a handler is called
				return
			}
			go func() { end(s.guard.Try("Run of "+r.label, run)) }() // waited for by wait, and by remove
		}
		return join, launch
	}
	var joins, launches []func()
	for _, r := range s.waiting {
		join, launch := s.start(r)
		if launch == nil {
			continue
		}
		if r.late {
			launchLate := launch
			launch = func() { go launchLate() } // waited for by wait
		}
		joins, launches = append(joins, join), append(launches, launch)
	}
	s.waiting = nil
	s.mu.Unlock()
	// All informers list while a source waits in Start.
	for _, call := range slices.Concat(joins, launches) {
		call()
	}
}

// launches sets r.launched unless r was removed, and returns it.
func (s *sources) launches(r *sourceRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.launched = slices.Contains(s.active, r)
	return r.launched
}

// add starts a source: at once, or when the term starts, which waits for it unless late is true. remove ends it.
func (s *sources) add(source *namedSource, late bool) (remove func()) {
	r := &sourceRun{namedSource: source, late: late}
	s.mu.Lock()
	join, launch := func() {}, func() {}
	if s.start == nil { // the term has not started, or has ended
		s.waiting = append(s.waiting, r)
	} else {
		join, launch = s.start(r)
	}
	s.mu.Unlock()
	if launch == nil {
		return func() {} // the term is ending
	}
	join()
	launch()
	return func() { s.remove(r) }
}

func (s *sources) remove(r *sourceRun) {
	same := func(other *sourceRun) bool { return other == r }
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, same)
	started := slices.ContainsFunc(s.active, same)
	ending, launched := s.start == nil, r.launched
	if started && !ending {
		s.active = slices.DeleteFunc(s.active, same)
		s.runs.Add(1) // the end of the term must wait until the informers are left
		defer s.runs.Done()
	}
	s.mu.Unlock()
	if !started {
		return
	}
	r.stop()
	if launched {
		<-r.ended
	} else { // an earlier source waits in Start
		<-r.joined
	}
	if ending {
		return // the term leaves the informers
	}
	for _, leave := range r.leave {
		leave()
	}
}

// reads returns the informers of all sources.
func (s *sources) reads() []informer.Any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []informer.Any
	for _, r := range slices.Concat(s.active, s.waiting) {
		all = append(all, r.Reads...)
	}
	return all
}

// notReady returns the errors of the sources that have a Ready function.
func (s *sources) notReady() (errs []error) {
	for _, r := range s.started() {
		if err := s.ready(r); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// started returns the sources that were started and not removed.
func (s *sources) started() []*sourceRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active)
}

// ready calls the Ready function of a source, if it has one.
func (s *sources) ready(r *sourceRun) error {
	if r.Ready == nil {
		return nil
	}
	return s.guard.Try("Ready of "+r.label, r.Ready)
}

// unread reports whether a source may have keys that it does not list, because it cannot read its objects.
func (s *sources) unread() bool {
	return len(s.notReady()) > 0 || slices.ContainsFunc(s.reads(), func(read informer.Any) bool {
		return !cache.Of(read).Absent(kube.Key{})
	})
}

// starting returns an error for each source whose Start has not returned.
func (s *sources) starting() error {
	var errs []error
	for _, r := range s.started() {
		if r.starts.Load() {
			errs = append(errs, cmp.Or(s.ready(r), fmt.Errorf("%s has not started", r.label)))
		}
	}
	return errors.Join(errs...)
}

// waitSynced waits until the informers of the controller's own sources have synced, or ctx ends. It does not wait for a
// source that is removed during the wait, because its informers may not run then, nor for one that was added late.
func (s *sources) waitSynced(ctx context.Context) error {
	for _, r := range s.started() {
		if r.late {
			continue
		}
		if err := r.waitSynced(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitSynced waits until the informers of an active source have synced, or the source is removed.
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
	for _, read := range r.Reads {
		if err := read.WaitSynced(waiting); err != nil && waiting.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// wait waits until all sources have ended, and returns their errors.
func (s *sources) wait() error {
	s.mu.Lock()
	s.start = nil // no source is started from here on
	s.mu.Unlock()
	s.runs.Wait()
	return s.err()
}

// err returns the errors of the sources.
func (s *sources) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// remaining returns the sources that have not ended.
func (s *sources) remaining() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := []string{}
	for _, r := range s.active {
		select {
		case <-r.ended:
		default:
			names = append(names, r.label)
		}
	}
	return strings.Join(names, ", ")
}

// leave leaves the informers of the sources. The sources must have ended, but begin may still join informers if the
// time of the term's end is over.
func (s *sources) leave() {
	s.mu.Lock()
	active := s.active
	s.active = nil
	s.mu.Unlock()
	for _, r := range active {
		r.stop()
		<-r.joined
		for _, leave := range r.leave {
			leave()
		}
	}
}

// launch starts a source, and returns the function that runs it.
func (s *sources) launch(ctx context.Context, r *sourceRun, enqueue Enqueue) (run func() error, err error) {
	if r.Start == nil {
		return func() error { return r.Run(ctx, enqueue) }, nil
	}
	r.starts.Store(true)
	defer r.starts.Store(false)
	err = s.guard.Try("Start of "+r.label, func() (err error) {
		run, err = r.Start(ctx, enqueue)
		return err
	})
	return run, err
}
