package prometheus_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestQueriesOfPages: each query on a page names only metrics and labels that exist, and so does
// each metric that is named in the text.
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
				t.Errorf("%s names %s, which is no metric", page, named[1])
			}
		}
	}
}
