package apiserver

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// serverVersion is the version that the server reports: the one whose behaviour it has.
const serverVersion = "v1.36.3"

// aggregatedMedia is the media type of aggregated discovery.
const aggregatedMedia = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discovery responds to requests that are not for a resource.
func (s *serving) discovery(req *http.Request, parts []string) *response {
	path := strings.Join(parts, "/")
	aggregated := strings.Contains(strings.ReplaceAll(req.Header.Get("Accept"), " ", ""), "as=APIGroupDiscoveryList") &&
		strings.Contains(req.Header.Get("Accept"), "v=v2;")
	groups := s.groups()
	switch {
	case path == "healthz" || path == "readyz" || path == "livez":
		return newResponse(http.StatusOK, "text/plain; charset=utf-8", []byte("ok"))
	case len(parts) > 1 && parts[0] == "openapi" && parts[1] == "v3":
		return s.openAPI(req, parts[2:])
	case path == "version":
		return discoveryResponse(version.Info{
			Major: "1", Minor: "36", GitVersion: serverVersion,
			Platform: "linux/amd64",
		}, "")
	case (path == "api" || path == "apis") && aggregated:
		return discoveryResponse(s.aggregated(groups, path == "api"), aggregatedMedia)
	case path == "api":
		return discoveryResponse(metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		}, "")
	case path == "apis":
		list := metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups:   []metav1.APIGroup{},
		}
		for _, group := range groups {
			if group != "" {
				list.Groups = append(list.Groups, s.group(group))
			}
		}
		return discoveryResponse(list, "")
	case len(parts) == 2 && parts[0] == "apis" && slices.Contains(groups, parts[1]):
		group := s.group(parts[1])
		group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		return discoveryResponse(group, "")
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return notServed()
}

func discoveryResponse(content any, media mediaType) *response {
	body, err := json.Marshal(content)
	if err != nil {
		return newResponse(http.StatusInternalServerError, "text/plain", []byte(err.Error()))
	}
	return newResponse(http.StatusOK, cmp.Or(media, mediaJSON), append(body, '\n'))
}

// groups returns the names of the served groups.
func (s *serving) groups() []string {
	var groups []string
	for _, kind := range s.kinds {
		groups = append(groups, kind.Group)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// kindsOf returns the kinds of a group, in the order of their resources. An empty version selects all versions.
func (s *serving) kindsOf(group, version string) []*Kind {
	var kinds []*Kind
	for _, kind := range s.kinds {
		if kind.Group == group && (version == "" || kind.Version == version) {
			kinds = append(kinds, kind)
		}
	}
	slices.SortStableFunc(kinds, func(a, b *Kind) int {
		return cmp.Or(strings.Compare(a.Version, b.Version), strings.Compare(a.Resource, b.Resource))
	})
	return kinds
}

// versionsOf returns the versions of a group, the preferred one first.
func (s *serving) versionsOf(group string) []string {
	var versions []string
	for _, kind := range s.kindsOf(group, "") {
		versions = append(versions, kind.Version)
	}
	versions = slices.Compact(versions)
	slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return versions
}

func (s *serving) group(name string) metav1.APIGroup {
	group := metav1.APIGroup{Name: name}
	for _, v := range s.versionsOf(name) {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: schema.GroupVersion{Group: name, Version: v}.String(), Version: v,
		})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

// verbs returns the verbs of a kind, in the order of the real server.
func (k *Kind) verbs() []string {
	if k.custom() {
		return []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	}
	if k.review != nil {
		return []string{"create"}
	}
	verbs := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	if k.Kind == "Namespace" && k.Group == "" {
		verbs = slices.DeleteFunc(verbs, func(verb string) bool { return verb == "deletecollection" })
	}
	return verbs
}

func (s *serving) resources(gv schema.GroupVersion) *response {
	kinds := s.kindsOf(gv.Group, gv.Version)
	if len(kinds) == 0 {
		return notServed()
	}
	list := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
		APIResources: []metav1.APIResource{},
	}
	for _, kind := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: kind.Resource, SingularName: kind.singular(), Namespaced: !kind.ClusterScoped, Kind: kind.Kind,
			Verbs: kind.verbs(), ShortNames: kind.ShortNames, Categories: kind.Categories,
		})
		for _, sub := range kind.discoveredSubresources() {
			resource := metav1.APIResource{
				Name: kind.Resource + "/" + sub.Subresource, Namespaced: !kind.ClusterScoped,
				Kind: sub.ResponseKind.Kind, Verbs: sub.Verbs,
			}
			if sub.ResponseKind.Group != "" && sub.ResponseKind.Group != kind.Group {
				resource.Group, resource.Version = sub.ResponseKind.Group, sub.ResponseKind.Version
			}
			list.APIResources = append(list.APIResources, resource)
		}
	}
	return discoveryResponse(list, "")
}

// aggregated returns all groups with their resources; legacy selects the group without a name.
func (s *serving) aggregated(groups []string, legacy bool) apidiscoveryv2.APIGroupDiscoveryList {
	list := apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, name := range groups {
		if (name == "") != legacy {
			continue
		}
		group := apidiscoveryv2.APIGroupDiscovery{}
		group.Name = name
		for _, v := range s.versionsOf(name) {
			discovered := apidiscoveryv2.APIVersionDiscovery{
				Version:   v,
				Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			}
			for _, kind := range s.kindsOf(name, v) {
				discovered.Resources = append(discovered.Resources, s.discovered(kind))
			}
			group.Versions = append(group.Versions, discovered)
		}
		list.Items = append(list.Items, group)
	}
	return list
}

// discoveredKind returns a kind as the type of a response.
func (k *Kind) discoveredKind() *metav1.GroupVersionKind {
	gvk := &metav1.GroupVersionKind{Kind: k.Kind} // built-in kinds: those of the list
	if k.custom() {
		gvk.Group, gvk.Version = k.Group, k.Version
	}
	return gvk
}

// discoveredSubresources returns the subresources of a kind in the order of the real server.
func (k *Kind) discoveredSubresources() []apidiscoveryv2.APISubresourceDiscovery {
	var subresources []apidiscoveryv2.APISubresourceDiscovery
	add := func(exists bool, name string, kind *metav1.GroupVersionKind, verbs ...string) {
		if exists {
			subresources = append(subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource:  name,
				ResponseKind: kind, Verbs: verbs,
			})
		}
	}
	scale := &metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	add(k.bound(), bindingSubresource, &metav1.GroupVersionKind{Kind: "Binding"}, "create")
	add(k.bound(), evictionSubresource, &metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
		"create")
	add(k.serviceAccount(), tokenSubresource, &metav1.GroupVersionKind{
		Group: authenticationv1.GroupName, Version: "v1", Kind: "TokenRequest",
	}, "create")
	add(k.namespace(), "finalize", k.discoveredKind(), "update")
	for _, name := range k.Subresources {
		add(true, name, k.discoveredKind(), "get", "patch", "update")
	}
	add(k.Status, "status", k.discoveredKind(), "get", "patch", "update")
	add(k.Scale != nil, scaleSubresource, scale, "get", "patch", "update")
	if !k.custom() {
		slices.SortFunc(subresources, func(a, b apidiscoveryv2.APISubresourceDiscovery) int {
			return strings.Compare(a.Subresource, b.Subresource)
		})
	}
	return subresources
}

func (s *serving) discovered(k *Kind) apidiscoveryv2.APIResourceDiscovery {
	resource := apidiscoveryv2.APIResourceDiscovery{
		Resource: k.Resource, ResponseKind: k.discoveredKind(), Scope: apidiscoveryv2.ScopeNamespace,
		SingularResource: k.singular(), Verbs: k.verbs(), ShortNames: k.ShortNames, Categories: k.Categories,
		Subresources: k.discoveredSubresources(),
	}
	if k.ClusterScoped {
		resource.Scope = apidiscoveryv2.ScopeCluster
	}
	return resource
}
