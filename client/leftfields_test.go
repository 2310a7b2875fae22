package client_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

// TestLeftFieldsIfDryRunIsRejected: if the API server rejects the dry run, LeftFields returns the fields that
// managedFields list, a Secret's without their values.
func TestLeftFieldsIfDryRunIsRejected(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	requests := 0
	c = intercepted(c, func(context.Context, *client.Request) error {
		requests++
		return apierrors.NewForbidden(corev1.Resource("secrets"), "keys", nil)
	}, client.VerbPatch)
	secret := &corev1.Secret{ObjectMeta: meta("shop", "keys"), Data: map[string][]byte{"kept": []byte("1"), "old": []byte("open sesame")}}
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	secret.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "without-fields", Operation: update},
		{Manager: "old-operator", Operation: update, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:old":{}}}`)},
		{Manager: "shop", Operation: apply, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:kept":{}}}`)},
	}
	for _, test := range []struct {
		manager  string
		want     []client.FieldChange
		requests int
	}{
		{"old-operator", []client.FieldChange{{Path: "data.old", Before: client.Hidden}}, 1},
		{"without-fields", nil, 0},
	} {
		requests = 0
		left, err := client.LeftFields(t.Context(), c, secret, secret, []string{test.manager})
		if diff := cmp.Diff(test.want, left); diff != "" || err != nil || requests != test.requests {
			t.Errorf("%s: %d requests, %v (-want +got):\n%s", test.manager, requests, err, diff)
		}
	}
}
