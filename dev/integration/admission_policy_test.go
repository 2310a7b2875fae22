package integration

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

// The API server in memory has no policies. A policy of the cluster requires a label that a former manager has written. The child was applied, so its result is
// not an error, although the API server rejects the dry run without that label.
func TestSmokeApplyWithLeftFieldsProtectedByPolicy(t *testing.T) {
	t.Parallel()
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			c := newClient(t)
			configMap := func(namespace, name string) *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"colour": "blue"}}
			}
			owner, err := client.Create(t.Context(), c, configMap(clustertest.Namespace(t, c), "owner"))
			if err != nil {
				t.Fatal(err)
			}
			old := configMap(owner.Namespace, "child")
			old.Labels = map[string]string{"team": "shop"}
			if err := ownerref.SetController(t.Context(), c, owner, old); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Create(t.Context(), c, old); err != nil { // with the set's field manager, without server-side apply
				t.Fatal(err)
			}
			demandLabel(t, c, "team", old, reason)
			var log testlog.Buffer
			c.Cluster().SetLogger(slog.New(slog.NewTextHandler(&log, nil)))
			set, err := owned.New(owned.Config{
				Client: c, Name: "policy", Kinds: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")},
			})
			if err != nil {
				t.Fatal(err)
			}
			report, err := set.Apply(t.Context(), owner, owned.Of(configMap(owner.Namespace, "child"))...)
			if err != nil || len(report.Results) != 1 || report.Results[0].Outcome != owned.Updated {
				t.Fatalf("%v: %+v", err, report.Results)
			}
			if note := report.Results[0].Note; !strings.Contains(note, "metadata.labels.team") {
				t.Errorf("the note is %q", note)
			}
			if !strings.Contains(log.String(), "child has fields of former managers") {
				t.Errorf("the log is %q", log.String())
			}
		})
	}
}

// demandLabel makes the API server reject ConfigMaps of the namespace without a label, from now on, with a reason.
func demandLabel(t *testing.T, c *client.Client, label string, has *corev1.ConfigMap, reason metav1.StatusReason) {
	t.Helper()
	name := has.Namespace + "-demands-" + label
	policy, err := client.Create(t.Context(), c, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: has.Namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "has(object.metadata.labels) && '" + label + "' in object.metadata.labels",
				Message:    "the label " + label + " is required", Reason: &reason,
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := client.Create(t.Context(), c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(client.Delete(ctx, c, binding), client.Delete(ctx, c, policy)); err != nil {
			t.Error(err)
		}
	})
	clustertest.Eventually(t, func() string {
		without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":null}}}`))
		if _, err := client.Patch(t.Context(), c, has, without, client.DryRun()); err == nil {
			return "the policy is not in force yet"
		}
		return ""
	})
}
