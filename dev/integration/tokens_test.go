package integration

import (
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/retry"
)

// The subresources of this test do not exist in memory.

func TestSmokeTokens(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t), newEnv(t).namespace
	account := must(client.Create(t.Context(), c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "robot"}}))(t)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))}}
	issued := must(client.Create(t.Context(), c, request, client.SubresourceOf(account, "token")))(t)
	if issued.Status.Token == "" || issued.Kind != "TokenRequest" || request.Name != "" {
		t.Errorf("the answer is %+v", issued)
	}
	bound := request.DeepCopy()
	bound.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "none"}
	if _, err := client.Create(t.Context(), c, bound, client.SubresourceOf(account, "token")); err == nil || errors.Is(err, client.ErrGone) {
		t.Errorf("a token for a pod that is not there: %v", err)
	}
	account.Name = "none"
	if _, err := client.Create(t.Context(), c, request, client.SubresourceOf(account, "token")); !errors.Is(err, client.ErrGone) {
		t.Errorf("a token of nobody: %v", err)
	}
}

// Subresources that only Pods have report a missing Pod as the other ones do.
func TestSubresourcesOfMissingPod(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: newEnv(t).namespace, Name: "none", ResourceVersion: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	for _, name := range []string{"resize", "ephemeralcontainers"} {
		if _, err := client.Update(t.Context(), c, pod, client.Subresource(name)); !errors.Is(err, client.ErrGone) || client.IgnoreNotFound(err) != nil {
			t.Errorf("%s: the error is %v (%s)", name, err, retry.Classify(err))
		}
	}
}
