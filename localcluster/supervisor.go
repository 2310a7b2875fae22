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
	// reviveDelay is the pause before components that died are started again, and
	// maxRevivals how often in a row that is worth trying. One that has lived for
	// steadyTime begins a new row.
	reviveDelay = time.Second
	maxRevivals = 5
	steadyTime  = time.Minute

	// shortOutage is how long the controllers and nodes can be without a server and
	// find it again within seconds. After a longer one they look for it more and
	// more seldom, so they are started anew.
	shortOutage = 10 * time.Second
)

// reporter is told what happens: a person at a terminal or a program.
type reporter interface {
	note(text string)
	ready(status)
}

// status describes a cluster that runs.
type status struct {
	Server     string         `json:"server,omitempty"`
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

// supervisor owns one cluster: its folder, its port and its processes. All of it
// is owned by the goroutine that runs supervise.
type supervisor struct {
	opts   options
	report reporter
	folder *folder
	pki    *pki

	processes map[string]*process // those that should run
	ended     chan struct{}       // has an element after the end of any of them
	revivals  int                 // in a row
	revive    <-chan time.Time    // nil, or fires when to start what has died
	killed    time.Time           // when the API server was last killed; zero: never
}

// supervise runs a cluster until ctx is done or a stop command comes. It returns
// nil then, and an error if the cluster could not start or the API server ended
// by itself. Nothing of the cluster runs any more when it returns.
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
		return nil // told to end, at whatever point that was
	}
	return err
}

// prepare writes everything that the components read.
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
		f.Kubeconfig = path // from here on the clean-up may remove it
	}
	if err := f.moveUsers(); err != nil {
		return err
	}
	for _, name := range s.components()[1:] {
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

// components lists what should run, in the order of starting.
func (s *supervisor) components() []string {
	names := []string{componentAPIServer}
	if s.opts.Controllers {
		names = append(names, componentController, componentScheduler)
	}
	if s.opts.Nodes > 0 {
		names = append(names, componentNodes)
	}
	return names
}

// start starts every component that does not run and returns when all are ready.
// For those that ran before, or have data from an earlier run, that takes a sign
// of life from now: the state of objects is from then.
func (s *supervisor) start(ctx context.Context) error {
	began := time.Now()
	first := s.killed.IsZero()
	if s.processes[componentAPIServer] == nil && !first && time.Since(s.killed) > shortOutage {
		for _, p := range s.processes {
			p.kill() // not stop: components that are told to end take a temporary folder with them
		}
		clear(s.processes)
	}
	if err := s.startMissing(componentAPIServer); err != nil {
		return err
	}
	if err := s.waitFor(ctx, componentAPIServer, apiServerReady); err != nil {
		return err
	}
	s.report.note(fmt.Sprintf("Kubernetes %s serves at %s after %v", kubernetesVersion(), s.folder.serverURL(), since(began)))
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

// run answers requests and watches the processes.
func (s *supervisor) run(ctx context.Context, requests <-chan request) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ended:
			if err := s.buryDead(""); err != nil {
				return err
			}
		case <-s.revive:
			if err := s.reviveDead(); err != nil {
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

// buryDead looks which components have ended without having been asked to. They
// are started again in a moment, but for two: the API server, whose end is the
// cluster's, since clients should not meet a server that comes and goes; and the
// one that is waited for ("": none), which cannot start.
func (s *supervisor) buryDead(waitedFor string) error {
	var fatal error
	for name, p := range s.processes {
		if !p.ended() {
			continue
		}
		if name == componentAPIServer {
			fatal = p.died()
			lookAgain(s.ended) // in a start command this error is its answer, and then the cluster's end
			continue
		}
		delete(s.processes, name)
		s.revive = time.After(reviveDelay)
		if time.Since(p.started) > steadyTime {
			s.revivals = 0
		}
		s.revivals++
		switch {
		case fatal != nil: // one reason is enough
		case s.revivals > maxRevivals:
			fatal = fmt.Errorf("giving up after %d restarts of components: %w", maxRevivals, p.died())
		case name == waitedFor:
			fatal = p.died()
		default:
			s.report.note(p.died().Error() + "\nit is started again")
		}
	}
	return fatal
}

func (s *supervisor) reviveDead() error {
	s.revive = nil
	if s.processes[componentAPIServer] == nil {
		return nil // the start command will do it
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
		// Nobody waits for this goroutine: it ends with ctx, as this function returns.
		go func() {
			select {
			case <-r.overtaken:
				cancel(errors.New("a kill command came"))
			case <-ctx.Done():
			}
		}()
		if err := s.start(ctx); err != nil {
			return event{}, err
		}
	case "user":
		if r.Name == "" {
			return event{}, errors.New("a user needs a name")
		}
		content, err := s.folder.kubeconfigFor(s.pki, r.user)
		return event{Content: string(content)}, err
	case "status":
	default:
		return event{}, fmt.Errorf("no command %q", r.Command)
	}
	return event{status: s.status()}, nil
}

func (s *supervisor) status() status {
	st := status{
		Server: s.folder.serverURL(), Dir: s.folder.path, Temporary: s.folder.Temporary,
		Kubeconfig: s.folder.Kubeconfig, Processes: map[string]int{},
	}
	for _, u := range s.opts.Users {
		st.Users = append(st.Users, userStatus{Name: u.Name, Kubeconfig: s.folder.userKubeconfig(u.Name)})
	}
	for name, p := range s.processes {
		st.Processes[name] = p.cmd.Process.Pid
	}
	return st
}

// stopAll ends all components, the API server last: the others would only fill
// their logs with its absence.
func (s *supervisor) stopAll() {
	for _, name := range slices.Backward(s.components()) {
		if p := s.processes[name]; p != nil {
			p.stop()
		}
	}
}
