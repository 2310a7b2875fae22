package main

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// counts are the numbers of a row of a table.
type counts struct{ found, tried, killed, timedOut, survived, explained int }

// entry is a mutant that was tried, with its result and verdict.
type entry struct {
	*mutant
	result  *result
	verdict verdict
}

// entries returns the mutants that were tried, in the order of files and positions.
func (s *session) entries() []entry {
	verdicts := map[string]verdict{}
	for _, v := range s.verdicts {
		verdicts[v.id] = v
	}
	var all []entry
	for _, m := range s.mutants {
		if r := s.Results[m.ID]; r != nil && r.Outcome != notGo && s.inSample(m) {
			all = append(all, entry{m, r, verdicts[m.ID]})
		}
	}
	return all
}

// inSample reports whether this run tried the mutant, or took its result from an earlier one: its stratum gave it out.
func (s *session) inSample(m *mutant) bool {
	for _, t := range s.strata {
		if t.Package == m.Package && t.Operator == m.Operator {
			return !slices.Contains(t.mutants, m)
		}
	}
	return false
}

func count(entries []entry, found int, of func(entry) bool) counts {
	c := counts{found: found}
	for _, e := range entries {
		if !of(e) {
			continue
		}
		c.tried++
		switch e.result.Outcome {
		case killed:
			c.killed++
		case timedOut:
			c.timedOut++
		default:
			c.survived++
			if e.verdict.explains() {
				c.explained++
			}
		}
	}
	return c
}

func (s *session) foundBy(of func(*mutant) bool) int {
	n := 0
	for _, m := range s.mutants {
		if of(m) {
			n++
		}
	}
	return n
}

// report prints the result, writes the document, and adds new survivors to the verdicts.
func (s *session) report() error {
	entries := s.entries()
	var fresh []*mutant
	known := map[string]bool{}
	for _, v := range s.verdicts {
		known[v.id] = true
	}
	for _, e := range entries {
		if !e.result.survived() {
			continue
		}
		fmt.Fprintf(s.stdout, "\n%s\n", e.mutant)
		switch {
		case e.verdict.explains():
			fmt.Fprintln(s.stdout, "reason:", e.verdict.reason)
		case e.result.Outcome == notCovered:
			fmt.Fprintln(s.stdout, "not explained: no test reaches it")
		case e.verdict.test != "":
			fmt.Fprintf(s.stdout, "not explained: %s does not kill it\n", e.verdict.test)
		default:
			fmt.Fprintf(s.stdout, "not explained: %d tests passed\n", e.result.Tests)
		}
		if !known[e.ID] {
			fresh = append(fresh, e.mutant)
		}
	}
	for _, id := range s.staleVerdicts() {
		fmt.Fprintf(s.stdout, "\nverdict %s: no mutant has this ID; remove the verdict, or give it the "+
			"mutant's new ID\n", id)
	}
	if s.config.out != "" {
		if err := os.WriteFile(s.config.out, []byte(s.document(entries)), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(s.stdout, "\nwrote %s\n", s.config.out)
		if s.config.verdicts != "" {
			if err := addVerdicts(s.config.verdicts, fresh); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(s.stdout)
	table := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range s.packageRows(entries) {
		fmt.Fprintln(table, strings.Join(row, "\t")+"\t")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	all := count(entries, len(s.mutants), func(entry) bool { return true })
	if fresh := s.tried - s.reused; fresh > 0 {
		fmt.Fprintf(s.stdout, "%d mutants in %v: one every %.1f s\n", fresh, time.Since(s.Began).Round(time.Second),
			time.Since(s.Began).Seconds()/float64(fresh))
	}
	if !s.complete {
		fmt.Fprintln(s.stdout, "The run was interrupted.")
	}
	fmt.Fprintf(s.stdout, "mutants: %d tried, %d survived, %d explained\n", all.tried, all.survived, all.explained)
	return nil
}

// staleVerdicts returns the IDs of verdicts on the packages that were read that match no mutant.
func (s *session) staleVerdicts() []string {
	packages, mutants := map[string]bool{}, map[string]bool{}
	for _, m := range s.mutants {
		packages[path.Base(packageKey(s.packages[0].Module.Path, m.Package))] = true
		mutants[m.ID] = true
	}
	var stale []string
	for _, v := range s.verdicts {
		name := v.id[:strings.LastIndex(v.id, "-")]
		if packages[name] && !mutants[v.id] {
			stale = append(stale, v.id)
		}
	}
	return stale
}

func heading(first string) []string {
	return []string{first, "mutants", "tried", "killed", "timed out", "survived", "explained"}
}

func (c counts) row(first string) []string {
	row := []string{first}
	for _, n := range []int{c.found, c.tried, c.killed, c.timedOut, c.survived, c.explained} {
		row = append(row, fmt.Sprint(n))
	}
	return row
}

func (s *session) packageRows(entries []entry) [][]string {
	rows := [][]string{heading("package")}
	for _, p := range s.packages {
		found := s.foundBy(func(m *mutant) bool { return m.Package == p.ImportPath })
		name := strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
		rows = append(rows, count(entries, found, func(e entry) bool { return e.Package == p.ImportPath }).row(name))
	}
	return append(rows, count(entries, len(s.mutants), func(entry) bool { return true }).row("all"))
}

// document returns the page for maintainers.
func (s *session) document(entries []entry) string {
	var text strings.Builder
	text.WriteString("# Surviving mutants\n\n")
	text.WriteString("`make mutants` writes this page. A mutant is a small change of the library that some test " +
		"should notice. A mutant that\n")
	text.WriteString("no test notices survives: a test is missing, or the change breaks no promise. " +
		"[verdicts.txt](verdicts.txt) has each\n")
	text.WriteString("explained survivor with its change and the reason, and the tests that were added for others.\n\n")
	fmt.Fprintf(&text, "- Date: %s, commit %s, seed %d, %s, %d processors\n",
		s.Began.UTC().Format("2006-01-02 15:04 UTC"), s.Commit, s.Seed, runtime.Version(), runtime.NumCPU())
	fmt.Fprintf(&text, "- Duration: %v", time.Since(s.Began).Round(time.Second))
	if s.reused > 0 {
		fmt.Fprintf(&text, "; %d results were taken over from an earlier run (`RETRY=1`), and the rest was tried",
			s.reused)
	}
	text.WriteString("\n")
	if !s.complete {
		text.WriteString("- The run was interrupted. The numbers are a smaller sample.\n")
	}
	text.WriteString("\n")
	for i, row := range s.packageRows(entries) {
		text.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			text.WriteString("|---|" + strings.Repeat("---:|", len(row)-1) + "\n")
		}
	}
	text.WriteString("\n## Survivors without an explanation\n\n")
	unexplained := 0
	for _, e := range entries {
		if e.result.survived() && !e.verdict.explains() {
			unexplained++
			writeSurvivor(&text, e)
		}
	}
	if unexplained == 0 {
		text.WriteString("None.\n")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}

func writeSurvivor(text *strings.Builder, e entry) {
	fmt.Fprintf(text, "### %s\n\n", e.ID)
	fmt.Fprintf(text, "%s:%d, function %s, operator %s\n\n", e.File, e.Line, strings.ReplaceAll(e.Function, "*", `\*`),
		e.Operator)
	fmt.Fprintf(text, "```diff\n- %s\n+ %s\n```\n\n", e.Before, e.After)
	if e.result.Outcome == notCovered {
		text.WriteString("No test reaches it.\n\n")
		return
	}
	fmt.Fprintf(text, "%d tests reach it and pass.\n\n", e.result.Tests)
}
