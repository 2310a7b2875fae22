package client_test

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/patchtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// unknown is a type that is not registered with any cluster.
type unknown struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

func (u *unknown) DeepCopyObject() runtime.Object { copied := *u; return &copied }

// TestFailedPatchIsConflict: the API server reports a failed test of a JSON patch as invalid, which would not be
// retried soon, so it must be a conflict.
func TestFailedPatchIsConflict(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "StatefulSet"}, "db", nil)
	other := apierrors.NewConflict(schema.GroupResource{Resource: "others"}, "o", errors.New("first"))
	for name, test := range map[string]struct {
		obj  kube.Object
		why  error
		want string
	}{
		"a test that failed": {
			database(), fmt.Errorf("the list is another one: %w", refused),
			`the object has changed: Operation cannot be fulfilled on statefulsets.apps "db": the list is another one: StatefulSet "db" is invalid`,
		},
		"a conflict": {database(), fmt.Errorf("three times: %w", other), "the object has changed: three times: " + other.Error()},
		"a conflict that is one already": {
			database(), patchtest.Changed(t.Context(), c, database(), other), "the object has changed: " + other.Error(),
		},
		"a kind that is not served": {
			&appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "shop.example.com/v1", Kind: "Gone"}, ObjectMeta: meta("shop", "g")},
			refused, `the object has changed: Operation cannot be fulfilled on Gone.shop.example.com "g": StatefulSet "db" is invalid`,
		},
		"a kind that nobody knows": {
			&unknown{ObjectMeta: meta("shop", "u")}, errors.New("so"), `the object has changed: Operation cannot be fulfilled on  "u": so`,
		},
	} {
		err := patchtest.Changed(t.Context(), c, test.obj, test.why)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: the error is %v, want %s", name, err, test.want)
		}
		if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) || apierrors.IsInvalid(err) || !apierrors.IsConflict(err) {
			t.Errorf("%s: %v is a %s", name, err, retry.Classify(err))
		}
	}
}
