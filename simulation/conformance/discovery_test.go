package conformance

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/simulation"
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

// notServedHeader begins the section of the page about what a cluster of package simulation does not serve.
const notServedHeader = "\n## Not served\n\nA cluster of package `simulation` answers 404 for these resources of the real server:\n\n"

// TestPageNamesWhatIsNotServed compares the section of the page with the discovery of both servers.
func TestPageNamesWhatIsNotServed(t *testing.T) {
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	if want := notServed(t, realServer(t)); !strings.Contains(string(page), want) {
		t.Errorf("docs/reference/conformance.md lacks this section: make conformance OPS=10000 PAGE=1 writes it\n%s", want)
	}
}

// notServed returns the section of the page about the resources that only the real server has, by their group and version.
func notServed(t *testing.T, realOne *server) string {
	t.Helper()
	config := simulation.New(t, simulation.Config{}).RESTConfig("conformance")
	served := resources(t, &server{client: &http.Client{Transport: config.Transport}, base: config.Host}, false)
	missing := map[string][]string{}
	ofReal := resources(t, realOne, false)
	for path := range served {
		if _, both := ofReal[path]; !both {
			t.Errorf("a cluster of package simulation serves %s, and the real server does not", path)
		}
	}
	for path := range ofReal {
		parts := strings.Split(path, "/")
		builtIn := !strings.Contains(parts[0], ".") || strings.HasSuffix(parts[0], ".k8s.io")
		if _, both := served[path]; both || !builtIn { // other tests define custom resources
			continue
		}
		n := 2 // the group and the version
		if parts[0] == "v1" {
			n = 1
		}
		version := strings.Join(parts[:n], "/")
		missing[version] = append(missing[version], "`"+strings.Join(parts[n:], "/")+"`")
	}
	var b strings.Builder
	b.WriteString(notServedHeader)
	for _, version := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[version])
		fmt.Fprintf(&b, "- %s: %s\n", version, strings.Join(missing[version], ", "))
	}
	return b.String()
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
