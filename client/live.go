package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// What has become of an object since the caller saw it. The errors that wrap these wrap an
// error of k8s.io/apimachinery/pkg/api/errors too: a "not found" for ErrGone, a "conflict" for
// the others.
var (
	// ErrGone says that there is no object of that kind and name.
	ErrGone = errors.New("the object is gone")
	// ErrReplaced says that the object was deleted and another one of its name created: the
	// uid is not the same.
	ErrReplaced = errors.New("the object was replaced by another one of its name")
	// ErrChanged says that the object has been written to in the meantime: the
	// resourceVersion is not the same.
	ErrChanged = errors.New("the object has changed")
)

// Live reads obj from the API server: the state that the cluster agrees on now, from no cache
// of the server's either. T is any Object: typed, unstructured or metadata only, and what is
// read is of the same kind. obj is not changed; its namespace, name and uid say which object
// is meant.
//
// Options: Unchanged.
//
// Errors: ErrGone; ErrReplaced; ErrChanged, with Unchanged; kube.ErrNotServed when the cluster
// has no such kind (any longer), which says nothing about the object; an obj that has no uid,
// because it did not come from the cluster; otherwise what the request met.
func Live[T kube.Object](ctx context.Context, cluster *kube.Cluster, obj T, options ...Option) (T, error) {
	var none T
	t, err := newTarget(ctx, cluster, obj)
	if err != nil {
		return none, fmt.Errorf("read: %w", err)
	}
	s := newSettings(options)
	if err := s.only("Unchanged"); err != nil {
		return none, fmt.Errorf("read %s: %w", t, err)
	}
	live, err := readLive(ctx, t, obj, s)
	if err != nil {
		return none, fmt.Errorf("read %s: %w", t, err)
	}
	return live, nil
}

// target is an object of the cluster, and how to make requests for it.
type target struct {
	cluster  *kube.Cluster
	client   rest.Interface
	kind     schema.GroupVersionKind
	resource kube.Resource
	key      kube.Key
}

func newTarget(ctx context.Context, cluster *kube.Cluster, obj kube.Object) (target, error) {
	if value := reflect.ValueOf(obj); !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil() {
		return target{}, errors.New("the object is nil")
	}
	t := target{cluster: cluster, key: kube.KeyOf(obj)}
	if cluster == nil {
		return t, fmt.Errorf("%s: the cluster is nil: kube.Connect makes one", t.key)
	}
	var err error
	if t.kind, err = cluster.KindOf(obj); err != nil {
		return t, fmt.Errorf("%s: %w", t.key, err)
	}
	if t.resource, err = cluster.Resource(ctx, t.kind); err != nil {
		return t, fmt.Errorf("%s: %w", t, err)
	}
	// Without any of these another object could be met, or none, which would then seem gone.
	switch {
	case t.key.Name == "":
		return t, fmt.Errorf("the %s has no name", t.kind.Kind)
	case t.resource.Namespaced && t.key.Namespace == "":
		return t, fmt.Errorf("%s has no namespace, and its kind lives in namespaces", t)
	case obj.GetUID() == "":
		return t, fmt.Errorf("%s has no uid, so that nothing can tell whether it is still the same: use an object that was read from the cluster", t)
	}
	t.client, err = cluster.RESTClient(t.kind.GroupVersion())
	return t, err
}

// String returns "Kind namespace/name".
func (t target) String() string { return t.kind.Kind + " " + t.key.String() }

// place lets a request be for the object.
func (t target) place(req *rest.Request) *rest.Request {
	return req.NamespaceIfScoped(t.key.Namespace, t.resource.Namespaced).Resource(t.resource.Resource).Name(t.key.Name)
}

// conflict returns an error in which both callers that look for a reason, and those that look
// for a conflict find what they look for.
func (t target) conflict(reason error, format string, args ...any) error {
	detail := fmt.Errorf(format, args...)
	return fmt.Errorf("%w: %w", reason, apierrors.NewConflict(t.resource.GroupResource(), t.key.Name, detail))
}

// readLive reads the object, and checks that it is still the same as seen.
func readLive[T kube.Object](ctx context.Context, t target, seen T, s settings) (T, error) {
	var none T
	if s.unchanged && seen.GetResourceVersion() == "" {
		return none, errors.New("the object has no resourceVersion, so that nothing can tell whether it has changed")
	}
	live, err := get(ctx, t, seen)
	switch {
	case err != nil:
		return none, t.explain(err)
	case live.GetUID() != seen.GetUID():
		return none, t.conflict(ErrReplaced, "the uid is %s, it was %s", live.GetUID(), seen.GetUID())
	case s.unchanged && live.GetResourceVersion() != seen.GetResourceVersion():
		return none, t.conflict(ErrChanged, "the resourceVersion is %s, it was %s", live.GetResourceVersion(), seen.GetResourceVersion())
	}
	return live, nil
}

// get reads the object into a new one of the same type.
func get[T kube.Object](ctx context.Context, t target, seen T) (T, error) {
	// Not kube.New: T may be an interface.
	live := reflect.New(reflect.TypeOf(seen).Elem()).Interface().(T)
	req := t.place(t.client.Get())
	accept := ""
	switch any(seen).(type) {
	case *metav1.PartialObjectMetadata:
		accept = runtime.ContentTypeJSON + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	case runtime.Unstructured:
		accept = runtime.ContentTypeJSON
	default:
		return live, req.Do(ctx).Into(live)
	}
	raw, err := req.SetHeader("Accept", accept).Do(ctx).Raw()
	if err != nil {
		return live, err
	}
	if err := json.Unmarshal(raw, live); err != nil {
		return live, fmt.Errorf("decode the answer: %w", err)
	}
	live.GetObjectKind().SetGroupVersionKind(t.kind) // of the object, not "PartialObjectMetadata"
	return live, nil
}

// explain says what the answer of the API server means for the object.
func (t target) explain(err error) error {
	switch {
	case !apierrors.IsNotFound(err):
		return err
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// Not the answer of anybody who knows the kind: its definition has been removed.
		t.cluster.Forget(t.kind.GroupVersion())
		return fmt.Errorf("%w: %w", kube.ErrNotServed, err)
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}
