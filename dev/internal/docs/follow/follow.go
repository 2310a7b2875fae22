//go:build unix

package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/internal/docs"
)

const (
	// DefaultUntil is how long an expected output is waited for.
	DefaultUntil = time.Minute
	// DefaultGrace is how long processes have between SIGTERM and SIGKILL at the page's end.
	DefaultGrace = 30 * time.Second

	// poll is how often a block with until is run, and a background block's output is read.
	poll = 200 * time.Millisecond
)

// Options say where and how a page is followed.
type Options struct {
	// Dir is the folder that the reader starts in. Required; it must exist.
	Dir string
	// Env is added to the environment of this process. Empty: nothing is.
	Env []string
	// Stdout receives each command and its output. Default nil: discarded.
	Stdout io.Writer
	// Until is how long an expected output is waited for. Zero: DefaultUntil.
	Until time.Duration
	// Grace is how long processes have between SIGTERM and SIGKILL at the page's end. Zero: DefaultGrace.
	Grace time.Duration

	// withLimit returns a context that ends with cause when the time is over. Nil: context.WithTimeoutCause.
	withLimit func(ctx context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc)
}

// Page follows the page at path, and returns the first thing that does not go as the page says, with its line.
//
// When it returns, every process that the page started has ended. It is an error if one had to be killed because it did
// not end after SIGTERM, or if one left the page's process group and lives on.
func Page(ctx context.Context, path string, opts Options) (err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the page to follow: %w", err)
	}
	page, err := docs.Parse(string(text))
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	todo, err := steps(page)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if opts.Dir == "" {
		return fmt.Errorf("following %s: Options.Dir is empty: name the folder to follow it in", path)
	}
	opts.Until = cmp.Or(opts.Until, DefaultUntil)
	opts.Grace = cmp.Or(opts.Grace, DefaultGrace)
	if opts.Stdout == nil {
		opts.Stdout = io.Discard
	}
	if opts.withLimit == nil {
		opts.withLimit = context.WithTimeoutCause
	}
	sh, err := startShell(opts.Dir, opts.Env)
	if err != nil {
		return fmt.Errorf("following %s: %w", path, err)
	}
	r := &reader{name: path, sh: sh, opts: opts}
	err = r.follow(ctx, todo)
	if endErr := sh.end(opts.Grace); endErr != nil {
		err = errors.Join(err, fmt.Errorf("%s: ending what the page started: %w", path, endErr))
	}
	r.showBackground()
	return errors.Join(err, sh.remove())
}

// A reader follows one page. It belongs to the goroutine that called Page.
type reader struct {
	name    string
	sh      *shell
	opts    Options
	started []backgroundStep
}

type backgroundStep struct {
	step
	job job
}

func (r *reader) follow(ctx context.Context, todo []step) error {
	for _, s := range todo {
		if err := r.do(ctx, s); err != nil {
			return fmt.Errorf("%s:%d: %w", r.name, s.line, err)
		}
		if err := r.alive(); err != nil {
			return err
		}
	}
	for _, b := range r.started {
		for _, want := range b.expect {
			if err := r.await(ctx, b, want); err != nil {
				return fmt.Errorf("%s:%d: %w", r.name, b.line, err)
			}
		}
	}
	return r.alive()
}

func (r *reader) do(ctx context.Context, s step) error {
	if s.file != "" {
		return r.save(s)
	}
	fmt.Fprintf(r.opts.Stdout, "--- %s:%d\n", r.name, s.line)
	for line := range strings.Lines(s.text) {
		fmt.Fprint(r.opts.Stdout, "$ ", line)
	}
	j, err := r.sh.job(s.line, s.text)
	if err != nil {
		return err
	}
	switch {
	case s.background:
		return r.doBackground(ctx, s, j)
	case s.until != "":
		return r.doUntil(ctx, s, j)
	}
	runErr := r.sh.run(ctx, keep, j)
	out := j.output()
	fmt.Fprint(r.opts.Stdout, out)
	if runErr != nil {
		return fmt.Errorf("running the block: %w; its output was:\n%s", runErr, tail(out))
	}
	return contains(out, s.expect)
}

func (r *reader) save(s step) error {
	fmt.Fprintf(r.opts.Stdout, "--- %s:%d: saving %s\n", r.name, s.line, s.file)
	file := filepath.Join(r.opts.Dir, s.file)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making the folder of a file: %w", err)
	}
	if err := os.WriteFile(file, []byte(s.text), 0o644); err != nil {
		return fmt.Errorf("saving a file: %w", err)
	}
	return nil
}

func (r *reader) doBackground(ctx context.Context, s step, j job) error {
	if err := r.sh.run(ctx, background, j); err != nil {
		return fmt.Errorf("starting the block in the background: %w", err)
	}
	b := backgroundStep{s, j}
	r.started = append(r.started, b)
	if s.until == "" {
		return nil
	}
	return r.await(ctx, b, s.until)
}

func (r *reader) doUntil(ctx context.Context, s step, j job) error {
	ctx, cancel := r.opts.withLimit(ctx, r.opts.Until, fmt.Errorf("%q was not in its output within %s", s.until,
		r.opts.Until))
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	var last error // how the latest try ended that the end of ctx did not cut short
	for {
		err := r.sh.run(ctx, try, j)
		out := j.output()
		if err == nil && strings.Contains(out, s.until) {
			fmt.Fprint(r.opts.Stdout, out)
			return contains(out, s.expect)
		}
		if err == nil || errors.As(err, new(*statusError)) {
			last = err
			select {
			case <-ticker.C:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		if ctx.Err() != nil {
			err = errors.Join(err, last)
		}
		fmt.Fprint(r.opts.Stdout, out)
		return fmt.Errorf("running the block until it succeeds: %w; its last output was:\n%s", err, tail(out))
	}
}

// await waits until a background block's output contains a text.
func (r *reader) await(ctx context.Context, b backgroundStep, want string) error {
	ctx, cancel := r.opts.withLimit(ctx, r.opts.Until, fmt.Errorf("it did not come within %s", r.opts.Until))
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for !strings.Contains(b.job.output(), want) {
		if err := r.alive(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q in the output of the background block: %w; its output is:\n%s",
				want, context.Cause(ctx), tail(b.job.output()))
		}
	}
	return nil
}

// alive makes sure that no background block has ended.
func (r *reader) alive() error {
	for _, b := range r.started {
		if status, ended := b.job.ended(); ended {
			return fmt.Errorf("%s:%d: the background block ended with status %s before the page did; its "+
				"output was:\n%s",
				r.name, b.line, status, tail(b.job.output()))
		}
	}
	return nil
}

func (r *reader) showBackground() {
	for _, b := range r.started {
		fmt.Fprintf(r.opts.Stdout, "--- %s:%d: output of the background block\n%s", r.name, b.line, b.job.output())
	}
}

func contains(out string, wants []string) error {
	for _, want := range wants {
		if !strings.Contains(out, want) {
			return fmt.Errorf("the block's output does not contain %q, which the page expects; it was:\n%s", want,
				tail(out))
		}
	}
	return nil
}

// tail returns the last lines of an output, for errors.
func tail(out string) string {
	const enough = 4000
	if len(out) <= enough {
		return out
	}
	out = out[len(out)-enough:]
	return "(...)\n" + out[strings.Index(out, "\n")+1:]
}
