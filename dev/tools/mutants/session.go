package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// config is what the flags set.
type config struct {
	dir        string
	patterns   []string
	n          int
	seed       uint64
	run        []string
	list       bool
	parallel   int
	skip       string
	mostOthers int
	slack      time.Duration
	memory     int
	last       string
	state      string
	retry      bool
	out        string
	verdicts   string
	progress   time.Duration
}

// session is one run of the tool. Its exported fields are stored in the state file.
type session struct {
	Began   time.Time
	Commit  string
	Seed    uint64
	Results map[string]*result

	config   config
	packages []*loadedPackage
	mutants  []*mutant
	strata   []*stratum
	verdicts []verdict
	stdout   io.Writer

	mu       sync.Mutex // guards Results, strata's mutants and the fields below
	tried    int
	reused   int
	seconds  float64
	complete bool
}

// lockedWriter is a writer that goroutines share.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// errInterrupted is the cause of the end of a run by a signal.
var errInterrupted = errors.New("interrupted")

// runTool does what the flags ask for. Its last line sums the run up.
func runTool(ctx context.Context, c config, stdout io.Writer) error {
	s := &session{
		Began: time.Now(), Seed: c.seed, Results: map[string]*result{}, config: c,
		stdout: &lockedWriter{to: stdout},
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	if c.list {
		for _, m := range s.mutants {
			fmt.Fprintln(s.stdout, m)
		}
		return nil
	}
	b, cleanup, err := s.newBench(ctx)
	if err != nil {
		return err
	}
	defer cleanup()
	if len(c.run) > 0 {
		return s.repeat(ctx, b)
	}
	s.strata = sample(s.mutants, c.n, c.seed)
	if c.retry {
		if err := s.restore(); err != nil {
			return err
		}
	}
	err = s.tryAll(ctx, b)
	s.complete = err == nil
	if err != nil && !errors.Is(err, errInterrupted) {
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
	if s.config.verdicts != "" {
		if s.verdicts, err = readVerdicts(s.config.verdicts); err != nil {
			return err
		}
	}
	s.Commit = "unknown"
	git := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD")
	git.Dir = dir
	if out, err := git.Output(); err == nil {
		s.Commit = strings.TrimSpace(string(out))
	}
	fmt.Fprintf(s.stdout, "found %d mutants in %d packages\n", len(s.mutants), len(s.packages))
	return nil
}

func (s *session) newBench(ctx context.Context) (*bench, func(), error) {
	skip, err := regexp.Compile(s.config.skip)
	if err != nil {
		return nil, nil, fmt.Errorf("-skip: %w", err)
	}
	dependentPackages, err := dependents(ctx, s.config.dir, s.packages, skip.MatchString)
	if err != nil {
		return nil, nil, err
	}
	all, err := goList(ctx, s.config.dir, "-json=ImportPath,Dir", "./...")
	if err != nil {
		return nil, nil, err
	}
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, nil, err
	}
	b := &bench{
		dir: s.config.dir, work: work, slack: s.config.slack, dependents: dependentPackages, dirs: map[string]string{},
		mostOthers: s.config.mostOthers, memory: s.config.memory, parallel: s.config.parallel,
		baselines: map[string]*baseline{},
		last:      map[string][]string{}, wholes: map[string]*whole{},
		measuring: func(importPath string) {
			fmt.Fprintf(s.stdout, "measuring what the tests of %s reach\n", importPath)
		},
	}
	for _, p := range all {
		b.dirs[p.ImportPath] = p.Dir
	}
	covered := make([]string, 0, len(s.packages))
	for _, p := range s.packages {
		covered = append(covered, p.ImportPath)
	}
	b.coverage = strings.Join(covered, ",")
	for _, pair := range split(s.config.last) {
		pattern, tests, ok := strings.Cut(pair, "=")
		both, err := goList(ctx, s.config.dir, "-json=ImportPath,Dir", pattern)
		if err == nil {
			var tested []goPackage // maybe of another module
			tested, err = goList(ctx, filepath.Join(s.config.dir, tests), "-json=ImportPath,Dir", ".")
			both = append(both, tested...)
		}
		if !ok || err != nil || len(both) != 2 {
			return nil, nil, errors.Join(fmt.Errorf("-last: %q is not of the form ./package=./tests", pair), err,
				os.RemoveAll(work))
		}
		b.dirs[both[1].ImportPath] = both[1].Dir
		b.last[both[0].ImportPath] = append(b.last[both[0].ImportPath], both[1].ImportPath)
	}
	return b, func() { os.RemoveAll(work) }, nil //nolint:errcheck // it is a temporary folder
}

// repeat tries the mutants that -run names and prints what happened to each.
func (s *session) repeat(ctx context.Context, b *bench) error {
	for _, id := range s.config.run {
		at := slices.IndexFunc(s.mutants, func(m *mutant) bool { return m.ID == id })
		if at < 0 {
			return fmt.Errorf("no mutant %s in %s: IDs change with the statement's text; -list shows them", id,
				strings.Join(s.config.patterns, " "))
		}
		m := s.mutants[at]
		r, err := b.try(ctx, m)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.stdout, "%s\n%s", m, tail(r.output))
		fmt.Fprintf(s.stdout, "%s: %s in %.1f s, %d tests ran\n", id, strings.TrimSpace(r.Outcome+" "+r.By), r.Seconds,
			r.Tests)
	}
	return nil
}

// tryAll tries the sample in random order, so that an interrupted run is a sample as well.
func (s *session) tryAll(ctx context.Context, b *bench) error {
	for _, p := range s.packages {
		if slices.ContainsFunc(s.strata, func(t *stratum) bool {
			return t.Package == p.ImportPath && s.hasUntried(t)
		}) {
			if base := b.baseline(ctx, p.ImportPath); base.err != nil {
				return base.err
			}
		}
	}
	measured := time.Since(s.Began)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slots := s.slots()
	next := make(chan *stratum)
	var workers sync.WaitGroup
	for range s.config.parallel {
		workers.Go(func() { // workers.Wait below waits for it
			for t := range next {
				if err := s.fill(ctx, b, t); err != nil {
					stop(err)
				}
			}
		})
	}
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() { s.showProgress(done, len(slots), measured) }) // reporter.Wait below waits for it
	for _, t := range slots {
		select {
		case next <- t:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	close(done)
	reporter.Wait()
	return context.Cause(ctx)
}

// hasUntried reports whether the sample has a mutant of the stratum without a result.
func (s *session) hasUntried(t *stratum) bool {
	return slices.ContainsFunc(t.mutants[:t.take], func(m *mutant) bool { return s.Results[m.ID] == nil })
}

// slots returns the stratum of each place in the sample, in random order.
func (s *session) slots() []*stratum {
	type slot struct {
		of   *stratum
		rank uint64
	}
	var slots []slot
	for _, t := range s.strata {
		for i := range t.take {
			slots = append(slots, slot{t, rank(s.Seed, t.mutants[i])})
		}
	}
	slices.SortFunc(slots, func(a, b slot) int { return cmp.Compare(a.rank, b.rank) })
	ordered := make([]*stratum, 0, len(slots))
	for _, place := range slots {
		ordered = append(ordered, place.of)
	}
	return ordered
}

// fill tries mutants of a stratum until one compiles. The stratum may run out of them; then the place stays empty.
func (s *session) fill(ctx context.Context, b *bench, t *stratum) error {
	for {
		s.mu.Lock()
		if len(t.mutants) == 0 {
			s.mu.Unlock()
			return nil
		}
		m := t.mutants[0]
		t.mutants = t.mutants[1:]
		r := s.Results[m.ID]
		s.mu.Unlock()
		reused := r != nil
		if !reused {
			var err error
			if r, err = b.try(ctx, m); err != nil {
				return err
			}
		}
		s.mu.Lock()
		s.Results[m.ID] = r
		s.seconds += r.Seconds
		counted := r.Outcome != notGo
		if counted {
			s.tried++
			if reused {
				s.reused++
			}
		}
		s.mu.Unlock()
		if counted {
			return nil
		}
	}
}

func (s *session) showProgress(done <-chan struct{}, total int, measured time.Duration) {
	ticker := time.NewTicker(s.config.progress)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		survivors := 0
		for _, r := range s.Results {
			if r.survived() {
				survivors++
			}
		}
		tried, fresh := s.tried, s.tried-s.reused
		s.mu.Unlock()
		line := fmt.Sprintf("%d of %d tried, %d survived", tried, total, survivors)
		if spent := time.Since(s.Began) - measured; fresh > 0 {
			each := spent / time.Duration(fresh)
			line += fmt.Sprintf(", one every %.1f s, about %v left", each.Seconds(),
				(time.Duration(total-tried) * each).Round(time.Second))
		}
		fmt.Fprintln(s.stdout, line)
	}
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
	var earlier session
	if err := json.Unmarshal(text, &earlier); err != nil {
		return fmt.Errorf("%s: %w", s.config.state, err)
	}
	explained := map[string]bool{}
	for _, v := range s.verdicts {
		explained[v.id] = v.explains()
	}
	for id, r := range earlier.Results {
		if !r.survived() || explained[id] {
			s.Results[id] = r
		}
	}
	return nil
}

func (s *session) save() error {
	if s.config.state == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.config.state), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.config.state, text, 0o644)
}
