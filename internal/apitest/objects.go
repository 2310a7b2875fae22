package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// The methods of this file make requests as another client. They are neither recorded nor hooked nor failed.

// Object returns an object, or nil.
func (s *Server) Object(resource string, key kube.Key) *unstructured.Unstructured {
	obj, err := s.read(pathOf(s.kind(resource), key))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		panic(fmt.Sprintf("apitest: get %s %s: %v", resource, key, err))
	}
	return obj
}

// Keys returns the keys of a resource, sorted.
func (s *Server) Keys(resource string) []string {
	list, err := s.read(pathOf(s.kind(resource), kube.Key{}))
	if err != nil {
		panic(fmt.Sprintf("apitest: list %s: %v", resource, err))
	}
	var keys []string
	err = list.EachListItem(func(obj runtime.Object) error {
		keys = append(keys, kube.KeyOf(obj.(*unstructured.Unstructured)).String())
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("apitest: list %s: %v", resource, err))
	}
	slices.Sort(keys)
	return keys
}

// Edit creates, changes or deletes an object, as another client with the field manager manager. change gets the object,
// or one with nothing but its name. It returns false to delete the object. It is called again if the object was changed
// in between. A changed status is written by a second request, if the kind has that subresource. Edit returns the
// object's resource version. It panics if the server rejects the object.
func (s *Server) Edit(resource string, key kube.Key, manager string, change func(obj map[string]any) bool) string {
	kind := s.kind(resource)
	for {
		version, err := s.edit(kind, key, manager, change)
		if err == nil {
			return version
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			panic(fmt.Sprintf("apitest: edit %s %s as %s: %v", resource, key, manager, err))
		}
	}
}

func (s *Server) edit(
	kind *apiserver.Kind, key kube.Key, manager string, change func(obj map[string]any) bool,
) (version string, err error) {
	path := pathOf(kind, key)
	old, err := s.read(path)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	next := &unstructured.Unstructured{Object: map[string]any{}}
	var oldStatus any
	if old != nil {
		next, oldStatus = old.DeepCopy(), old.Object["status"]
	}
	next.SetGroupVersionKind(kind.GroupVersionKind)
	next.SetNamespace(key.Namespace)
	next.SetName(key.Name)
	if !change(next.Object) {
		if _, err := s.Send(http.MethodDelete, path, nil); err != nil {
			return "", err
		}
		return s.api.Version(), nil
	}
	status := next.Object["status"]
	switch {
	case old == nil:
		version, err = s.write(http.MethodPost, pathOf(kind, kube.Key{Namespace: key.Namespace}), manager, next)
	case !kind.Status || !reflect.DeepEqual(withoutStatus(old), withoutStatus(next)):
		version, err = s.write(http.MethodPut, path, manager, next)
	default:
		version = old.GetResourceVersion()
	}
	if err != nil || !kind.Status || reflect.DeepEqual(status, oldStatus) {
		return version, err
	}
	next.SetResourceVersion(version)
	return s.write(http.MethodPut, path+"/status", manager, next)
}

func withoutStatus(obj *unstructured.Unstructured) map[string]any {
	rest := map[string]any{}
	for field, value := range obj.Object {
		if field != "status" {
			rest[field] = value
		}
	}
	return rest
}

// pathOf returns the path of an object, or without a name that of all objects in the namespace.
func pathOf(kind *apiserver.Kind, key kube.Key) string {
	path := "/api/" + kind.Version
	if kind.Group != "" {
		path = "/apis/" + kind.Group + "/" + kind.Version
	}
	if key.Namespace != "" {
		path += "/namespaces/" + key.Namespace
	}
	path += "/" + kind.Resource
	if key.Name != "" {
		path += "/" + key.Name
	}
	return path
}

// Apply applies a configuration in JSON by server-side apply, as the manager. It panics if the server rejects it.
func (s *Server) Apply(resource string, key kube.Key, manager, configuration string) {
	path := pathOf(s.kind(resource), key) + "?fieldManager=" + url.QueryEscape(manager)
	if _, err := s.Send(http.MethodPatch, path, []byte(configuration)); err != nil {
		panic(fmt.Sprintf("apitest: apply %s %s as %s: %v", resource, key, manager, err))
	}
}

// write sends an object, and returns its resource version.
func (s *Server) write(method, path, manager string, obj *unstructured.Unstructured) (version string, err error) {
	body, err := obj.MarshalJSON()
	if err != nil {
		return "", err
	}
	text, err := s.Send(method, path+"?fieldManager="+url.QueryEscape(manager), body)
	if err != nil {
		return "", err
	}
	var stored struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(text, &stored)
	return stored.Metadata.ResourceVersion, err
}

// read returns an object or a list.
func (s *Server) read(path string) (*unstructured.Unstructured, error) {
	text, err := s.Send(http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	return obj, obj.UnmarshalJSON(text)
}

// Send makes a request past the hook, and returns the body of the response. Error: the server's Status.
func (s *Server) Send(method, path string, body []byte) ([]byte, error) {
	header := http.Header{}
	if method == http.MethodPatch {
		header.Set("Content-Type", string(types.ApplyYAMLPatchType))
	}
	return s.SendWith(header, method, path, body)
}

// SendWith is Send with a header. With the header Accept, the Status of an error must be JSON or protobuf.
func (s *Server) SendWith(header http.Header, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://apitest.invalid"+path,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	res, err := s.api.Transport().RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode < http.StatusBadRequest {
		return text, err
	}
	var status metav1.Status
	if Decode(text, &status) != nil {
		return nil, errors.New(string(text))
	}
	return nil, &apierrors.StatusError{ErrStatus: status}
}

// Decode decodes JSON, or protobuf in the envelope of API servers if into has a protobuf form.
func Decode(text []byte, into runtime.Object) error {
	message, isProtobuf := bytes.CutPrefix(text, []byte("k8s\x00"))
	if !isProtobuf {
		return json.Unmarshal(text, into)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(message); err != nil {
		return err
	}
	into.GetObjectKind().SetGroupVersionKind(envelope.GroupVersionKind())
	return into.(interface{ Unmarshal([]byte) error }).Unmarshal(envelope.Raw)
}
