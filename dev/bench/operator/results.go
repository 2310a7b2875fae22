package main

import (
	"debug/buildinfo"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/machine"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
)

// Results is everything that a run has measured, with the facts that explain it.
type Results struct {
	Date    time.Time       `json:"date"`
	Seconds float64         `json:"seconds"`
	Options Options         `json:"options"`
	Machine machine.Machine `json:"machine"`
	// GoVersion is the compiler's; Versions are the libraries' by program.
	GoVersion string            `json:"goVersion"`
	Versions  map[string]string `json:"versions"`
	// Note is what a reader must know about this run. Optional.
	Note string `json:"note,omitempty"`
	// Rounds are the measurements by number of WebApps, program and phase.
	Rounds map[int]map[string]map[string][]Measurement `json:"rounds"`
}

func (r *Results) add(size int, program string, measured map[string]Measurement) {
	if r.Rounds == nil {
		r.Rounds = make(map[int]map[string]map[string][]Measurement)
	}
	if r.Rounds[size] == nil {
		r.Rounds[size] = make(map[string]map[string][]Measurement)
	}
	if r.Rounds[size][program] == nil {
		r.Rounds[size][program] = make(map[string][]Measurement)
	}
	for phase, m := range measured {
		r.Rounds[size][program][phase] = append(r.Rounds[size][program][phase], m)
	}
}

// setVersion notes the versions of a program's library and compiler.
func (r *Results) setVersion(p program, binary, commit string) error {
	built, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	r.GoVersion = built.GoVersion
	if p.library == "" {
		r.Versions[p.name] = commit
	}
	for _, module := range built.Deps {
		if p.library != "" && module.Path == p.library {
			r.Versions[p.name] = module.Version
		}
	}
	return nil
}

// figure is one number of a phase.
type figure struct {
	// name is the one in RATIO lines, title the one in tables.
	name, phase, title string
	format             func(float64) string
	value              func(m Measurement, size int) float64
}

// figures returns all figures, in the order of the table.
func figures() []figure {
	seconds := func(v float64) string { return fmt.Sprintf("%.2f s", v) }
	millis := func(v float64) string { return fmt.Sprintf("%.0f ms", 1000*v) }
	count := func(v float64) string { return thousands(int(math.Round(v))) }
	megabytes := func(v float64) string { return fmt.Sprintf("%.1f MB", v/1e6) }
	perApp := func(v float64) string { return fmt.Sprintf("%.2f", v) }

	elapsed := func(m Measurement, _ int) float64 { return m.Seconds }
	requests := func(m Measurement, _ int) float64 { return float64(m.requestCount()) }
	cpu := func(m Measurement, _ int) float64 { return m.CPU }
	rss := func(m Measurement, _ int) float64 { return float64(m.PeakRSS) }
	sent := func(m Measurement, _ int) float64 { return float64(m.Sent) }
	conflicts := func(m Measurement, _ int) float64 { return float64(m.conflicts()) }
	handled := func(m Measurement, _ int) float64 { return float64(m.Handled) }
	p50 := func(m Measurement, _ int) float64 { return m.P50 }
	p99 := func(m Measurement, _ int) float64 { return m.P99 }

	return []figure{
		{"start_time", phaseStart, "time until all are ready", seconds, elapsed},
		{"requests_new", phaseStart, "requests per new WebApp", perApp, func(m Measurement, size int) float64 {
			return float64(m.requestCount()) / float64(size)
		}},
		{"start_conflicts", phaseStart, "conflicts", count, conflicts},
		{"start_handled", phaseStart, "runs of the handler", count, handled},
		{"start_cpu", phaseStart, "CPU time", seconds, cpu},
		{"start_sent", phaseStart, "sent", megabytes, sent},
		{"start_peak_rss", phaseStart, "peak RSS", megabytes, rss},
		{"rest_requests", phaseRest, "requests", count, requests},
		{"rest_cpu", phaseRest, "CPU time", seconds, cpu},
		{"churn_p50", phaseChurn, "spec to child, p50", millis, p50},
		{"churn_p99", phaseChurn, "spec to child, p99", millis, p99},
		{"churn_requests", phaseChurn, "requests", count, requests},
		{"churn_conflicts", phaseChurn, "conflicts", count, conflicts},
		{"churn_handled", phaseChurn, "runs of the handler", count, handled},
		{"churn_cpu", phaseChurn, "CPU time", seconds, cpu},
		{"churn_sent", phaseChurn, "sent", megabytes, sent},
		{"churn_peak_rss", phaseChurn, "peak RSS", megabytes, rss},
		{"outage_p50", phaseOutage, "spec to child after it, p50", millis, p50},
		{"outage_p99", phaseOutage, "spec to child after it, p99", millis, p99},
		{"outage_requests", phaseOutage, "requests", count, requests},
		{"outage_cpu", phaseOutage, "CPU time", seconds, cpu},
		{"restart_time", phaseRestart, "time until all are handled", seconds, elapsed},
		{"restart_requests", phaseRestart, "requests", count, requests},
		{"restart_handled", phaseRestart, "runs of the handler", count, handled},
		{"restart_cpu", phaseRestart, "CPU time", seconds, cpu},
		{"restart_peak_rss", phaseRestart, "peak RSS", megabytes, rss},
		{"deletion_time", phaseDeletion, "time until all are gone", seconds, elapsed},
		{"deletion_requests", phaseDeletion, "requests", count, requests},
		{"deletion_conflicts", phaseDeletion, "conflicts", count, conflicts},
		{"deletion_cpu", phaseDeletion, "CPU time", seconds, cpu},
	}
}

// median returns the median over the rounds of one figure of one program.
func (r *Results) median(size int, program string, f figure) (float64, bool) {
	rounds := r.Rounds[size][program][f.phase]
	if len(rounds) == 0 {
		return 0, false
	}
	values := make([]float64, 0, len(rounds))
	for _, m := range rounds {
		values = append(values, f.value(m, size))
	}
	return result.Median(values)
}

// ratio returns Even Keel's figure divided by controller-runtime's. Two zeros are equal: 1.
func (r *Results) ratio(size int, f figure) (float64, bool) {
	own, found := r.median(size, evenKeel, f)
	peer, both := r.median(size, controllerRuntime, f)
	switch {
	case !found || !both:
		return 0, false
	case own == 0 && peer == 0:
		return 1, true
	default:
		return own / peer, true
	}
}

// ratioLines returns a line per figure and size for programs.
func (r *Results) ratioLines() string {
	var b strings.Builder
	for _, size := range r.sizes() {
		for _, f := range figures() {
			if ratio, found := r.ratio(size, f); found {
				fmt.Fprintf(&b, "RATIO %s evenkeel/%s %.3f %d\n", f.name, controllerRuntime, ratio, size)
			}
		}
	}
	return b.String()
}

func (r *Results) sizes() []int {
	var sizes []int
	for size := range r.Rounds {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	return sizes
}

// thousands writes a number with commas.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
