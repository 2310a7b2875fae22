package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// writer receives the writes of a run. The loop implements it.
type writer interface {
	// known returns the state of an object that the run wrote last, or that informers show; nil if neither is known.
	known(r *running, kind schema.GroupVersionKind, object kube.Key) *before
	// wrote is called after each completed write, with the state before it, if known, and the API server's response.
	wrote(ctx context.Context, r *running, call kube.Call, was *before, a answer) WriteOutcome
}

// before is the known state of an object when a write of it was sent. whole is false if the informer keeps only part of
// the object, or another API version of it.
type before struct {
	object *wire.Object
	whole  bool
}

type beforeKey struct{}

// CallBegan implements kube.CallObserver.
func (r *running) CallBegan(ctx context.Context, call kube.Call) context.Context {
	if !call.IsWrite() || call.Key.Name == "" || call.Kind.Kind == "" {
		return ctx
	}
	if was := r.writer.known(r, call.Kind, call.Key); was != nil {
		return context.WithValue(ctx, beforeKey{}, was)
	}
	return ctx
}

// CallEnded implements kube.CallObserver.
func (r *running) CallEnded(ctx context.Context, call kube.Call) {
	writes := call.IsWrite() || call.DryRun
	var write Write
	if writes {
		was, _ := ctx.Value(beforeKey{}).(*before)
		write = r.noted(ctx, call, was)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Calls++
	r.run.CallTime += call.Duration
	if write.Outcome == WriteDone {
		r.run.writesDone++
	}
	switch {
	case !writes:
	case len(r.run.Writes) == maxWrites:
		r.run.WritesDropped++
	default:
		r.run.Writes = append(r.run.Writes, write)
	}
}

// noted passes a completed write to the loop. It returns the record that is kept of every write.
func (r *running) noted(ctx context.Context, call kube.Call, was *before) Write {
	w := Write{
		Verb: call.Verb, Kind: cmp.Or(call.Kind.Kind, call.Resource.Resource), Subresource: call.Subresource,
		Key: call.Key, Status: call.Status, Duration: call.Duration,
	}
	switch {
	case call.Err != nil:
		w.Outcome = WriteUnknown
	case !call.Succeeded():
		w.Outcome = WriteRejected
	case call.DryRun:
		w.Outcome = WriteDryRun
	default:
		a := readAnswer(call, r.cut)
		w.Key = a.key(call.Key)
		if a.object != nil {
			w.ResourceVersion = a.object.ResourceVersion
		}
		w.Outcome = r.writer.wrote(ctx, r, call, was, a)
	}
	return w
}

// answer is the API server's response to a completed write.
type answer struct {
	// object is the object after the write; nil if the response contains none.
	object *wire.Object
	// kind is the kind of the object in the response. It differs from the kind that was written for a scale, and for a
	// metadata-only response.
	kind schema.GroupVersionKind
	// uid is the object's UID, also if the response contains only a Status.
	uid types.UID
}

// answerCut returns the fields to cut from the objects in responses: managedFields, which are often half of an object
// and are never compared.
func answerCut() *wire.Cut {
	// In protobuf, every kind has its metadata in the same field as PartialObjectMetadata.
	cut, err := wire.NewCut(reflect.TypeFor[*metav1.PartialObjectMetadata](), wire.ManagedFields)
	if err != nil {
		return nil // nothing is cut: the metadata no longer have this path
	}
	return cut
}

// readAnswer decodes the object in a response without the fields to cut, or the UID in a Status.
func readAnswer(call kube.Call, cut *wire.Cut) answer {
	if obj, err := wire.Parse(call.Response, cut); err == nil && obj.UID != "" {
		return answer{object: obj, kind: kindOf(call.Response), uid: obj.UID}
	}
	var status metav1.Status
	encoded := call.Response
	if rest, isProtobuf := bytes.CutPrefix(encoded, []byte("k8s\x00")); isProtobuf {
		var envelope runtime.Unknown
		if envelope.Unmarshal(rest) != nil || envelope.Kind != "Status" || status.Unmarshal(envelope.Raw) != nil {
			return answer{}
		}
	} else if json.Unmarshal(encoded, &status) != nil {
		return answer{}
	}
	if status.Details == nil {
		return answer{}
	}
	return answer{uid: status.Details.UID}
}

// kindOf returns the kind that an encoded object names.
func kindOf(encoded []byte) schema.GroupVersionKind {
	var meta metav1.TypeMeta
	if rest, isProtobuf := bytes.CutPrefix(encoded, []byte("k8s\x00")); isProtobuf {
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

// key returns the object's key. The key of a create is known only from the response.
func (a answer) key(asked kube.Key) kube.Key {
	if a.object != nil && a.object.Key.Name != "" {
		return a.object.Key
	}
	return asked
}

// writeOf returns a completed write as informers will show it. ok is false if that is unknown: for a deletecollection,
// or a response without an object (for a delete: without a UID).
func writeOf(call kube.Call, a answer) (w cache.Write, ok bool) {
	w = cache.Write{Key: a.key(call.Key), UID: a.uid, Object: a.object}
	switch {
	case call.Verb == "delete" && call.Subresource == "" && (a.object == nil || !a.object.Deleting):
		w.Deleted, w.Object = true, nil
		return w, a.uid != ""
	case call.Verb == "deletecollection" || a.object == nil:
		return w, false
	case (call.Verb == "update" || call.Verb == "patch") && endedBy(a.object):
		w.Deleted, w.Object = true, nil
		return w, true
	}
	w.ResourceVersion = a.object.ResourceVersion
	return w, true
}

// lastVersion returns the latest known resource version of a deleted object, or "" if none is known.
func lastVersion(call kube.Call, was *before, a answer) string {
	var version string
	var options metav1.DeleteOptions
	if call.Verb == "delete" && readOptions(call.Request, &options) && options.Preconditions != nil && options.Preconditions.ResourceVersion != nil {
		version = *options.Preconditions.ResourceVersion
	}
	switch {
	case version != "":
		return version
	case a.object != nil:
		return a.object.ResourceVersion
	case was != nil && was.object.UID == a.uid:
		return was.object.ResourceVersion
	}
	return ""
}

// readOptions decodes the body of a delete request.
func readOptions(encoded []byte, options *metav1.DeleteOptions) bool {
	rest, isProtobuf := bytes.CutPrefix(encoded, []byte("k8s\x00"))
	if !isProtobuf {
		return json.Unmarshal(encoded, options) == nil
	}
	var envelope runtime.Unknown
	return envelope.Unmarshal(rest) == nil && envelope.Kind == "DeleteOptions" && options.Unmarshal(envelope.Raw) == nil
}

// endedBy reports whether the update or patch that returned o removed the object, as a write does that removes the last
// finalizer of a deleted object. The response then has the resource version from before the write.
func endedBy(o *wire.Object) bool {
	if !o.Deleting || len(o.Finalizers()) > 0 {
		return false
	}
	// In protobuf, every kind has its metadata in the same field as PartialObjectMetadata.
	content, err := detect.Content(o, func() kube.Object { return &metav1.PartialObjectMetadata{} })
	if err != nil {
		return false
	}
	grace, found, err := unstructured.NestedInt64(content, "metadata", "deletionGracePeriodSeconds")
	return err == nil && found && grace == 0
}
