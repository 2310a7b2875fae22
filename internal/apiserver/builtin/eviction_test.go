package builtin

import (
	"net/http"
	"strings"
	"testing"
)

// An evicted Pod has a condition, and is deleted with its grace period.
func TestEviction(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	pod := func(name string) {
		mustSend(t, s, "POST", podsPath, "json", `{"metadata":{"name":"`+name+`"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	}
	evict := func(name, options string) (int, string) {
		return send(t, s, "POST", podsPath+"/"+name+"/eviction", "json", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+name+`"}`+options+`}`)
	}
	pod("a")
	before := mustSend(t, s, "GET", podsPath+"/a", "json", "")
	if code, text := evict("a", `,"deleteOptions":{"dryRun":["All"]}`); code != http.StatusCreated || mustSend(t, s, "GET", podsPath+"/a", "json", "") != before {
		t.Errorf("dry run: %d %s", code, text)
	}
	if code, text := evict("a", `,"deleteOptions":{"preconditions":{"resourceVersion":"1"}}`); code != http.StatusConflict || !strings.Contains(text, `Operation cannot be fulfilled on Pod \"a\"`) {
		t.Errorf("wrong version: %d %s", code, text)
	}
	if code, text := evict("a", ""); code != http.StatusCreated || !strings.Contains(text, `"status":"Success","code":201`) {
		t.Errorf("evict: %d %s", code, text)
	}
	text := mustSend(t, s, "GET", podsPath+"/a", "json", "")
	for _, want := range []string{`"deletionGracePeriodSeconds":30`, `"type":"DisruptionTarget"`, `"reason":"EvictionByEvictionAPI"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	pod("b")
	if code, text := evict("b", `,"deleteOptions":{"gracePeriodSeconds":0}`); code != http.StatusCreated {
		t.Errorf("evict now: %d %s", code, text)
	}
	for _, name := range []string{"b", "missing"} {
		if code, text := evict(name, ""); code != http.StatusNotFound {
			t.Errorf("evict %s: %d %s", name, code, text)
		}
	}
	if code, text := send(t, s, "POST", podsPath+"/a/eviction", "json", `{"metadata":{"name":"other"}}`); code != http.StatusBadRequest {
		t.Errorf("another name: %d %s", code, text)
	}
}
