package main

import (
	_ "embed" // the text of the document
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel-go/evenkeel/bench/internal/section"
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

// document returns the section of docs/benchmarks.md.
func document(r *Results) string {
	var b strings.Builder
	b.WriteString("## One operator on two libraries\n\n" + strings.TrimSpace(methodText) + "\n\n")
	fmt.Fprintf(&b, "%s, %s. Even Keel: %s; controller-runtime: %s. %s, %d cores, %.1f GB of memory, %s; load average before the run: %s.\n",
		r.Date.Format("2 January 2006"), r.GoVersion, r.Versions[evenKeel], r.Versions[controllerRuntime],
		r.Machine.CPU, r.Machine.Cores, float64(r.Machine.Memory)/1e9, r.Machine.System, r.Machine.LoadAvg)
	var load float64
	if _, err := fmt.Sscan(r.Machine.LoadAvg, &load); err == nil && load > float64(r.Machine.Cores) {
		b.WriteString("\nOther programs used the machine during this run. Its times say little about either program, and its CPU times are only comparable with each other.\n")
	}
	if r.Note != "" {
		b.WriteString("\n" + r.Note + "\n")
	}
	for _, size := range r.sizes() {
		fmt.Fprintf(&b, "\n### %s WebApps\n\n", thousands(size))
		r.writeRounds(&b, size)
		r.writeFigures(&b, size)
		b.WriteString("\nRequests by verb, which the proxy counted:\n\n")
		r.writeVerbs(&b, size)
		r.writeLeft(&b, size)
	}
	return section.Wrap(b.String())
}

func (r *Results) writeRounds(b *strings.Builder, size int) {
	rounds := len(r.Rounds[size][evenKeel][phaseStart])
	text := fmt.Sprintf("Medians of %d rounds.", rounds)
	if rounds == 1 {
		text = "One round."
	}
	o := r.Options
	fmt.Fprintf(b, "%s %g changes a second for %g s of churn, and for %g s before and after the outage; %g s at rest.\n\n",
		text, o.Rate, o.Churn.Seconds(), o.Outage.Seconds(), o.Rest.Seconds())
}

func (r *Results) writeFigures(b *strings.Builder, size int) {
	b.WriteString("| phase | figure | Even Keel | controller-runtime | ratio |\n|---|---|--:|--:|--:|\n")
	phase := ""
	for _, f := range figures() {
		own, found := r.median(size, evenKeel, f)
		peer, both := r.median(size, controllerRuntime, f)
		if !found || !both {
			continue
		}
		shown := ""
		if f.phase != phase {
			phase, shown = f.phase, f.phase
		}
		ratio := "-"
		if peer != 0 {
			ratio = fmt.Sprintf("%.2f", own/peer)
			if own > peer*1.05 {
				ratio = "**" + ratio + "**"
			}
		} else if own > 0 {
			ratio = "**-**"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", shown, f.title, f.format(own), f.format(peer), ratio)
	}
	b.WriteString("\nRatios above 1.05 are in bold: there Even Keel needs more.\n")
}

// writeVerbs writes the requests by verb of the last round.
func (r *Results) writeVerbs(b *strings.Builder, size int) {
	verbs := func(program, phase string) map[string]int {
		result := make(map[string]int)
		if rounds := r.Rounds[size][program][phase]; len(rounds) > 0 {
			for name, n := range rounds[len(rounds)-1].Requests {
				verb, _, _ := strings.Cut(name, " ")
				result[verb] += n
			}
		}
		return result
	}
	text := func(counted map[string]int) string {
		var parts []string
		for _, verb := range slices.Sorted(maps.Keys(counted)) {
			parts = append(parts, fmt.Sprintf("%s %s", verb, thousands(counted[verb])))
		}
		if len(parts) == 0 {
			return "none"
		}
		return strings.Join(parts, ", ")
	}
	b.WriteString("| phase | Even Keel | controller-runtime |\n|---|---|---|\n")
	for _, phase := range phases() {
		fmt.Fprintf(b, "| %s | %s | %s |\n", phase, text(verbs(evenKeel, phase)), text(verbs(controllerRuntime, phase)))
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
