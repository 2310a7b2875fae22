package ownwrites

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// isDeletion reports whether a completed write has removed its object. after is the object in the response, or nil.
func isDeletion(call kube.Call, after *wire.Object) bool {
	switch call.Verb {
	case "delete":
		return call.Subresource == "" && (after == nil || !after.Deleting)
	case "update", "patch":
		return after != nil && isRemoved(after)
	}
	return false
}

// isRemoved reports whether the update or patch that returned o removed the object, as a write does that removes the
// last finalizer of a deleted object. The response then has the resource version from before the write.
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

// lastVersion returns the latest known resource version of a deleted object, or "" if none is known.
func lastVersion(call kube.Call, before *State, r response) string {
	if version := deletePrecondition(call); version != "" {
		return version
	}
	switch {
	case r.object != nil:
		return r.object.ResourceVersion
	case before != nil && before.Object.UID == r.uid:
		return before.Object.ResourceVersion
	}
	return ""
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
