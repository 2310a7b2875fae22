package conformance

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSizeLimits compares the responses to large requests, and to requests that make an object too large for etcd.
func TestSizeLimits(t *testing.T) {
	const kB, merge, apply, jsonPatch = 1000, "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json"
	sent := regexp.MustCompile(`larger than max \(\d+ `)
	namespace := fmt.Sprintf("sizes%d", time.Now().Unix())
	spec := func(kind, value string) string {
		if kind == "Lease" {
			return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x"},"spec":{"holderIdentity":"` + value + `"}}`
		}
		return `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"holderIdentity":"` + value + `"}}`
	}
	for kind, path := range map[string]string{
		"Lease": "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases", "Widget": "/apis/" + group + "/v1/namespaces/" + namespace + "/widgets",
	} {
		text := func(n int) string { return strings.Repeat("x", n*kB) }
		steps := []struct {
			method, path, media, body string
			code                      int
		}{
			{http.MethodPost, "", "", spec(kind, text(1571)), http.StatusCreated},
			{http.MethodPatch, "/x", merge, spec(kind, text(1500)), http.StatusOK},
			{http.MethodPatch, "/x", merge, `{"metadata":{"annotations":{"a":"` + text(60) + `"}}}`, http.StatusOK},
			{http.MethodPatch, "/x", merge, `{"metadata":{"annotations":{"b":"` + text(60) + `"}}}`, http.StatusInternalServerError},
			{http.MethodPatch, "/x", jsonPatch, `[{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/b"}]`, http.StatusInternalServerError},
			{http.MethodPatch, "/x?dryRun=All", merge, `{"metadata":{"annotations":{"b":"` + text(60) + `"}}}`, http.StatusOK},
			{http.MethodPatch, "/x", merge, spec(kind, text(1573)), http.StatusInternalServerError},
			{http.MethodPatch, "/x", merge, spec(kind, text(2096)), http.StatusInternalServerError},
			{http.MethodPatch, "/x", merge, spec(kind, text(2098)), http.StatusInternalServerError},
			{http.MethodPatch, "/x", merge, spec(kind, text(3140)), http.StatusInternalServerError},
			{http.MethodPut, "/x", "", spec(kind, text(3146)), http.StatusRequestEntityTooLarge},
			{http.MethodPatch, "/x", merge, spec(kind, text(3146)), http.StatusRequestEntityTooLarge},
			{http.MethodPatch, "/y?fieldManager=m", apply, spec(kind, text(3146)), http.StatusRequestEntityTooLarge},
			{http.MethodPost, "?dryRun=All", "", spec(kind, text(3146)), http.StatusRequestEntityTooLarge},
			{http.MethodDelete, "/x", "", `{"preconditions":{"uid":"` + text(3146) + `"}}`, http.StatusRequestEntityTooLarge},
			{http.MethodDelete, "/x", "", "", http.StatusOK},
		}
		many := `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"many"},"spec":{`
		for i := range 3100 { // whose managed fields do not fit beside them
			many += fmt.Sprintf(`"f%05d%s":1,`, i, strings.Repeat("f", 250))
		}
		many = strings.TrimSuffix(many, ",") + "}}"
		if kind == "Widget" {
			steps = append(steps, []struct {
				method, path, media, body string
				code                      int
			}{
				{http.MethodPatch, "/many?fieldManager=m", apply, many, http.StatusInternalServerError},
				{http.MethodPost, "", "", many, http.StatusCreated},
				{http.MethodGet, "/many", "", "", http.StatusOK},
				{http.MethodPatch, "/many", merge, `{"metadata":{"annotations":{"a":"` + text(1) + `"}}}`, http.StatusOK},
				{http.MethodPatch, "/many?fieldManager=m&force=true", apply, many, http.StatusInternalServerError},
				{http.MethodPost, "", "", strings.Replace(many, `"many"`, `"more"`, 1)[:len(many)-2] + `,"g":"` + text(1000) + `"}}`, http.StatusInternalServerError},
			}...)
		}
		results := map[string][]result{}
		for _, s := range []*server{realServer(t), memoryServer(t, 1)} {
			s.send(t.Context(), http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace), nil)
			for _, step := range steps {
				header := map[string]string{}
				if step.media != "" {
					header["Content-Type"] = step.media
				}
				results[s.name] = append(results[s.name], s.send(t.Context(), step.method, path+step.path, step.body, header))
			}
		}
		for i, step := range steps {
			want, got := results["real"][i], results["memory"][i]
			name := fmt.Sprintf("%s %s%s %s of %d bytes", step.method, kind, step.path, step.media, len(step.body))
			if want.code != step.code || got.code != step.code {
				t.Errorf("%s: real %d %.300s, memory %d %.300s, want %d", name, want.code, want.body, got.code, got.body, step.code)
			}
			// Of the other objects, the real server sometimes removes the managed fields, for another reason.
			managed := strings.Contains(want.body, "managedFields")
			if step.path == "/many" && managed != strings.Contains(got.body, "managedFields") {
				t.Errorf("%s: managed fields real %t, memory %t", name, managed, !managed)
			}
			if want.body = sent.ReplaceAllString(want.body, "larger than max (n "); want.code >= http.StatusBadRequest {
				if got.body = sent.ReplaceAllString(got.body, "larger than max (n "); want.body != got.body {
					t.Errorf("%s: real %.300s, memory %.300s", name, want.body, got.body)
				}
			}
		}
	}
}
