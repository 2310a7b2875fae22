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

const budgetsPath = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"

// The budget of a ready Pod decides about its eviction, and counts it.
func TestEvictionWithBudget(t *testing.T) {
	t.Parallel()
	const evictable = `"observedGeneration":1,"disruptionsAllowed":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2`
	for name, c := range map[string]struct {
		pod, spec, status, request string
		code                       int
		text                       string
	}{
		"allowed":         {status: evictable, code: 201, text: `"status":"Success"`},
		"no status":       {status: ``, code: 429, text: `"message":"The disruption budget a is still being processed by the server."}],"retryAfterSeconds":10`},
		"exhausted":       {status: `"observedGeneration":1,"currentHealthy":1,"desiredHealthy":1`, code: 429, text: `"message":"The disruption budget a needs 1 healthy pods and has 1 currently"}]}`},
		"failed sync":     {status: `"observedGeneration":1,"conditions":[{"type":"DisruptionAllowed","status":"False","reason":"SyncFailed","message":"m","lastTransitionTime":"2020-01-01T00:00:00Z"}]`, code: 429, text: `because it failed sync: m`},
		"terminal Pod":    {pod: `{"phase":"Failed"}`, code: 201},
		"pending Pod":     {pod: `{"phase":"Pending"}`, code: 201},
		"unhealthy Pod":   {pod: `{"phase":"Running"}`, status: `"observedGeneration":1`, code: 429},
		"healthy budget":  {pod: `{"phase":"Running"}`, status: `"currentHealthy":1,"desiredHealthy":1`, code: 201},
		"always allowed":  {pod: `{"phase":"Running"}`, spec: `,"unhealthyPodEvictionPolicy":"AlwaysAllow"`, code: 201},
		"dry run":         {status: evictable, request: `,"deleteOptions":{"dryRun":["All"]}`, code: 201},
		"invalid options": {status: evictable, request: `,"deleteOptions":{"propagationPolicy":"Wrong"}`, code: 422},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			mustSend(t, s, "POST", podsPath, "json", `{"metadata":{"name":"a","labels":{"a":"b"}},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
			if c.pod == "" {
				c.pod = `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`
			}
			mustSend(t, s, "PATCH", podsPath+"/a/status", "merge-patch+json", `{"status":`+c.pod+`}`)
			mustSend(t, s, "POST", budgetsPath, "json", `{"metadata":{"name":"a"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}`+c.spec+`}}`)
			mustSend(t, s, "PATCH", budgetsPath+"/a/status", "merge-patch+json", `{"status":{`+c.status+`}}`)
			code, text := send(t, s, "POST", podsPath+"/a/eviction", "json", `{"metadata":{"name":"a"}`+c.request+`}`)
			if code != c.code || !strings.Contains(text, c.text) {
				t.Errorf("%d %s", code, text)
			}
			found, pod := send(t, s, "GET", podsPath+"/a", "json", "")
			deleted := found == http.StatusNotFound || strings.Contains(pod, "deletionTimestamp")
			if want := c.code == http.StatusCreated && c.request == ""; deleted != want {
				t.Errorf("deleted: %t", deleted)
			}
			counted := strings.Contains(mustSend(t, s, "GET", budgetsPath+"/a", "json", ""), `"disruptedPods":{"a":`)
			if want := c.status == evictable && name != "dry run"; counted != want {
				t.Errorf("counted: %t", counted)
			}
		})
	}
}

func TestEvictionWithSeveralBudgets(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	mustSend(t, s, "POST", podsPath, "json", `{"metadata":{"name":"a"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	mustSend(t, s, "PATCH", podsPath+"/a/status", "merge-patch+json", `{"status":{"phase":"Running"}}`)
	for _, name := range []string{"one", "two"} {
		mustSend(t, s, "POST", budgetsPath, "json", `{"metadata":{"name":"`+name+`"},"spec":{"maxUnavailable":1,"selector":{}}}`)
	}
	code, text := send(t, s, "POST", podsPath+"/a/eviction", "json", `{"metadata":{"name":"a"}}`)
	if code != http.StatusInternalServerError || !strings.Contains(text, "This pod has more than one PodDisruptionBudget") {
		t.Errorf("%d %s", code, text)
	}
}
