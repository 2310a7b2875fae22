package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

const (
	// restartDelay is the pause before components that have ended are restarted. maxRestarts limits the number of
	// consecutive restarts. A component that has run for steadyTime resets the count.
	restartDelay = time.Second
	maxRestarts  = 5
	steadyTime   = time.Minute

	// shortOutage is the longest outage of the API server after which controllers and nodes reconnect within seconds.
	// After a longer one their backoff is long, so they are restarted.
	shortOutage = 10 * time.Second
)

// reporter reports the cluster's progress to a person at a terminal or to a program.
type reporter interface {
	note(text string)
	ready(status)
}

// status describes a running cluster.
type status struct {
	Server     string         `json:"server,omitempty"`
	Second     string         `json:"secondServer,omitempty"` // URL of the second API server
	Dir        string         `json:"dir,omitempty"`
	Temporary  bool           `json:"temporary,omitempty"`
	Kubeconfig string         `json:"kubeconfig,omitempty"` // the administrator's
	Users      []userStatus   `json:"users,omitempty"`
	Processes  map[string]int `json:"processes,omitempty"` // pid by component
}

type userStatus struct {
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"`
}

// supervisor owns one cluster: its folder, its port and its processes. Only the goroutine that runs supervise may use
// it.
type supervisor struct {
	opts   options
	report reporter
	folder *folder
	pki    *pki

	processes    map[string]*process // those that should run
	ended        chan struct{}       // has an element after one of them has ended
	restarts     int                 // consecutive restarts
	restartTimer <-chan time.Time    // nil, or fires when ended components must be restarted
	killed       time.Time           // when the API server was last killed; zero: never
}

// supervise runs a cluster until ctx ends or a stop command arrives, and then returns nil. It returns an error if the
// cluster could not start or the API server ended by itself. All processes of the cluster have ended when it returns.
func supervise(ctx context.Context, opts options, report reporter, requests <-chan request) error {
	f, err := openFolder(opts)
	if err != nil {
		return err
	}
	defer f.close()
	port, release, err := reservePort(f.Port)
	if err != nil {
		return err
	}
	defer release()
	f.Port = port
	if opts.SecondServer {
		second, release, err := reservePort(0)
		if err != nil {
			return err
		}
		defer release()
		f.SecondPort = second
	}
	s := &supervisor{
		opts: opts, report: report, folder: f,
		processes: map[string]*process{}, ended: make(chan struct{}, 1),
	}
	defer s.stopAll()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	err = s.start(ctx)
	if err == nil {
		report.ready(s.status())
		err = s.run(ctx, requests)
	}
	if ctx.Err() != nil {
		return nil // stopped on request, possibly during the start
	}
	return err
}

// prepare writes all files that the components read.
func (s *supervisor) prepare(ctx context.Context) error {
	f := s.folder
	var err error
	if s.pki, err = openPKI(filepath.Join(f.path, "pki")); err != nil {
		return err
	}
	admin := user{Name: "admin", Groups: []string{mastersGroup}}
	if err := f.writeKubeconfig(s.pki, f.Kubeconfig, admin); err != nil {
		return err
	}
	if s.opts.Kubeconfig != "" {
		path, err := filepath.Abs(s.opts.Kubeconfig)
		if err != nil {
			return fmt.Errorf("finding --kubeconfig %s: %w", s.opts.Kubeconfig, err)
		}
		if err := mayOverwrite(ctx, path, s.pki.ca.certPEM); err != nil {
			return err
		}
		if err := f.writeKubeconfig(s.pki, path, admin); err != nil {
			return err
		}
		f.Kubeconfig = path // from here on cleanup may remove it
	}
	if err := f.moveUsers(); err != nil {
		return err
	}
	for _, name := range s.components() {
		if name == componentAPIServer || name == componentSecond {
			continue
		}
		u := user{Name: "system:localcluster:" + name, Groups: []string{mastersGroup}}
		if err := f.writeKubeconfig(s.pki, filepath.Join(f.path, "pki", name+".kubeconfig"), u); err != nil {
			return err
		}
	}
	for _, u := range s.opts.Users {
		if err := f.writeKubeconfig(s.pki, f.userKubeconfig(u.Name), u); err != nil {
			return err
		}
	}
	return f.save()
}

// components returns the components that should run, in the order of their start.
func (s *supervisor) components() []string {
	names := []string{componentAPIServer}
	if s.opts.SecondServer {
		names = append(names, componentSecond)
	}
	if s.opts.Controllers {
		names = append(names, componentController, componentScheduler)
	}
	if s.opts.Nodes > 0 {
		names = append(names, componentNodes)
	}
	return names
}

// start starts every component that does not run, and returns when all are ready. If components ran before or have old
// data, existing objects do not prove that they are ready, so each must process a new object.
func (s *supervisor) start(ctx context.Context) error {
	began := time.Now()
	first := s.killed.IsZero()
	if s.processes[componentAPIServer] == nil && !first && time.Since(s.killed) > shortOutage {
		for _, p := range s.processes {
			p.kill() // not stop: a component that is stopped removes a temporary folder
		}
		clear(s.processes)
	}
	if err := s.startMissing(componentAPIServer); err != nil {
		return err
	}
	if err := s.waitFor(ctx, componentAPIServer, apiServerReady); err != nil {
		return err
	}
	s.report.note(fmt.Sprintf("Kubernetes %s serves at %s after %v", kubernetesVersion(), s.folder.serverURL(),
		since(began)))
	if first && s.folder.kept {
		client, err := s.client()
		if err != nil {
			return err
		}
		if err := removeNodes(ctx, client, s.opts.Nodes); err != nil {
			return err
		}
	}
	if err := s.startMissing(s.components()...); err != nil {
		return err
	}
	if s.opts.SecondServer {
		if err := s.waitFor(ctx, componentSecond, s.secondReady); err != nil {
			return err
		}
		s.report.note(fmt.Sprintf("the second API server serves at %s after %v", urlOf(s.folder.SecondPort),
			since(began)))
	}
	if s.opts.Controllers {
		if err := s.waitFor(ctx, componentController, controllersAct(!first || s.folder.kept)); err != nil {
			return err
		}
		s.report.note(fmt.Sprintf("controllers are ready after %v", since(began)))
	}
	if s.opts.Nodes > 0 {
		if err := s.waitFor(ctx, componentNodes, nodesReady(s.opts.Nodes, began)); err != nil {
			return err
		}
		s.report.note(fmt.Sprintf("nodes are ready after %v: %d", since(began), s.opts.Nodes))
	}
	return nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// startMissing starts those of the components that do not run.
func (s *supervisor) startMissing(names ...string) error {
	for _, name := range names {
		if s.processes[name] != nil {
			continue
		}
		p, err := startProcess(s.folder, name, s.ended)
		if err != nil {
			return err
		}
		s.processes[name] = p
	}
	return nil
}

// run carries out requests and watches the processes.
func (s *supervisor) run(ctx context.Context, requests <-chan request) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ended:
			if err := s.removeEnded(""); err != nil {
				return err
			}
		case <-s.restartTimer:
			if err := s.restartEnded(); err != nil {
				return err
			}
		case r := <-requests:
			reply, err := s.do(ctx, r)
			reply.Event, reply.ID = "reply", r.ID
			if err != nil {
				reply.Error = err.Error()
			}
			r.reply(reply)
		}
	}
}

// removeEnded removes components that have ended by themselves, and schedules their restart. Two are not restarted: the
// API server, because clients should not meet a server that comes and goes, so its end ends the cluster; and waitedFor
// ("" for none), because it cannot start.
func (s *supervisor) removeEnded(waitedFor string) error {
	var fatal error
	for name, p := range s.processes {
		if !p.ended() {
			continue
		}
		if name == componentAPIServer {
			fatal = p.endError()
			notifyEnded(s.ended) // a start command replies with this error; run then ends the cluster with it
			continue
		}
		delete(s.processes, name)
		s.restartTimer = time.After(restartDelay)
		if time.Since(p.started) > steadyTime {
			s.restarts = 0
		}
		s.restarts++
		switch {
		case fatal != nil: // one reason is enough
		case s.restarts > maxRestarts:
			fatal = fmt.Errorf("giving up after %d restarts of components: %w", maxRestarts, p.endError())
		case name == waitedFor:
			fatal = p.endError()
		default:
			s.report.note(p.endError().Error() + "\nrestarting it")
		}
	}
	return fatal
}

func (s *supervisor) restartEnded() error {
	s.restartTimer = nil
	if s.processes[componentAPIServer] == nil {
		return nil // the start command starts them
	}
	return s.startMissing(s.components()...)
}

// do carries out one command.
func (s *supervisor) do(ctx context.Context, r request) (event, error) {
	switch r.Command {
	case "kill":
		if p := s.processes[componentAPIServer]; p != nil {
			delete(s.processes, componentAPIServer)
			p.kill()
			s.killed = time.Now()
		}
	case "start":
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		// This goroutine is not waited for: it ends with ctx when this function returns.
		go func() {
			select {
			case <-r.cancelled:
				cancel(errors.New("cancelled by a kill command"))
			case <-ctx.Done():
			}
		}()
		if err := s.start(ctx); err != nil {
			return event{}, err
		}
	case "compact":
		if err := s.compact(ctx); err != nil {
			return event{}, err
		}
	case "user":
		if r.Name == "" {
			return event{}, errors.New("the name of the user is empty")
		}
		content, err := s.folder.kubeconfigFor(s.pki, r.user)
		return event{Content: string(content)}, err
	case "status":
	default:
		return event{}, fmt.Errorf("unknown command %q", r.Command)
	}
	return event{status: s.status()}, nil
}

func (s *supervisor) status() status {
	st := status{
		Server: s.folder.serverURL(), Dir: s.folder.path, Temporary: s.folder.Temporary,
		Kubeconfig: s.folder.Kubeconfig, Processes: map[string]int{},
	}
	if s.opts.SecondServer {
		st.Second = urlOf(s.folder.SecondPort)
	}
	for _, u := range s.opts.Users {
		st.Users = append(st.Users, userStatus{Name: u.Name, Kubeconfig: s.folder.userKubeconfig(u.Name)})
	}
	for name, p := range s.processes {
		st.Processes[name] = p.cmd.Process.Pid
	}
	return st
}

// stopAll stops all components, the API server last: otherwise the others would fill their logs with connection errors.
func (s *supervisor) stopAll() {
	for _, name := range slices.Backward(s.components()) {
		if p := s.processes[name]; p != nil {
			p.stop()
		}
	}
}
