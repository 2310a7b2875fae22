// Package strategic makes strategic merge patches: those that know which lists of Kubernetes'
// built-in types are sets or maps, and change their items one by one.
//
//	after := before.DeepCopy()
//	after.Spec.Template.Spec.Containers[0].Image = "web:2"
//	web, err := client.Patch(ctx, c, before, strategic.From(before, after))
//
// The patch keeps containers that other clients have added, whereas a merge patch (client.MergeFrom) would
// replace the list. client.Apply does this for any kind, and respects the owner of each field; a strategic
// patch is for a small change of an object that another client declares.
//
// It is a separate package because the rules need the tags of Go types and OpenAPI libraries, which not every
// program should link.
package strategic

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// From returns the strategic merge patch that makes after of before: what differs, and nothing
// else. When nothing differs, client.Patch makes no request. Both are of one built-in type, and
// of one object. They are not changed.
//
// The patch has an error, which client.Patch returns before any request, when they are not: the
// API server takes no strategic patches of custom resources, and the Go types of unstructured
// objects and of those that are metadata only have no rules.
func From(before, after kube.Object) client.PatchBody {
	body, err := diff(before, after)
	if err != nil {
		return client.FailedPatch(fmt.Errorf("make a strategic merge patch: %w", err))
	}
	return client.RawPatch(types.StrategicMergePatchType, body)
}

func diff(before, after kube.Object) ([]byte, error) {
	if err := check(before, after); err != nil {
		return nil, err
	}
	from, err := encode(before)
	if err != nil {
		return nil, fmt.Errorf("encode the object before: %w", err)
	}
	to, err := encode(after)
	if err != nil {
		return nil, fmt.Errorf("encode the object after: %w", err)
	}
	body, err := strategicpatch.CreateTwoWayMergePatch(from, to, before)
	if err != nil {
		return nil, fmt.Errorf("compare the objects: %w", err)
	}
	return body, nil
}

func check(before, after kube.Object) error {
	one, other := reflect.ValueOf(before), reflect.ValueOf(after)
	switch {
	case usercode.IsNil(before) || usercode.IsNil(after):
		return errors.New("an object is nil")
	case one.Type() != other.Type():
		return fmt.Errorf("one object is a %T and the other one a %T", before, after)
	case kube.KeyOf(before) != kube.KeyOf(after):
		return fmt.Errorf("one object is %s and the other one %s", kube.KeyOf(before), kube.KeyOf(after))
	case !builtIn(one.Type()):
		return fmt.Errorf("%T is not a built-in type of Kubernetes, and other types have no strategic merge patches: "+
			"use client.MergeFrom or client.Apply", before)
	}
	return nil
}

// builtIn reports whether a type is of a kind that kube-apiserver itself implements.
func builtIn(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		return false
	}
	for _, prefix := range []string{
		"k8s.io/api/", "k8s.io/apiextensions-apiserver/pkg/apis/",
		"k8s.io/kube-aggregator/pkg/apis/",
	} {
		if strings.HasPrefix(t.Elem().PkgPath(), prefix) {
			return true
		}
	}
	return false
}

// encode returns an object without its kind: objects that were read have one, and those that
// were made have none.
func encode(obj kube.Object) ([]byte, error) {
	if !obj.GetObjectKind().GroupVersionKind().Empty() {
		obj = obj.DeepCopyObject().(kube.Object)
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return json.Marshal(obj)
}
