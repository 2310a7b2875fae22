package apiserver

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// request is a request for a resource.
type request struct {
	*http.Request
	server     *Server
	serving    *serving // when the request began
	table      *table
	generation int // of the table's watches when the request began
	// reviewed is the name of a created object before a name is generated.
	reviewed    string
	mutated     bool // by admission
	bodySize    int
	resource    schema.GroupVersionResource
	kind        *Kind
	custom      bool // the resource is a custom resource, also if kind is Scale
	namespace   string
	name        string
	subresource string
	query       url.Values
	out         output
	warnings    *[]string // sent in the headers of a response
	user        authenticationv1.UserInfo
}

// respond finds the resource in the path, and handles the request.
func (s *Server) respond(req *http.Request) *response {
	path := ParsePath(req.URL.Path)
	s.mu.Lock()
	serving := s.serving
	s.mu.Unlock()
	if err := serving.refuse(req, path); err != nil {
		return serving.failure(err, req.Header)
	}
	if path == (Path{}) {
		return serving.discovery(req, strings.Split(strings.Trim(req.URL.Path, "/"), "/"))
	}
	user, err := s.requester(req)
	if err == nil {
		err = s.authorize(user, req, path, path.Verb(req))
	}
	if err != nil {
		return serving.failure(err, req.Header)
	}
	r := &request{
		Request: req, server: s, warnings: new([]string), user: user,
		resource: path.Resource, namespace: path.Namespace, name: path.Name, subresource: path.Subresource,
	}
	version := resourcePath{path.Resource.Group, path.Resource.Version, path.Resource.Resource}
	if s.lookup(version, r); r.kind == nil {
		return r.serving.unknownResource(version, req)
	}
	if r.kind.Deprecation != "" {
		r.warn(r.kind.Deprecation)
	}
	if impersonates(req.Header) && !s.checksPermissions() {
		r.warn(noPermissions)
	}
	if req.URL.RawQuery != "" {
		r.query = req.URL.Query()
	}
	handle, err := r.route(path.Watch)
	if err == nil && handle == nil {
		return notServed()
	}
	var res *response
	if err == nil {
		res, err = r.handle(handle)
	}
	if err != nil {
		res = r.serving.failure(err, req.Header)
	}
	for _, header := range warningHeaders(*r.warnings) {
		res.header.Add("Warning", header)
	}
	return res
}

// warningHeaders returns the headers of warnings. Those with control characters are left out, as in the real server. If
// all are too long, each is cut, and the last ones are left out.
func warningHeaders(warnings []string) []string {
	const code, maxTotal, maxCut = 299, 4096, 256
	var headers []string
	total, cut := 0, false
	add := func(text string) {
		runes := []rune(text)
		if cut && len(runes) > maxCut {
			runes = runes[:maxCut]
		}
		if cut && total >= maxTotal {
			return
		}
		if header, err := utilnet.NewWarningHeader(code, "-", string(runes)); err == nil {
			headers, total = append(headers, header), total+len(runes)
		}
	}
	for _, text := range warnings {
		add(text)
	}
	if total > maxTotal {
		headers, total, cut = nil, 0, true
		for _, text := range warnings {
			add(text)
		}
	}
	return headers
}

// handle checks the headers of a request and calls its handler.
func (r *request) handle(handler func() (*response, error)) (*response, error) {
	if r.Method == http.MethodPatch {
		if err := r.checkPatchType(); err != nil { // before all else, as in the real server
			return nil, err
		}
	}
	if r.name == "" && (r.Method == http.MethodPatch || r.Method == http.MethodPut) {
		return nil, apierrors.NewBadRequest("name must be provided")
	}
	var err error
	if r.out, err = accepted(r.Header, r.kind, r.Method == http.MethodGet && r.name == ""); err != nil {
		return nil, err
	}
	return handler()
}

// decodeQuery decodes the query parameters into options.
func (r *request) decodeQuery(into runtime.Object) error {
	if len(r.query) == 0 {
		return nil
	}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.query, metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (r *request) body() ([]byte, error) {
	if r.Request.Body == nil {
		return nil, nil
	}
	defer r.Request.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Request.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the body of a request: %w", err)
	}
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	r.bodySize = len(body)
	return body, nil
}

// listOptions decodes and checks the parameters of a list, a watch or a deletion of a collection.
func (r *request) listOptions(forceWatch bool) (internalversion.ListOptions, selection, error) {
	var options internalversion.ListOptions
	if err := r.decodeQuery(&options); err != nil {
		return options, selection{}, err
	}
	options.Watch = options.Watch || forceWatch
	internalversion.SetListOptionsDefaults(&options, true)
	if err := invalidOptions("ListOptions", internalvalidation.ValidateListOptions(&options, true)); err != nil {
		return options, selection{}, err
	}
	selected := selection{namespace: r.namespace, labels: options.LabelSelector, fields: options.FieldSelector}
	if selected.labels == nil {
		selected.labels = labels.Everything()
	}
	if selected.fields == nil {
		selected.fields = fields.Everything()
	}
	for _, requirement := range selected.fields.Requirements() {
		if err := r.kind.checkFieldLabel(requirement.Field); err != nil {
			return options, selection{}, apierrors.NewBadRequest(err.Error())
		}
	}
	if r.name != "" { // watches of one object, in the old form of paths
		selected.fields = fields.OneTermEqualSelector("metadata.name", r.name)
	}
	if namespace, ok := selected.fields.RequiresExactMatch("metadata.namespace"); ok && selected.namespace == "" &&
		options.Continue == "" {
		selected.namespace = namespace
	}
	if name, ok := selected.fields.RequiresExactMatch("metadata.name"); ok && options.Continue == "" &&
		(r.kind.ClusterScoped || selected.namespace != "") {
		selected.name = name
	}
	return options, selected, nil
}

// writeOptions are the parameters of a create, an update or a patch.
type writeOptions struct {
	dryRun bool
	// validation is Ignore, Warn or Strict.
	validation string
	// manager is the parameter fieldManager. force lets an apply take fields from other managers.
	manager string
	force   bool
	// requested are the parameters as they were sent, with another kind for each operation.
	requested metav1.UpdateOptions
}

// forReview returns the options that reviews of a creation or an update have.
func (o writeOptions) forReview(creating bool) runtime.Object {
	kind := metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "UpdateOptions"}
	options := o.requested
	if !creating {
		options.TypeMeta = kind
		return &options
	}
	kind.Kind = "CreateOptions"
	return &metav1.CreateOptions{
		TypeMeta: kind, DryRun: options.DryRun, FieldManager: options.FieldManager,
		FieldValidation: options.FieldValidation,
	}
}

func (o writeOptions) strict() bool { return o.validation != metav1.FieldValidationIgnore }

func newWriteOptions(dryRun []string, validation, manager string) writeOptions {
	requested := metav1.UpdateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation}
	return writeOptions{
		dryRun: len(dryRun) > 0, validation: cmp.Or(validation, metav1.FieldValidationWarn), manager: manager,
		requested: requested,
	}
}

func (r *request) createOptions() (writeOptions, error) {
	var o metav1.CreateOptions
	if err := r.decodeQuery(&o); err != nil {
		return writeOptions{}, err
	}
	return newWriteOptions(o.DryRun, o.FieldValidation, o.FieldManager),
		invalidOptions("CreateOptions", metavalidation.ValidateCreateOptions(&o))
}

func (r *request) updateOptions() (writeOptions, error) {
	var o metav1.UpdateOptions
	if err := r.decodeQuery(&o); err != nil {
		return writeOptions{}, err
	}
	return newWriteOptions(o.DryRun, o.FieldValidation, o.FieldManager),
		invalidOptions("UpdateOptions", metavalidation.ValidateUpdateOptions(&o))
}

func (r *request) patchOptions(patch types.PatchType) (writeOptions, error) {
	var o metav1.PatchOptions
	if err := r.decodeQuery(&o); err != nil {
		return writeOptions{}, err
	}
	options := newWriteOptions(o.DryRun, o.FieldValidation, o.FieldManager)
	options.force = o.Force != nil && *o.Force
	return options, invalidOptions("PatchOptions", metavalidation.ValidatePatchOptions(&o, patch))
}

// deleteOptions decodes the options in the body, or without a body in the query.
func (r *request) deleteOptions() (*metav1.DeleteOptions, error) {
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) == 0 {
		err = r.decodeQuery(options)
	} else {
		var media mediaType
		if media, err = contentType(r.Header); err != nil {
			return nil, err
		}
		if err = r.serving.codecs.decodeOptions(body, media, options); err != nil {
			err = apierrors.NewBadRequest(err.Error())
		}
	}
	if err != nil {
		return nil, err
	}
	options.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	return options, invalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(options))
}
