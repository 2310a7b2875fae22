package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopGrace is the time in which a component must end after its stdin has ended. It has nothing to save, so only a
// stuck component needs it.
const stopGrace = 5 * time.Second

// maxLog is the size above which a run truncates the log of an earlier run instead of appending to it.
const maxLog = 8 << 20

// process is one running component.
//
// The supervisor holds the write end of the component's stdin and never writes to it. Its end is the only stop signal:
// the supervisor closes it to stop the component, and the kernel closes it when the supervisor dies. So the code that
// must work after a crash runs at every stop.
type process struct {
	// Immutable after startProcess.
	name    string
	cmd     *exec.Cmd
	stdin   io.Closer
	logPath string
	logFrom int64 // offset of this run's first line in the log
	started time.Time
	done    chan struct{} // closed once the process has ended

	// Written before done is closed, read after.
	err error
}

// startProcess starts this binary as component name of the cluster in f. When the process has ended, it sends to ended,
// unless the channel is full.
func startProcess(f *folder, name string, ended chan<- struct{}) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this binary to start %s: %w", name, err)
	}
	logPath := filepath.Join(f.path, "logs", name+".log")
	log, from, err := openLog(logPath)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(self, componentCommand, name)
	// Components run in the folder, because the path of etcd's socket must be short: the kernel limits it to about a
	// hundred bytes.
	cmd.Dir = f.path
	cmd.Stdout, cmd.Stderr = log, log
	// All components share the folder's lock, so that it is released when the last of them has ended.
	cmd.ExtraFiles = []*os.File{f.lock}
	// A separate process group, because Ctrl-C in a terminal must only reach the supervisor.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("making the stdin of %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{
		name: name, cmd: cmd, stdin: stdin, logPath: logPath, logFrom: from,
		started: time.Now(), done: make(chan struct{}),
	}
	// stop and kill wait for this goroutine, through done.
	go func() {
		p.err = cmd.Wait()
		close(p.done)
		notifyEnded(ended)
	}()
	return p, nil
}

// notifyEnded sends to ended, unless an element is waiting there already.
func notifyEnded(ended chan<- struct{}) {
	select {
	case ended <- struct{}{}:
	default:
	}
}

// openLog opens a log for another run, and returns the offset where that run begins.
func openLog(path string) (log *os.File, from int64, err error) {
	log, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	from, err = log.Seek(0, io.SeekEnd)
	if err == nil && from > maxLog {
		from, err = 0, log.Truncate(0)
	}
	if err != nil {
		_ = log.Close()
		return nil, 0, err
	}
	return log, from, nil
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process and returns once it has ended.
func (p *process) stop() {
	_ = p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.kill()
	}
}

// kill ends the process by SIGKILL and returns once it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	<-p.done
}

// endError returns an error with the exit status and the last log lines. It must be called after done is closed.
func (p *process) endError() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s)%s", p.name, how, p.lastLog())
}

// lastLog returns the end of this run's log, as text that can be appended to an error.
func (p *process) lastLog() string {
	const maxLines = 15
	content := bytes.TrimSpace(tail(p.logPath, p.logFrom))
	if len(content) == 0 {
		return "; it logged nothing"
	}
	lines := strings.Split(string(content), "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	return fmt.Sprintf("; its last log lines:\n  %s", strings.Join(lines, "\n  "))
}

// tail returns the end of the file, without the part before from.
func tail(path string, from int64) []byte {
	const maxBytes = 16 << 10
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	content, _ := io.ReadAll(io.NewSectionReader(file, max(from, size-maxBytes), maxBytes))
	return content
}
