//go:build unix

package election

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// Process is a replica.
type Process struct {
	*testing.T
	Identity string
	Process  *os.Process

	mu     sync.Mutex
	at     TermState    // guarded by mu
	stderr bytes.Buffer // guarded by mu
	ended  error        // guarded by mu
	status int          // guarded by mu; valid when it has ended
}

// TermState is the state of a replica, from the lines that it prints.
type TermState struct {
	begun, ended int // numbers of terms
	leads        int64
	Working      int // number of slow handlers
}

// start starts a replica. The end of the test kills it.
func start(t *testing.T, config replicaConfig) *Process {
	t.Helper()
	encoded, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{T: t, Identity: config.Identity}
	command := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // this binary
	command.Env = append(os.Environ(), replicaVariable+"="+string(encoded))
	command.Stderr = stderrOf{p}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.Process = command.Process
	read := make(chan struct{})
	go func() { // ends with the process, which the cleanup kills; waited for there
		defer close(read)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			p.printed(lines.Text())
		}
		err := command.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended, p.status = fmt.Errorf("replica %s has ended: %w", config.Identity, err),
			command.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-read
	})
	return p
}

func (p *Process) printed(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch line {
	case "begins":
		p.at.begun++
	case "ended":
		p.at.ended++
	case "works":
		p.at.Working++
	case "writes":
		p.at.Working--
	default:
		_, _ = fmt.Sscanf(line, "leads %d", &p.at.leads)
	}
}

// State returns the state from the lines that were read so far.
func (p *Process) State() TermState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// Failed returns an error if the process has ended.
func (p *Process) Failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Exit returns the exit status of a process that has ended.
func (p *Process) Exit() (status int, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.ended != nil
}

// Log returns the standard error of the process.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.Errorf("signal %s to %s: %v", s, p.Identity, err)
	}
}

// stderrOf stores the standard error of a process.
type stderrOf struct{ *Process }

func (e stderrOf) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stderr.Write(b)
}
