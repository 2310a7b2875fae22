package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
)

func revisionResource() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
}

// revisionData returns the data of the ControllerRevision with a template.
func revisionData(set *appsv1.StatefulSet) ([]byte, error) {
	text, err := json.Marshal(&set.Spec.Template)
	if err != nil {
		return nil, err
	}
	var template map[string]any // the keys are sorted, as those of the real controller
	if err := json.Unmarshal(text, &template); err != nil {
		return nil, err
	}
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// findRevisions sets the current and the update revision. It creates the revision of the set's template if none of the
// revisions has it, and makes it the latest one otherwise.
func (r *statefulSync) findRevisions(ctx context.Context, revisions []*appsv1.ControllerRevision) error {
	data, err := revisionData(r.set)
	if err != nil {
		return fmt.Errorf("encode the template of %s: %w", objectKey(r.set), err)
	}
	if r.set.Status.CollisionCount != nil {
		r.collisions = *r.set.Status.CollisionCount
	}
	next := int64(1)
	for _, revision := range revisions {
		next = revision.Revision + 1
		if bytes.Equal(revision.Data.Raw, data) {
			r.update = revision
		}
		if revision.Name == r.set.Status.CurrentRevision {
			r.current = revision
		}
	}
	switch {
	case r.update == nil:
		if err := r.createRevision(ctx, data, next); err != nil {
			return err
		}
	case r.update != revisions[len(revisions)-1]:
		r.update = r.update.DeepCopy()
		r.update.Revision = next
		if err := r.requests.update(ctx, r.Manager.kind(revisionResource()), r.update); err != nil {
			return err
		}
	}
	if r.current == nil {
		r.current = r.update
	}
	return nil
}

func (r *statefulSync) createRevision(ctx context.Context, data []byte, number int64) error {
	const maxPrefix = 223
	set := r.set
	for ; ; r.collisions++ {
		hash := fnv.New32()
		hash.Write(append(data, strconv.Itoa(int(r.collisions))...))
		suffix := rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
		revision := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Name: set.Name[:min(len(set.Name), maxPrefix)] + "-" + suffix, Namespace: set.Namespace,
				Labels: maps.Clone(set.Spec.Template.Labels), Annotations: set.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, r.kind.GroupVersionKind)},
			},
			Data: runtime.RawExtension{Raw: data}, Revision: number,
		}
		metav1.SetMetaDataLabel(&revision.ObjectMeta, "controller.kubernetes.io/hash", suffix)
		err := r.requests.create(ctx, r.Manager.kind(revisionResource()), revision)
		if !apierrors.IsAlreadyExists(err) {
			r.update = revision
			return err
		}
		if existing, _ := get[*appsv1.ControllerRevision](r.Manager, revisionResource(), set.Namespace,
			revision.Name); existing == nil || bytes.Equal(existing.Data.Raw, data) {
			r.update = revision
			return nil
		}
	}
}

// truncateHistory deletes the oldest revisions that no Pod has.
func (r *statefulSync) truncateHistory(
	ctx context.Context, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod,
) error {
	unused := slices.DeleteFunc(slices.Clone(revisions), func(revision *appsv1.ControllerRevision) bool {
		return revision.Name == r.current.Name || revision.Name == r.update.Name ||
			slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return podRevision(pod) == revision.Name })
	})
	limit := int(*r.set.Spec.RevisionHistoryLimit)
	if limit < 0 || len(unused) <= limit {
		return nil
	}
	for _, revision := range unused[:len(unused)-limit] {
		if err := r.requests.delete(ctx, r.Manager.kind(revisionResource()), revision,
			metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func podRevision(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }
