package apiserver

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// creation is a request that creates an object.
type creation struct{ path, body string }

// uidsOf returns the uids of all ConfigMaps and Secrets by their keys.
func uidsOf(s *Server) map[string]types.UID {
	uids := map[string]types.UID{}
	for _, resource := range []string{"configmaps", "secrets"} {
		for _, r := range s.tables[schema.GroupResource{Resource: resource}].records {
			uids[resource+"/"+r.key] = r.obj.GetUID()
		}
	}
	return uids
}

// The uids and generated names of objects do not depend on the order in which clients create them.
func TestUIDsAndNamesDoNotDependOnOrder(t *testing.T) {
	t.Parallel()
	const secretsPath = "/api/v1/namespaces/shop/secrets"
	const otherPath = "/api/v1/namespaces/other/configmaps"
	all := []creation{
		{configMapsPath, `{"metadata":{"name":"a"}}`},
		{configMapsPath, `{"metadata":{"name":"b"}}`},
		{otherPath, `{"metadata":{"name":"a"}}`},
		{secretsPath, `{"metadata":{"name":"a"}}`},
		{configMapsPath, `{"metadata":{"generateName":"part-"}}`},
		{configMapsPath, `{"metadata":{"generateName":"part-"}}`},
		{otherPath, `{"metadata":{"generateName":"part-"}}`},
		{secretsPath, `{"metadata":{"generateName":"part-"}}`},
		{secretsPath, `{"metadata":{"generateName":"other-"}}`},
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	var want map[string]types.UID
	for range 20 {
		s := newServer(t)
		for _, c := range all {
			mustSend(t, s, "POST", c.path, c.body)
		}
		got := uidsOf(s)
		if want == nil {
			want = got
		}
		if !maps.Equal(got, want) {
			t.Fatalf("uids %v, want %v", got, want)
		}
		random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	}
	distinct := slices.Compact(slices.Sorted(maps.Values(want)))
	if len(want) != len(all) || len(distinct) != len(all) {
		t.Errorf("%d objects with %d uids, want %d", len(want), len(distinct), len(all))
	}
}

// A uid is never used again: for an object of the same name, in another cluster, or after a restore.
func TestUIDsAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	used := map[types.UID]string{}
	note := func(s *Server, what string) {
		t.Helper()
		for key, uid := range uidsOf(s) {
			if before := used[uid]; before != "" {
				t.Errorf("%s, %s has the uid of %s", what, key, before)
			}
			used[uid] = what + ", " + key
			if len(uid) != 36 || uid[14] != '4' || !strings.ContainsRune("89ab", rune(uid[19])) {
				t.Errorf("%s is no random UUID", uid)
			}
		}
	}
	s := newServer(t)
	create := func(s *Server) { mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"a"}}`) }
	remove := func(s *Server) { mustSend(t, s, "DELETE", configMapsPath+"/a", "") }
	empty := s.Fork()
	for _, what := range []string{"first", "second", "third"} {
		create(s)
		note(s, what)
		remove(s)
	}
	s.Restore(empty)
	create(s)
	note(s, "after a restore")
	other := s.Fork()
	other.Renumber(2)
	note(other, "in another cluster")
	remove(other)
	create(other)
	note(other, "in another cluster, again")
	// A fork goes on as its original does.
	fork := s.Fork()
	for _, server := range []*Server{s, fork} {
		remove(server)
		create(server)
	}
	if !maps.Equal(uidsOf(s), uidsOf(fork)) {
		t.Errorf("the original has %v, the fork %v", uidsOf(s), uidsOf(fork))
	}
}
