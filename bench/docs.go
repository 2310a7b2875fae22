package main

import (
	_ "embed" // the texts of the document
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel-go/evenkeel/bench/internal/section"
	"github.com/evenkeel-go/evenkeel/bench/shared/probe"
)

//go:embed method.md
var methodText string

// docsFile is the document, docsCharts the folder of its charts, both in the folder of the
// documents.
const (
	docsFile   = "benchmarks.md"
	docsCharts = "benchmarks"
)

// writeDocs writes the document and its charts.
func writeDocs(r *Results, dir, docs string) error {
	explanations, err := readExplanations(filepath.Join(dir, "explanations.md"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(docs, docsCharts), 0o755); err != nil {
		return err
	}
	for name, c := range charts(r) {
		if err := os.WriteFile(filepath.Join(docs, docsCharts, name+".svg"), []byte(c.svg()), 0o644); err != nil {
			return err
		}
	}
	path := filepath.Join(docs, docsFile)
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, sections := section.Cut(string(before))
	return os.WriteFile(path, []byte(document(r, explanations)+sections), 0o644)
}

// readExplanations reads why figures miss their targets, written by hand: a heading "## family"
// of the metric, or "## family peer", and the text.
func readExplanations(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	result := make(map[string]string)
	for i, section := range strings.Split("\n"+string(data), "\n## ") {
		heading, text, _ := strings.Cut(section, "\n")
		if i > 0 {
			result[strings.TrimSpace(heading)] = strings.TrimSpace(text)
		}
	}
	return result, nil
}

func document(r *Results, explanations map[string]string) string {
	var b strings.Builder
	b.WriteString("<!-- Written by `make bench-compare`, and the last parts by `make bench-operator` and `make bench-webhooks`. Do not\n" +
		"edit: the texts are in bench/method.md, bench/explanations.md and the files method.txt. -->\n# Benchmarks\n\n")
	fmt.Fprintf(&b, "%s, %s. On %s, %d cores, %s of memory, %s.\n\n", r.Date.Format("2 January 2006"), r.GoVersion, r.Machine.CPU, r.Machine.Cores,
		bytesUnit.format(float64(r.Machine.Memory)), r.Machine.System)
	writeVersions(&b, r)
	b.WriteString("\n## Against controller-runtime\n\nEven Keel's figure divided by controller-runtime's at its defaults: less is better.\n\n")
	writeTargets(&b, r)
	writeMisses(&b, r, explanations)
	b.WriteString("\n## Memory and CPU by number of Pods\n\n")
	for _, name := range []string{"heap", "rss", "cpu"} {
		fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", charts(r)[name].title, docsCharts, name)
	}
	writeSizes(&b, r)
	b.WriteString("\n## All figures\n\nMedians of " + fmt.Sprint(r.Options.Rounds) + " rounds.\n\n")
	writeFigures(&b, r)
	writeFailures(&b, r)
	b.WriteString("\n" + strings.TrimSpace(methodText) + "\n\n")
	writeFacts(&b, r)
	return section.Wrap(b.String())
}

func writeVersions(b *strings.Builder, r *Results) {
	b.WriteString("| | version | Kubernetes libraries | first list of Pods | of custom resources |\n|---|---|---|---|---|\n")
	for _, c := range contestants(r.Options.Only) {
		version, libraries := r.Versions[c.name], r.Kubernetes[c.name]
		if c.best {
			version, libraries = "the same", "the same"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", c.title, version, libraries,
			strings.Join(r.Requests[probe.Pods+" "+c.name], ", "), strings.Join(r.Requests[probe.Databases+" "+c.name], ", "))
	}
}

func writeTargets(b *strings.Builder, r *Results) {
	b.WriteString("| | Even Keel | controller-runtime | ratio | target (stretch) | |\n|---|--:|--:|--:|--:|---|\n")
	for _, m := range metricsOf(r.Options) {
		if m.target == 0 {
			continue
		}
		verdict := ""
		if ratio, ok := r.ratio(m.key, controllerRuntime); ok {
			switch {
			case m.missed(controllerRuntime, ratio):
				verdict = "**missed**"
			case m.stretch > 0 && ratio <= m.stretch:
				verdict = "stretch met"
			default:
				verdict = "met"
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", m.title, cell(r, m, contestant{name: evenKeel}), cell(r, m, contestant{name: controllerRuntime}),
			ratioCell(r, m, controllerRuntime), m.targetText(), verdict)
	}
	if heap, ok := r.figure(sized("heap_per_pod", million), evenKeel); ok {
		rss, _ := r.figure(sized("peak_rss_pod", million), evenKeel)
		verdict := "met"
		if rss > millionTarget {
			verdict = "**missed**"
		}
		fmt.Fprintf(b, "\n1,000,000 Pods with Even Keel: heap %s, peak RSS %s, in a process with GOMEMLIMIT=%s; the target is less than %s: %s.\n",
			bytesUnit.format(heap*million), bytesUnit.format(rss), millionLimit, bytesUnit.format(millionTarget), verdict)
	}
}

// writeMisses explains every figure that misses its target, against each peer.
func writeMisses(b *strings.Builder, r *Results, explanations map[string]string) {
	all := misses(r)
	b.WriteString("\n### Missed targets\n\nIn addition, no figure except reads may be above Kooper's with its defaults.\n\n")
	if len(all) == 0 {
		b.WriteString("Nothing.\n")
	}
	for _, m := range all {
		text := explanations[m.metric.family+" "+m.peer]
		if text == "" {
			text = explanations[m.metric.family]
		}
		if text == "" {
			text = "Not explained yet."
			fmt.Fprintf(os.Stderr, "explanations.md has no section %q, nor %q\n", m.metric.family, m.metric.family+" "+m.peer)
		}
		fmt.Fprintf(b, "- **%s**: %s of %s's. %s\n", m.metric.title, ratioText(m.ratio), m.peer, text)
	}
}

func writeFigures(b *strings.Builder, r *Results) {
	b.WriteString("| |")
	for _, c := range contestants(r.Options.Only) {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(contestants(r.Options.Only))) + "\n")
	for _, m := range metricsOf(r.Options) {
		if len(r.Figures[m.key]) == 0 {
			continue
		}
		b.WriteString("| " + m.title + " |")
		for _, c := range contestants(r.Options.Only) {
			b.WriteString(" " + cell(r, m, c))
			if ratio, ok := r.ratio(m.key, c.name); ok && c.name != evenKeel {
				b.WriteString(" (" + ratioText(ratio) + ")")
			}
			b.WriteString(" |")
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nIn brackets: Even Keel's figure divided by this one.\n")
}

// allSizes are the numbers of objects that were measured.
func allSizes(r *Results) []int {
	sizes := slices.Concat(r.Options.Sizes, r.Options.ChartSizes)
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func writeSizes(b *strings.Builder, r *Results) {
	b.WriteString("| Even Keel, Pods | heap per Pod | peak RSS | time to sync and handle | CPU time |\n|--:|--:|--:|--:|--:|\n")
	for _, n := range allSizes(r) {
		fmt.Fprintf(b, "| %s |", thousands(n))
		for _, m := range []metric{{key: "heap_per_pod", unit: bytesUnit}, {key: "peak_rss_pod", unit: bytesUnit}, {key: "sync_time_pod", unit: secondsUnit}, {key: "sync_cpu_pod", unit: secondsUnit}} {
			m.key = sized(m.key, n)
			fmt.Fprintf(b, " %s |", cell(r, m, contestant{name: evenKeel}))
		}
		b.WriteByte('\n')
	}
}

func writeFailures(b *strings.Builder, r *Results) {
	if len(r.Failures) == 0 {
		return
	}
	b.WriteString("\nMeasurements that failed:\n\n")
	for _, f := range r.Failures {
		fmt.Fprintf(b, "- %s\n", f)
	}
}

func writeFacts(b *strings.Builder, r *Results) {
	o := r.Options
	fmt.Fprintf(b, "This run: %d rounds, %d workers in every controller; %s events over distinct keys, %s a second for %g s over %d keys with a handler of %g ms, "+
		"%s a second for %g s for the latency; %.0f s in all. Load average before it: %s. Mean size of the objects:", o.Rounds, o.Workers, thousands(min(o.Distinct, o.Sizes[0])),
		thousands(o.HotRate), o.HotSeconds, o.HotKeys, float64(o.HotHandlerMicros)/1000, thousands(o.PacedRate), o.PacedSeconds, r.Seconds, r.Machine.LoadAvg)
	var sizes []string
	for name, size := range r.ObjectBytes {
		sizes = append(sizes, fmt.Sprintf(" %s %.0f B", name, size))
	}
	slices.Sort(sizes)
	b.WriteString(strings.Join(sizes, ",") + ".\n")
	if o.TLS {
		b.WriteString("The server spoke HTTPS and HTTP/2.\n")
	}
}

// charts returns the charts by the names of their files.
func charts(r *Results) map[string]chart {
	result := map[string]chart{
		"heap": {title: "Heap by number of Pods, after garbage collection", y: bytesUnit},
		"rss":  {title: "Peak RSS while syncing, by number of Pods", y: bytesUnit},
		"cpu":  {title: "CPU time to sync and handle all, by number of Pods", y: secondsUnit},
	}
	for name, c := range result {
		c.xTitle = "Pods (both axes are logarithmic)"
		for _, who := range contestants(r.Options.Only) {
			l := line{name: who.title}
			for _, n := range allSizes(r) {
				key, factor := "heap_per_pod", float64(n)
				switch name {
				case "rss":
					key, factor = "peak_rss_pod", 1
				case "cpu":
					key, factor = "sync_cpu_pod", 1
				}
				if value, ok := r.figure(sized(key, n), who.name); ok && value > 0 {
					l.points = append(l.points, point{float64(n), value * factor})
				}
			}
			c.lines = append(c.lines, l)
		}
		result[name] = c
	}
	return result
}
