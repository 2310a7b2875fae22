package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// config is what the flags set. Tests set another dir and a shorter slack.
type config struct {
	dir      string // where go runs
	patterns []string
	n        int
	seed     uint64
	run      []string
	last     string
	slack    time.Duration // added to each timeout
	state    string
	retry    bool
	out      string
	verdicts string
}

// session is one run of the tool.
type session struct {
	config   config
	began    time.Time
	commit   string
	packages []*loadedPackage
	mutants  []*mutant
	sample   []*mutant
	verdicts map[string]string // reasons by IDs of mutants
	reused   int               // results of an earlier run
	complete bool

	mu      sync.Mutex // guards the fields below
	stdout  io.Writer
	results map[string]*result // of mutants of the sample
}

// errInterrupted is the cause of the end of a run by a signal.
var errInterrupted = errors.New("interrupted")

// runTool does what the flags ask for. Its last line sums the run up.
func runTool(ctx context.Context, c config, stdout io.Writer) error {
	s := &session{began: time.Now(), config: c, results: map[string]*result{}, stdout: stdout}
	if err := s.load(ctx); err != nil {
		return err
	}
	b, err := s.newBench(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.work) //nolint:errcheck // it is a temporary folder
	if len(c.run) > 0 {
		return s.repeat(ctx, b)
	}
	s.sample = sample(s.mutants, c.n, c.seed)
	if c.retry {
		if err := s.restore(); err != nil {
			return err
		}
	}
	err = s.tryAll(ctx, b)
	s.complete = err == nil
	if ctx.Err() != nil {
		err = context.Cause(ctx) // not what the interruption broke
	} else if err != nil {
		return errors.Join(err, s.save())
	}
	return errors.Join(err, s.save(), s.report())
}

func (s *session) load(ctx context.Context) error {
	dir, err := filepath.Abs(s.config.dir)
	if err != nil {
		return err
	}
	s.config.dir = dir
	if s.packages, err = load(ctx, dir, s.config.patterns); err != nil {
		return err
	}
	if s.mutants = find(s.packages); len(s.mutants) == 0 {
		return fmt.Errorf("no mutants in %s", strings.Join(s.config.patterns, " "))
	}
	if s.verdicts, err = readVerdicts(s.config.verdicts); err != nil {
		return err
	}
	s.commit = "unknown"
	git := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD")
	git.Dir = dir
	if out, err := git.Output(); err == nil {
		s.commit = strings.TrimSpace(string(out))
	}
	s.printf("found %d mutants in %d packages\n", len(s.mutants), len(s.packages))
	return nil
}

// printf may be called at the same time.
func (s *session) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.stdout, format, args...)
}

func (s *session) newBench(ctx context.Context) (*bench, error) {
	b := &bench{
		dir: s.config.dir, slack: s.config.slack, dirs: map[string]string{}, last: map[string][]string{},
		baselines: map[string]*baseline{}, printf: s.printf,
	}
	for _, pair := range split(s.config.last) {
		pattern, tests, _ := strings.Cut(pair, "=")
		both, err := goList(ctx, b.dir, "-json=ImportPath,Dir", pattern)
		if err == nil && tests != "" { // maybe of another module
			var tested []goPackage
			tested, err = goList(ctx, filepath.Join(b.dir, tests), "-json=ImportPath,Dir", ".")
			both = append(both, tested...)
		}
		if err != nil || len(both) != 2 {
			return nil, errors.Join(fmt.Errorf("-last: %q is not of the form ./package=./tests", pair), err)
		}
		b.dirs[both[1].ImportPath] = both[1].Dir
		b.last[both[0].ImportPath] = append(b.last[both[0].ImportPath], both[1].ImportPath)
	}
	var covered []string
	for _, p := range s.packages {
		covered = append(covered, p.ImportPath)
	}
	b.coverage = strings.Join(covered, ",")
	if err := b.findDependents(ctx, covered); err != nil {
		return nil, err
	}
	var err error
	b.work, err = os.MkdirTemp("", "mutants")
	return b, err
}

// repeat tries the mutants that -run names and prints what happened to each.
func (s *session) repeat(ctx context.Context, b *bench) error {
	for _, id := range s.config.run {
		at := slices.IndexFunc(s.mutants, func(m *mutant) bool { return m.ID == id })
		if at < 0 {
			return fmt.Errorf("no mutant %s in %s: IDs change with the statement's text", id,
				strings.Join(s.config.patterns, " "))
		}
		m := s.mutants[at]
		r, err := b.try(ctx, m)
		if err != nil {
			return err
		}
		s.printf("%s\n%s%s: %s in %.1f s, %d tests ran\n", m, tail(r.output), id,
			strings.TrimSpace(r.Outcome+" "+r.By), r.Seconds, r.Tests)
	}
	return nil
}

// tryAll tries the sample in random order, so that an interrupted run is a sample as well.
func (s *session) tryAll(ctx context.Context, b *bench) error {
	var untried []*mutant
	for _, m := range s.sample {
		if s.results[m.ID] == nil {
			untried = append(untried, m)
		}
	}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, m := range untried {
		group.Go(func() error { // group.Wait below waits for it
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r, err := b.try(ctx, m)
			if err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.results[m.ID] = r
			tried := len(s.results)
			left := time.Since(began) / time.Duration(tried-s.reused) * time.Duration(len(s.sample)-tried)
			fmt.Fprintf(s.stdout, "%d of %d tried, %s %s in %.1f s, about %v left\n", tried, len(s.sample), r.Outcome,
				m.ID, r.Seconds, left.Round(time.Second))
			return nil
		})
	}
	return group.Wait()
}

// restore takes over the results of the last run, but not those of survivors without a reason: they are tried again.
func (s *session) restore() error {
	text, err := os.ReadFile(s.config.state)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("-retry needs the results of an earlier run, and -state names no file with them")
	}
	if err != nil {
		return err
	}
	var earlier map[string]*result
	if err := json.Unmarshal(text, &earlier); err != nil {
		return fmt.Errorf("%s: %w", s.config.state, err)
	}
	for _, m := range s.sample {
		if r := earlier[m.ID]; r != nil && (!r.survived() || s.verdicts[m.ID] != "") {
			s.results[m.ID] = r
		}
	}
	s.reused = len(s.results)
	return nil
}

func (s *session) save() error {
	if s.config.state == "" {
		return nil
	}
	text, err := json.MarshalIndent(s.results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.config.state, text, 0o644)
}
