package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// putObjects stores n ConfigMaps.
func putObjects(tb testing.TB, s *Server, n int) {
	tb.Helper()
	for i := range n {
		mustSend(tb, s, "POST", configMapsPath, fmt.Sprintf(`{"metadata":{"name":"cm-%04d","labels":{"app":"web"}},"data":{"k":"v"}}`, i))
	}
}

func TestForkChangesIndependently(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 3)
	fork := s.Fork()
	mustSend(t, fork, "DELETE", configMapsPath+"/cm-0000", "")
	mustSend(t, fork, "POST", configMapsPath, `{"metadata":{"name":"new"}}`)
	mustSend(t, s, "PATCH", configMapsPath+"/cm-0001", `{"data":{"k":"changed"}}`, "Content-Type", "application/merge-patch+json")
	if text := mustSend(t, s, "GET", configMapsPath, ""); !strings.Contains(text, "cm-0000") || strings.Contains(text, `"new"`) || !strings.Contains(text, "changed") {
		t.Errorf("the original has changes of the fork: %s", text)
	}
	if text := mustSend(t, fork, "GET", configMapsPath, ""); strings.Contains(text, "cm-0000") || !strings.Contains(text, `"new"`) || strings.Contains(text, "changed") {
		t.Errorf("the fork has changes of the original: %s", text)
	}
}

// Two forks that get the same requests give the same responses, uids and generated names included, except for the time.
func TestForksAreDeterministic(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 2)
	run := func(s *Server) string {
		var b strings.Builder
		for _, body := range []string{`{"metadata":{"generateName":"gen-"}}`, `{"metadata":{"name":"x"}}`} {
			b.WriteString(withoutTimes(mustSend(t, s, "POST", configMapsPath, body)))
		}
		b.WriteString(withoutTimes(mustSend(t, s, "GET", configMapsPath, "")))
		return b.String()
	}
	if a, b := run(s.Fork()), run(s.Fork()); a != b {
		t.Errorf("two forks differ:\n%s\n%s", a, b)
	}
}

func withoutTimes(text string) string {
	return strings.ReplaceAll(text, time.Now().UTC().Format("2006-01-02T15:04"), "")
}

func TestListAtEarlierVersion(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 2)
	before := s.Version()
	mustSend(t, s, "DELETE", configMapsPath+"/cm-0000", "")
	mustSend(t, s, "PATCH", configMapsPath+"/cm-0001", `{"data":{"k":"changed"}}`, "Content-Type", "application/merge-patch+json")
	mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"cm-0002"}}`)
	exact := configMapsPath + "?resourceVersionMatch=Exact&resourceVersion=" + before
	text := mustSend(t, s, "GET", exact, "")
	if !strings.Contains(text, "cm-0000") || strings.Contains(text, "changed") || strings.Contains(text, "cm-0002") {
		t.Errorf("the list at %s has later changes: %s", before, text)
	}
	s.Compact()
	if code, text := send(t, s, "GET", exact, ""); code != 410 || !strings.Contains(text, `"reason":"Expired"`) {
		t.Errorf("list at a compacted version: %d %s, want 410", code, text)
	}
}

// Pages of a list have the state of the first page. After compaction the next page gets 410 with a token for the rest.
func TestContinue(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 5)
	page := func(query string) *unstructured.UnstructuredList {
		list := &unstructured.UnstructuredList{}
		if err := list.UnmarshalJSON([]byte(mustSend(t, s, "GET", configMapsPath+"?"+query, ""))); err != nil {
			t.Fatal(err)
		}
		return list
	}
	first := page("limit=2")
	if n := first.GetRemainingItemCount(); n == nil || *n != 3 {
		t.Errorf("remainingItemCount %v, want 3", n)
	}
	mustSend(t, s, "DELETE", configMapsPath+"/cm-0003", "")
	second := page("limit=2&continue=" + first.GetContinue())
	if len(second.Items) != 2 || second.Items[1].GetName() != "cm-0003" || second.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("the second page has %d items at version %s", len(second.Items), second.GetResourceVersion())
	}
	s.Compact()
	code, text := send(t, s, "GET", configMapsPath+"?limit=2&continue="+second.GetContinue(), "")
	if code != 410 {
		t.Fatalf("a page after compaction: %d %s", code, text)
	}
	_, token, _ := strings.Cut(text, `"continue":"`)
	token, _, _ = strings.Cut(token, `"`)
	if rest := page("continue=" + token); len(rest.Items) != 1 || rest.Items[0].GetName() != "cm-0004" {
		t.Errorf("%d items after the inconsistent continuation", len(rest.Items))
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c *Config) { c.History = 10 })
	putObjects(t, s, 100)
	table := s.tables[schema.GroupResource{Resource: "configmaps"}]
	if n := len(table.history); n < 10 || n >= 20 {
		t.Errorf("%d events in the history, want 10 to 19", n)
	}
	if text := mustSend(t, s, "GET", configMapsPath+"?watch=true&timeoutSeconds=1&resourceVersion=1005", ""); !strings.Contains(text, `"ERROR"`) || !strings.Contains(text, "too old resource version: 1005") {
		t.Errorf("watch from a compacted version: %s", text)
	}
}
