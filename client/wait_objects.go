package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// WaitForObjects waits until at least n of the objects that the options select exist and check finds them Current. It
// returns these objects, ordered by namespace and name. A nil check accepts every object that is not being deleted.
//
//	pods, err := client.WaitForObjects[*corev1.Pod](ctx, c, 1, nil,
//		client.InNamespace("shop"), client.LabelSelector("app=web"))
//
// An object that check finds Failed does not end the wait, because another one may take its place. The error then says
// that it has failed.
//
// It is for sequential programs, and has the flow of WaitFor: it lists the selection, watches it, and never reads from
// informers. It stores the selected objects meanwhile.
//
// Options: OfKind, InNamespace, AllNamespaces, WithLabels, LabelSelector, FieldSelector, Timeout.
//
// Errors: an n below 1; context.DeadlineExceeded after Timeout (default 5 min), or the deadline of ctx, with the number
// of objects and the reasons why some are not ready; an error of the API server, immediately, if a retry would not
// help.
func WaitForObjects[T kube.Object](
	ctx context.Context, c *Client, n int, check readiness.Check, options ...WaitObjectsOption,
) ([]T, error) {
	if n < 1 {
		return nil, fmt.Errorf("wait for %d objects: the number must be at least 1; WaitForNone waits until "+
			"none exists", n)
	}
	found := map[kube.Key]counted[T]{}
	w, s, err := newSelectionWait(c, fmt.Sprintf("wait for %d objects:", n), options, found)
	if err != nil {
		return nil, fmt.Errorf("wait for objects: %w", err)
	}
	w.judgeOne = func(obj T) counted[T] {
		switch {
		case check != nil:
			state := check(obj)
			return counted[T]{object: obj, awaited: state.Ready(), reason: state.String()}
		case obj.GetDeletionTimestamp() != nil:
			return counted[T]{object: obj, reason: "it is being deleted"}
		}
		return counted[T]{object: obj, awaited: true}
	}
	w.judgeAll = func(awaited int) bool { return awaited >= n }
	w.describe = func(awaited int) string {
		if len(found) == 0 {
			return "no object exists"
		}
		return fmt.Sprintf("%d of %d are ready", awaited, n)
	}
	if err := w.run(ctx, s.timeout); err != nil {
		return nil, err
	}
	var objects []T
	for _, key := range sortedKeys(found) {
		if one := found[key]; one.awaited {
			objects = append(objects, one.object)
		}
	}
	return objects, nil
}

// WaitForNone waits until none of the objects that the options select exists. It deletes nothing, and reads metadata
// only. It returns at once if no object exists at its start.
//
//	err = client.DeleteAllOf[*corev1.Pod](ctx, c, client.InNamespace("shop"), client.LabelSelector("app=web"))
//	...
//	err = client.WaitForNone[*corev1.Pod](ctx, c, client.InNamespace("shop"), client.LabelSelector("app=web"))
//
// See WaitForObjects for its flow and its options.
//
// Errors: context.DeadlineExceeded after Timeout, with the remaining objects and the finalizers that hold them;
// kube.ErrNotServed, immediately, if the cluster does not serve the kind; otherwise as WaitForObjects.
func WaitForNone[T kube.Object](ctx context.Context, c *Client, options ...WaitObjectsOption) error {
	s, err := newSettings(options)
	if err != nil {
		return fmt.Errorf("wait until no object exists: %w", err)
	}
	kind, err := kindForMetadata[T](c, s)
	if err != nil {
		return fmt.Errorf("wait until no object exists: %w", err)
	}
	type metadata = *metav1.PartialObjectMetadata
	found := map[kube.Key]counted[metadata]{}
	w, s, err := newSelectionWait(c, "wait until no object exists:", append(slices.Clone(options), OfKind(kind)), found)
	if err != nil {
		return fmt.Errorf("wait until no object exists: %w", err)
	}
	w.mustBeServed = true
	w.judgeOne = func(obj metadata) counted[metadata] {
		return counted[metadata]{reason: holds(obj.ObjectMeta, obj.UID)}
	}
	w.judgeAll = func(int) bool { return len(found) == 0 }
	w.describe = func(int) string { return fmt.Sprintf("objects that still exist: %d", len(found)) }
	return w.run(ctx, s.timeout)
}

// counted is an object of a selection.
type counted[T any] struct {
	object  T
	awaited bool
	reason  string // why it is not awaited
}

// selectionWait is a wait for a selection.
type selectionWait[T kube.Object] struct {
	waiting[T]
	judgeOne func(obj T) counted[T]
	// judgeAll reports whether the wait has ended, and describe why not, for the number of awaited objects.
	judgeAll func(awaited int) bool
	describe func(awaited int) string
}

// newSelectionWait returns a wait without judgeOne, judgeAll and describe. It stores the selected objects in found.
func newSelectionWait[T kube.Object](
	c *Client, what string, options []WaitObjectsOption, found map[kube.Key]counted[T],
) (*selectionWait[T], settings, error) {
	s, err := newSettings(options)
	if err = errors.Join(err, c.check()); err != nil {
		return nil, s, err
	}
	w := &selectionWait[T]{}
	w.what, w.name = what, "the selection"
	w.resolve = func(ctx context.Context) (target, error) {
		return selectionFor[T](ctx, c, s)
	}
	awaited, seen := 0, false
	put := func(obj T, exists bool) {
		key := kube.KeyOf(obj)
		if found[key].awaited {
			awaited--
		}
		if !exists {
			delete(found, key)
			return
		}
		one := w.judgeOne(obj)
		found[key] = one
		if one.awaited {
			awaited++
		}
	}
	w.explain = func() string {
		if !seen {
			return ""
		}
		return s.described(w.describe(awaited)) + reasonsOf(found)
	}
	w.read = func(ctx context.Context, t target) (version string, done bool, err error) {
		objects, version, err := listState[T](ctx, t, s)
		if err != nil {
			return "", false, err
		}
		clear(found)
		awaited, seen = 0, true
		for _, obj := range objects {
			put(obj, true)
		}
		return version, w.judgeAll(awaited), nil
	}
	w.selects = func(target) (selected []WatchOption) {
		if s.labels != nil {
			selected = append(selected, LabelSelector(s.labels.String()))
		}
		if s.fields != nil {
			selected = append(selected, FieldSelector(s.fields.String()))
		}
		return selected
	}
	w.changed = func(_ target, obj T, exists bool) (relevant, done bool, err error) {
		put(obj, exists)
		return true, w.judgeAll(awaited), nil
	}
	return w, s, nil
}

// listState returns the selected objects of the API server in one state, and its version.
func listState[T kube.Object](ctx context.Context, t target, s settings) (objects []T, version string, err error) {
	var none T
	options := s.listOptions()
	for {
		response, err := t.page(ctx, s, options)
		if err != nil {
			return nil, "", t.withoutIndex(s, err)
		}
		for _, raw := range response.Items {
			obj, err := decodeOneOf(raw, t.kind, none)
			if err != nil {
				return nil, "", err
			}
			objects = append(objects, obj)
		}
		if response.Continue == "" {
			return objects, response.ResourceVersion, nil
		}
		options.Continue = response.Continue
	}
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
	keys := make([]kube.Key, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b kube.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}
