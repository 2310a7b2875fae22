package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/leader"
)

// Manager runs Runnables. New creates one. Managers in one process share nothing.
type Manager struct {
	// Immutable after New.
	config  Config
	logger  *slog.Logger
	guard   *usercode.Guard
	elector *leader.Elector // nil without a lease

	stopping chan struct{} // closed when the shutdown begins

	checksMu sync.Mutex
	checks   map[any]*checkCall // guarded by checksMu; in progress

	mu       sync.Mutex
	phase    phase                      // guarded by mu
	reason   string                     // guarded by mu; why the shutdown began
	failures []error                    // guarded by mu; that Run returns
	kept     []error                    // guarded by mu; of removed members of which a handler may still run, for good
	members  []*member                  // guarded by mu; in the order in which they were added
	starters [Servers + 1]func(*member) // guarded by mu; start a member of each group; nil unless it runs
	elected  chan struct{}              // guarded by mu; closed while LeaderOnly runs
}

// phase is the lifecycle phase of a Manager.
type phase int

const (
	phaseNew phase = iota
	phaseRunning
	phaseStopping
	phaseStopped
)

// New returns a Manager. It starts nothing and makes no request. The error lists every mistake in config.
func New(config Config) (*Manager, error) {
	config = config.withDefaults()
	errSecure := config.secure()
	m := &Manager{
		config: config, logger: config.Logger, guard: usercode.NewGuard(config.Logger),
		stopping: make(chan struct{}), elected: make(chan struct{}), checks: map[any]*checkCall{},
	}
	errs := []error{errSecure, config.validate()}
	if config.LeaderElection != nil {
		elector, err := leader.New(*config.LeaderElection)
		m.elector = elector
		errs = append(errs, err)
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenReview"},
		{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"},
	} {
		apiobject.ObserversOf(config.AuthorizeWith).Require(apiobject.Permission{Kind: kind, Verbs: []string{"create"}})
	}
	errs = append(errs, m.addServers(), m.Add(config.Runnables...))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("new manager: %w", err)
	}
	return m, nil
}

// Config returns the config with its defaults and those of Options. TLS is nil exactly if the server does not use TLS.
func (m *Manager) Config() Config {
	config := m.config
	if config.tls == nil {
		config.TLS = nil
	} else if config.TLS == nil {
		config.TLS = func(*tls.Config) {}
	}
	return config
}

// Add adds runnables, before or during Run. If their group runs already, they start at once. The error contains every
// mistake, and then none of them is added. It is also returned when the manager is stopping.
func (m *Manager) Add(runnables ...Runnable) error {
	var added []*member
	var errs []error
	for i, r := range runnables {
		r = r.withDefaults(m.config.ShutdownTimeout) // calls the Runner, so mu must not be held
		if err := r.validate(m.config.ShutdownTimeout); err != nil {
			errs = append(errs, fmt.Errorf("runnable %d (%q): %w", i, r.Name, err))
		}
		added = append(added, newMember(r))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	used := map[string]bool{}
	for _, r := range m.members {
		used[r.Name] = true
	}
	for _, r := range added {
		if used[r.Name] || m.config.Readiness[r.Name] != nil {
			errs = append(errs, fmt.Errorf("the name %q is already used", r.Name))
		}
		used[r.Name] = r.Name != ""
	}
	if m.phase >= phaseStopping {
		errs = append(errs, errors.New("the manager is stopping"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("add to the manager: %w", err)
	}
	m.members = append(m.members, added...)
	for _, r := range added {
		if start := m.starters[r.Group]; start != nil {
			start(r)
		}
	}
	return nil
}

// Remove removes a Runnable: it cancels its context, and waits until it has returned, its DrainTime is over, or ctx has
// ended. Its name can be used again after it has returned. A Runnable that removes itself must pass its own context.
//
// Errors: the manager has no such Runnable; it did not return in time; or the error that it returned.
func (m *Manager) Remove(ctx context.Context, name string) error {
	m.mu.Lock()
	i := slices.IndexFunc(m.members, func(r *member) bool { return r.Name == name })
	if i < 0 || slices.Contains(reserved(), name) {
		m.mu.Unlock()
		return fmt.Errorf("remove from the manager: it has no runnable %q", name)
	}
	r := m.members[i]
	r.removed = true
	if r.ended == nil {
		m.forgetLocked(r)
		m.mu.Unlock()
		return nil
	}
	ended := r.ended
	r.cancel(nil)
	m.mu.Unlock()
	timeout := time.NewTimer(r.DrainTime)
	defer timeout.Stop()
	select {
	case <-ended:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forgetLocked(r) // it may have ended before
		if r.err != nil {
			return fmt.Errorf("remove from the manager: runnable %q: %w", name, r.err)
		}
		return nil
	case <-timeout.C:
		return fmt.Errorf("remove from the manager: runnable %q did not end within %s", name, r.DrainTime)
	case <-ctx.Done():
		return fmt.Errorf("remove from the manager: runnable %q has not ended yet: %w", name, ctx.Err())
	}
}

// forgetLocked removes a member that does not run. If one of its handlers does, the lease is kept. mu must be held.
func (m *Manager) forgetLocked(r *member) {
	if !slices.Contains(m.members, r) {
		return
	}
	if r.Group == LeaderOnly && errors.Is(r.err, leadership.ErrStillRunning) {
		m.kept = append(m.kept, fmt.Errorf("runnable %q: %w", r.Name, r.err))
	}
	m.members = slices.DeleteFunc(m.members, func(other *member) bool { return other == r })
}

// Elected returns a channel that is closed when the group LeaderOnly starts: when this process leads, or without a
// lease when Always is ready. After a loss of leadership, Elected returns a new channel.
func (m *Manager) Elected() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elected
}

// Leadership returns the status of the lease. It is the zero Status without a lease.
func (m *Manager) Leadership() leader.Status {
	if m.elector == nil {
		return leader.Status{}
	}
	return m.elector.Status()
}

// ExitStatus returns the exit status of a process in which Run returned err: 0 for nil, otherwise 1.
func ExitStatus(err error) int {
	if err != nil {
		return 1
	}
	return 0
}
