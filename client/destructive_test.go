package client_test

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A selector that was computed, and has no condition, must not widen a deletion to what the other selector selects.
func TestDeletionRejectsSelectorWithoutCondition(t *testing.T) {
	t.Parallel()
	for name, selection := range map[string]kube.Selection{
		"labels": {Namespaces: []string{"shop"}, LabelSelector: " ", FieldSelector: "metadata.name!=original"},
		"fields": {Namespaces: []string{"shop"}, LabelSelector: "copy=yes", FieldSelector: ","},
	} {
		s := newCopies(t)
		before := len(s.keys(t))
		err := client.DeleteAllOf[*corev1.ConfigMap](t.Context(), s.client, selection)
		errtest.Expect(t, err, "without a condition")
		_, err = client.DeleteMatching(t.Context(), s.client, selection, func(*corev1.ConfigMap) (bool, error) { return true, nil })
		errtest.Expect(t, err, "without a condition")
		if after := len(s.keys(t)); after != before {
			t.Errorf("%s: %d of %d objects are left", name, after, before)
		}
	}
}

func TestCreatedSubresourceNeedsNamedParent(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodPost {
			t.Errorf("request to %s", req.URL.Path)
		}
		return do(), nil
	})
	parent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "web-"}}
	_, err := client.Create(t.Context(), s.client, &policyv1.Eviction{}, client.SubresourceOf(parent, "eviction"))
	errtest.Expect(t, err, "has no name")
	named := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}
	_, err = client.Create(t.Context(), s.client, &policyv1.Eviction{}, client.SubresourceOf(named, "eviction"),
		client.SubresourceOf(other, "eviction"))
	errtest.Expect(t, err, "the parent is shop/a already, and not shop/b")
}

func TestConflictOfCreatedSubresourceIsErrChanged(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodPost {
			return apitest.Failure(apierrors.NewConflict(corev1.Resource("configmaps"), "a", errors.New("uid differs"))), nil
		}
		return do(), nil
	})
	parent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	_, err := client.Create(t.Context(), s.client, &policyv1.Eviction{}, client.SubresourceOf(parent, "eviction"))
	if !errors.Is(err, client.ErrChanged) {
		t.Errorf("the error is %v", err)
	}
}

func TestEditMetadataNeedsFunction(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	_, _, err := client.EditMetadata(t.Context(), s.client, obj, nil)
	errtest.Expect(t, err, "the function edit is nil")
}
