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
	// maxRevivals how often that is worth trying.
	reviveDelay = time.Second
	maxRevivals = 5
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
	Kubeconfig string         `json:"kubeconfig,omitempty"` // the administrator's; in a reply to "user", that user's
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
	revivals  int                 // since the API server was last started
	revive    <-chan time.Time    // nil, or fires when to start what has died
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
	if err := s.prepare(); err != nil {
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
func (s *supervisor) prepare() error {
	f := s.folder
	var err error
	if s.pki, err = openPKI(filepath.Join(f.path, "pki")); err != nil {
		return err
	}
	path := f.Kubeconfig
	if s.opts.Kubeconfig != "" {
		if path, err = filepath.Abs(s.opts.Kubeconfig); err != nil {
			return fmt.Errorf("finding --kubeconfig %s: %w", s.opts.Kubeconfig, err)
		}
	}
	if err := f.writeKubeconfig(s.pki, path, user{Name: "admin", Groups: []string{mastersGroup}}); err != nil {
		return err
	}
	f.Kubeconfig = path // from here on the clean-up may remove it
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
func (s *supervisor) start(ctx context.Context) error {
	s.revivals = 0
	began := time.Now()
	for i, name := range s.components() {
		if s.processes[name] != nil {
			continue
		}
		if err := s.startOne(name); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		if err := s.waitFor(ctx, "kube-apiserver", apiServerReady); err != nil {
			return err
		}
		s.report.note(fmt.Sprintf("Kubernetes %s serves at %s after %v", kubernetesVersion(), s.folder.serverURL(), since(began)))
	}
	if s.opts.Controllers {
		if err := s.waitFor(ctx, "kube-controller-manager", defaultServiceAccount); err != nil {
			return err
		}
		s.report.note(fmt.Sprintf("controllers are ready after %v", since(began)))
	}
	if s.opts.Nodes > 0 {
		if err := s.waitFor(ctx, "the nodes", nodesReady(s.opts.Nodes)); err != nil {
			return err
		}
		s.report.note(fmt.Sprintf("%d nodes are ready after %v", s.opts.Nodes, since(began)))
	}
	return nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

func (s *supervisor) startOne(name string) error {
	p, err := startProcess(s.folder, name, s.ended)
	if err != nil {
		return err
	}
	s.processes[name] = p
	return nil
}

// run answers requests and watches the processes.
func (s *supervisor) run(ctx context.Context, requests <-chan request) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ended:
			if err := s.buryDead(); err != nil {
				return err
			}
		case <-s.revive:
			s.revive = nil
			if err := s.reviveDead(); err != nil {
				return err
			}
		case r := <-requests:
			if r.Command == "stop" {
				return nil
			}
			reply, err := s.do(ctx, r.command)
			reply.Event, reply.ID = "reply", r.ID
			if err != nil {
				reply.Error = err.Error()
			}
			r.reply(reply)
		}
	}
}

// buryDead looks which components have ended without having been asked to. They
// are started again in a moment, all but the API server: its end is the
// cluster's, since clients should not meet a server that comes and goes.
func (s *supervisor) buryDead() error {
	for name, p := range s.processes {
		select {
		case <-p.done:
		default:
			continue
		}
		if name == componentAPIServer {
			return p.died()
		}
		delete(s.processes, name)
		s.revivals++
		if s.revivals > maxRevivals {
			return fmt.Errorf("giving up after %d restarts of components: %w", maxRevivals, p.died())
		}
		s.report.note(p.died().Error() + "\nit is started again")
		s.revive = time.After(reviveDelay)
	}
	return nil
}

func (s *supervisor) reviveDead() error {
	if s.processes[componentAPIServer] == nil {
		return nil // the start command will do it
	}
	for _, name := range s.components() {
		if s.processes[name] == nil {
			if err := s.startOne(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// do carries out one command.
func (s *supervisor) do(ctx context.Context, c command) (event, error) {
	switch c.Command {
	case "kill":
		if p := s.processes[componentAPIServer]; p != nil {
			delete(s.processes, componentAPIServer)
			p.kill()
		}
	case "start":
		if err := s.start(ctx); err != nil {
			return event{}, err
		}
	case "user":
		path := s.folder.userKubeconfig(c.Name)
		if c.Name == "" {
			return event{}, errors.New("a user needs a name")
		}
		if err := s.folder.writeKubeconfig(s.pki, path, c.user); err != nil {
			return event{}, err
		}
		return event{status: status{Kubeconfig: path}}, nil
	case "status":
	default:
		return event{}, fmt.Errorf("no command %q", c.Command)
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
