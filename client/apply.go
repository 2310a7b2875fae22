package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Outcome is what came of making an object be as it should.
type Outcome string

// The outcomes.
const (
	// Created: there was no such object.
	Created Outcome = "created"
	// Updated: the object has changed.
	Updated Outcome = "updated"
	// Unchanged: the object was as it should be; its resourceVersion is what it was.
	Unchanged Outcome = "unchanged"
	// Conflict: other field managers have fields that were applied, with other values. Nothing
	// has changed.
	Conflict Outcome = "conflict"
)

// FieldChange is a field that differs between two states of an object.
type FieldChange struct {
	// Path is the field's, as in "spec.template.spec.containers[0].image".
	Path string
	// Before and After are its values, as JSON has them; nil: it was not there, or is not.
	Before, After any
}

// FieldConflict is a field that another manager has.
type FieldConflict struct {
	Manager string
	Field   string
}

// Applied is what came of an apply.
type Applied[T any] struct {
	// Object is the object as the API server has it after the apply; of one that was Unchanged
	// without a request, as the informer shows it.
	Object T
	// Outcome is what came of it.
	Outcome Outcome
	// Changed are the fields that have changed, as far as the state before is known.
	Changed []FieldChange
	// Conflicts are the fields in conflict.
	Conflicts []FieldConflict
}

// Apply makes the fields of obj be so, by server-side apply (KEP-555). obj holds the fields
// that the caller has an opinion about, and no others.
func Apply[T kube.Object](ctx context.Context, c *Client, obj T, options ...Option) (Applied[T], error) {
	var none Applied[T]
	s, err := newSettings(options, "DryRun", "FieldOwner", "FieldValidation", "Force", "Subresource")
	if err != nil {
		return none, fmt.Errorf("apply: %w", err)
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		return none, fmt.Errorf("apply: %w", err)
	}
	r := t.request(VerbApply, s)
	if r.FieldOwner == "" {
		return none, fmt.Errorf("apply %s: no field owner: set Config.FieldOwner, or option FieldOwner", t)
	}
	content, err := configurationOf(obj)
	if err != nil {
		return none, fmt.Errorf("apply %s: %w", t, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(t.kind)
	u.SetNamespace(t.key.Namespace)
	if r.Body, err = json.Marshal(u.Object); err != nil {
		return none, fmt.Errorf("apply %s: encode: %w", t, err)
	}
	r.PatchType = patchTypeApply
	before, err := get(ctx, t, settings{}, obj)
	if err != nil && !errors.Is(err, ErrGone) {
		return none, fmt.Errorf("apply %s: read it: %w", t, err)
	}
	existed := err == nil
	answer, err := exchange(ctx, t, r, obj)
	if err != nil {
		return none, fmt.Errorf("apply %s: %w", t.withSubresource(s), asChanged(err))
	}
	result := Applied[T]{Object: answer, Outcome: Updated}
	switch {
	case r.Status == http.StatusCreated || !existed:
		result.Outcome = Created
	case before.GetResourceVersion() == answer.GetResourceVersion():
		result.Outcome = Unchanged
	}
	return result, nil
}

// configurationOf returns the fields of obj that are to be applied.
func configurationOf(obj kube.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("read the fields of the object: %w", err)
	}
	delete(content, "status")
	return content, nil
}

// appliedMemory is what was applied last.
type appliedMemory struct{}

func newAppliedMemory() *appliedMemory { return &appliedMemory{} }
