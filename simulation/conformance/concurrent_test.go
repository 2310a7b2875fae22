package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestConcurrentNodePorts creates Services with one node port at once: both servers accept one of them.
func TestConcurrentNodePorts(t *testing.T) {
	const requests, rounds = 8, 5
	namespace := fmt.Sprintf("ports%d", time.Now().Unix())
	for _, s := range []*server{realServer(t), memoryServer(t, 1)} {
		if res := s.send(t.Context(), http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace), nil); res.code != http.StatusCreated {
			t.Fatalf("%s: create the namespace: %d %s", s.name, res.code, res.body)
		}
		for port := 30001; port <= 30000+rounds; port++ {
			results := make([]result, requests)
			var group sync.WaitGroup
			for i := range results {
				group.Go(func() { // waited for below
					body := fmt.Sprintf(`{"metadata":{"name":"s%d-%d"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":%d}]}}`, port, i, port)
					results[i] = s.send(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/services", body, nil)
				})
			}
			group.Wait()
			created := 0
			for _, res := range results {
				want := fmt.Sprintf("spec.ports[0].nodePort: Invalid value: %d: provided port is already allocated", port)
				switch {
				case res.code == http.StatusCreated:
					created++
				case res.code != http.StatusUnprocessableEntity || !strings.Contains(res.body, want):
					t.Errorf("%s: %d %s, want 422 %s", s.name, res.code, res.body, want)
				}
			}
			if created != 1 {
				t.Errorf("%s created %d Services with node port %d", s.name, created, port)
			}
		}
		// Other tests use these ports of the real server.
		if res := s.send(t.Context(), http.MethodDelete, "/api/v1/namespaces/"+namespace+"/services", "", nil); res.code != http.StatusOK {
			t.Errorf("%s: delete the Services: %d %s", s.name, res.code, res.body)
		}
	}
}
