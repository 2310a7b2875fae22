package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// roundTrip sends a request to the API server, once. client-go would wait for a Retry-After and repeat the request up
// to ten times, within the handler. Instead, Throttled errors carry the Retry-After to the workqueue.
func (c *Client) roundTrip(ctx context.Context, r *Request) error {
	client, err := c.config.Cluster.RESTClient(r.Resource.GroupVersion())
	if err != nil {
		return err
	}
	r.Status = 0
	req, err := c.encode(client, r)
	if err != nil {
		return err
	}
	if r.Verb == VerbWatch {
		return c.openWatch(ctx, req, r)
	}
	ended := c.written.begin(r)
	result := req.Do(ctx)
	result.StatusCode(&r.Status)
	// The error of Raw does not contain the response of the API server.
	err = result.Error()
	raw, rawErr := result.Raw()
	ended(raw, err)
	if err != nil {
		return c.explain(ctx, r, err)
	}
	if r.Response == nil {
		return nil
	}
	if rawErr != nil {
		return rawErr
	}
	if _, wanted := r.Response.(*metav1.Status); !wanted && r.Subresource != "" && r.Verb.IsWrite() && isStatus(raw) {
		clearObject(r.Response)
		return nil
	}
	if err := decodeInto(raw, r.Response); err != nil {
		return fmt.Errorf("decode the response: %w", err)
	}
	return nil
}

// encode returns the request for client-go.
func (c *Client) encode(client rest.Interface, r *Request) (*rest.Request, error) {
	if err := checkOptions(r); err != nil {
		return nil, err
	}
	req := client.Verb(method(r.Verb)).
		NamespaceIfScoped(r.Key.Namespace, r.Resource.Namespaced && r.Key.Namespace != "").
		Resource(r.Resource.Resource).
		SetHeader("Accept", accept(r)).
		WarningHandlerWithContext(c.warnings).
		MaxRetries(0)
	if r.Key.Name != "" && r.Verb != VerbList && r.Verb != VerbWatch && (r.Verb != VerbCreate || r.Subresource != "") {
		req.Name(r.Key.Name)
	}
	if r.Subresource != "" {
		req.SubResource(r.Subresource)
	}
	if r.isCollection() || r.Verb == VerbGet {
		if err := listParams(req, r); err != nil {
			return nil, err
		}
	}
	if r.Verb.IsWrite() {
		writeParams(req, r)
	}
	encoded, contentType, err := r.Body, cmp.Or(string(r.PatchType), runtime.ContentTypeJSON), error(nil)
	switch {
	case r.Object != nil:
		contentType = runtime.ContentTypeJSON
		encoded, err = encodeObject(c.config.Cluster, r)
	case r.PatchType != "":
	case r.Delete != nil:
		options := *r.Delete
		options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
		if r.DryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		// The options are encoded here, because their encoding by the Cluster's client depends on the other registered
		// types.
		encoded, err = json.Marshal(options)
	default:
		return req, nil
	}
	return req.SetHeader("Content-Type", contentType).Body(encoded), err
}

// listParams sets every option that is set, including those that only an interceptor sets.
func listParams(req *rest.Request, r *Request) error {
	options := r.List
	options.TypeMeta = metav1.TypeMeta{}
	options.Watch = r.Verb == VerbWatch
	params, err := queryparams.Convert(&options)
	if err != nil {
		return fmt.Errorf("encode the options of the %s: %w", r.Verb, err)
	}
	for name, values := range params {
		for _, value := range values {
			req.Param(name, value)
		}
	}
	return nil
}

// checkOptions rejects options that the verb of the request does not have. Only an interceptor can have set them.
// Dropping them would silently change the request.
func checkOptions(r *Request) error {
	list := r.List
	list.TypeMeta = metav1.TypeMeta{}
	if r.Verb == VerbGet {
		list.ResourceVersion = ""
	}
	switch {
	case r.Force && r.Verb != VerbApply:
		return fmt.Errorf("an interceptor has set Request.Force, and a %s cannot be forced", r.Verb)
	case !r.isCollection() && list != (metav1.ListOptions{}):
		return fmt.Errorf("an interceptor has set Request.List, which a %s does not have", r.Verb)
	case list.Watch && r.Verb != VerbWatch:
		return fmt.Errorf("an interceptor has set Request.List.Watch, and a %s is not a watch: Watch opens one", r.Verb)
	case r.Delete != nil && r.Verb != VerbDelete && r.Verb != VerbDeleteCollection:
		return fmt.Errorf("an interceptor has set Request.Delete, which a %s does not have", r.Verb)
	}
	return nil
}

func writeParams(req *rest.Request, r *Request) {
	if r.DryRun && r.Delete == nil {
		req.Param("dryRun", metav1.DryRunAll)
	}
	if r.Verb == VerbDelete || r.Verb == VerbDeleteCollection {
		return // the options have no field manager
	}
	if r.FieldOwner != "" {
		req.Param("fieldManager", r.FieldOwner)
	}
	if r.FieldValidation != "" {
		req.Param("fieldValidation", r.FieldValidation)
	}
	if r.Verb == VerbApply {
		req.Param("force", strconv.FormatBool(r.Force))
	}
}

func method(verb Verb) string {
	switch verb {
	case VerbCreate:
		return http.MethodPost
	case VerbUpdate:
		return http.MethodPut
	case VerbPatch, VerbApply:
		return http.MethodPatch
	case VerbDelete, VerbDeleteCollection:
		return http.MethodDelete
	default:
		return http.MethodGet
	}
}

// accept returns the Accept header for a format that can be decoded into the caller's type.
func accept(r *Request) string {
	if _, metadata := r.model.(*metav1.PartialObjectMetadata); !metadata || r.Subresource != "" {
		return runtime.ContentTypeJSON
	}
	as := "PartialObjectMetadata"
	if r.Verb == VerbList || r.Verb == VerbDeleteCollection {
		as = "PartialObjectMetadataList"
	}
	// The whole object is accepted too, because some aggregated API servers return nothing else.
	return runtime.ContentTypeJSON + ";as=" + as + ";g=meta.k8s.io;v=v1," + runtime.ContentTypeJSON
}
