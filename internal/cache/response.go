package cache

import (
	"bytes"
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Response is the API server's response to a completed write.
type Response struct {
	// Object is the object after the write; nil if the response contains none.
	Object *wire.Object
	// Kind is the kind of the object in the response. It differs from the kind that was written for a scale, and for a
	// metadata-only response.
	Kind schema.GroupVersionKind
	// UID is the object's UID, also if the response contains only a Status.
	UID types.UID
}

// Responses reads responses. Its zero value keeps all fields of objects.
type Responses struct{ cut *wire.Cut }

// NewResponses returns Responses without managedFields, which are often half of an object and are never compared.
func NewResponses() Responses {
	// In protobuf, every kind has its metadata in the same field as PartialObjectMetadata.
	cut, err := wire.NewCut(reflect.TypeFor[*metav1.PartialObjectMetadata](), wire.ManagedFields)
	if err != nil {
		return Responses{} // nothing is cut: the metadata no longer have this path
	}
	return Responses{cut}
}

// Read decodes the object in the body of a response, or the UID in a Status.
func (r Responses) Read(body []byte) Response {
	if obj, err := wire.Parse(body, r.cut); err == nil && obj.UID != "" {
		return Response{Object: obj, Kind: kindOf(body), UID: obj.UID}
	}
	var status metav1.Status
	if !decodeBody(body, "Status", &status) || status.Details == nil {
		return Response{}
	}
	return Response{UID: status.Details.UID}
}

// decodeBody decodes a body that should be of a kind, which JSON need not name. It reports whether that is possible.
func decodeBody(body []byte, kind string, into interface{ Unmarshal([]byte) error }) bool {
	rest, isProtobuf := cutProtobufPrefix(body)
	if !isProtobuf {
		return json.Unmarshal(body, into) == nil
	}
	var envelope runtime.Unknown
	return envelope.Unmarshal(rest) == nil && envelope.Kind == kind && into.Unmarshal(envelope.Raw) == nil
}

// Write returns the completed write of call, as informers will show it. before is the object when the request was sent,
// as far as it is known, or nil: it completes a deletion. ok is false if it is not known how informers will show the
// write: for a deletecollection, or a response without an object (for a delete: without a UID).
func (r Response) Write(call kube.Call, before *wire.Object) (w Write, ok bool) {
	w = Write{Server: call.Server, Key: call.Key, UID: r.UID, Object: r.Object}
	if r.Object != nil && r.Object.Key.Name != "" {
		w.Key = r.Object.Key // of a create, it is known only from the response
	}
	switch {
	case call.Kind.Kind == "" || r.UID == "":
		return w, false
	case isDeletion(call, r.Object):
		switch {
		case w.Object != nil || before == nil:
		case before.UID == r.UID:
			w.Object = before
		default:
			w.Earlier = before.UID // another client has replaced it
		}
		// Without a version, an informer that does not show the object yet would seem to show its deletion.
		w.Deleted, w.ResourceVersion = true, deletePrecondition(call)
		if w.ResourceVersion == "" && w.Object != nil {
			w.ResourceVersion = w.Object.ResourceVersion
		}
		return w, true
	case r.Object == nil || r.Object.ResourceVersion == "" || call.Verb == "deletecollection":
		// Without a version it is no state of the object: a token has the name and uid of its ServiceAccount.
		return w, false
	}
	w.ResourceVersion = r.Object.ResourceVersion
	return w, true
}

// kindOf returns the kind that an encoded object names.
func kindOf(encoded []byte) schema.GroupVersionKind {
	var meta metav1.TypeMeta
	if rest, isProtobuf := cutProtobufPrefix(encoded); isProtobuf {
		var envelope runtime.Unknown
		if envelope.Unmarshal(rest) != nil {
			return schema.GroupVersionKind{}
		}
		meta.APIVersion, meta.Kind = envelope.APIVersion, envelope.Kind
	} else {
		meta = typeMetaOf(encoded)
	}
	return meta.GroupVersionKind()
}

// typeMetaOf returns the apiVersion and kind of an object in JSON. It stops reading after them: API servers write them
// first.
func typeMetaOf(encoded []byte) (meta metav1.TypeMeta) {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return meta
	}
	for meta.Kind == "" || meta.APIVersion == "" {
		name, err := decoder.Token()
		if err != nil || name == json.Delim('}') {
			break
		}
		var value any = &json.RawMessage{}
		switch name {
		case "apiVersion":
			value = &meta.APIVersion
		case "kind":
			value = &meta.Kind
		}
		if decoder.Decode(value) != nil {
			return metav1.TypeMeta{}
		}
	}
	return meta
}

// cutProtobufPrefix returns the runtime.Unknown in a body that is encoded as protobuf.
func cutProtobufPrefix(body []byte) (envelope []byte, isProtobuf bool) {
	return bytes.CutPrefix(body, []byte("k8s\x00"))
}

// isDeletion reports whether a completed write has removed its object. after is the object in the response, or nil.
func isDeletion(call kube.Call, after *wire.Object) bool {
	switch call.Verb {
	case "delete":
		return call.Subresource == "" && (after == nil || !after.Deleting || isRemoved(after))
	case "update", "patch":
		return after != nil && isRemoved(after)
	}
	return false
}

// isRemoved reports whether the write that returned o removed the object, as one does that removes the last finalizer
// of a deleted object. The response then has the resource version from before the write.
func isRemoved(o *wire.Object) bool {
	if !o.Deleting || len(o.Finalizers()) > 0 {
		return false
	}
	// In protobuf, every kind has its metadata in the same field as PartialObjectMetadata.
	decoder, err := wire.NewDecoder[*metav1.PartialObjectMetadata](schema.GroupVersionKind{})
	if err != nil {
		return false
	}
	metadata, err := decoder.Decode(o)
	return err == nil && metadata.DeletionGracePeriodSeconds != nil && *metadata.DeletionGracePeriodSeconds == 0
}

// deletePrecondition returns the resource version that a delete request requires, or "" if it requires none.
func deletePrecondition(call kube.Call) string {
	var options metav1.DeleteOptions
	if call.Verb != "delete" || !decodeBody(call.Request, "DeleteOptions", &options) ||
		options.Preconditions == nil || options.Preconditions.ResourceVersion == nil {
		return ""
	}
	return *options.Preconditions.ResourceVersion
}
