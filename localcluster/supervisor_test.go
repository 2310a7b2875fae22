package main

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
)

// quiet is a reporter that keeps what it is told.
type quiet struct{ notes []string }

func (q *quiet) note(text string) { q.notes = append(q.notes, text) }

func (q *quiet) ready(status) {}

// newSupervisor returns one whose components run, on paper, but for the dead ones,
// whose end nobody has seen yet.
func newSupervisor(t *testing.T, dead ...string) *supervisor {
	t.Helper()
	f, p := newFolder(t)
	if err := f.writeKubeconfig(p, filepath.Join(f.path, adminFile), user{Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	s := &supervisor{
		opts: options{Controllers: true, Nodes: 1, ReadyTimeout: time.Minute}, report: &quiet{}, folder: f, pki: p,
		processes: map[string]*process{}, ended: make(chan struct{}, 1),
	}
	for _, name := range s.components() {
		s.processes[name] = &process{name: name, done: make(chan struct{}), started: time.Now()}
	}
	for _, name := range dead {
		close(s.processes[name].done)
		lookAgain(s.ended)
	}
	return s
}

func TestDeathDuringAWait(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		waitedFor   string
		dead        []string
		wantErr     string
		wantRevival bool
	}{
		"of another component":        {componentNodes, []string{componentScheduler}, "", true},
		"of two others":               {componentNodes, []string{componentScheduler, componentController}, "", true},
		"of the one that is awaited":  {componentNodes, []string{componentNodes}, "nodes ended by itself", true},
		"of that one and another one": {componentNodes, []string{componentNodes, componentScheduler}, "nodes ended by itself", true},
		"of the API server":           {componentNodes, []string{componentAPIServer}, "apiserver ended by itself", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSupervisor(t, test.dead...)
			err := s.waitFor(t.Context(), test.waitedFor, func(context.Context, kubernetes.Interface) error {
				if s.revive == nil {
					return errors.New("nobody has seen the death")
				}
				return nil
			})
			if (err != nil) != (test.wantErr != "") || (err != nil && !strings.HasPrefix(err.Error(), test.wantErr)) {
				t.Errorf("got %v, want %q", err, test.wantErr)
			}
			if (s.revive != nil) != test.wantRevival {
				t.Errorf("revival: %v, want %v", s.revive != nil, test.wantRevival)
			}
			for _, name := range test.dead {
				if p := s.processes[name]; p != nil && name != componentAPIServer {
					t.Errorf("the dead %s still counts as running", name)
				}
			}
			if slices.Contains(test.dead, componentAPIServer) && len(s.ended) == 0 {
				t.Error("the end of the API server is not to be seen by run")
			}
		})
	}
}

func TestRevivalsThatAreFarApartDoNotAddUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age     time.Duration
		wantErr bool
	}{
		"in a row":  {time.Second, true},
		"far apart": {2 * steadyTime, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSupervisor(t)
			var err error
			for range maxRevivals + 1 {
				p := &process{name: componentScheduler, done: make(chan struct{}), started: time.Now().Add(-test.age)}
				close(p.done)
				s.processes[componentScheduler] = p
				err = s.buryDead("")
			}
			if (err != nil) != test.wantErr {
				t.Errorf("got %v, want an error: %v", err, test.wantErr)
			}
		})
	}
}

func TestStartIsOvertaken(t *testing.T) {
	t.Parallel()
	s := newSupervisor(t)
	overtaken := make(chan struct{})
	close(overtaken)
	_, err := s.do(t.Context(), request{command: command{Command: "start"}, overtaken: overtaken})
	if want := "waiting for apiserver: a kill command came"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := slices.Sorted(maps.Keys(s.processes)); len(got) != 4 {
		t.Errorf("processes are %v", got)
	}
}

func TestNotReadyTellsTheReasonOnce(t *testing.T) {
	t.Parallel()
	s := newSupervisor(t)
	s.opts.ReadyTimeout = 2 * readyPoll
	err := s.waitFor(t.Context(), componentNodes, func(ctx context.Context, _ kubernetes.Interface) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.New("nothing there")
	})
	want := "waiting for nodes: not ready within 100ms: nothing there; where the machine is only slow, raise the ready timeout\n"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
