package wire

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// ManagedFields is the path of the field owners that server-side apply needs. They are often half of an object. Updates
// without them are safe: the API server keeps its own.
const ManagedFields = "metadata.managedFields"

// LastApplied is the path of the copy of the object that kubectl apply stores.
const LastApplied = `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`

// Cut defines the fields that are removed from objects. A nil Cut removes nothing. It is immutable and safe for
// concurrent use.
//
// An object without some of its server's fields must not be written with an update, because that would delete them.
// (ManagedFields are an exception: the API server keeps them if they are absent.) Patches and applies are safe.
type Cut struct {
	json  *jsonNode
	proto *protoNode
	// jsonOnly are the paths that cannot be found in protobuf, because the Go type does not contain them.
	jsonOnly []string
	// newMessage returns a new message of the type. It is nil for types without a protobuf encoding.
	newMessage func() message
}

// NewCut compiles paths for objects of the Go type t, such as reflect.TypeFor[*corev1.Pod]().
//
// A path contains the JSON names of fields, separated by dots: "spec.template.spec.containers.env". It continues in
// each element of a list. Map entries are written `metadata.annotations["example.com/note"]`, with quotes as in Go. If
// t has only metadata (unstructured, PartialObjectMetadata), paths outside of the metadata are not checked. Protobuf
// objects have no field names outside of the metadata, so with such a path unstructured objects cannot be read from
// protobuf.
//
// Errors, all of them at once: paths that do not exist in t, and paths to fields that identify an Object: apiVersion,
// kind, and the metadata's name, namespace, uid, resourceVersion, generation and deletionTimestamp, or the whole
// metadata.
func NewCut(t reflect.Type, paths ...string) (*Cut, error) {
	return NewCutExceptApplied(t, "", paths...)
}

// NewCutExceptApplied is like NewCut, but keeps one entry of managedFields: the fields that manager has applied to the
// object itself, not to a subresource. If manager is empty it keeps none. Object.AppliedFields returns the entry.
// Decoded objects do not contain it, because an update with some of the managedFields entries would remove the others.
func NewCutExceptApplied(t reflect.Type, manager string, paths ...string) (*Cut, error) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("compile a cut: %v is not the type of an object", t)
	}
	c := &Cut{json: &jsonNode{}, proto: newProtoNode(t)}
	var errs []error
	for _, path := range paths {
		if err := c.add(t, path); err != nil {
			errs = append(errs, fmt.Errorf("path %q: %w", path, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("compile a cut for %s: %w", t, err)
	}
	c.keepAppliedBy(manager)
	if t != reflect.TypeFor[metav1.PartialObjectMetadata]() && isMessage(reflect.PointerTo(t)) {
		c.newMessage = func() message { return reflect.New(t).Interface().(message) }
	}
	return c, nil
}

// identifies reports whether steps lead to a field that identifies an Object.
func identifies(steps []string) bool {
	if steps[0] != "metadata" || len(steps) == 1 {
		return slices.Contains([]string{"apiVersion", "kind", "metadata"}, steps[0])
	}
	return slices.Contains(
		[]string{"name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp"}, steps[1])
}

func (c *Cut) add(t reflect.Type, path string) error {
	steps, err := apiobject.ParsePath(path)
	if err != nil {
		return err
	}
	if identifies(steps) {
		return errors.New("this field identifies objects and cannot be cut")
	}
	untyped := t == reflect.TypeFor[unstructured.Unstructured]() || t == reflect.TypeFor[EncodedObject]()
	onlyMetadata := untyped || t == reflect.TypeFor[metav1.PartialObjectMetadata]()
	switch {
	case onlyMetadata && steps[0] == "metadata":
		t = reflect.TypeFor[metav1.PartialObjectMetadata]()
	case onlyMetadata:
		if untyped {
			c.jsonOnly = append(c.jsonOnly, path)
		}
		t = nil
	}
	at := place{t: t, json: c.json, proto: c.proto}
	for i, step := range steps {
		if at, err = at.step(step); err != nil {
			return fmt.Errorf("%q: %w", strings.Join(steps[:i+1], "."), err)
		}
	}
	at.json.remove = true
	if at.proto != nil {
		at.proto.remove = true
	}
	return nil
}

// checkProto returns an error if a field of the cut cannot be found in protobuf.
func (c *Cut) checkProto() error {
	if c == nil || len(c.jsonOnly) == 0 {
		return nil
	}
	return fmt.Errorf("cannot cut %s from protobuf, which has no names of fields: compile the cut for the typed "+
		"object's Go type",
		strings.Join(c.jsonOnly, ", "))
}
