package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestResizeOnNodes compares resizes of bound Pods with those in a simulated cluster: the node must have what a Pod requests.
func TestResizeOnNodes(t *testing.T) {
	var results [2][]string
	for i, s := range []*server{realServer(t), simulated(t, nil)} {
		send := func(method, path, body string) result {
			header := map[string]string{}
			if method == http.MethodPatch {
				header["Content-Type"] = "application/strategic-merge-patch+json"
			}
			return s.send(t.Context(), method, path, body, header)
		}
		for name, fields := range map[string]string{
			"resize-big": `"status":{"allocatable":{"cpu":"4","memory":"4Gi"}}`, "resize-none": `"spec":{}`,
			"resize-windows": `"status":{"allocatable":{"cpu":"4","memory":"4Gi"}}`,
		} {
			labels := ""
			if name == "resize-windows" {
				labels = `,"labels":{"kubernetes.io/os":"windows"}`
			}
			send(http.MethodPost, "/api/v1/nodes", `{"metadata":{"name":"`+name+`"`+labels+`},`+fields+`}`)
			t.Cleanup(func() {
				s.send(context.WithoutCancel(t.Context()), http.MethodDelete, "/api/v1/nodes/"+name, "", nil)
			})
		}
		send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"resize-nodes"}}`)
		for _, more := range []string{
			``, `"resources":{"requests":{"cpu":"4"}},`,
			`"initContainers":[{"name":"s","image":"i","restartPolicy":"Always","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}],`,
			`"initContainers":[{"name":"s","image":"i","resources":{"requests":{"cpu":"9"}}}],`,
		} {
			for _, node := range []string{"resize-big", "resize-none", "resize-windows", "resize-missing"} {
				path := "/api/v1/namespaces/resize-nodes/pods"
				send(http.MethodPost, path, `{"metadata":{"name":"a"},"spec":{`+more+`"nodeName":"`+node+`","containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"9","memory":"9Gi"}}}]}}`)
				for _, resources := range []string{
					`{}`, `{"requests":{"cpu":"3"}}`, `{"requests":{"cpu":"3500m"}}`, `{"requests":{"cpu":"4"}}`, `{"requests":{"cpu":"5","memory":"5Gi"}}`, `{"limits":{"cpu":"8"}}`, `{"requests":{"cpu":"500m"}}`, `{"requests":{"cpu":"10"}}`,
				} {
					body := `{"spec":{"containers":[{"name":"c","resources":` + resources + `}]}}`
					res := send(http.MethodPatch, path+"/a/resize", body)
					// The real server reads Nodes from a cache.
					for n := 0; n < 100 && node != "resize-missing" && strings.Contains(res.body, "is forbidden: node") && strings.Contains(res.body, "not found"); n++ {
						time.Sleep(100 * time.Millisecond)
						res = send(http.MethodPatch, path+"/a/resize", body)
					}
					if res.code < http.StatusMultipleChoices {
						res.body = ""
					}
					results[i] = append(results[i], fmt.Sprint(more, " ", node, " ", resources, ": ", res.code, " ", res.body))
				}
				send(http.MethodDelete, path+"/a?gracePeriodSeconds=0", "")
			}
		}
	}
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("-real +memory\n%s", diff)
	}
}
