package builtin

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// DaemonSets returns the kind DaemonSet. The generation of its template, which is not a field of version v1, is in an
// annotation.
func DaemonSets() *apiserver.Kind {
	k := workload("DaemonSet", "daemonsets", "ds",
		defaultDaemonSet,
		prepareDaemonSet,
		validateDaemonSet,
		validateDaemonSetStatus,
		daemonSetWarnings,
	)
	k.Rules.PrepareStatus = func(obj, old apiserver.Object) {
		setTemplateGeneration(obj.(*appsv1.DaemonSet), templateGeneration(old.(*appsv1.DaemonSet)))
	}
	k.Rules.Blank = func(obj apiserver.Object) { setTemplateGeneration(obj.(*appsv1.DaemonSet), 0) }
	return k
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	defaultTemplate(&d.Spec.Template)
	setPointer(&d.Spec.RevisionHistoryLimit, 10)
	strategy := &d.Spec.UpdateStrategy
	setDefault(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	setTemplateGeneration(d, templateGeneration(d))
}

func prepareDaemonSet(d, old *appsv1.DaemonSet) {
	dropDisabled(&d.Spec.Template.Spec)
	if old == nil {
		setTemplateGeneration(d, max(1, templateGeneration(d)))
		return
	}
	countChange(d, old, d.Spec, old.Spec)
	generation := templateGeneration(old)
	if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
		generation++
	}
	setTemplateGeneration(d, generation)
}

func validateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList {
	p := newProblems(d, metadataOf(old), validation.NameIsDNSSubdomain)
	spec, path := &d.Spec, field.NewPath("spec")
	if old != nil {
		p.immutable(path.Child("selector"), spec.Selector, old.Spec.Selector)
	}
	p.selector(path.Child("selector"), spec.Selector)
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		p.invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, notMatched)
	}
	if spec.Selector != nil && len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		p.invalid(path.Child("selector"), spec.Selector, "empty selector is invalid for daemonset")
	}
	template := templateOf(old, func() *corev1.PodTemplateSpec { return &old.Spec.Template })
	p.add(validateTemplate(&spec.Template, template, path.Child("template"))...)
	p.alwaysRestarts(&spec.Template, path.Child("template"), "DaemonSet")
	p.nonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	p.daemonSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))
	nonNegativePointer(p, path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)
	return p.list
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	var p problems
	s, path := &d.Status, field.NewPath("status")
	p.counts(path, []count{
		{"currentNumberScheduled", s.CurrentNumberScheduled},
		{"numberMisscheduled", s.NumberMisscheduled},
		{"desiredNumberScheduled", s.DesiredNumberScheduled},
		{"numberReady", s.NumberReady},
	})
	p.nonNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	p.counts(path, []count{
		{"updatedNumberScheduled", s.UpdatedNumberScheduled},
		{"numberAvailable", s.NumberAvailable},
		{"numberUnavailable", s.NumberUnavailable},
	})
	nonNegativePointer(&p, path.Child("collisionCount"), s.CollisionCount)
	p.notDecremented(path.Child("collisionCount"), s.CollisionCount, old.Status.CollisionCount)
	return p.list
}

func daemonSetWarnings(d, old *appsv1.DaemonSet) []string {
	if old != nil && templateGeneration(d) == templateGeneration(old) {
		return nil
	}
	return templateWarnings(d, false, &d.Spec.Template)
}

// templateGeneration returns the generation of the template of a DaemonSet; 0 if it has none.
func templateGeneration(d *appsv1.DaemonSet) (generation int64) {
	_, _ = fmt.Sscan(d.Annotations[appsv1.DeprecatedTemplateGeneration], &generation)
	return generation
}

// setTemplateGeneration sets the annotation. It copies the others: the object may share them with another one.
func setTemplateGeneration(d *appsv1.DaemonSet, generation int64) {
	annotations := maps.Clone(d.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[appsv1.DeprecatedTemplateGeneration] = fmt.Sprint(generation)
	d.Annotations = annotations
}

func (p *problems) daemonSetStrategy(strategy *appsv1.DaemonSetUpdateStrategy, path *field.Path) {
	switch strategy.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		unavailable, surge := *strategy.RollingUpdate.MaxUnavailable, *strategy.RollingUpdate.MaxSurge
		unavailablePath, surgePath := path.Child("rollingUpdate", "maxUnavailable"),
			path.Child("rollingUpdate", "maxSurge")
		p.intOrPercent(unavailablePath, unavailable)
		p.intOrPercent(surgePath, surge)
		p.atMost100Percent(unavailablePath, unavailable)
		p.atMost100Percent(surgePath, surge)
		switch {
		case amount(unavailable) != 0 && amount(surge) != 0:
			p.invalid(surgePath, surge, "may not be set when maxUnavailable is non-zero")
		case amount(unavailable) == 0 && amount(surge) == 0:
			p.required(unavailablePath, "cannot be 0 when maxSurge is 0")
		}
	default:
		valid := []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType,
			appsv1.OnDeleteDaemonSetStrategyType,
		}
		p.add(field.NotSupported(path, internal(strategy), valid))
	}
}
