package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWatchPaths compares requests to the old form of the paths of watches.
func TestWatchPaths(t *testing.T) {
	r := newRunner(t, simulated(t, nil))
	widgets := kindOf("widgets")
	r.real.define(t, widgets)
	r.memory.define(t, widgets)
	var results [2][]string
	for i, s := range []*server{r.real, r.memory} {
		for _, path := range []string{
			"/api/v1/watch/namespaces/default/pods/a/resize", "/api/v1/watch/namespaces/default/pods/a/status", "/api/v1/watch/namespaces/default/pods/a/binding",
			"/api/v1/watch/namespaces/default/pods/a/other", "/api/v1/watch/namespaces/default/pods/a", "/api/v1/watch/namespaces/default/pods", "/api/v1/watch/pods", "/api/v1/watch/pods/a",
			"/api/v1/watch/namespaces", "/api/v1/watch/namespaces/default", "/api/v1/watch/namespaces/default/status", "/api/v1/watch/namespaces/default/finalize",
			"/apis/apps/v1/watch/namespaces/default/deployments/a/scale",
			"/apis/" + widgets.apiVersion + "/watch/namespaces/default/widgets/a/status", "/apis/" + widgets.apiVersion + "/watch/namespaces/default/widgets/a/other", "/apis/" + widgets.apiVersion + "/watch/namespaces/default/widgets/a",
			"/apis/" + widgets.apiVersion + "/watch/namespaces/default/widgets",
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
				if method == http.MethodPut && strings.HasSuffix(path, "widgets") { // the server in memory demands a name first
					continue
				}
				res := s.send(t.Context(), method, path+"?resourceVersion=x", "{}", nil)
				results[i] = append(results[i], fmt.Sprint(method, " ", path, ": ", res.code, " ", res.body))
			}
		}
	}
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("-real +memory\n%s", diff)
	}
}
