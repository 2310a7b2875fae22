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

// noteRecorder is a reporter that records its notes.
type noteRecorder struct{ notes []string }

func (q *noteRecorder) note(text string) { q.notes = append(q.notes, text) }

func (q *noteRecorder) ready(status) {}

// newSupervisor returns a supervisor with processes that seem to run. Those in ended have ended, and the supervisor has
// not noticed it yet.
func newSupervisor(t *testing.T, ended ...string) *supervisor {
	t.Helper()
	f, p := newFolder(t)
	if err := f.writeKubeconfig(p, filepath.Join(f.path, adminFile), user{Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	s := &supervisor{
		opts: options{Controllers: true, Nodes: 1, ReadyTimeout: time.Minute}, report: &noteRecorder{}, folder: f, pki: p,
		processes: map[string]*process{}, ended: make(chan struct{}, 1),
	}
	for _, name := range s.components() {
		s.processes[name] = &process{name: name, done: make(chan struct{}), started: time.Now()}
	}
	for _, name := range ended {
		close(s.processes[name].done)
		notifyEnded(s.ended)
	}
	return s
}

func TestComponentEndsDuringWait(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		waitedFor   string
		ended       []string
		wantErr     string
		wantRestart bool
	}{
		"another component":       {componentNodes, []string{componentScheduler}, "", true},
		"two other components":    {componentNodes, []string{componentScheduler, componentController}, "", true},
		"awaited component":       {componentNodes, []string{componentNodes}, "nodes ended by itself", true},
		"awaited and another one": {componentNodes, []string{componentNodes, componentScheduler}, "nodes ended by itself", true},
		"API server":              {componentNodes, []string{componentAPIServer}, "apiserver ended by itself", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSupervisor(t, test.ended...)
			err := s.waitFor(t.Context(), test.waitedFor, func(context.Context, kubernetes.Interface) error {
				if s.restartTimer == nil {
					return errors.New("the end was not noticed")
				}
				return nil
			})
			if (err != nil) != (test.wantErr != "") || (err != nil && !strings.HasPrefix(err.Error(), test.wantErr)) {
				t.Errorf("got %v, want %q", err, test.wantErr)
			}
			if (s.restartTimer != nil) != test.wantRestart {
				t.Errorf("restart planned: %v, want %v", s.restartTimer != nil, test.wantRestart)
			}
			for _, name := range test.ended {
				if p := s.processes[name]; p != nil && name != componentAPIServer {
					t.Errorf("%s has ended but still counts as running", name)
				}
			}
			if slices.Contains(test.ended, componentAPIServer) && len(s.ended) == 0 {
				t.Error("run would not notice the end of the API server")
			}
		})
	}
}

func TestSteadyTimeResetsRestartCount(t *testing.T) {
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
			for range maxRestarts + 1 {
				p := &process{name: componentScheduler, done: make(chan struct{}), started: time.Now().Add(-test.age)}
				close(p.done)
				s.processes[componentScheduler] = p
				err = s.removeEnded("")
			}
			if (err != nil) != test.wantErr {
				t.Errorf("got %v, want an error: %v", err, test.wantErr)
			}
		})
	}
}

func TestKillCancelsStart(t *testing.T) {
	t.Parallel()
	s := newSupervisor(t)
	cancelled := make(chan struct{})
	close(cancelled)
	_, err := s.do(t.Context(), request{command: command{Command: "start"}, cancelled: cancelled})
	if want := "waiting for apiserver: cancelled by a kill command"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := slices.Sorted(maps.Keys(s.processes)); len(got) != 4 {
		t.Errorf("processes are %v", got)
	}
}

func TestNotReadyErrorHasReasonOnce(t *testing.T) {
	t.Parallel()
	s := newSupervisor(t)
	s.opts.ReadyTimeout = 2 * readyPoll
	err := s.waitFor(t.Context(), componentNodes, func(ctx context.Context, _ kubernetes.Interface) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.New("nothing there")
	})
	want := "waiting for nodes: not ready within 100ms: nothing there; if the machine is slow, increase the ready timeout\n"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
