package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// WaitForObjects waits until at least n of the selected objects exist and check finds them Current. It returns these
// objects, ordered by namespace and name. The selection is in one namespace or in all. A nil check accepts every object
// that is not being deleted.
//
//	web := kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}
//	pods, err := client.WaitForObjects[*corev1.Pod](ctx, c, web, 1, nil)
//
// An object that check finds Failed does not end the wait, because another one may take its place. The error then says
// that it has failed.
//
// It is for sequential programs, and has the flow of WaitFor: it lists the selection, watches it, and never reads from
// informers. It stores the selected objects meanwhile.
//
// Options: Timeout.
//
// Errors: an n below 1; context.DeadlineExceeded after Timeout (default 5 min), or the deadline of ctx, with the number
// of objects and the reasons why some are not ready; an error of the API server, immediately, if a retry would not
// help.
func WaitForObjects[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, n int, check readiness.Check, options ...WaitOption,
) ([]T, error) {
	if n < 1 {
		return nil, fmt.Errorf("wait for %d objects: the number must be at least 1; WaitForNone waits until "+
			"none exists", n)
	}
	s, err := selectionSettings(selection, options, "Timeout")
	if err = errors.Join(err, checkOneList(selection), c.check()); err != nil {
		return nil, fmt.Errorf("wait for objects: %w", err)
	}
	w := newSelectionWait[T](c, fmt.Sprintf("wait for %d objects:", n), s)
	w.judge = func(obj T) counted[T] {
		switch {
		case check != nil:
			state := check(obj)
			return counted[T]{object: obj, awaited: state.Ready(), reason: state.String()}
		case obj.GetDeletionTimestamp() != nil:
			return counted[T]{object: obj, reason: "it is being deleted"}
		}
		return counted[T]{object: obj, awaited: true}
	}
	w.isOver = func() bool { return w.awaited >= n }
	w.explain = func() string {
		if len(w.found) == 0 {
			return s.described("no object exists")
		}
		return s.described(fmt.Sprintf("%d of %d are ready", w.awaited, n)) + reasonsOf(w.found)
	}
	if err := w.run(ctx, s.timeout); err != nil {
		return nil, err
	}
	var objects []T
	for _, key := range sortedKeys(w.found) {
		if one := w.found[key]; one.awaited {
			objects = append(objects, one.object)
		}
	}
	return objects, nil
}

// WaitForNone waits until none of the selected objects exists. It deletes nothing, and reads metadata
// only. It returns at once if no object exists at its start. After a deletion in kube.AllNamespaces pass these here
// too: the default is the namespace to which the Cluster is limited.
//
//	err = client.DeleteAllOf[*corev1.Pod](ctx, c, web)
//	...
//	err = client.WaitForNone[*corev1.Pod](ctx, c, web)
//
// See WaitForObjects for its flow and its options.
//
// Errors: context.DeadlineExceeded after Timeout, with the remaining objects and the finalizers that hold them;
// kube.ErrNotServed, immediately, if the cluster does not serve the kind; otherwise as WaitForObjects.
func WaitForNone[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, options ...WaitOption,
) error {
	s, err := selectionSettings(selection, options, "Timeout")
	if err = errors.Join(err, checkOneList(selection)); err == nil {
		s.kind, err = metadataKind[T](c, s.kind)
	}
	if err != nil {
		return fmt.Errorf("wait until no object exists: %w", err)
	}
	type metadata = *metav1.PartialObjectMetadata
	w := newSelectionWait[metadata](c, "wait until no object exists:", s)
	w.mustBeServed = true
	w.judge = func(obj metadata) counted[metadata] {
		return counted[metadata]{reason: holds(obj.ObjectMeta, obj.UID)}
	}
	w.isOver = func() bool { return len(w.found) == 0 }
	w.explain = func() string {
		return s.described(fmt.Sprintf("objects that still exist: %d", len(w.found))) + reasonsOf(w.found)
	}
	return w.run(ctx, s.timeout)
}

// newSelectionWait returns a wait without judge, isOver and explain.
func newSelectionWait[T kube.Object](c *Client, what string, s settings) *waiting[T] {
	namespace := strings.Join(s.namespaces, "") // at most one
	return &waiting[T]{what: what, name: "the selection", resolve: func(ctx context.Context) (target, error) {
		t, err := selectionIn[T](ctx, c, namespace, s)
		if err != nil {
			return t, err
		}
		return t.oneList()
	}}
}

// listState returns the selected objects of the API server in one state, and its version.
func listState[T kube.Object](ctx context.Context, t target) (objects []T, version string, err error) {
	t.resume = false
	version, err = pages(ctx, t, func(obj T, _ error) bool {
		objects = append(objects, obj)
		return true
	})
	return objects, version, err
}

// described adds the selectors to a message.
func (s settings) described(message string) string {
	var selectors []string
	if s.labels != nil {
		selectors = append(selectors, fmt.Sprintf("labels %q", s.labels))
	}
	if s.fields != nil {
		selectors = append(selectors, fmt.Sprintf("fields %q", s.fields))
	}
	if selectors == nil {
		return message
	}
	return message + ", selected by " + strings.Join(selectors, " and ")
}

// maxReasons is the maximum number of objects in an error.
const maxReasons = 3

// reasonsOf returns the first objects that are not awaited, and why.
func reasonsOf[T any](found map[kube.Key]counted[T]) string {
	var text strings.Builder
	shown := 0
	for _, key := range sortedKeys(found) {
		if found[key].awaited {
			continue
		}
		if shown++; shown > maxReasons {
			text.WriteString("; ...")
			break
		}
		fmt.Fprintf(&text, "; %s: %s", key, found[key].reason)
	}
	return text.String()
}

func sortedKeys[V any](m map[kube.Key]V) []kube.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b kube.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
