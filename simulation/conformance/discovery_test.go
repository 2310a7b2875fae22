package conformance

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// TestDiscovery compares the served resources that both servers have.
func TestDiscovery(t *testing.T) {
	realOne, memory := realServer(t), memoryServer(t, 1)
	for _, legacy := range []bool{false, true} {
		want, got := resources(t, realOne, legacy), resources(t, memory, legacy)
		for name := range want {
			if _, both := got[name]; !both {
				delete(want, name)
			}
		}
		ignored := cmpopts.IgnoreFields(metav1.APIResource{}, "StorageVersionHash")
		if diff := cmp.Diff(want, got, ignored); diff != "" {
			t.Errorf("legacy %t: resources (-real +memory)\n%s", legacy, diff)
		}
	}
}

// resources returns the resources of a server, by their names.
func resources(t *testing.T, s *server, legacy bool) map[string]metav1.APIResource {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: s.base}, s.client)
	if err != nil {
		t.Fatal(err)
	}
	client.UseLegacyDiscovery = legacy
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metav1.APIResource{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			slices.Sort(r.Verbs)
			all[list.GroupVersion+"/"+r.Name] = r
		}
	}
	return all
}
