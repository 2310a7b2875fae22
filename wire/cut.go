package wire

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ManagedFields is the path of the field owners that server-side apply keeps. It is
// often half of an object. Updates without it are fine: the API server keeps its own.
const ManagedFields = "metadata.managedFields"

// LastApplied is the path of the copy of the object that kubectl apply keeps.
const LastApplied = `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`

// Cut says what is left out of objects. Nil leaves everything in. It is immutable and
// safe for concurrent use.
//
// An object without fields that its server has must not be written back by an update,
// which would delete them there. (ManagedFields is the exception: the API server keeps
// those when they are absent.) Patches and applies are safe.
type Cut struct {
	json  *jsonNode
	proto *protoNode
	// jsonOnly are the paths that cannot be found in protobuf, because the Go type does
	// not tell.
	jsonOnly []string
	// newMessage makes a message of the type; nil when it has no protobuf encoding.
	newMessage func() message
}

// NewCut compiles paths for objects of the Go type t, such as
// reflect.TypeFor[*corev1.Pod]().
//
// A path names fields as they are in JSON, with dots between them:
// "spec.template.spec.containers.env". Lists are passed through: the path goes on in
// each element. Entries of maps are written `metadata.annotations["example.com/note"]`;
// the quotes are Go's. With a t that knows only metadata (unstructured,
// PartialObjectMetadata), paths outside it are taken as they are; in protobuf such
// objects have nothing outside their metadata that could be found, and reading
// unstructured objects from protobuf is refused then.
//
// Errors, all of them at once: paths that do not exist in t, and paths to what an
// Object is told by: apiVersion, kind, and the metadata's name, namespace, uid,
// resourceVersion, generation and deletionTimestamp, or all of the metadata.
func NewCut(t reflect.Type, paths ...string) (*Cut, error) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("compile what is cut: %v is not an object's type", t)
	}
	c := &Cut{json: &jsonNode{}, proto: newProtoNode(t)}
	var errs []error
	for _, path := range paths {
		if err := c.add(t, path); err != nil {
			errs = append(errs, fmt.Errorf("path %q: %w", path, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("compile what is cut from %s: %w", t, err)
	}
	if t != reflect.TypeFor[metav1.PartialObjectMetadata]() && isMessage(reflect.PointerTo(t)) {
		c.newMessage = func() message { return reflect.New(t).Interface().(message) }
	}
	return c, nil
}

// needed are the fields that an Object is told by.
func needed(steps []string) bool {
	switch steps[0] {
	case "apiVersion", "kind":
		return true
	case "metadata":
		return len(steps) == 1 || slices.Contains(
			[]string{"name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp"}, steps[1])
	default:
		return false
	}
}

func (c *Cut) add(t reflect.Type, path string) error {
	steps, err := parsePath(path)
	if err != nil {
		return err
	}
	if needed(steps) {
		return errors.New("objects cannot be told without it")
	}
	onlyMetadata := t == reflect.TypeFor[unstructured.Unstructured]() || t == reflect.TypeFor[metav1.PartialObjectMetadata]()
	switch {
	case onlyMetadata && steps[0] == "metadata":
		t = reflect.TypeFor[metav1.PartialObjectMetadata]()
	case onlyMetadata:
		if t == reflect.TypeFor[unstructured.Unstructured]() {
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

// checkProto is an error when something would stay in protobuf that was to be cut.
func (c *Cut) checkProto() error {
	if c == nil || len(c.jsonOnly) == 0 {
		return nil
	}
	return fmt.Errorf("cannot cut %s from protobuf, which has no names of fields: compile the cut for the typed object's Go type",
		strings.Join(c.jsonOnly, ", "))
}
