package prometheus_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The queries and the text of each page must use existing metrics and labels.
func TestQueriesOfPages(t *testing.T) {
	t.Parallel()
	all := exposedMetrics(t)
	for _, page := range []string{"../../docs/causes.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no queries", page)
		}
		for _, block := range blocks {
			for query := range strings.Lines(block[1]) {
				query = strings.TrimSpace(query)
				if _, problems := checkQuery(all, query, ""); len(problems) > 0 {
					t.Errorf("%s: %s: %s", page, strings.Join(problems, "; "), query)
				}
			}
		}
		for _, named := range regexp.MustCompile("`(evenkeel_\\w+)`").FindAllStringSubmatch(string(text), -1) {
			if _, whole := all[named[1]]; !whole {
				t.Errorf("%s names %s, which is not a metric", page, named[1])
			}
		}
	}
}
