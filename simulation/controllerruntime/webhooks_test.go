package controllerruntime

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/evenkeel-go/evenkeel/simulation"
)

// The handler of a webhook of controller-runtime works unchanged.
func TestAdmissionWebhook(t *testing.T) {
	t.Parallel()
	const configuration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: policy.example.com
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {service: {namespace: default, name: hooks, path: /validate}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`
	simulation.Test(t, simulation.Config{YAML: configuration}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(&admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
			if r.Name == "bad" {
				return admission.Denied("bad name")
			}
			return admission.Allowed("").WithWarnings("new")
		})})
		writer, err := client.New(c.RESTConfig("user"), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, denied := range map[string]bool{"good": false, "bad": true} {
			err := writer.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
			if apierrors.IsForbidden(err) != denied || !denied && err != nil {
				t.Errorf("create %s: %v", name, err)
			}
		}
	})
}
