package conformance

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

// maxStalenessWrites limits the writes until a read from the other server was stale. Most often the first one is.
const maxStalenessWrites = 1000

// TestStaleness writes to one of two API servers on one etcd, and reads from the other at once. Reads that may be served
// from a cache can be older than the write; the server in memory never has such reads. All other reads contain the write.
func TestStaleness(t *testing.T) {
	if local.Existing() {
		t.Skip("an existing cluster has no second API server that this test knows")
	}
	cluster, err := localcluster.Start(t.Context(), localcluster.Config{SecondServer: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	connect := func(name string, config *rest.Config) *server {
		config.NextProtos = []string{"http/1.1"}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
		return &server{name: name, client: client, base: config.Host}
	}
	memory := memoryServer(t, 1)
	for _, test := range []struct {
		name          string
		first, second *server
		canBeStale    bool
	}{
		{"real", connect("first", cluster.RESTConfig()), connect("second", cluster.SecondRESTConfig()), true},
		{"memory", memory, memory, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			writes, stale := measureStaleness(t, test.first, test.second, test.canBeStale)
			t.Logf("%d writes; stale reads: %v", writes, stale)
			for _, read := range []string{"get 0", "list 0"} {
				if (stale[read] > 0) != test.canBeStale {
					t.Errorf("%s: %d of %d reads are stale", read, stale[read], writes)
				}
			}
			for _, read := range []string{"get", "list", "get at least", "list at least"} {
				if stale[read] > 0 {
					t.Errorf("%s: %d of %d reads are stale", read, stale[read], writes)
				}
			}
		})
	}
}

// measureStaleness returns how many reads from the second server did not contain the write to the first before them. With
// untilStale it writes until each read that may be stale was.
func measureStaleness(t *testing.T, first, second *server, untilStale bool) (writes int, stale map[string]int) {
	t.Helper()
	const path = "/api/v1/namespaces/staleness/configmaps"
	do := func(s *server, method, path, body string) any {
		t.Helper()
		res := s.send(t.Context(), method, path, body, nil)
		if res.code >= http.StatusBadRequest {
			t.Fatalf("%s: %s %s: %d %s", s.name, method, path, res.code, res.body)
		}
		return decode(res.body)
	}
	do(first, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"staleness"}}`)
	do(first, http.MethodPost, path, `{"metadata":{"name":"a"}}`)
	stale = map[string]int{}
	for writes = 1; writes <= maxStalenessWrites; writes++ {
		for _, read := range []struct{ name, query string }{
			{"get 0", "/a?resourceVersion=0"},
			{"list 0", "?resourceVersion=0"},
			{"get", "/a"},
			{"list", ""},
			{"get at least", "/a?resourceVersion=%s"},
			{"list at least", "?resourceVersion=%s"},
		} {
			written := version(do(first, http.MethodPut, path+"/a", fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"n":%q}}`, fmt.Sprint(read.name, writes))))
			query := read.query
			if read.name == "get at least" || read.name == "list at least" {
				query = fmt.Sprintf(query, written)
			}
			found := do(second, http.MethodGet, path+query, "")
			if list, ok := found.(map[string]any)["items"].([]any); ok && len(list) == 1 {
				found = list[0]
			}
			if number(t, version(found)) < number(t, written) {
				stale[read.name]++
			}
		}
		if !untilStale && writes == 100 || stale["get 0"] > 0 && stale["list 0"] > 0 {
			break
		}
	}
	// A write that is based on a stale read fails at each server: etcd has the latest version.
	old := version(do(first, http.MethodGet, path+"/a", ""))
	do(first, http.MethodPut, path+"/a", `{"metadata":{"name":"a"},"data":{"n":"last"}}`)
	res := second.send(t.Context(), http.MethodPut, path+"/a", `{"metadata":{"name":"a","resourceVersion":"`+old+`"}}`, nil)
	if res.code != http.StatusConflict {
		t.Errorf("update of a stale version: %d %s", res.code, res.body)
	}
	return writes, stale
}

func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
