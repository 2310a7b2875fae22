package localcluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// stopTimeout is the time in which the supervisor must end all components (at most 5 s each). Then it is killed.
const stopTimeout = 30 * time.Second

// command and event are the protocol of "localcluster up --control": commands on stdin and events on stdout, one JSON
// object per line. control.go of the binary describes it.
type command struct {
	ID      int      `json:"id"`
	Command string   `json:"command"`
	Name    string   `json:"name,omitempty"`
	Groups  []string `json:"groups,omitempty"`
}

type event struct {
	Event      string         `json:"event"`
	ID         int            `json:"id"`
	Message    string         `json:"message"`
	Error      string         `json:"error"`
	Second     string         `json:"secondServer"` // URL
	Dir        string         `json:"dir"`
	Kubeconfig string         `json:"kubeconfig"`
	Content    string         `json:"content"` // a user's kubeconfig
	Processes  map[string]int `json:"processes"`
}

var errStopped = errors.New("the cluster is stopped")

// supervisor is the process that owns the cluster. It ends the cluster when its stdin ends, which the kernel closes if
// this process dies.
type supervisor struct {
	// Immutable after startSupervisor.
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	progress io.Writer
	ready    chan event    // receives the ready event once
	done     chan struct{} // closed once the process has ended

	// Written before done is closed, read after.
	err error // nil if it was stopped on request

	// Guarded by mu.
	mu       sync.Mutex
	lastID   int
	pending  map[int]chan event // by command ID, each with room for the reply
	stopping bool
}

// startSupervisor runs the binary and returns when the cluster is ready.
func startSupervisor(ctx context.Context, cfg Config) (*supervisor, event, error) {
	// Not CommandContext: ctx only applies to the start.
	cmd := exec.Command(cfg.Binary, cfg.arguments()...)
	ownProcessGroup(cmd)
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr // complete when Wait has returned
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, event{}, fmt.Errorf("localcluster: creating the stdin of %s: %w", cfg.Binary, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, event{}, fmt.Errorf("localcluster: creating the stdout of %s: %w", cfg.Binary, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, event{}, fmt.Errorf("localcluster: starting %s: %w", cfg.Binary, err)
	}
	s := &supervisor{
		cmd: cmd, stdin: stdin, progress: cfg.Progress,
		ready: make(chan event, 1), done: make(chan struct{}), pending: map[int]chan event{},
	}
	// stop waits for this goroutine, through done.
	go func() {
		failure := s.readEvents(stdout)
		err := cmd.Wait()
		if failure == "" && err != nil {
			failure = strings.TrimSpace(fmt.Sprintf("%s ended (%v) %s", cfg.Binary, err, stderr))
		}
		if failure != "" {
			s.err = errors.New(failure)
		}
		close(s.done)
	}()
	select {
	case ready := <-s.ready:
		return s, ready, nil
	case <-s.done:
		return nil, event{}, fmt.Errorf("localcluster: starting the cluster: %w", s.failure())
	case <-ctx.Done():
		return nil, event{}, errors.Join(fmt.Errorf("localcluster: starting the cluster: %w", context.Cause(ctx)),
			s.stop())
	}
}

// readEvents passes on events until stdout ends. It returns the supervisor's failure message, if there is one.
func (s *supervisor) readEvents(stdout io.Reader) (failure string) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20) // failure messages contain log lines
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.note("unexpected output: " + lines.Text())
			continue
		}
		switch e.Event {
		case "note":
			s.note(e.Message)
		case "ready":
			s.ready <- e
		case "reply":
			s.mu.Lock()
			if waiting := s.pending[e.ID]; waiting != nil {
				waiting <- e
				delete(s.pending, e.ID)
			}
			s.mu.Unlock()
		case "failed":
			failure = e.Error
		}
	}
	return failure
}

func (s *supervisor) note(text string) {
	fmt.Fprintf(s.progress, "localcluster: %s\n", text)
}

// failure returns why the process ended. It must be called after done is closed.
func (s *supervisor) failure() error {
	if s.err != nil {
		return s.err
	}
	return errStopped
}

// request sends a command and returns its reply.
func (s *supervisor) request(ctx context.Context, c command) (event, error) {
	e, err := s.requestUntil(ctx.Done(), c)
	if errors.Is(err, errGivenUp) {
		return event{}, context.Cause(ctx)
	}
	return e, err
}

var errGivenUp = errors.New("gave up waiting for the supervisor's reply")

// requestUntil sends a command and waits for the reply, the end of the process, or givenUp. nil means no limit.
func (s *supervisor) requestUntil(givenUp <-chan struct{}, c command) (event, error) {
	reply := make(chan event, 1)
	if err := s.send(c, reply); err != nil {
		return event{}, err
	}
	select {
	case e := <-reply:
		if e.Error != "" {
			return event{}, errors.New(e.Error)
		}
		return e, nil
	case <-s.done:
		return event{}, s.failure()
	case <-givenUp:
		return event{}, errGivenUp
	}
}

// send writes a command. It ignores write errors: they mean that the process has ended, which done reports.
func (s *supervisor) send(c command, reply chan event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopped
	}
	s.lastID++
	c.ID = s.lastID
	s.pending[c.ID] = reply
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encoding a command: %w", err)
	}
	_, _ = s.stdin.Write(append(line, '\n'))
	return nil
}

// stop ends the process and its components, and returns when it has ended.
func (s *supervisor) stop() error {
	s.mu.Lock()
	first := !s.stopping
	s.stopping = true
	s.mu.Unlock()
	if first {
		_ = s.stdin.Close()
	}
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("the supervisor did not end within %v and was killed", stopTimeout)
	}
	if !first {
		return nil
	}
	return s.err
}
