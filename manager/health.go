package manager

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/httpauth"
	"github.com/evenkeel-go/evenkeel/internal/httpserver"
)

// Names of the manager's own runnable and checks.
const (
	checkServer   = "http"
	checkProbes   = "probes"
	checkLease    = "leader-election"
	checkShutdown = "shutdown"
)

// shutdownShare is the part of ShutdownTimeout in which requests in progress may end. It fits into the last tenth,
// which the server has even if all other groups used their time.
const shutdownShare = 20

// check is a named check. ok is a note for ?verbose.
type check struct {
	name string
	err  error
	ok   string
}

// begunOf returns nil if a member was started.
func (m *Manager) begunOf(r *member) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.begun {
		return errors.New("not started yet")
	}
	return nil
}

// readyOf returns nil if a member is ready, or ended without the end of the process.
func (m *Manager) readyOf(r *member) error {
	if err := m.begunOf(r); err != nil {
		return err
	}
	m.mu.Lock()
	ended, restart, err, held := r.ended, r.restart, r.err, r.held
	m.mu.Unlock()
	if !restart.IsZero() {
		return fmt.Errorf("restart at %s after: %w", restart.Format(time.RFC3339), err)
	}
	select {
	case <-ended:
		return nil
	default:
	}
	switch {
	case r.Task && held != "":
		return fmt.Errorf("the task has not ended: %s", held)
	case r.Task:
		return errors.New("the task has not ended")
	}
	if ready, ok := r.Runner.(readied); ok {
		return m.checked(r, r.Name, ready.Ready, checkTimeout)
	}
	return nil
}

// doneOf returns nil if a member is not a task, has ended, or needs the members that wait for it.
func (m *Manager) doneOf(r *member) error {
	if !r.Task {
		return nil
	}
	return m.startedOf(r)
}

// startedOf returns nil if the start need not wait for a member: it is ready, a task that needs the members that wait
// for it, or an informer or a controller that has synced although it is not ready, because one namespace of several is
// forbidden.
func (m *Manager) startedOf(r *member) error {
	m.mu.Lock()
	started, held := r.started, r.held != ""
	m.mu.Unlock()
	switch {
	case held:
		return nil
	case started != nil:
		return m.checked(startCheck{r}, r.Name, started, checkTimeout)
	}
	return m.readyOf(r)
}

// startCheck identifies the check of a member that has synced.
type startCheck struct{ *member }

// checkTimeout is the time after which a check that has not returned counts as failed.
const checkTimeout = 5 * time.Second

// checkCall is a call of a check. err is valid when done is closed.
type checkCall struct {
	began time.Time
	done  chan struct{}
	err   error
}

// checked calls a check. A panic, the end of its goroutine, and a check that does not return are errors. Calls with the
// same key share one call of the check, so that one which never returns keeps one goroutine, and not one for each
// probe.
func (m *Manager) checked(key any, name string, check func() error, within time.Duration) error {
	m.checksMu.Lock()
	call := m.checks[key]
	if call == nil {
		call = &checkCall{began: time.Now(), done: make(chan struct{})}
		m.checks[key] = call
		go func() { // waited for below, at most for within
			call.err = m.guard.Try("check "+name, check)
			m.checksMu.Lock()
			defer m.checksMu.Unlock()
			delete(m.checks, key)
			close(call.done)
		}()
	}
	m.checksMu.Unlock()
	timeout := time.NewTimer(within - time.Since(call.began))
	defer timeout.Stop()
	select {
	case <-call.done:
		return call.err
	case <-timeout.C:
		return fmt.Errorf("the check has not returned for %s", time.Since(call.began).Round(time.Millisecond))
	}
}

// Ready returns nil if the lease and all runnables that must run on this replica now are ready. It suits a readiness
// probe, and is the content of /readyz. A standby replica is ready without its LeaderOnly runnables: a rolling update
// would never finish if it waited for them. During the shutdown, no replica is ready.
func (m *Manager) Ready() error {
	var errs []error
	for _, c := range m.readiness() {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, c.err))
		}
	}
	return errors.Join(errs...)
}

// readiness returns the checks of /readyz in a fixed order.
func (m *Manager) readiness() []check {
	m.mu.Lock()
	phase, members := m.phase, slices.Clone(m.members)
	m.mu.Unlock()
	var checks []check
	switch phase {
	case phaseNew:
		checks = append(checks, check{name: checkShutdown, err: errors.New("Run has not been called")})
	case phaseStopping, phaseStopped:
		checks = append(checks, check{name: checkShutdown, err: errors.New("the manager is stopping, or has stopped")})
	default:
		checks = append(checks, check{name: checkShutdown})
	}
	standby := false
	if m.elector != nil {
		status := m.elector.Status()
		standby = status.Standby
		checks = append(checks, check{name: checkLease, err: m.elector.Ready(), ok: leadershipText(status)})
	}
	for _, r := range members {
		if r.Group == LeaderOnly && standby {
			checks = append(checks, check{name: r.Name, ok: "standby"})
			continue
		}
		c := check{name: r.Name, err: m.readyOf(r)}
		m.mu.Lock()
		if c.err == nil && r.err != nil {
			c.ok = "failed, and is not needed: " + r.err.Error()
		}
		m.mu.Unlock()
		checks = append(checks, c)
	}
	return append(checks, m.custom("readiness", m.config.Readiness)...)
}

// customCheck identifies a check of the program.
type customCheck struct{ kind, name string }

// custom calls checks of the program.
func (m *Manager) custom(kind string, functions map[string]func() error) []check {
	var checks []check
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		err := m.checked(customCheck{kind, name}, name, functions[name], checkTimeout)
		checks = append(checks, check{name: name, err: err})
	}
	return checks
}

// serveChecks serves checks in the form of the API server's /readyz: "ok", or with ?verbose or after a failure one line
// for each check. ?exclude=NAME skips a check.
func serveChecks(checks func() []check) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		excluded := map[string]bool{}
		for _, name := range query["exclude"] {
			excluded[name] = true
		}
		var text strings.Builder
		failed := false
		for _, c := range checks() {
			switch skip := excluded[c.name]; {
			case skip:
				fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.name)
			case c.err != nil:
				failed = true
				fmt.Fprintf(&text, "[-]%s failed: %v\n", c.name, c.err)
			case c.ok != "":
				fmt.Fprintf(&text, "[+]%s ok (%s)\n", c.name, c.ok)
			default:
				fmt.Fprintf(&text, "[+]%s ok\n", c.name)
			}
			delete(excluded, c.name)
		}
		for _, name := range slices.Sorted(maps.Keys(excluded)) {
			fmt.Fprintf(&text, "warn: no check %q to exclude\n", name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch {
		case failed:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%s%s check failed\n", text.String(), strings.TrimPrefix(req.URL.Path, "/"))
		case query.Has("verbose"):
			fmt.Fprintf(w, "%s%s check passed\n", text.String(), strings.TrimPrefix(req.URL.Path, "/"))
		default:
			fmt.Fprintln(w, "ok")
		}
	}
}

// addServers adds the HTTP servers. The error lists mistakes in patterns and certificates.
func (m *Manager) addServers() error {
	config := m.config
	probes := http.NewServeMux()
	alive := serveChecks(func() []check { return m.custom("liveness", config.Liveness) })
	probes.HandleFunc("GET /livez", alive)
	probes.HandleFunc("GET /readyz", serveChecks(m.readiness))
	mux, settings := probes, httpserver.Config{
		Listen: config.Listen, Listener: config.Listener, CertFile: config.certFile, KeyFile: config.keyFile,
		TLS: config.tls,
	}
	var errs []error
	if config.ProbeListen != "" {
		mux = http.NewServeMux()
		errs = append(errs, m.addServer(checkProbes, httpserver.Config{
			Listen: config.ProbeListen, Listener: config.probes, Handler: probes,
		}))
	}
	if config.Handlers["GET /healthz"] == nil && config.Handlers["/healthz"] == nil || config.ProbeListen != "" {
		// Liveness probes in manifests from elsewhere ask it.
		probes.HandleFunc("GET /healthz", alive)
	}
	if !config.hasServer() {
		return errors.Join(errs...)
	}
	protect := func(handler http.Handler) http.Handler { return handler }
	protectDebug := onlyLoopback
	if config.AuthorizeWith != nil {
		filter, err := httpauth.New(config.AuthorizeWith, m.logger)
		if err != nil {
			return fmt.Errorf("AuthorizeWith: %w", err)
		}
		protect, protectDebug = filter.Protect, filter.Protect
	}
	mux.Handle("GET /debug", protectDebug(http.HandlerFunc(m.serveDebug)))
	mux.Handle("GET /debug/{name...}", protectDebug(http.HandlerFunc(m.serveDebugOf)))
	if config.Pprof {
		mux.Handle("GET /debug/pprof/{name}", protectDebug(http.HandlerFunc(serveProfile)))
	}
	settings.Handler = mux
	errs = append(errs, httpserver.Handle(mux, config.Handlers, protect), m.addServer(checkServer, settings))
	return errors.Join(errs...)
}

// addServer adds an HTTP server as a runnable.
func (m *Manager) addServer(name string, settings httpserver.Config) error {
	settings.ShutdownTimeout, settings.Logger = m.config.ShutdownTimeout/shutdownShare, m.logger
	server, err := httpserver.New(settings)
	m.members = append(m.members, newMember(Runnable{
		Name: name, Runner: server, Group: Servers, DrainTime: m.config.ShutdownTimeout,
	}))
	return err
}
