//go:build unix

package follow

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// write saves a page; ~ stands for a backtick, which Go's raw strings cannot hold.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "~", "`")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPageSucceeds(t *testing.T) {
	t.Setenv("KUBECONFIG", "someone-elses")
	page := write(t, `
<!-- file: sub/hello.txt -->
~~~text
hello
world
~~~

~~~sh
test -z "$KUBECONFIG"
cd sub
name=kept
greet() { cat "$1"; }
~~~

State is kept:

<!-- run: expect "world" -->
<!-- run: expect "kept by caller" -->
~~~sh
greet hello.txt
echo "$name by $WHO"
~~~

Only for the eye, and for other readers:

~~~console
$ false
~~~

<!-- run: no, it would end the world -->
~~~sh
false
~~~

<!-- run: background, until "serving", expect "bye" -->
~~~sh
echo serving "$name"
while ! test -e stop; do sleep 0.05; done
echo bye
exec sleep 1000
~~~

The third run says so:

<!-- run: until "xxx" -->
~~~sh
printf x >>tries
cat tries
test -s tries
name=lost
~~~

<!-- run: expect "still kept" -->
~~~sh
touch stop
echo "still $name"
~~~
`)
	var out strings.Builder
	dir := t.TempDir()
	err := Page(t.Context(), page, Options{Dir: dir, Env: []string{"WHO=caller"}, Stdout: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"$ cd sub\n", "hello\nworld\n", "saving " + filepath.Join("sub", "hello.txt"), "output of the background block\nserving kept\nbye\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the output:\n%s", want, out.String())
		}
	}
}

func TestPageFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		page string
		want []string
	}{
		"a command fails": {
			"~~~sh\necho before\nls no-such-file\necho after\n~~~\n",
			[]string{"page.md:1: running the block: exit status", "before\n", "no-such-file"},
		},
		"a later block fails": {"~~~sh\ntrue\n~~~\n~~~sh\nfalse\n~~~\n", []string{"page.md:4: running the block: exit status 1"}},
		"a command of a pipeline's function fails": {
			"~~~sh\nf() { false; echo not reached; }\nf\n~~~\n", []string{"exit status 1; its output was:\n"},
		},
		"an unknown variable's command fails": {"~~~sh\n(exit 7)\n~~~\n", []string{"exit status 7"}},
		"an expectation is missed": {
			"<!-- run: expect \"two\" -->\n~~~sh\necho one\n~~~\n", []string{`page.md:2: the block's output does not contain "two"`, "one\n"},
		},
		"it never comes": {
			"<!-- run: until \"two\" -->\n~~~sh\necho one\n" + timeIsOverInSecondTry + "~~~\n",
			[]string{`"two" was not in its output within 1m0s`, "one\n"},
		},
		"it comes but fails": {
			"<!-- run: until \"one\" -->\n~~~sh\necho one\n" + timeIsOverInSecondTry + "false\n~~~\n",
			[]string{`"one" was not in its output`, "exit status 1"},
		},
		"the background dies": {
			"<!-- run: background -->\n~~~sh\necho early\nexit 3\n~~~\n~~~sh\nwait\n~~~\n",
			[]string{"page.md:2: the background block ended with status 3", "early\n"},
		},
		"the background dies while it is waited for": {
			"<!-- run: background, until \"ready\" -->\n~~~sh\nfalse\n~~~\n", []string{"page.md:2: the background block ended with status 1"},
		},
		"the background says less than expected": {
			"<!-- run: background, expect \"ready\" -->\n~~~sh\necho hm\n" + timeIsOver + "~~~\n", []string{`waiting for "ready"`, "hm\n"},
		},
		"a block exits":  {"~~~sh\nexit 0\n~~~\n~~~sh\ntrue\n~~~\n", []string{"page.md:1: running the block: the block ended the shell"}},
		"nothing to do":  {"hello\n", []string{"the page has nothing to follow"}},
		"a bash block":   {"~~~bash\ntrue\n~~~\n", []string{"line 1: a bash block is not run"}},
		"an open block":  {"~~~sh\ntrue\n", []string{"not closed"}},
		"no reason":      {"<!-- run: no, -->\n~~~sh\ntrue\n~~~\n", []string{"the reason is missing"}},
		"no such option": {"<!-- run: twice -->\n~~~sh\ntrue\n~~~\n", []string{`"twice" is unknown`}},
		"no text":        {"<!-- run: expect two -->\n~~~sh\ntrue\n~~~\n", []string{"expect wants a text in double quotes"}},
		"an empty text":  {"<!-- run: until \"\" -->\n~~~sh\ntrue\n~~~\n", []string{"not an empty one"}},
		"run for Go":     {"<!-- run: background -->\n~~~go\n~~~\n", []string{"is not an sh block"}},
		"a file outside": {"<!-- file: ../x -->\n~~~\n~~~\n", []string{"write a path below the page's folder"}},
		"file and run":   {"<!-- file: x -->\n<!-- run: background -->\n~~~sh\n~~~\n", []string{"keep one"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			expectFailure(t, Page(t.Context(), write(t, tc.page), Options{Dir: dir, withLimit: limitOfPage(t, dir)}), tc.want...)
		})
	}
}

// Only pages that must reach a limit have a short one.
func TestPageReachesLimit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		page    string
		options Options
		want    []string
	}{
		"a try hangs": {
			"<!-- run: until \"one\" -->\n~~~sh\nsleep 1000\n~~~\n",
			Options{Until: 500 * time.Millisecond},
			[]string{`"one" was not in its output within 500ms`},
		},
		"the background is never ready": {
			"<!-- run: background, until \"ready\" -->\n~~~sh\nsleep 1000\n~~~\n",
			Options{Until: 500 * time.Millisecond},
			[]string{`waiting for "ready"`, "within 500ms"},
		},
		"the background ignores SIGTERM": {
			"<!-- run: background, until \"on\" -->\n~~~sh\ntrap '' TERM\necho on\nsleep 1000\n~~~\n",
			Options{Grace: 500 * time.Millisecond},
			[]string{"did not end within 500ms of SIGTERM and was killed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.options.Dir = t.TempDir()
			expectFailure(t, Page(t.Context(), write(t, tc.page), tc.options), tc.want...)
		})
	}
}

func expectFailure(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("the page is said to work; want an error about %q", want)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in the error:\n%v", text, err)
		}
	}
}

const (
	// timeIsOver are commands of a page that reach the limit of limitOfPage, and do not end.
	timeIsOver = "echo >limit\nsleep 1000\n"
	// timeIsOverInSecondTry are commands of a block with until whose first try goes on, and whose second one reaches the limit.
	timeIsOverInSecondTry = "if test -e tried; then\n" + timeIsOver + "fi\ntouch tried\n"
)

// limitOfPage returns a limit that is reached when the page writes to the pipe "limit" in its folder, so that it does not
// depend on the speed of the machine what the page does before.
func limitOfPage(t *testing.T, dir string) func(context.Context, time.Duration, error) (context.Context, context.CancelFunc) {
	t.Helper()
	path := filepath.Join(dir, "limit")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() { // waited for below
		if _, err := pipe.Read(make([]byte, 1)); err == nil {
			close(reached)
		}
	})
	t.Cleanup(func() {
		if err := pipe.Close(); err != nil {
			t.Error(err)
		}
		reading.Wait()
	})
	return func(ctx context.Context, _ time.Duration, cause error) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		go func() { // ends with ctx
			select {
			case <-reached:
				cancel(cause)
			case <-ctx.Done():
			}
		}()
		return ctx, func() { cancel(nil) }
	}
}

// holding starts a process in the background that holds the pipe "held" open for as long as it lives.
const holding = `
~~~sh
mkfifo held
~~~

<!-- run: background, until "on" -->
~~~sh
exec 6<>held
sh -c 'sleep 1000' &
echo on
wait
~~~
`

// assertNoHolder fails if a process still holds the pipe. A pid is not sufficient: it may belong to a zombie.
func assertNoHolder(t *testing.T, dir string) {
	t.Helper()
	fd, err := syscall.Open(filepath.Join(dir, "held"), syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	// Without a holder this is the end of the pipe, at once.
	if n, err := syscall.Read(fd, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("a process of the page still lives: want the end of the pipe, got %d, %v", n, err)
	}
}

func TestPageEndsItsProcesses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		last   string
		failed bool
	}{
		"after success": {"true", false},
		"after failure": {"false", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			err := Page(t.Context(), write(t, holding+"\n~~~sh\n"+tc.last+"\n~~~\n"), Options{Dir: dir})
			if (err != nil) != tc.failed {
				t.Errorf("the page returned %v", err)
			}
			assertNoHolder(t, dir)
		})
	}
}

func TestPageIsCancelled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	page := write(t, holding+"\n~~~sh\necho in the last block\nsleep 1000\n~~~\n")
	enough := errors.New("enough")
	err := Page(ctx, page, Options{Dir: dir, Stdout: writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "sleep 1000") {
			cancel(enough) // the last block is about to run
		}
		return len(p), nil
	})})
	if !errors.Is(err, enough) {
		t.Errorf("want the cause of the cancellation, got %v", err)
	}
	assertNoHolder(t, dir)
}

func TestPageReportsEscapedProcesses(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not installed: no way to leave a process group")
	}
	dir := t.TempDir()
	err := Page(t.Context(), write(t, "~~~sh\nsetsid sh -c 'echo $$ >pid; exec sleep 1000' &\nuntil test -s pid; do sleep 0.05; done\n~~~\n"),
		Options{Dir: dir, Grace: 200 * time.Millisecond})
	if !errors.Is(err, errLeft) {
		t.Errorf("want %v, got %v", errLeft, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("ending what this test has let escape: %v", err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
