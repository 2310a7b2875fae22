package fakeserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// request is a parsed request.
type request struct {
	*http.Request
	resources   *resources
	key         kube.Key
	subresource string
	body        []byte
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, fmt.Errorf("fakeserver: read the body of %s %s: %w", req.Method, req.URL.Path, err)
		}
		_ = req.Body.Close() // http.RoundTripper requires it
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" && len(parts) > 1 {
		group, parts = parts[1], parts[1:]
	}
	if len(parts) < 2 {
		return failure(apierrors.NewNotFound(schema.GroupResource{}, req.URL.Path)), nil
	}
	gv := schema.GroupVersion{Group: group, Version: parts[1]}
	if len(parts) == 2 {
		return s.discovery(gv), nil
	}
	r, parts := request{Request: req, body: body}, parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		r.key.Namespace, parts = parts[1], parts[2:]
	}
	s.mu.Lock()
	r.resources = s.kinds[gv.String()+"/"+parts[0]]
	hook := s.hook
	if req.URL.Query().Get("watch") == "" {
		s.seen = append(s.seen, req.Method+" "+req.URL.Path)
	}
	s.mu.Unlock()
	if r.resources == nil {
		return failure(apierrors.NewNotFound(gv.WithResource(parts[0]).GroupResource(), "")), nil
	}
	if len(parts) > 1 {
		r.key.Name = parts[1]
	}
	if len(parts) > 2 {
		r.subresource = parts[2]
	}
	do := func() *http.Response { return s.do(r) } //nolint:contextcheck // it is the request's own
	if hook != nil {
		return hook(req, do)
	}
	return do(), nil
}

func (s *Server) do(r request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		return s.watch(r)
	case r.Method == http.MethodGet && r.key.Name == "":
		return s.list(r)
	case r.Method == http.MethodPost:
		return s.post(r)
	}
	old := r.resources.objects[r.key]
	if old == nil {
		return failure(apierrors.NewNotFound(r.groupResource(), r.key.Name))
	}
	switch r.Method {
	case http.MethodGet:
		return success(http.StatusOK, r.shown(old.Object))
	case http.MethodPut:
		return s.put(r, old, r.body)
	case http.MethodPatch:
		return s.patch(r, old)
	case http.MethodDelete:
		return s.delete(r, old)
	}
	return failure(apierrors.NewMethodNotSupported(r.groupResource(), r.Method))
}

func (r request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.resources.kind.Group, Resource: r.resources.kind.Resource}
}

func (r request) manager() string {
	return cmp.Or(r.URL.Query().Get("fieldManager"), strings.Split(r.Header.Get("User-Agent"), "/")[0], "unknown")
}

func (r request) dryRun() bool {
	return r.URL.Query().Has("dryRun") || r.Method == http.MethodDelete && bytes.Contains(r.body, []byte(metav1.DryRunAll))
}

func (s *Server) list(r request) *http.Response {
	selected, err := r.selection()
	if err != nil {
		return failure(apierrors.NewBadRequest(err.Error()))
	}
	if version, err := strconv.Atoi(r.URL.Query().Get("resourceVersion")); err == nil && version > s.version {
		return failure(tooLarge())
	}
	items := []any{}
	for _, key := range slices.SortedFunc(maps.Keys(r.resources.objects), func(a, b kube.Key) int { return strings.Compare(a.String(), b.String()) }) {
		if obj := r.resources.objects[key]; selected(obj) {
			items = append(items, r.shown(obj.Object))
		}
	}
	kind := r.resources.kind.GroupVersionKind
	if r.metadataOnly() {
		kind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	return success(http.StatusOK, map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List",
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)}, "items": items,
	})
}

// metadataOnly reports whether the request is for PartialObjectMetadata.
func (r request) metadataOnly() bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// shown returns obj in the requested form: the object itself, or its metadata.
func (r request) shown(obj map[string]any) map[string]any {
	if !r.metadataOnly() {
		return obj
	}
	return map[string]any{
		"apiVersion": metav1.SchemeGroupVersion.String(), "kind": "PartialObjectMetadata", "metadata": obj["metadata"],
	}
}

// selection returns a function that reports whether the request's namespace, labels and metadata.name select an object.
func (r request) selection() (func(*unstructured.Unstructured) bool, error) {
	byLabels, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	name, named := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return func(obj *unstructured.Unstructured) bool {
		return (r.key.Namespace == "" || obj.GetNamespace() == r.key.Namespace) &&
			byLabels.Matches(labels.Set(obj.GetLabels())) && (!named || obj.GetName() == name)
	}, nil
}

// tooLarge is the error for a resource version in the future.
func tooLarge() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
		Message: "Too large resource version",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}},
	}}
}

func (s *Server) post(r request) *http.Response {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(r.body); err != nil {
		return failure(apierrors.NewBadRequest(err.Error()))
	}
	obj.SetNamespace(r.key.Namespace)
	if obj.GetName() == "" {
		obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), s.uids))
	}
	if r.resources.objects[kube.KeyOf(obj)] != nil {
		return failure(apierrors.NewAlreadyExists(r.groupResource(), obj.GetName()))
	}
	if r.resources.kind.Status {
		delete(obj.Object, "status")
	}
	if !r.dryRun() {
		s.create(r.resources, obj, r.manager())
		obj = r.resources.objects[kube.KeyOf(obj)]
	}
	return success(http.StatusCreated, obj.Object)
}

func (s *Server) put(r request, old *unstructured.Unstructured, body []byte) *http.Response {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(body); err != nil {
		return failure(apierrors.NewBadRequest(err.Error()))
	}
	if obj.GetUID() != "" && obj.GetUID() != old.GetUID() ||
		obj.GetResourceVersion() != "" && obj.GetResourceVersion() != old.GetResourceVersion() {
		return failure(apierrors.NewConflict(r.groupResource(), r.key.Name, fmt.Errorf("the object has been modified: it is at %s", old.GetResourceVersion())))
	}
	next := old.DeepCopy()
	switch {
	case r.subresource == "status":
		next.Object["status"] = obj.Object["status"]
	case r.resources.kind.Status:
		next = obj
		next.Object["status"] = old.Object["status"]
	default:
		next = obj
	}
	if next.Object["status"] == nil {
		delete(next.Object, "status")
	}
	next.SetNamespace(r.key.Namespace)
	if !r.dryRun() {
		next = s.replace(r.resources, old, next, r.manager())
	}
	return success(http.StatusOK, next.Object)
}

func (s *Server) delete(r request, old *unstructured.Unstructured) *http.Response {
	var options metav1.DeleteOptions
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &options); err != nil {
			return failure(apierrors.NewBadRequest(err.Error()))
		}
	}
	if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
		return failure(apierrors.NewConflict(r.groupResource(), r.key.Name, fmt.Errorf("the preconditions do not hold")))
	}
	if r.dryRun() {
		return success(http.StatusOK, old.Object)
	}
	if !s.remove(r.resources, old) {
		return success(http.StatusOK, r.resources.objects[r.key].Object)
	}
	return success(http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: r.key.Name, Kind: r.resources.kind.Resource, UID: old.GetUID()},
	})
}

func (s *Server) discovery(gv schema.GroupVersion) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String()}
	for _, r := range s.kinds {
		if r.kind.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.kind.Resource, Kind: r.kind.Kind, Namespaced: !r.kind.ClusterScoped, Verbs: metav1.Verbs{"get", "list", "watch"},
			})
			if r.kind.Status {
				list.APIResources = append(list.APIResources, metav1.APIResource{
					Name: r.kind.Resource + "/status", Kind: r.kind.Kind, Namespaced: !r.kind.ClusterScoped, Verbs: metav1.Verbs{"get", "patch", "update"},
				})
			}
		}
	}
	if len(list.APIResources) == 0 {
		return failure(apierrors.NewNotFound(schema.GroupResource{Group: gv.Group}, gv.String()))
	}
	return success(http.StatusOK, list)
}

func success(code int, body any) *http.Response {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("fakeserver: encode an answer: %v", err))
	}
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(encoded)),
		Body: io.NopCloser(bytes.NewReader(encoded)),
	}
}

func failure(err *apierrors.StatusError) *http.Response {
	status := err.ErrStatus
	status.APIVersion, status.Kind = "v1", "Status"
	return success(int(status.Code), status)
}

// Failure returns the response for an error, for hooks.
func Failure(err *apierrors.StatusError) *http.Response { return failure(err) }
