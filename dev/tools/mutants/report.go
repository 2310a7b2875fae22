package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// counts are the numbers of a row of the table.
type counts struct{ found, tried, killed, timedOut, survived, explained int }

func (s *session) count(of func(*mutant) bool) counts {
	var c counts
	for _, m := range s.mutants {
		if !of(m) {
			continue
		}
		c.found++
		r := s.results[m.ID]
		if r == nil {
			continue
		}
		c.tried++
		switch r.Outcome {
		case killed:
			c.killed++
		case timedOut:
			c.timedOut++
		default:
			c.survived++
			if s.verdicts[m.ID] != "" {
				c.explained++
			}
		}
	}
	return c
}

// report prints the document, or writes it to its file.
func (s *session) report() error {
	for _, id := range s.staleVerdicts() {
		s.printf("verdict %s: no mutant has this ID; remove the verdict, or give it the mutant's new ID\n", id)
	}
	document := s.document()
	if s.config.out == "" {
		s.printf("\n%s\n", document)
	} else if err := os.WriteFile(s.config.out, []byte(document), 0o644); err != nil {
		return err
	}
	all := s.count(func(*mutant) bool { return true })
	s.printf("mutants: %d tried, %d survived, %d explained\n", all.tried, all.survived, all.explained)
	return nil
}

// staleVerdicts returns the IDs of verdicts on the packages that were read that match no mutant.
func (s *session) staleVerdicts() []string {
	packages, mutants := map[string]bool{}, map[string]bool{}
	for _, m := range s.mutants {
		packages[path.Base(packageKey(m.pkg.Module.Path, m.Package))] = true
		mutants[m.ID] = true
	}
	stale := slices.DeleteFunc(slices.Sorted(maps.Keys(s.verdicts)), func(id string) bool {
		return mutants[id] || !packages[id[:strings.LastIndex(id, "-")]]
	})
	return stale
}

// introduction begins the document. A backtick in it is written as an apostrophe.
const introduction = `# Surviving mutants

'make mutants' writes this page. A mutant is a small change of the library that some test should notice. A mutant that
no test notices survives: a test is missing, or the change breaks no promise. [verdicts.txt](verdicts.txt) has the
reasons, [main.go](main.go) the comparison with gremlins.

`

// document returns the page for maintainers.
func (s *session) document() string {
	var text strings.Builder
	text.WriteString(strings.ReplaceAll(introduction, "'", "`"))
	fmt.Fprintf(&text, "- Date: %s, commit %s, seed %d, %s, %d processors\n",
		s.began.UTC().Format("2006-01-02 15:04 UTC"), s.commit, s.config.seed, runtime.Version(), runtime.GOMAXPROCS(0))
	fmt.Fprintf(&text, "- Duration: %v", time.Since(s.began).Round(time.Second))
	if s.reused > 0 {
		fmt.Fprintf(&text, "; %d results were taken over from an earlier run (`RETRY=1`), and the rest was tried",
			s.reused)
	}
	text.WriteString("\n")
	if !s.complete {
		text.WriteString("- The run was interrupted. The numbers are a smaller sample.\n")
	}
	text.WriteString("\n| package | mutants | tried | killed | timed out | survived | explained |\n")
	text.WriteString("|---|---:|---:|---:|---:|---:|---:|\n")
	row := func(name string, c counts) {
		fmt.Fprintf(&text, "| %s | %d | %d | %d | %d | %d | %d |\n", name, c.found, c.tried, c.killed, c.timedOut,
			c.survived, c.explained)
	}
	for _, p := range s.packages {
		row(strings.TrimPrefix(p.ImportPath, p.Module.Path+"/"), s.count(func(m *mutant) bool { return m.pkg == p }))
	}
	row("all", s.count(func(*mutant) bool { return true }))
	text.WriteString("\n## Survivors without an explanation\n\n")
	unexplained := 0
	for _, m := range s.mutants {
		r := s.results[m.ID]
		if r == nil || !r.survived() || s.verdicts[m.ID] != "" {
			continue
		}
		unexplained++
		passed := "No test reaches it."
		if r.Outcome == survived {
			passed = fmt.Sprintf("%d tests reach it and pass.", r.Tests)
		}
		fmt.Fprintf(&text, "%s:%d\n\n```diff\n%s\n```\n\n%s\n\n", m.File, m.Line, m, passed)
	}
	if unexplained == 0 {
		text.WriteString("None.\n")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}
