package kube_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/evenkeel-go/evenkeel/kube"
)

// serveGroups sets the groups of a server: the name of each, and its versions, with the preferred one first.
func serveGroups(server *apiServer, groups ...[]string) {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, names := range groups {
		group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: names[0]}
		for _, version := range names[1:] {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: names[0] + "/" + version, Version: version})
		}
		group.PreferredVersion = group.Versions[0]
		slices.Reverse(group.Versions[1:]) // the order of the others is also that of the server
		server.set("/apis/"+names[0], respondJSON(http.StatusOK, group))
		list.Groups = append(list.Groups, group)
	}
	server.set("/apis", respondJSON(http.StatusOK, list))
	server.set("/api", respondJSON(http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIVersions"}, Versions: []string{"v1"}}))
}

func connectToGroups(t *testing.T) (*apiServer, *kube.Cluster) {
	t.Helper()
	server, cluster := connect(t)
	serveGroups(server, []string{"apps", "v1"}, []string{"shop.test", "v1", "v2alpha1", "v1beta1"}, []string{"other.test", "v1"})
	pods := metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true}
	server.set("/api/v1", resources("v1", pods, metav1.APIResource{Name: "pods/status", Kind: "Pod", Namespaced: true},
		metav1.APIResource{Name: "nodes", Kind: "Node"}))
	server.set("/apis/apps/v1", resources("apps/v1", metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true}))
	carts := metav1.APIResource{Name: "carts", SingularName: "cart", Kind: "Cart", Namespaced: true}
	server.set("/apis/shop.test/v1", resources("shop.test/v1", carts))
	server.set("/apis/shop.test/v2alpha1", resources("shop.test/v2alpha1", carts, metav1.APIResource{Name: "tills", SingularName: "till", Kind: "Till"}))
	server.set("/apis/shop.test/v1beta1", resources("shop.test/v1beta1", carts, metav1.APIResource{Name: "tills", SingularName: "till", Kind: "Till"}))
	server.set("/apis/other.test/v1", resources("other.test/v1", carts, pods))
	return server, cluster
}

// The mapper has the results of client-go's.
func TestRESTMapperEqualsClientGo(t *testing.T) {
	t.Parallel()
	_, cluster := connectToGroups(t)
	discovered, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(cluster.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	clientGo := restmapper.NewDiscoveryRESTMapper(discovered)
	describe := func(result any, err error) string {
		if mapping, ok := result.(*meta.RESTMapping); ok && mapping != nil {
			result = fmt.Sprint(mapping.Resource, mapping.GroupVersionKind, mapping.Scope.Name())
		}
		if mappings, ok := result.([]*meta.RESTMapping); ok {
			var texts []string
			for _, mapping := range mappings {
				texts = append(texts, fmt.Sprint(mapping.Resource, mapping.GroupVersionKind, mapping.Scope.Name()))
			}
			slices.Sort(texts)
			result = texts
		}
		return fmt.Sprintf("%v, no match: %t, error: %t", result, meta.IsNoMatchError(err), err != nil)
	}
	compare := func(method string, input any, call func(meta.RESTMapper) (any, error)) {
		t.Helper()
		got, gotErr := call(cluster.RESTMapper())
		want, wantErr := call(clientGo)
		if got, want := describe(got, gotErr), describe(want, wantErr); got != want {
			t.Errorf("%s(%v)\ngot  %s\nwant %s", method, input, got, want)
		}
	}
	for _, group := range []string{"", "apps", "shop.test", "other.test", "missing.test"} {
		for _, version := range []string{"", "v1", "v2alpha1", "v1beta1", "v9"} {
			for _, name := range []string{"pods", "pod", "pods/status", "nodes", "node", "deployments", "carts", "cart", "tills", "missing"} {
				resource := schema.GroupVersionResource{Group: group, Version: version, Resource: name}
				compare("KindFor", resource, func(m meta.RESTMapper) (any, error) { return m.KindFor(resource) })
				compare("KindsFor", resource, func(m meta.RESTMapper) (any, error) { return m.KindsFor(resource) })
				compare("ResourceFor", resource, func(m meta.RESTMapper) (any, error) { return m.ResourceFor(resource) })
				compare("ResourcesFor", resource, func(m meta.RESTMapper) (any, error) { return m.ResourcesFor(resource) })
			}
			for _, kind := range []string{"Pod", "Node", "Deployment", "Cart", "Till", "Missing"} {
				versions := []string{version}
				if version == "" {
					versions = nil
				}
				compare("RESTMapping", kind, func(m meta.RESTMapper) (any, error) {
					return m.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, versions...)
				})
				compare("RESTMappings", kind, func(m meta.RESTMapper) (any, error) {
					return m.RESTMappings(schema.GroupKind{Group: group, Kind: kind}, versions...)
				})
			}
		}
	}
	for _, name := range []string{"pods", "carts", "tills", "pod"} {
		compare("ResourceSingularizer", name, func(m meta.RESTMapper) (any, error) { return m.ResourceSingularizer(name) })
	}
}

// The mapper requests only the groups that it needs, once, and again for a kind that it does not find.
func TestRESTMapperRequests(t *testing.T) {
	t.Parallel()
	server, cluster := connectToGroups(t)
	mapper := cluster.RESTMapper()
	mapping := func(group, kind string) func() error {
		return func() error { _, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind}); return err }
	}
	kindFor := func(group, resource string) func() error {
		return func() error {
			_, err := mapper.KindFor(schema.GroupVersionResource{Group: group, Resource: resource})
			return err
		}
	}
	shop := "/apis/shop.test /apis/shop.test/v1 /apis/shop.test/v1beta1 /apis/shop.test/v2alpha1"
	for _, step := range []struct {
		name    string
		change  func()
		call    func() error
		want    string // part of the error
		request string
	}{
		{"first use", nil, mapping("shop.test", "Cart"), "", shop},
		{"second use", nil, mapping("shop.test", "Till"), "", ""},
		{"missing kind", nil, mapping("shop.test", "New"), "no matches", shop},
		{"kind is installed", func() {
			server.set("/apis/shop.test/v1", resources("shop.test/v1", metav1.APIResource{Name: "news", Kind: "New"}))
		}, mapping("shop.test", "New"), "", shop},
		{"core group", nil, kindFor("", "pods"), "", "/api/v1"},
		{"no group", nil, kindFor("", "deployments"), "", "/api/v1 /apis /apis/apps /apis/apps/v1 /apis/other.test /apis/other.test/v1"},
		{"missing group", nil, mapping("missing.test", "A"), "no matches", "/apis/missing.test"},
		{"error", func() {
			server.set("/apis/broken.test", status(http.StatusForbidden, metav1.StatusReasonForbidden))
		}, mapping("broken.test", "A"), "group \"broken.test\": no Forbidden", "/apis/broken.test"},
		{"broken group beside others", func() {
			serveGroups(server, []string{"apps", "v1"}, []string{"late.test", "v1"}, []string{"broken.test", "v1"})
			server.set("/apis/late.test/v1", resources("late.test/v1", metav1.APIResource{Name: "lates", Kind: "Late"}))
			server.set("/apis/broken.test/v1", status(http.StatusForbidden, metav1.StatusReasonForbidden))
		}, kindFor("", "lates"), "", "/api/v1 /apis /apis/apps /apis/apps/v1 /apis/broken.test /apis/broken.test/v1 /apis/late.test /apis/late.test/v1"},
	} {
		if step.change != nil {
			step.change()
		}
		server.paths()
		err := step.call()
		if step.want == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		} else if step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s: got error %v, want one with %q", step.name, err, step.want)
		}
		paths := server.paths()
		slices.Sort(paths)
		if got := strings.Join(slices.Compact(paths), " "); got != step.request {
			t.Errorf("%s: requested %s\nwant %s", step.name, got, step.request)
		}
	}
}

func TestRESTMapperConcurrently(t *testing.T) {
	t.Parallel()
	_, cluster := connectToGroups(t)
	mapper := cluster.RESTMapper()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, resource := range []string{"pods", "carts", "missing", "deployments"} {
				if _, err := mapper.KindFor(schema.GroupVersionResource{Resource: resource}); (err != nil) != (resource == "missing") {
					t.Errorf("%s: %v", resource, err)
				}
			}
		})
	}
	group.Wait()
}
