package owned

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/owned"
)

// A policy of the cluster requires a label that a former manager has written. The child was applied, so its result is
// not an error, although the API server rejects the dry run without that label.
func TestApplyWithLeftFieldsProtectedByPolicy(t *testing.T) {
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge} {
		t.Run(string(reason), func(t *testing.T) { testLeftFieldsMayNotGo(newEnv(t), reason) })
	}
}

func testLeftFieldsMayNotGo(e env, reason metav1.StatusReason) {
	e.Helper()
	app := e.app("web")
	old := e.deployment("web")
	old.Labels = map[string]string{"team": "shop"}
	byUpdate(e, app, old, e.c.Config().FieldOwner)
	e.demandLabel("team", old, reason)
	var log bytes.Buffer
	set := e.set(func(config *owned.Config) {
		config.Kinds = []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment")}
		config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	report, err := set.Apply(e.Context(), app, owned.Of(e.deployment("web"))...)
	e.want(report.Results, "Deployment web: updated")
	if note := report.Results[0].Note; err != nil || !strings.Contains(note, "metadata.labels.team") {
		e.Errorf("the note is %q, the error %v", note, err)
	}
	if !strings.Contains(log.String(), "child has fields of former managers") {
		e.Errorf("the log is %q", log.String())
	}
}

// demandLabel makes the API server reject Deployments of the namespace without a label, from now on, with a reason.
func (e env) demandLabel(label string, has *appsv1.Deployment, reason metav1.StatusReason) {
	e.Helper()
	name := e.namespace + "-demands-" + label
	policy := must(client.Create(e.Context(), e.c, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: e.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "has(object.metadata.labels) && '" + label + "' in object.metadata.labels",
				Message:    "the label " + label + " is required", Reason: &reason,
			}},
		},
	}))(e)
	binding := must(client.Create(e.Context(), e.c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}))(e)
	e.Cleanup(func() {
		ctx := context.WithoutCancel(e.Context())
		if err := errors.Join(client.Delete(ctx, e.c, binding), client.Delete(ctx, e.c, policy)); err != nil {
			e.Error(err)
		}
	})
	clustertest.Eventually(e, func() string {
		without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":null}}}`))
		if _, err := client.Patch(e.Context(), e.c, has, without, client.DryRun()); err == nil {
			return "the policy is not in force yet"
		}
		return ""
	})
}
