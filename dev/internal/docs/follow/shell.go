//go:build unix

package follow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// driver is what the shell runs: it takes jobs from descriptor 3, a way and a file each, and reports the status of each
// on descriptor 4. A kept job that fails ends the shell by set -e, which is seen as its end. Descriptor 5 is only held:
// every process of the page inherits it, so it is closed when all of them have ended (see shell.end).
//
// set -e does not work behind && or in a condition, hence the plain sequences. When descriptor 3 closes without a
// signal, the process that follows the page has died: then the group ends itself.
const driver = `set -e
while IFS=' ' read -r follow_how follow_job <&3; do
	case $follow_how in
	keep)
		. "$follow_job" </dev/null >"$follow_job.out" 2>&1
		echo 0 >&4
		;;
	try)
		set +e
		(set -e; . "$follow_job") </dev/null >"$follow_job.out" 2>&1
		echo $? >&4
		set -e
		;;
	background)
		(
			set +e
			(set -e; . "$follow_job") </dev/null >"$follow_job.out" 2>&1
			echo $? >"$follow_job.status"
		) 3<&- 4>&- &
		echo 0 >&4
		;;
	esac
done
trap '' TERM
kill -TERM 0
`

// A way says how the shell runs a job.
type way string

const (
	keep       way = "keep"       // in the shell itself: what it changes stays
	try        way = "try"        // in a subshell, which may fail
	background way = "background" // in a subshell that is not waited for
)

// A statusError is the exit status of a job that failed.
type statusError struct{ status string }

func (e *statusError) Error() string { return "exit status " + e.status }

// errLeft is returned when a process has left the process group of the page.
var errLeft = errors.New("a process that the page started has left its process group and still runs: " +
	"let the page end what it starts, or start it without setsid")

// A shell is one sh in a separate process group, with all processes of a page.
type shell struct {
	// Immutable after startShell.
	folder  string // of the jobs' files
	pid     int    // of the sh, and so of its process group
	jobs    *os.File
	reports <-chan string
	exited  <-chan error    // the shell's exit
	gone    <-chan struct{} // closed when all of the page's processes have ended
	files   []*os.File      // this side of all pipes
	ended   []<-chan struct{}
}

func startShell(dir string, env []string) (_ *shell, err error) {
	var ownEnds, passedEnds []*os.File
	defer func() {
		closeAll(passedEnds)
		if err != nil {
			closeAll(ownEnds)
		}
	}()
	pipe := func() (read, write *os.File) {
		if err == nil {
			read, write, err = os.Pipe()
		}
		return read, write
	}
	jobsTheirs, jobs := pipe()
	reports, reportsTheirs := pipe()
	held, heldTheirs := pipe()
	ownEnds, passedEnds = []*os.File{jobs, reports, held}, []*os.File{jobsTheirs, reportsTheirs, heldTheirs}
	if err != nil {
		return nil, fmt.Errorf("making pipes for the shell: %w", err)
	}
	folder, err := os.MkdirTemp("", "follow-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the shell's jobs: %w", err)
	}
	cmd := exec.Command("sh", "-c", driver) // without a context: shell.end ends it, with all of its group and in time
	cmd.Dir = dir
	cmd.Env = append(environment(), env...)
	cmd.ExtraFiles = passedEnds
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting sh in %s: %w", dir, err), os.RemoveAll(folder))
	}
	s := &shell{folder: folder, pid: cmd.Process.Pid, jobs: jobs, files: ownEnds}
	s.watch(cmd, reports, held)
	return s, nil
}

// watch starts the goroutines that turn what happens to the shell into channels. They end when the processes have ended
// and the pipes are closed; shell.end waits for them.
func (s *shell) watch(cmd *exec.Cmd, reports, held *os.File) {
	exited, reported, gone := make(chan error, 1), make(chan string), make(chan struct{})
	s.exited, s.reports, s.gone = exited, reported, gone
	waited, read := make(chan struct{}), make(chan struct{})
	s.ended = []<-chan struct{}{waited, read, gone}
	stop := make(chan struct{}) // closed when the shell has exited: reports are not received after that
	go func() {                 // shell.end waits for it
		defer close(waited)
		err := cmd.Wait()
		close(stop)
		exited <- err
	}()
	go func() { // shell.end waits for it
		defer close(read)
		for lines := bufio.NewScanner(reports); lines.Scan(); {
			select {
			case reported <- lines.Text():
			case <-stop:
				return
			}
		}
	}()
	go func() { // shell.end waits for it
		defer close(gone)
		// no process writes; it returns when the last holder has ended, or shell.end gives up
		_, _ = io.Copy(io.Discard, held)
	}()
}

// environment returns this process's, without the cluster that it may point at.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KUBECONFIG=") {
			env = append(env, v)
		}
	}
	return env
}

// run has the shell run a job, and waits for it unless it is for the background. A job that fails is a *statusError.
func (s *shell) run(ctx context.Context, how way, j job) error {
	if _, err := fmt.Fprintf(s.jobs, "%s %s\n", how, j); err != nil {
		return fmt.Errorf("handing the block to the shell: %w", err)
	}
	select {
	case status := <-s.reports:
		if status != "0" {
			return &statusError{status}
		}
		return nil
	case err := <-s.exited:
		if err == nil {
			return errors.New("the block ended the shell: let it not call exit")
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end ends the processes of the page: SIGTERM to the group, SIGKILL when the grace is over. It is called once.
func (s *shell) end(grace time.Duration) error {
	err := s.signal(syscall.SIGTERM)
	if !s.awaitGone(grace) {
		const kill = 5 * time.Second // nothing survives SIGKILL longer, except outside the group
		err = errors.Join(err,
			fmt.Errorf("a process did not end within %s of SIGTERM and was killed: let it end on SIGTERM", grace),
			s.signal(syscall.SIGKILL))
		if !s.awaitGone(kill) {
			err = errors.Join(err, errLeft)
		}
	}
	closeAll(s.files) // unblocks the goroutines that read
	for _, ended := range s.ended {
		<-ended
	}
	return err
}

// signal signals the group while it has processes. That they hold descriptor 5 also means that its number is still
// theirs.
func (s *shell) signal(sig syscall.Signal) error {
	select {
	case <-s.gone:
		return nil
	default:
	}
	if err := syscall.Kill(-s.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to process group %d: %w", sig, s.pid, err)
	}
	return nil
}

func (s *shell) awaitGone(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.gone:
		return true
	case <-timer.C:
		return false
	}
}

func (s *shell) remove() error {
	if err := os.RemoveAll(s.folder); err != nil {
		return fmt.Errorf("removing the shell's jobs: %w", err)
	}
	return nil
}

// A job is the file of a block that the shell runs; its output and, in the background, its status stand beside it.
type job string

func (s *shell) job(line int, text string) (job, error) {
	file := filepath.Join(s.folder, fmt.Sprintf("line-%d.sh", line))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("writing a block for the shell: %w", err)
	}
	return job(file), nil
}

// output returns what the job has written so far.
func (j job) output() string {
	out, err := os.ReadFile(string(j) + ".out")
	if err != nil {
		return "" // it has not started
	}
	return string(out)
}

// ended returns the status of a background job that has ended.
func (j job) ended() (status string, ended bool) {
	text, err := os.ReadFile(string(j) + ".status")
	status = strings.TrimSpace(string(text))
	return status, err == nil && status != ""
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // a pipe: there is nothing to lose
		}
	}
}
