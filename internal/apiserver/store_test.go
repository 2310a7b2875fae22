package apiserver

import (
	"fmt"
	"net/http"
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

// A version of zeros is any version, although a list with it must match exactly.
func TestListAtVersionZeroHasLatestObjects(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 3)
	s.Compact()
	for _, query := range []string{"?resourceVersion=00&resourceVersionMatch=Exact", "?resourceVersion=00", "?resourceVersion=0"} {
		if text := mustSend(t, s, "GET", configMapsPath+query, ""); !strings.Contains(text, `"resourceVersion":"`+s.Version()+`"`) || !strings.Contains(text, "cm-0002") {
			t.Errorf("%s: %s, want all objects at version %s", query, text, s.Version())
		}
	}
}

// The real server waits for a future version in its cache, and suggests to retry. It does not for an object that it reads
// from etcd.
func TestListOfFutureVersion(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 1)
	const object = "&fieldSelector=metadata.name%3Dcm-0000"
	for query, retry := range map[string]bool{
		"": true, "&limit=1": true, "&resourceVersionMatch=Exact": true, object: true, object + "&resourceVersionMatch=NotOlderThan": true,
		object + "&resourceVersionMatch=Exact": false, object + "&limit=1": false,
	} {
		code, text := send(t, s, "GET", configMapsPath+"?resourceVersion=999999999"+query, "")
		if code != 504 || strings.Contains(text, `"retryAfterSeconds":1`) != retry {
			t.Errorf("%s: %d %s, want 504, with a time to retry: %t", query, code, text, retry)
		}
	}
}

// A deletion of a collection with a version lists in pages: it deletes the objects that existed at this version.
func TestDeleteCollectionAtVersion(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 2)
	before := s.Version()
	mustSend(t, s, "DELETE", configMapsPath+"/cm-0000", "")
	mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"later"}}`)
	// With a body, the version is not a precondition as well.
	deleteAll := func(query string) (int, string) {
		return send(t, s, "DELETE", configMapsPath+"?resourceVersion="+before+query, `{}`)
	}
	if code, text := deleteAll(""); code != 200 || !strings.Contains(text, "cm-0000") || strings.Contains(text, "later") || !strings.Contains(text, `"resourceVersion":"`+before+`"`) {
		t.Errorf("deletion at version %s: %d %s", before, code, text)
	}
	if text := mustSend(t, s, "GET", configMapsPath, ""); !strings.Contains(text, "later") || strings.Contains(text, "cm-") {
		t.Errorf("after the deletion at version %s: %s", before, text)
	}
	if code, text := deleteAll("&resourceVersionMatch=NotOlderThan"); code != 200 || !strings.Contains(text, "later") {
		t.Errorf("deletion at least at version %s: %d %s", before, code, text)
	}
	mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"last"}}`)
	s.Compact()
	if code, text := deleteAll(""); code != 410 {
		t.Errorf("deletion at a compacted version: %d %s, want 410", code, text)
	}
}

// A deletion warns that it orphans the dependents also if it cannot list the objects.
func TestFailedDeleteCollectionWarnsOfOrphans(t *testing.T) {
	t.Parallel()
	kind := widgets()
	kind.Rules.OrphanWarning = "orphans"
	s := newServer(t, func(c *Config) { c.Kinds = []*Kind{Namespaces(), kind} })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://apiserver.invalid/apis/example.com/v1/namespaces/shop/widgets?continue=wrong", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Transport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if warning := res.Header.Get("Warning"); res.StatusCode != http.StatusBadRequest || !strings.Contains(warning, "orphans") {
		t.Errorf("%d with the warning %q, want 400 with a warning", res.StatusCode, warning)
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
