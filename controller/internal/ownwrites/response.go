package ownwrites

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

// response is the API server's response to a completed write.
type response struct {
	// object is the object after the write; nil if the response contains none.
	object *wire.Object
	// kind is the kind of the object in the response. It differs from the kind that was written for a scale, and for a
	// metadata-only response.
	kind schema.GroupVersionKind
	// uid is the object's UID, also if the response contains only a Status.
	uid types.UID
}

// readResponse decodes the object in the body of a response without the fields to cut, or the UID in a Status.
func readResponse(body []byte, cut *wire.Cut) response {
	if obj, err := wire.Parse(body, cut); err == nil && obj.UID != "" {
		return response{object: obj, kind: kindOf(body), uid: obj.UID}
	}
	var status metav1.Status
	if !decodeBody(body, "Status", &status) || status.Details == nil {
		return response{}
	}
	return response{uid: status.Details.UID}
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

// responseCut returns the fields to cut from the objects in responses: managedFields, which are often half of an object
// and are never compared.
func responseCut() *wire.Cut {
	// In protobuf, every kind has its metadata in the same field as PartialObjectMetadata.
	cut, err := wire.NewCut(reflect.TypeFor[*metav1.PartialObjectMetadata](), wire.ManagedFields)
	if err != nil {
		return nil // nothing is cut: the metadata no longer have this path
	}
	return cut
}

// key returns the object's key: the one in the response, or else the one in the request. The key of a create is known
// only from the response.
func (r response) key(requested kube.Key) kube.Key {
	if r.object != nil && r.object.Key.Name != "" {
		return r.object.Key
	}
	return requested
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
