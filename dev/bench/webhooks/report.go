package main

import (
	_ "embed" // the text of the document
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
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
	return os.WriteFile(path, []byte(section.Set(string(text), section.Webhooks, document(r))), 0o644)
}

// document returns the section of docs/reference/benchmarks.md.
func document(r *Results) string {
	var b strings.Builder
	rounds, noun := len(r.Rounds[cases()[0].name][evenKeel]), "rounds"
	if rounds == 1 {
		noun = "round"
	}
	b.WriteString("## Webhook servers\n\n" + strings.TrimSpace(methodText) + "\n\n")
	fmt.Fprintf(&b, "%s, %s. Even Keel: %s; controller-runtime: %s. %s, %d cores, %.1f GB of memory, %s; load "+
		"average before the run: %s. Medians of %d %s. Ratios above 1.05 are in bold: there Even Keel needs more.\n\n",
		r.Date.Format("2 January 2006"), r.GoVersion, r.Versions[evenKeel], r.Versions[controllerRuntime],
		r.Machine.CPU, r.Machine.Cores, float64(r.Machine.Memory)/1e9, r.Machine.System, r.Machine.LoadAvg,
		rounds, noun)
	b.WriteString("|call|figure|Even Keel|controller-runtime|ratio|\n|---|---|--:|--:|--:|\n")
	for _, c := range cases() {
		shown := c.name
		for _, f := range []struct {
			name string
			of   func(figures) float64
			text func(float64) string
		}{
			{"CPU of the server per call", func(f figures) float64 { return float64(f.CPU) }, duration},
			{"p50", func(f figures) float64 { return float64(f.P50) }, duration},
			{"p99", func(f figures) float64 { return float64(f.P99) }, duration},
			{"peak RSS of the server", func(f figures) float64 { return float64(f.PeakRSS) }, func(v float64) string {
				return fmt.Sprintf("%.1f MB", v/1e6)
			}},
		} {
			own, peer := median(r.Rounds[c.name][evenKeel], f.of), median(r.Rounds[c.name][controllerRuntime], f.of)
			ratio := fmt.Sprintf("%.2f", own/peer)
			if own > peer*1.05 {
				ratio = "**" + ratio + "**"
			}
			fmt.Fprintf(&b, "|%s|%s|%s|%s|%s|\n", shown, f.name, f.text(own), f.text(peer), ratio)
			shown = ""
		}
	}
	return section.Wrap(b.String())
}

func median(rounds []figures, of func(figures) float64) float64 {
	values := make([]float64, 0, len(rounds))
	for _, f := range rounds {
		values = append(values, of(f))
	}
	m, _ := result.Median(values)
	return m
}

func duration(v float64) string {
	d := time.Duration(v)
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
