package builtin

import (
	policyv1 "k8s.io/api/policy/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// PodDisruptionBudgets returns the kind PodDisruptionBudget.
func PodDisruptionBudgets() *apiserver.Kind {
	k := apiserver.Builtin[policyv1.PodDisruptionBudget](policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		"poddisruptionbudgets", policyv1.AddToScheme)
	k.ShortNames = []string{"pdb"}
	k.Status, k.Generation, k.UnconditionalUpdate = true, true, false
	k.Rules = apiserver.Rules{
		Validate: func(obj, _ apiserver.Object) field.ErrorList {
			return validateBudget(obj.(*policyv1.PodDisruptionBudget))
		},
		ValidateSubresource: func(_ string, obj, _ apiserver.Object) field.ErrorList {
			return validateBudgetStatus(&obj.(*policyv1.PodDisruptionBudget).Status)
		},
	}
	return k
}

func validateBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	var p problems
	spec, path := &b.Spec, field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		p.invalid(path, internal(spec), "minAvailable and maxUnavailable cannot be both set")
	}
	for _, limit := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", spec.MinAvailable}, {"maxUnavailable", spec.MaxUnavailable}} {
		if limit.value != nil {
			p.intOrPercent(path.Child(limit.name), *limit.value)
			p.atMost100Percent(path.Child(limit.name), *limit.value)
		}
	}
	p.selector(path.Child("selector"), spec.Selector)
	optionalOneOf(&p, path.Child("unhealthyPodEvictionPolicy"), spec.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow,
		policyv1.IfHealthyBudget)
	return p.list
}

func validateBudgetStatus(status *policyv1.PodDisruptionBudgetStatus) field.ErrorList {
	var p problems
	path := field.NewPath("status")
	p.add(metavalidation.ValidateConditions(status.Conditions, path.Child("conditions"))...)
	p.counts(path, []count{
		{"disruptionsAllowed", status.DisruptionsAllowed},
		{"currentHealthy", status.CurrentHealthy},
		{"desiredHealthy", status.DesiredHealthy},
		{"expectedPods", status.ExpectedPods},
	})
	return p.list
}
