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
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/difference"
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
	from, to, err := difference.States(before, after)
	switch {
	case err != nil:
		return nil, err
	case !builtIn(reflect.TypeOf(before)):
		return nil, fmt.Errorf("%T is not a built-in type of Kubernetes, and other types have no strategic merge "+
			"patches: use client.MergeFrom or client.Apply", before)
	}
	patch, err := strategicpatch.CreateTwoWayMergeMapPatch(from, to, before)
	if err != nil {
		return nil, fmt.Errorf("compare the objects: %w", err)
	}
	return json.Marshal(patch)
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
