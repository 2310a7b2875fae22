package builtin

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const approval = "approval"

// AddApproval gives the kind CertificateSigningRequest its rules for conditions, and the subresource that decides. The
// server has no users: the requester is the one that the object names.
func AddApproval(k *apiserver.Kind) {
	except := func(path ...any) fieldpath.Filter {
		return fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie("spec"),
			fieldpath.MakePathOrDie(path...)))
	}
	k.Subresources = []string{approval}
	k.Managed = map[string]fieldpath.Filter{
		"": except("status"), "status": except("status", "conditions"), approval: except("status", "certificate"),
	}
	k.Rules.Prepare = func(obj, old apiserver.Object) {
		if old != nil {
			request := old.DeepCopyObject().(*certificatesv1.CertificateSigningRequest)
			obj.(*certificatesv1.CertificateSigningRequest).Spec = request.Spec
		}
	}
	k.Rules.PrepareStatus = func(obj, old apiserver.Object) { prepareSigning("status", obj, old) }
	k.Rules.PrepareSubresource, k.Rules.ValidateSubresource = prepareSigning, validateSigning
}

// decides reports whether only an approval adds a condition.
func decides(t certificatesv1.RequestConditionType) bool {
	return t == certificatesv1.CertificateApproved || t == certificatesv1.CertificateDenied
}

// conditionOf returns the condition of a type, or nil. A stored object has at most one.
func conditionOf(
	r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType,
) *certificatesv1.CertificateSigningRequestCondition {
	if i := slices.IndexFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == t
	}); i >= 0 {
		return &r.Status.Conditions[i]
	}
	return nil
}

// conditionsOf returns the number of conditions of a type, which is 0 or 1 in a stored object.
func conditionsOf(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) (n int) {
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			n++
		}
	}
	return n
}

// prepareSigning keeps what an approval or an update of the status does not change, and sets the times of conditions.
func prepareSigning(subresource string, obj, old apiserver.Object) {
	r := obj.(*certificatesv1.CertificateSigningRequest)
	before := old.DeepCopyObject().(*certificatesv1.CertificateSigningRequest)
	if r.Spec = before.Spec; subresource == approval {
		r.Status.Certificate = before.Status.Certificate
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		then := conditionOf(before, c.Type)
		if then != nil && subresource != approval && decides(c.Type) {
			*c = *then
		}
		setDefault(&c.LastUpdateTime, now)
		if then != nil && then.Status == c.Status {
			setDefault(&c.LastTransitionTime, then.LastTransitionTime)
		}
		setDefault(&c.LastTransitionTime, now)
	}
}

func validateSigning(subresource string, obj, old apiserver.Object) field.ErrorList {
	var p problems
	r, before := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	p.add(apiserver.ValidateCoreMetadata(obj, false, func(name string, _ bool) []string {
		return content.IsPathSegmentName(name)
	})...)
	conditions := field.NewPath("status", "conditions")
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range r.Status.Conditions {
		path := conditions.Index(i)
		p.nonEmpty(path.Child("type"), string(c.Type))
		valid := []corev1.ConditionStatus{corev1.ConditionTrue}
		if !decides(c.Type) && c.Type != certificatesv1.CertificateFailed {
			valid = []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		}
		requiredOneOf(&p, path.Child("status"), c.Status, valid...)
		decided := seen[certificatesv1.CertificateApproved] || seen[certificatesv1.CertificateDenied]
		if decides(c.Type) && decided && !seen[c.Type] {
			p.invalid(conditions, c.Type, "Approved and Denied conditions are mutually exclusive")
		}
		if seen[c.Type] {
			p.add(field.Duplicate(path.Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	var added problems
	for _, t := range []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
	} {
		switch had, has := conditionsOf(before, t), conditionsOf(r, t); {
		case has < had:
			p.forbidden(conditions, fmt.Sprintf("updates may not remove a condition of type %q", t))
		case has > had && subresource != approval && decides(t):
			added.forbidden(conditions, fmt.Sprintf("updates may not add a condition of type %q", t))
		}
	}
	p.add(added.list...)
	if old := before.Status.Certificate; len(old) > 0 && !bytes.Equal(old, r.Status.Certificate) {
		p.forbidden(field.NewPath("status", "certificate"), "updates may not modify existing certificate content")
	}
	return append(p.list, apiserver.ValidateCoreMetadataUpdate(obj, old)...)
}
