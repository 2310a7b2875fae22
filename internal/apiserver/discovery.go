package apiserver

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// serverVersion is the version that the server reports: the one whose behaviour it has.
const serverVersion = "v1.36.3"

// aggregatedMedia is the media type of aggregated discovery.
const aggregatedMedia = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discovery responds to requests that are not for a resource.
func (s *Server) discovery(req *http.Request, parts []string) *response {
	path := strings.Join(parts, "/")
	aggregated := strings.Contains(strings.ReplaceAll(req.Header.Get("Accept"), " ", ""), "as=APIGroupDiscoveryList") &&
		strings.Contains(req.Header.Get("Accept"), "v=v2;")
	groups := s.groups()
	switch {
	case path == "healthz" || path == "readyz" || path == "livez":
		return newResponse(http.StatusOK, "text/plain; charset=utf-8", []byte("ok"))
	case path == "version":
		return discoveryResponse(version.Info{Major: "1", Minor: "36", GitVersion: serverVersion, Platform: "linux/amd64"}, "")
	case (path == "api" || path == "apis") && aggregated:
		return discoveryResponse(s.aggregated(groups, path == "api"), aggregatedMedia)
	case path == "api":
		return discoveryResponse(metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		}, "")
	case path == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
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
func (s *Server) groups() []string {
	var groups []string
	for _, kind := range s.config.Kinds {
		groups = append(groups, kind.Group)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// kindsOf returns the kinds of a group, in the order of their resources. An empty version selects all versions.
func (s *Server) kindsOf(group, version string) []*Kind {
	var kinds []*Kind
	for _, kind := range s.config.Kinds {
		if kind.Group == group && (version == "" || kind.Version == version) {
			kinds = append(kinds, kind)
		}
	}
	slices.SortStableFunc(kinds, func(a, b *Kind) int {
		return cmp.Or(strings.Compare(a.Version, b.Version), strings.Compare(a.Resource, b.Resource))
	})
	return kinds
}

func (s *Server) versionsOf(group string) []string {
	var versions []string
	for _, kind := range s.kindsOf(group, "") {
		versions = append(versions, kind.Version)
	}
	return slices.Compact(versions)
}

func (s *Server) group(name string) metav1.APIGroup {
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
	verbs := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	if k.Kind == "Namespace" && k.Group == "" {
		verbs = slices.DeleteFunc(verbs, func(verb string) bool { return verb == "deletecollection" })
	}
	return verbs
}

func (s *Server) resources(gv schema.GroupVersion) *response {
	kinds := s.kindsOf(gv.Group, gv.Version)
	if len(kinds) == 0 {
		return notServed()
	}
	list := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
	}
	for _, kind := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: kind.Resource, SingularName: kind.singular(), Namespaced: !kind.ClusterScoped, Kind: kind.Kind,
			Verbs: kind.verbs(), ShortNames: kind.ShortNames,
		})
		if kind.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: kind.Resource + "/status", Namespaced: !kind.ClusterScoped, Kind: kind.Kind, Verbs: []string{"get", "patch", "update"},
			})
		}
		if kind == s.namespaceKind() {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: kind.Resource + "/finalize", Kind: kind.Kind, Verbs: []string{"update"},
			})
		}
	}
	return discoveryResponse(list, "")
}

// aggregated returns all groups with their resources; legacy selects the group without a name.
func (s *Server) aggregated(groups []string, legacy bool) apidiscoveryv2.APIGroupDiscoveryList {
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
			discovered := apidiscoveryv2.APIVersionDiscovery{Version: v, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			for _, kind := range s.kindsOf(name, v) {
				discovered.Resources = append(discovered.Resources, s.discovered(kind))
			}
			group.Versions = append(group.Versions, discovered)
		}
		list.Items = append(list.Items, group)
	}
	return list
}

func (s *Server) discovered(k *Kind) apidiscoveryv2.APIResourceDiscovery {
	gvk := &metav1.GroupVersionKind{Kind: k.Kind} // built-in kinds: those of the list
	if k.custom() {
		gvk.Group, gvk.Version = k.Group, k.Version
	}
	resource := apidiscoveryv2.APIResourceDiscovery{
		Resource: k.Resource, ResponseKind: gvk, Scope: apidiscoveryv2.ScopeNamespace,
		SingularResource: k.singular(), Verbs: k.verbs(), ShortNames: k.ShortNames,
	}
	if k.ClusterScoped {
		resource.Scope = apidiscoveryv2.ScopeCluster
	}
	if k == s.namespaceKind() {
		resource.Subresources = append(resource.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: "finalize", ResponseKind: gvk, Verbs: []string{"update"},
		})
	}
	if k.Status {
		resource.Subresources = append(resource.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: "status", ResponseKind: gvk, Verbs: []string{"get", "patch", "update"},
		})
	}
	return resource
}
