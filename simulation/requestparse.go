package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// protobufPrefix begins each body in protobuf.
var protobufPrefix = []byte("k8s\x00") //nolint:gochecknoglobals // a constant

// parse returns the request for objects in req. ok is false for discovery.
func parse(req *http.Request) (r Request, ok bool) {
	path := apiserver.ParsePath(req.URL.Path)
	if path == (apiserver.Path{}) {
		return r, false
	}
	r = Request{
		UserAgent: req.UserAgent(), Verb: path.Verb(req), Resource: path.Resource, Subresource: path.Subresource,
		Key: kube.Key{Namespace: path.Namespace, Name: path.Name}, DryRun: req.URL.Query().Get("dryRun") != "",
	}
	r.instance, _ = req.Context().Value(instanceKey{}).(*instance)
	r.isOfModel, _ = req.Context().Value(modelKey{}).(bool)
	if media := req.Header.Get("Content-Type"); strings.HasPrefix(media, string(types.ApplyYAMLPatchType)) ||
		strings.HasPrefix(media, string(types.ApplyCBORPatchType)) {
		r.Verb = "apply"
	}
	return r, true
}

// complete adds the result to the request. It reads the body of an error and of a create, and puts it back.
func (r *Request) complete(res *http.Response, err error) {
	if err != nil {
		r.Message = err.Error()
		return
	}
	r.Status = res.StatusCode
	failed := r.Status >= http.StatusBadRequest
	if !failed && (r.Verb != "create" || r.Key.Name != "") {
		return
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		r.Message = err.Error()
		return
	}
	if failed {
		r.Message = messageOf(body)
	} else {
		r.Key.Name = cmp.Or(r.Key.Name, contentOf(body).Name)
	}
}

// contentOf returns the metadata of an object in the body of a request or response, as far as it can be decoded.
func contentOf(body []byte) (meta metav1.ObjectMeta) {
	if raw, isProtobuf := bytes.CutPrefix(body, protobufPrefix); isProtobuf {
		var unknown runtime.Unknown
		var object metav1.PartialObjectMetadata // every object has its metadata as field 1
		if unknown.Unmarshal(raw) == nil && object.Unmarshal(unknown.Raw) == nil {
			return object.ObjectMeta
		}
		return meta
	}
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(body, &object)
	return object.ObjectMeta
}

// messageOf returns the message in the body of an error.
func messageOf(body []byte) string {
	var status metav1.Status
	if raw, isProtobuf := bytes.CutPrefix(body, protobufPrefix); isProtobuf {
		var unknown runtime.Unknown
		if unknown.Unmarshal(raw) == nil {
			_ = status.Unmarshal(unknown.Raw)
		}
	} else if json.Unmarshal(body, &status) != nil {
		return strings.TrimSpace(string(body))
	}
	return status.Message
}

// errorResponse returns the response with which the API server reports err, or a transport error.
func errorResponse(req *http.Request, err error) (*http.Response, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err
	}
	res, encodeErr := apiserver.ErrorResponse(status.Status())
	if encodeErr != nil {
		return nil, errors.Join(err, encodeErr)
	}
	res.Request = req
	return res, nil
}
