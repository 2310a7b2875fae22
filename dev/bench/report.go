package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// peersOf returns the contestants of other libraries.
func peersOf(r *Results) []contestant {
	var result []contestant
	for _, c := range contestants(r.Options.Only) {
		if c.name != c.counterpart() {
			result = append(result, c)
		}
	}
	return result
}

// table is the result for people: every figure of everybody, and Even Keel's share of
// controller-runtime's beside the target.
func table(r *Results) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 2, 8, 2, ' ', 0)
	fmt.Fprint(w, "medians of ", r.Options.Rounds, " rounds")
	for _, c := range contestants(r.Options.Only) {
		fmt.Fprint(w, "\t", c.name)
	}
	fmt.Fprint(w, "\tratio\ttarget (stretch)\n")
	for _, m := range metricsOf(r.Options) {
		if len(r.Figures[m.key]) == 0 {
			continue
		}
		fmt.Fprint(w, m.title)
		for _, c := range contestants(r.Options.Only) {
			fmt.Fprint(w, "\t", cell(r, m, c))
		}
		fmt.Fprintf(w, "\t%s\t%s\n", ratioCell(r, m), m.targetText())
	}
	_ = w.Flush() // a strings.Builder takes everything
	for _, f := range r.Failures {
		fmt.Fprintln(&b, "failed:", f)
	}
	for _, miss := range misses(r) {
		fmt.Fprintln(&b, "missed:", miss)
	}
	return b.String()
}

// String returns the failure for people.
func (f Failure) String() string {
	return fmt.Sprintf("%s, %s %s, round %d: %s", f.Contestant, thousands(f.Objects), f.Kind, f.Round, f.Err)
}

func cell(r *Results, m metric, c contestant) string {
	if value, ok := r.figure(m.key, c.name); ok {
		return m.unit.format(value)
	}
	for _, f := range r.Failures {
		if f.Contestant == c.name && strings.HasSuffix(m.family, suffixOf(f.Kind)) {
			return "failed"
		}
	}
	return "-"
}

func ratioCell(r *Results, m metric) string {
	if ratio, ok := r.ratioOf(m.key, evenKeel, controllerRuntime); ok {
		return ratioText(ratio)
	}
	return "-"
}

func (m metric) targetText() string {
	if m.target == 0 {
		return ""
	}
	text := fmt.Sprint(m.target)
	if m.stretch > 0 {
		text += fmt.Sprintf(" (%v)", m.stretch)
	}
	if m.note != "" {
		text += ", " + m.note
	}
	return text
}

// miss is a figure that misses its target.
type miss struct {
	metric metric
	peer   string
	ratio  float64
}

// String returns the miss for people.
func (m miss) String() string {
	return fmt.Sprintf("%s: %s of %s's", m.metric.title, ratioText(m.ratio), m.peer)
}

func misses(r *Results) []miss {
	var result []miss
	for _, m := range metricsOf(r.Options) {
		for _, c := range peersOf(r) {
			if ratio, ok := r.ratio(m.key, c); ok && m.missed(c.name, ratio) {
				result = append(result, miss{metric: m, peer: c.name, ratio: ratio})
			}
		}
	}
	return result
}

// ratioLines are the results for programs, and after them again all that are above 1.
func ratioLines(r *Results) string {
	var all, above strings.Builder
	for _, m := range metricsOf(r.Options) {
		for _, c := range peersOf(r) {
			ratio, ok := r.ratio(m.key, c)
			if !ok {
				continue
			}
			fmt.Fprintf(&all, "RATIO %s %s/%s %.4f\n", m.key, c.counterpart(), c.name, ratio)
			if ratio > 1 && !c.compat {
				fmt.Fprintf(&above, "ABOVE 1.0 %s %s/%s %.4f\n", m.key, c.counterpart(), c.name, ratio)
			}
		}
	}
	return all.String() + above.String()
}
