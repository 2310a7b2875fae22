package monitoring_test

import (
	"regexp"
	"strings"
	"testing"
)

// The queries of each page must have results, and the metrics in its text must exist.
func TestQueriesOfPages(t *testing.T) {
	t.Parallel()
	samples := store(t, play(t, trouble).scrapes)
	table := readFile(t, metricsFile)
	for _, page := range []string{"../../docs/causes.md", "../../docs/operations.md"} {
		text := readFile(t, page)
		blocks := regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no queries", page)
		}
		for _, block := range blocks {
			for query := range strings.Lines(block[1]) {
				query = strings.TrimSpace(query)
				for _, problem := range check(t, samples, target{Expr: query}) {
					t.Errorf("%s: %s: %s", page, problem, query)
				}
			}
		}
		for _, named := range regexp.MustCompile("`evenkeel_\\w+`").FindAllString(text, -1) {
			if !strings.Contains(table, "| "+named+" |") {
				t.Errorf("%s names %s, which is not a metric", page, named)
			}
		}
	}
}
