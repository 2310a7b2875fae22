package main

import (
	_ "embed" // a text of the document
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/section"
)

//go:embed slower.txt
var slowerText string

// docsFile is the document, docsCharts the folder of its charts, both in the folder of the
// documents.
const (
	docsFile   = "benchmarks.md"
	docsCharts = "benchmarks"
)

// writeDocs writes the document and its charts.
func writeDocs(r *Results, dir, docs string) error {
	explanations, err := readExplanations(filepath.Join(dir, "explanations.txt"))
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
	b.WriteString("<!-- Written by `make bench-compare`, and the last parts by `make bench-operator` and `make " +
		"bench-webhooks`. Do not\n" +
		"edit: the texts are in dev/bench/explanations.txt, dev/bench/slower.txt and the files method.txt. -->\n# " +
		"Benchmarks\n\n")
	fmt.Fprintf(&b, "%s, %s. On %s, %d cores, %s of memory, %s. Load average before the run: %s. Versions:",
		r.Date.Format("2 January 2006"), r.GoVersion, r.Machine.CPU, r.Machine.Cores,
		bytesUnit.format(float64(r.Machine.Memory)), r.Machine.System, r.Machine.LoadAvg)
	writeVersions(&b, r)
	b.WriteString(" [The method](../../dev/bench/method.md) describes the programs, the server and each figure.\n\n" +
		"## Figures\n\n")
	fmt.Fprintf(&b, "Medians of %d rounds with %s objects; less is better. In brackets: Even Keel's figure divided "+
		"by this one; for a peer at its best, that of Even Keel at its best.\n\n", r.Options.Rounds,
		thousands(slices.Max(r.Options.Sizes)))
	writeFigures(&b, r, func(c contestant) bool { return !c.compat }, func(m metric, c contestant) (float64, bool) {
		ratio, ok := r.ratio(m.key, c)
		return ratio, ok && c.name != c.counterpart()
	})
	writeMillion(&b, r)
	writeFailures(&b, r)
	writeMisses(&b, r, explanations)
	b.WriteString("\n## Where Even Keel is slower\n\n" + strings.TrimSpace(slowerText) + "\n")
	writeCompat(&b, r)
	b.WriteString("\n## Memory and CPU by number of Pods\n\n")
	for _, name := range []string{"heap", "rss", "cpu"} {
		fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", charts(r)[name].title, docsCharts, name)
	}
	return section.Wrap(b.String())
}

func writeVersions(b *strings.Builder, r *Results) {
	separator := ""
	for _, c := range contestants(r.Options.Only) {
		if !c.best && !c.compat {
			fmt.Fprintf(b, "%s %s %s (Kubernetes libraries %s)", separator, c.title, r.Versions[c.name],
				r.Kubernetes[c.name])
			separator = ","
		}
	}
	b.WriteString(".")
}

// writeMillion writes the figures of a process with 1,000,000 Pods, which has a limit of memory.
func writeMillion(b *strings.Builder, r *Results) {
	heap, ok := r.figure(sized("heap_per_pod", million), evenKeel)
	if !ok {
		return
	}
	rss, _ := r.figure(sized("peak_rss_pod", million), evenKeel)
	verdict := "met"
	if rss > millionTarget {
		verdict = "**missed**"
	}
	fmt.Fprintf(b, "\n1,000,000 Pods with Even Keel: heap %s, peak RSS %s, in a process with GOMEMLIMIT=%s; the "+
		"target is less than %s: %s.\n",
		bytesUnit.format(heap*million), bytesUnit.format(rss), millionLimit, bytesUnit.format(millionTarget), verdict)
}

// writeMisses explains every figure that misses its target, against each peer.
func writeMisses(b *strings.Builder, r *Results, explanations map[string]string) {
	all := misses(r)
	b.WriteString("\n## Missed targets\n\nEach target (dev/bench/metrics.go) is a part of controller-runtime's " +
		"figure at its defaults, and for reads again at its best 1.5 of its figure at its best. In addition, no " +
		"figure except reads may be above Kooper's.\n\n")
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
			fmt.Fprintf(os.Stderr, "explanations.txt has no section %q, nor %q\n", m.metric.family, m.metric.family+
				" "+m.peer)
		}
		fmt.Fprintf(b, "- **%s**: %s of %s's", m.metric.title, ratioText(m.ratio), m.peer)
		if m.peer == controllerRuntime {
			fmt.Fprintf(b, "; the target is %s", m.metric.targetText())
		}
		fmt.Fprintf(b, ". %s\n", text)
	}
}

// writeCompat writes the figures of controller-runtime with parts of Even Keel.
func writeCompat(b *strings.Builder, r *Results) {
	b.WriteString("\n## controller-runtime with parts of Even Keel\n\nThe program of controller-runtime [with " +
		"NewCache, and also with NewControllerManagedBy and NewClient](../migrating/controller-runtime.md). In " +
		"brackets: this figure divided by controller-runtime's.\n\n")
	writeFigures(b, r, func(c contestant) bool { return c.compat || c.name == controllerRuntime },
		func(m metric, c contestant) (float64, bool) {
			ratio, ok := r.ratioOf(m.key, c.name, controllerRuntime)
			return ratio, ok && c.compat
		})
}

// writeFigures writes a table with a column for each contestant that has selects, and a row for each figure that
// another one than controller-runtime has. ratio returns what stands in brackets.
func writeFigures(
	b *strings.Builder, r *Results, has func(contestant) bool, ratio func(metric, contestant) (float64, bool),
) {
	columns := slices.DeleteFunc(contestants(r.Options.Only), func(c contestant) bool { return !has(c) })
	b.WriteString("| |")
	for _, c := range columns {
		b.WriteString(c.title + "|")
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(columns)) + "\n")
	for _, m := range metricsOf(r.Options) {
		isMeasured := slices.ContainsFunc(columns, func(c contestant) bool {
			return c.name != controllerRuntime && len(r.Figures[m.key][c.name]) > 0
		})
		if !isMeasured || m.unlisted {
			continue
		}
		b.WriteString("|" + m.title + "|")
		for _, c := range columns {
			b.WriteString(cell(r, m, c))
			if ratio, ok := ratio(m, c); ok {
				b.WriteString(" (" + ratioText(ratio) + ")")
			}
			b.WriteString("|")
		}
		b.WriteByte('\n')
	}
}

// allSizes are the numbers of objects that were measured.
func allSizes(r *Results) []int {
	sizes := slices.Concat(r.Options.Sizes, r.Options.ChartSizes)
	slices.Sort(sizes)
	return slices.Compact(sizes)
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

// charts returns the charts by the names of their files.
func charts(r *Results) map[string]chart {
	result := map[string]chart{
		"heap": {title: "Heap by number of Pods, after garbage collection", y: bytesUnit},
		"rss":  {title: "Peak RSS while syncing, by number of Pods", y: bytesUnit},
		"cpu":  {title: "CPU time to sync and handle all, by number of Pods", y: secondsUnit},
	}
	for name, c := range result {
		c.xTitle = "Pods (both axes are logarithmic)"
		for _, contestant := range contestants(r.Options.Only) {
			l := line{name: contestant.title, dashed: contestant.best}
			for _, n := range allSizes(r) {
				key, factor := "heap_per_pod", float64(n)
				switch name {
				case "rss":
					key, factor = "peak_rss_pod", 1
				case "cpu":
					key, factor = "sync_cpu_pod", 1
				}
				if value, ok := r.figure(sized(key, n), contestant.name); ok && value > 0 {
					l.points = append(l.points, point{float64(n), value * factor})
				}
			}
			c.lines = append(c.lines, l)
		}
		result[name] = c
	}
	return result
}
