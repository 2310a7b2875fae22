package apiserver

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver/openapi"
)

// openAPI responds to requests for OpenAPI documents of version 3. parts is the path after openapi/v3. The document of
// a group version has the schemas of its kinds, and the operations with what clients read of them: kinds and
// parameters.
func (s *serving) openAPI(req *http.Request, parts []string) *response {
	type reference struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]reference{}
	versions := map[string]schema.GroupVersion{}
	for _, group := range s.groups() {
		for _, version := range s.versionsOf(group) {
			path := "apis/" + group + "/" + version
			if group == "" {
				path = "api/" + version
			}
			versions[path] = schema.GroupVersion{Group: group, Version: version}
			paths[path] = reference{"/openapi/v3/" + path + "?hash=" + s.openAPIHash(group, version)}
		}
	}
	if len(parts) == 0 {
		return discoveryResponse(map[string]any{"paths": paths}, "")
	}
	gv, exists := versions[strings.Join(parts, "/")]
	if !exists {
		return notServed()
	}
	hash := s.openAPIHash(gv.Group, gv.Version)
	if strings.Contains(req.Header.Get("If-None-Match"), hash) {
		return newResponse(http.StatusNotModified, mediaJSON, nil)
	}
	document, err := s.openAPIDocument(gv)
	if err != nil {
		return newResponse(http.StatusInternalServerError, "text/plain", []byte(err.Error()))
	}
	res := discoveryResponse(document, "")
	res.header.Set("ETag", `"`+hash+`"`)
	if req.URL.Query().Get("hash") == hash {
		res.header.Set("Cache-Control", "public, immutable")
	}
	return res
}

// openAPIHash identifies the content of a document.
func (s *serving) openAPIHash(group, version string) string {
	hash := sha256.New()
	for _, kind := range s.kindsOf(group, version) {
		fmt.Fprintln(hash, kind.GroupVersionKind, kind.Resource, kind.ClusterScoped, kind.subresources(),
			string(kind.OpenAPI))
	}
	return strings.ToUpper(fmt.Sprintf("%x", hash.Sum(nil)))
}

func (s *serving) openAPIDocument(gv schema.GroupVersion) (map[string]any, error) {
	all, err := openapi.Schemas()
	if err != nil {
		return nil, err
	}
	paths, schemas := map[string]any{}, map[string]json.RawMessage{}
	openapi.Reachable(all, schemas, openapi.ObjectMeta)
	for _, kind := range s.kindsOf(gv.Group, gv.Version) {
		name := kind.openAPIName()
		if _, exists := all[name]; exists {
			openapi.Reachable(all, schemas, name)
		} else if schemas[name], err = kind.openAPISchema(); err != nil {
			return nil, err
		}
		kind.addOpenAPIPaths(paths)
	}
	return map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": "Kubernetes", "version": serverVersion},
		"paths": paths, "components": map[string]any{"schemas": schemas},
	}, nil
}

// openAPIName returns the name of the kind's schema.
func (k *Kind) openAPIName() string {
	if !k.custom() {
		group, _, _ := strings.Cut(k.Group, ".")
		if group == "" {
			group = "core"
		}
		return "io.k8s.api." + group + "." + k.Version + "." + k.Kind
	}
	labels := strings.Split(k.Group, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "." + k.Version + "." + k.Kind
}

// openAPISchema returns the schema of a custom resource: Kind.OpenAPI with the fields that all objects have.
func (k *Kind) openAPISchema() (json.RawMessage, error) {
	content := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	if k.OpenAPI != nil {
		content = map[string]any{}
		if err := json.Unmarshal(k.OpenAPI, &content); err != nil {
			return nil, fmt.Errorf("decode the OpenAPI schema of %s: %w", k.GroupVersionKind, err)
		}
	}
	properties, _ := content["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
		content["properties"] = properties
	}
	for _, name := range []string{"apiVersion", "kind"} {
		properties[name] = map[string]any{"type": "string", "description": metav1.TypeMeta{}.SwaggerDoc()[name]}
	}
	properties["metadata"] = map[string]any{
		"description": metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"],
		"allOf":       []any{map[string]any{"$ref": openapi.Prefix + openapi.ObjectMeta}},
	}
	content["x-kubernetes-group-version-kind"] = []metav1.GroupVersionKind{metav1.GroupVersionKind(k.GroupVersionKind)}
	return json.Marshal(content)
}

// addOpenAPIPaths adds the operations of a kind.
func (k *Kind) addOpenAPIPaths(paths map[string]any) {
	base := "/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		base = "/api/" + k.Version
	}
	if !k.ClusterScoped {
		base += "/namespaces/{namespace}"
	}
	operation := func(action string, parameters ...string) map[string]any {
		list := []any{}
		for _, name := range parameters {
			kind := "string"
			if name == "force" {
				kind = "boolean"
			}
			list = append(list, map[string]any{
				"name": name, "in": "query",
				"schema": map[string]any{"type": kind, "uniqueItems": true},
			})
		}
		return map[string]any{
			"x-kubernetes-action":             action,
			"x-kubernetes-group-version-kind": metav1.GroupVersionKind(k.GroupVersionKind), "parameters": list,
			"responses": map[string]any{"200": map[string]any{"description": "OK", "content": map[string]any{
				string(mediaJSON): map[string]any{"schema": map[string]any{"$ref": openapi.Prefix + k.openAPIName()}},
			}}},
		}
	}
	object := map[string]any{
		"get":    operation("get"),
		"put":    operation("put", "dryRun", "fieldManager", "fieldValidation"),
		"patch":  operation("patch", "dryRun", "fieldManager", "fieldValidation", "force"),
		"delete": operation("delete", "dryRun", "gracePeriodSeconds", "propagationPolicy"),
	}
	post := operation("post", "dryRun", "fieldManager", "fieldValidation")
	if k.review != nil {
		paths[base+"/"+k.Resource] = map[string]any{"post": post}
		return
	}
	paths[base+"/"+k.Resource] = map[string]any{
		"get": operation("list", "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion",
			"resourceVersionMatch", "watch"),
		"post": post,
	}
	paths[base+"/"+k.Resource+"/{name}"] = object
	if k.Status {
		paths[base+"/"+k.Resource+"/{name}/status"] = map[string]any{
			"get": object["get"], "put": object["put"],
			"patch": object["patch"],
		}
	}
}
