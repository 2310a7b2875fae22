package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

const (
	// readyInterval is the time between two checks of a group that starts.
	readyInterval = 20 * time.Millisecond
	// firstProgress is the time after which the log names what is not ready; the time doubles with each record.
	firstProgress = 2 * time.Second
)

// Run runs the manager until ctx ends, a signal arrives, or a Runnable fails whose policy is EndProcess. It may be
// called only once.
//
// Flow:
//  1. It starts Servers and Caches, waits until they are ready, starts Always, and waits until it is ready. What is not
//     ready after 2 s is logged. With a lease, it then competes for the lease until it leads. Then it starts
//     LeaderOnly. In each group the tasks run first.
//  2. At the end it cancels the contexts of one group after the other, in stop order, and waits until their runnables
//     have returned, at most for DrainTime and within ShutdownTimeout. During this time /readyz fails, and the servers
//     still run.
//  3. It releases the lease, so that another replica leads at once. It keeps the lease if a LeaderOnly Runnable, or a
//     handler of its controller, has not ended: the lease then expires, and the caller must end the process at once.
//
// Run joins all goroutines that it started, except those of runnables that did not return in time. The error names
// them, and the keys that their controllers handle.
//
// Errors: nil if ctx ended or a signal arrived and everything ended in time without an error. Otherwise it contains
// the error that ended the process, errors that runnables returned while they were stopped (not those that wrap
// context.Canceled), and the names of the runnables that did not end in time.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	first := m.phase == phaseNew
	if first {
		m.phase = phaseRunning
	}
	m.mu.Unlock()
	if !first {
		return errors.New("run manager: Run was already called")
	}
	if m.config.Listener != nil {
		defer func() { _ = m.config.Listener.Close() }() // if the shutdown began before the server did
	}
	stopSignals := m.handleSignals()
	defer stopSignals()
	contextEnded := func() { m.stop("context ended", nil) }
	if ctx.Err() != nil {
		contextEnded() // AfterFunc would call it in another goroutine, possibly late
	}
	defer context.AfterFunc(ctx, contextEnded)()

	// The groups' contexts keep the values of ctx, and end in stop order.
	groups := context.WithoutCancel(ctx)
	starting, stopStarting := context.WithCancel(groups)
	defer stopStarting()
	othersEnded := make(chan struct{})
	var started sync.WaitGroup
	started.Go(func() { m.start(starting, groups, othersEnded) }) // waited for below
	<-m.stopping
	m.mu.Lock()
	reason := m.reason
	m.mu.Unlock()
	m.logger.InfoContext(ctx, "manager stopping", "reason", reason)
	stopStarting()
	err := m.shutdown(groups, othersEnded, &started)
	m.mu.Lock()
	m.phase = phaseStopped
	m.mu.Unlock()
	if err != nil {
		m.logger.ErrorContext(ctx, "manager stopped", "reason", reason, "status", ExitStatus(err), "error", err)
		return err
	}
	m.logger.InfoContext(ctx, "manager stopped", "reason", reason, "status", ExitStatus(err))
	return nil
}

// stop begins the shutdown. err is nil unless Run must return it.
func (m *Manager) stop(reason string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopLocked(reason, err)
}

// stopLocked is stop with mu held.
func (m *Manager) stopLocked(reason string, err error) {
	if err != nil {
		m.failures = append(m.failures, err)
	}
	if m.phase >= phaseStopping {
		return
	}
	m.phase, m.reason = phaseStopping, reason
	close(m.stopping)
}

// start starts the groups in order. It returns when ctx ends, and has released the lease then.
func (m *Manager) start(ctx, groups context.Context, othersEnded <-chan struct{}) {
	if m.elector != nil {
		// That no process leads must be seen also while a group before LeaderOnly is not ready.
		defer apiobject.ObserveLeadership(apiobject.ObserversOf(m.config.LeaderElection.Cluster), m.elector.Status)()
	}
	if !m.startGroup(ctx, groups, Servers) || !m.wait(ctx, m.begunOf, Servers) {
		return
	}
	if !m.startGroup(ctx, groups, Caches) || !m.wait(ctx, m.startedOf, Servers, Caches) {
		return
	}
	if !m.startGroup(ctx, groups, Always) || !m.wait(ctx, m.startedOf, Always) {
		return
	}
	if m.elector == nil {
		m.startGroup(ctx, groups, LeaderOnly)
		return
	}
	err := m.elector.Run(ctx, func(ctx context.Context) error { return m.lead(ctx, othersEnded) })
	if err != nil && !errors.Is(err, leadership.ErrStillRunning) { // that is the error of a member
		m.stop("leader election failed", err)
	}
}

// lead is the work of one term. It returns when all members of LeaderOnly have ended, and in a shutdown also those of
// the other groups. The error is that of members that have returned although a handler still runs.
func (m *Manager) lead(ctx context.Context, othersEnded <-chan struct{}) error {
	m.startGroup(ctx, ctx, LeaderOnly)
	<-ctx.Done()
	// The members may not see the end of ctx before this call.
	m.stopGroup(LeaderOnly, context.Cause(ctx))
	overdue, _ := m.await(context.WithoutCancel(ctx), LeaderOnly)
	err := m.stillRunning()
	switch {
	case m.isStopping(): // shutdown reports them
	case len(overdue) > 0:
		m.stop("leadership lost", fmt.Errorf("leadership was lost, and runnables did not end in time: %s",
			m.describe(overdue)))
	case err != nil:
		m.stop("leadership lost", err)
	}
	// The election continues, or releases the lease, only after the end of all of them.
	for _, r := range m.membersOf(LeaderOnly) {
		if ended := m.endOf(r); ended != nil {
			<-ended
		}
	}
	if m.isStopping() {
		<-othersEnded
	}
	return m.stillRunning()
}

// stillRunning returns the errors of the LeaderOnly members that have returned although a handler still runs.
func (m *Manager) stillRunning() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := slices.Clone(m.kept)
	for _, r := range m.members {
		if r.Group == LeaderOnly && errors.Is(r.err, leadership.ErrStillRunning) {
			errs = append(errs, fmt.Errorf("runnable %q: %w", r.Name, r.err))
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) isStopping() bool {
	select {
	case <-m.stopping:
		return true
	default:
		return false
	}
}

// startGroup starts the members of a group with the context group, first its tasks, and lets members start that are
// added later. It returns false if ctx ends before the tasks.
func (m *Manager) startGroup(ctx, group context.Context, g Group) bool {
	m.startMembers(group, g, true)
	if !m.wait(ctx, m.doneOf, g) {
		return false
	}
	m.startMembers(group, g, false)
	return true
}

// startMembers starts the tasks of a group, or its other members. Of the members that are added later only tasks start
// at once, until the others were started.
func (m *Manager) startMembers(ctx context.Context, g Group, tasks bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != phaseRunning {
		return
	}
	m.starters[g] = func(r *member) {
		if r.Task || !tasks {
			m.startLocked(ctx, r)
		}
	}
	for _, r := range m.members {
		if r.Group == g && r.Task == tasks && !r.removed { // Remove may be about to forget one that has ended
			m.startLocked(ctx, r)
		}
	}
	if g == LeaderOnly && tasks {
		close(m.elected)
	}
}

// stopGroup cancels the contexts of the members of a group with a cause; nil means context.Canceled.
func (m *Manager) stopGroup(g Group, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starters[g] == nil {
		return
	}
	m.starters[g] = nil
	for _, r := range m.members {
		if r.Group == g && r.cancel != nil {
			r.cancel(cause)
		}
	}
	if g == LeaderOnly {
		m.elected = make(chan struct{})
	}
}

func (m *Manager) membersOf(g Group) []*member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.members), func(r *member) bool { return r.Group != g })
}

// endOf returns a channel that is closed at the end of a member; nil if it was not started.
func (m *Manager) endOf(r *member) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.ended
}

// await waits until the members of a stopped group have ended. late are those that have not ended within their
// DrainTime. cut are the others that have not ended when ctx ended.
func (m *Manager) await(ctx context.Context, g Group) (overdue, cut []*member) {
	begun := time.Now()
	for _, r := range m.membersOf(g) {
		ended := m.endOf(r)
		if ended == nil {
			continue
		}
		draining, cancel := context.WithTimeout(ctx, r.DrainTime-time.Since(begun))
		switch {
		case endsBefore(draining, ended):
		case ctx.Err() != nil:
			cut = append(cut, r)
		default:
			overdue = append(overdue, r)
		}
		cancel()
	}
	return overdue, cut
}

// endsBefore waits until ended is closed or ctx ends, and reports whether ended is closed.
func endsBefore(ctx context.Context, ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// shutdown stops all groups, and returns the error of Run.
func (m *Manager) shutdown(ctx context.Context, othersEnded chan<- struct{}, started *sync.WaitGroup) error {
	timeout := m.config.ShutdownTimeout
	total, cancelTotal := context.WithTimeout(ctx, timeout)
	defer cancelTotal()
	draining, cancelDraining := context.WithTimeout(ctx, timeout-timeout/10)
	defer cancelDraining()
	var overdue, cut []*member
	for g := LeaderOnly; g <= Servers; g++ {
		m.stopGroup(g, nil)
		groupLate, groupCut := m.await(draining, g)
		overdue, cut = append(overdue, groupLate...), append(cut, groupCut...)
	}
	close(othersEnded) // also if some have not: the lease is released in the last tenth
	for _, r := range cut {
		if !endsBefore(total, m.endOf(r)) {
			overdue = append(overdue, r)
		}
	}
	var errs []error
	if len(overdue) > 0 {
		errs = append(errs, fmt.Errorf("runnables did not end in time: %s", m.describe(overdue)))
	}
	released := make(chan struct{})
	go func() { // ends with the last LeaderOnly member
		started.Wait()
		close(released)
	}()
	isLeaderOnly := func(r *member) bool { return r.Group == LeaderOnly }
	if !slices.ContainsFunc(overdue, isLeaderOnly) && !endsBefore(total, released) {
		errs = append(errs, errors.New("the start or the release of the lease did not end in time"))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if errs = append(slices.Clone(m.failures), errs...); len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("run manager: %w", errors.Join(errs...))
}

// describe returns the names of members that have not ended, and what their Ready returns: a controller names the keys
// that it handles.
func (m *Manager) describe(members []*member) string {
	var all []string
	for _, r := range members {
		text := fmt.Sprintf("%q (%s)", r.Name, r.Group)
		if ready, ok := r.Runner.(readied); ok {
			// The shutdown does not wait for a check.
			if err := m.checked(r, r.Name, ready.Ready, readyInterval); err != nil {
				text += ": " + err.Error()
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// wait waits until check returns nil for all members of groups. It returns false if ctx ends first.
func (m *Manager) wait(ctx context.Context, check func(*member) error, groups ...Group) bool {
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	begun, progress := time.Now(), firstProgress
	for {
		var reasons []string
		for _, g := range groups {
			for _, r := range m.membersOf(g) {
				if err := check(r); err != nil {
					reasons = append(reasons, fmt.Sprintf("%s: %v", r.Name, err))
				}
			}
		}
		if len(reasons) == 0 {
			return ctx.Err() == nil
		}
		if waited := time.Since(begun); waited >= progress {
			m.logger.InfoContext(ctx, "start waits for runnables", "waited", waited, "not_ready", reasons)
			progress *= 2
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}
