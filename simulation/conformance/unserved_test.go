package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestUnservedDefinition stops to serve the only version of a resource, serves it again, and deletes its definition while it
// is not served. Both servers keep the objects, and delete them with the definition.
func TestUnservedDefinition(t *testing.T) {
	group := fmt.Sprintf("unserved%d.example.com", time.Now().Unix())
	var results [2]string
	for i, s := range []*server{realServer(t), memoryServer(t, 1)} {
		results[i] = runUnserved(t, s, group)
	}
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("(-real +memory)\n%s", diff)
	}
	t.Logf("both servers:\n%s", results[0])
}

func runUnserved(t *testing.T, s *server, group string) string {
	t.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	definition, objects := definitions+"/foos."+group, "/apis/"+group+"/v1/foos"
	var log strings.Builder
	// do repeats a request until it has the code: the real server changes what it serves later.
	do := func(method, path, body string, want int) {
		header := map[string]string{}
		if method == http.MethodPatch {
			header["Content-Type"] = "application/merge-patch+json"
		}
		var res result
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 15*time.Second, true, func(ctx context.Context) (bool, error) {
			res = s.send(ctx, method, path, body, header)
			return res.code == want, nil
		})
		if err != nil {
			t.Errorf("%s: %s %s: %d %s, want %d", s.name, method, path, res.code, res.body, want)
		}
		fmt.Fprintf(&log, "%s %s %s: %d\n", method, path, body, res.code)
	}
	serve := func(served bool) {
		version := `{"name":"v1","served":%t,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}`
		do(http.MethodPatch, definition, fmt.Sprintf(`{"spec":{"versions":[`+version+`]}}`, served), http.StatusOK)
	}
	create := func() {
		do(http.MethodPost, definitions, `{"metadata":{"name":"foos.`+group+`"},"spec":{"group":"`+group+`","scope":"Cluster","names":{"plural":"foos","kind":"Foo"},`+
			`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, http.StatusCreated)
		for _, metadata := range []string{`{"name":"a"}`, `{"name":"b","finalizers":["example.com/f"]}`} {
			do(http.MethodPost, objects, `{"apiVersion":"`+group+`/v1","kind":"Foo","metadata":`+metadata+`}`, http.StatusCreated)
		}
		serve(false)
		do(http.MethodGet, objects+"/a", "", http.StatusNotFound)
	}
	create()
	serve(true)
	do(http.MethodGet, objects+"/a", "", http.StatusOK)
	serve(false)
	do(http.MethodGet, objects+"/a", "", http.StatusNotFound)
	do(http.MethodDelete, definition, "", http.StatusOK)
	do(http.MethodGet, definition, "", http.StatusOK) // waits for the finalizer of b
	serve(true)
	do(http.MethodGet, objects+"/b", "", http.StatusOK)
	do(http.MethodGet, objects+"/a", "", http.StatusNotFound)
	do(http.MethodPatch, objects+"/b", `{"metadata":{"finalizers":null}}`, http.StatusOK)
	do(http.MethodGet, definition, "", http.StatusNotFound)
	return log.String()
}
