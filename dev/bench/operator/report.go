package main

import (
	_ "embed" // the text of the document
	"fmt"
	"os"
	"strings"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/section"
)

//go:embed method.txt
var methodText string

// writeDocs replaces this benchmark's section of a document.
func writeDocs(r *Results, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(section.Set(string(text), section.Operator, document(r))), 0o644)
}

// document returns the section of docs/reference/benchmarks.md.
func document(r *Results) string {
	var b strings.Builder
	b.WriteString("## One operator on two libraries\n\n" + strings.TrimSpace(methodText) + "\n\n")
	fmt.Fprintf(&b, "%s, %s. Even Keel: %s; controller-runtime: %s. %s, %d cores, %.1f GB of memory, %s; load "+
		"average before the run: %s.\n",
		r.Date.Format("2 January 2006"), r.GoVersion, r.Versions[evenKeel], r.Versions[controllerRuntime],
		r.Machine.CPU, r.Machine.Cores, float64(r.Machine.Memory)/1e9, r.Machine.System, r.Machine.LoadAvg)
	var load float64
	if _, err := fmt.Sscan(r.Machine.LoadAvg, &load); err == nil && load > float64(r.Machine.Cores) {
		b.WriteString("\nOther programs used the machine during this run. Its times say little about either program, " +
			"and its CPU times are only comparable with each other.\n")
	}
	if r.Note != "" {
		b.WriteString("\n" + r.Note + "\n")
	}
	r.writeRounds(&b)
	r.writeFigures(&b)
	for _, size := range r.sizes() {
		r.writeLeft(&b, size)
	}
	return section.Wrap(b.String())
}

func (r *Results) writeRounds(b *strings.Builder) {
	rounds := 0
	for _, size := range r.sizes() {
		rounds = max(rounds, len(r.Rounds[size][evenKeel][phaseStart]))
	}
	text := fmt.Sprintf("Medians of %d rounds.", rounds)
	if rounds == 1 {
		text = "One round."
	}
	o := r.Options
	fmt.Fprintf(b, "\n%s %g changes a second for %g s of churn, and for %g s before and after the outage; %g s at "+
		"rest. Figures of Even Keel that are "+
		"more than 5 %% above the other are in bold. Figures that are 0 for both are left out.\n\n",
		text, o.Rate, o.Churn.Seconds(), o.Outage.Seconds(), o.Rest.Seconds())
}

// writeFigures writes a table with two columns for each number of WebApps.
func (r *Results) writeFigures(b *strings.Builder) {
	b.WriteString("|phase|figure|")
	for _, size := range r.sizes() {
		fmt.Fprintf(b, "Even Keel, %s WebApps|controller-runtime|", thousands(size))
	}
	b.WriteString("\n|---|---|" + strings.Repeat("--:|--:|", len(r.sizes())) + "\n")
	phase := ""
	for _, f := range figures() {
		cells, zero := "", true
		for _, size := range r.sizes() {
			own, found := r.median(size, evenKeel, f)
			peer, both := r.median(size, controllerRuntime, f)
			if !found || !both {
				cells += "||"
				continue
			}
			zero = zero && own == 0 && peer == 0
			text := f.format(own)
			if own > peer*1.05 {
				text = "**" + text + "**"
			}
			cells += fmt.Sprintf("%s|%s|", text, f.format(peer))
		}
		if zero {
			continue
		}
		shown := ""
		if f.phase != phase {
			phase, shown = f.phase, f.phase
		}
		fmt.Fprintf(b, "|%s|%s|%s\n", shown, f.title, cells)
	}
}

// writeLeft writes what a phase has not finished within its time limit.
func (r *Results) writeLeft(b *strings.Builder, size int) {
	for _, p := range programs() {
		for _, phase := range phases() {
			for round, m := range r.Rounds[size][p.name][phase] {
				if m.Left != "" {
					fmt.Fprintf(b, "\n%s, %s, round %d: %s.\n", p.title, phase, round+1, m.Left)
				}
			}
		}
	}
}
