package builtin

import (
	"fmt"

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

// podNames is what the names of objects with a template are used in.
const podNames = "Pod names and hostnames"

// workload returns the kind of objects with a template of Pods, with the rules that they share. prepare may be nil.
func workload[T any, P interface {
	*T
	apiserver.Object
}](kind, resource, shortName string, setDefaults func(P), prepare func(obj, old P),
	validate func(obj, old P) field.ErrorList,
	validateStatus func(obj, old P) field.ErrorList, warnings func(obj, old P) []string,
) *apiserver.Kind {
	k := apiserver.Builtin[T, P](appsv1.SchemeGroupVersion.WithKind(kind), resource, appsv1.AddToScheme)
	k.Status, k.Generation = true, true
	k.ShortNames, k.Categories = []string{shortName}, []string{"all"}
	cast := func(obj apiserver.Object) P {
		if obj == nil {
			return nil
		}
		return obj.(P)
	}
	k.Rules = apiserver.Rules{
		Default:  func(obj apiserver.Object) { setDefaults(cast(obj)) },
		Prepare:  func(obj, old apiserver.Object) { prepare(cast(obj), cast(old)) },
		Validate: func(obj, old apiserver.Object) field.ErrorList { return validate(cast(obj), cast(old)) },
		ValidateSubresource: func(_ string, obj, old apiserver.Object) field.ErrorList {
			metadata, status := apiserver.ValidateCoreMetadataUpdate(obj, old), validateStatus(cast(obj), cast(old))
			if kind == "StatefulSet" {
				return append(status, metadata...)
			}
			return append(metadata, status...)
		},
		Warnings: func(obj, old apiserver.Object) []string {
			if old != nil && obj.GetGeneration() == old.GetGeneration() {
				return nil
			}
			return warnings(cast(obj), cast(old))
		},
	}
	return k
}

// replicas is the subresource scale.
func replicas() *apiserver.Scale {
	return &apiserver.Scale{Replicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".spec.selector"}
}

// Deployments returns the kind Deployment.
func Deployments() *apiserver.Kind {
	k := workload("Deployment", "deployments", "deploy",
		defaultDeployment,
		prepareDeployment,
		validateDeployment,
		validateDeploymentStatus,
		deploymentWarnings,
	)
	k.Scale = replicas()
	k.Rules.StatusIgnores = []string{"labels"}
	k.Rules.PrepareStatus = func(obj, old apiserver.Object) { obj.SetLabels(old.GetLabels()) }
	k.Rules.Blank = func(obj apiserver.Object) { obj.(*appsv1.Deployment).Spec.Replicas = new(int32) }
	return k
}

func defaultDeployment(d *appsv1.Deployment) {
	defaultTemplate(&d.Spec.Template)
	setPointer(&d.Spec.Replicas, 1)
	setPointer(&d.Spec.RevisionHistoryLimit, 10)
	setPointer(&d.Spec.ProgressDeadlineSeconds, 600)
	strategy := &d.Spec.Strategy
	setDefault(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
}

func prepareDeployment(d, old *appsv1.Deployment) {
	dropDisabled(&d.Spec.Template.Spec)
	if old == nil {
		return
	}
	countChange(d, old, d.Spec, old.Spec)
	if !equality.Semantic.DeepEqual(d.Annotations, old.Annotations) { // they are copied to replica sets
		d.Generation = old.Generation + 1
	}
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	p := newProblems(d, metadataOf(old), validation.NameIsDNSSubdomain)
	spec, path := &d.Spec, field.NewPath("spec")
	nonNegativePointer(p, path.Child("replicas"), spec.Replicas)
	p.requiredSelector(path.Child("selector"), spec.Selector, "deployment")
	p.replicaTemplate(&spec.Template, templateOf(old, func() *corev1.PodTemplateSpec { return &old.Spec.Template }),
		spec.Selector, path)
	p.deploymentStrategy(&spec.Strategy, path.Child("strategy"))
	p.nonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	nonNegativePointer(p, path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		path := path.Child("progressDeadlineSeconds")
		p.nonNegative(path, int64(*deadline))
		if *deadline <= spec.MinReadySeconds {
			p.invalid(path, deadline, "must be greater than minReadySeconds")
		}
	}
	if old != nil {
		p.immutable(path.Child("selector"), spec.Selector, old.Spec.Selector)
	}
	return p.list
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	var p problems
	s, path := &d.Status, field.NewPath("status")
	p.nonNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	p.counts(path, []count{
		{"replicas", s.Replicas},
		{"updatedReplicas", s.UpdatedReplicas},
		{"readyReplicas", s.ReadyReplicas},
		{"availableReplicas", s.AvailableReplicas},
		{"unavailableReplicas", s.UnavailableReplicas},
	})
	nonNegativePointer(&p, path.Child("terminatingReplicas"), s.TerminatingReplicas)
	nonNegativePointer(&p, path.Child("collisionCount"), s.CollisionCount)
	p.atMost(path, "status.replicas", s.Replicas,
		count{"updatedReplicas", s.UpdatedReplicas}, count{"readyReplicas", s.ReadyReplicas},
		count{"availableReplicas", s.AvailableReplicas})
	p.atMost(path, "readyReplicas", s.ReadyReplicas, count{"availableReplicas", s.AvailableReplicas})
	p.notDecremented(path.Child("collisionCount"), s.CollisionCount, old.Status.CollisionCount)
	return p.list
}

func deploymentWarnings(d, old *appsv1.Deployment) []string {
	return templateWarnings(d, old == nil, &d.Spec.Template)
}

// ReplicaSets returns the kind ReplicaSet.
func ReplicaSets() *apiserver.Kind {
	k := workload("ReplicaSet", "replicasets", "rs",
		defaultReplicaSet,
		prepareReplicaSet,
		validateReplicaSet,
		validateReplicaSetStatus,
		replicaSetWarnings,
	)
	k.Scale = replicas()
	k.Rules.Blank = func(obj apiserver.Object) { obj.(*appsv1.ReplicaSet).Spec.Replicas = new(int32) }
	return k
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	defaultTemplate(&r.Spec.Template)
	setPointer(&r.Spec.Replicas, 1)
}

func prepareReplicaSet(r, old *appsv1.ReplicaSet) {
	dropDisabled(&r.Spec.Template.Spec)
	if old != nil {
		countChange(r, old, r.Spec, old.Spec)
	}
}

func validateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	p := newProblems(r, metadataOf(old), validation.NameIsDNSSubdomain)
	spec, path := &r.Spec, field.NewPath("spec")
	nonNegativePointer(p, path.Child("replicas"), spec.Replicas)
	p.nonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	p.requiredSelector(path.Child("selector"), spec.Selector, "deployment") // as in the real server
	p.replicaTemplate(&spec.Template, templateOf(old, func() *corev1.PodTemplateSpec { return &old.Spec.Template }),
		spec.Selector, path)
	if old != nil {
		p.immutable(path.Child("selector"), spec.Selector, old.Spec.Selector)
	}
	return p.list
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	var p problems
	s, path := &r.Status, field.NewPath("status")
	p.counts(path, []count{
		{"replicas", s.Replicas},
		{"fullyLabeledReplicas", s.FullyLabeledReplicas},
		{"readyReplicas", s.ReadyReplicas},
		{"availableReplicas", s.AvailableReplicas},
	})
	p.nonNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	nonNegativePointer(&p, path.Child("terminatingReplicas"), s.TerminatingReplicas)
	p.atMost(path, "status.replicas", s.Replicas, count{"fullyLabeledReplicas", s.FullyLabeledReplicas},
		count{"readyReplicas", s.ReadyReplicas}, count{"availableReplicas", s.AvailableReplicas})
	p.atMost(path, "readyReplicas", s.ReadyReplicas, count{"availableReplicas", s.AvailableReplicas})
	return p.list
}

func replicaSetWarnings(r, old *appsv1.ReplicaSet) []string {
	return templateWarnings(r, old == nil, &r.Spec.Template)
}

// metadataOf returns an object as the interface: nil if it is a nil pointer.
func metadataOf[T any, P interface {
	*T
	apiserver.Object
}](obj P) apiserver.Object {
	if obj == nil {
		return nil
	}
	return obj
}

// templateOf returns the template of an object, or nil if there is no object.
func templateOf[T any](obj *T, template func() *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if obj == nil {
		return nil
	}
	return template()
}

// newProblems checks the metadata of a new object, or their changes.
func newProblems(obj, old apiserver.Object, name validation.ValidateNameFunc) *problems {
	if old == nil {
		return &problems{list: apiserver.ValidateCoreMetadata(obj, true, name)}
	}
	return &problems{list: apiserver.ValidateCoreMetadataUpdate(obj, old)}
}

// templateWarnings returns the warnings about an object with a template.
func templateWarnings(obj apiserver.Object, isNew bool, template *corev1.PodTemplateSpec) []string {
	warnings := podWarnings(field.NewPath("spec", "template"), &template.Spec, &template.ObjectMeta)
	if isNew {
		warnings = append(nameWarnings(podNames, obj.GetName()), warnings...)
	}
	return warnings
}

func (p *problems) requiredSelector(path *field.Path, selector *metav1.LabelSelector, kind string) {
	if selector == nil {
		p.required(path, "")
		return
	}
	p.selector(path, selector)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		p.invalid(path, selector, "empty selector is invalid for "+kind)
	}
}

const notMatched = "`selector` does not match template `labels`"

// replicaTemplate checks the template of an object with replicas.
func (p *problems) replicaTemplate(
	template, old *corev1.PodTemplateSpec, labelSelector *metav1.LabelSelector, spec *field.Path,
) {
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil {
		p.invalid(spec.Child("selector"), labelSelector, "invalid label selector")
		return
	}
	path := spec.Child("template")
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		p.invalid(path.Child("metadata", "labels"), template.Labels, notMatched)
	}
	p.add(validateTemplate(template, old, path)...)
	p.alwaysRestarts(template, path, "ReplicaSet")
}

// alwaysRestarts checks that the Pods of a template run until they are deleted.
func (p *problems) alwaysRestarts(template *corev1.PodTemplateSpec, path *field.Path, kind string) {
	oneOf(p, path.Child("spec", "restartPolicy"), template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if template.Spec.ActiveDeadlineSeconds != nil {
		p.forbidden(path.Child("spec", "activeDeadlineSeconds"),
			fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind))
	}
}

func (p *problems) deploymentStrategy(strategy *appsv1.DeploymentStrategy, path *field.Path) {
	rolling, rollingPath := strategy.RollingUpdate, path.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if rolling != nil {
			p.forbidden(rollingPath, "may not be specified when strategy `type` is 'Recreate'")
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		unavailable, surge := *rolling.MaxUnavailable, *rolling.MaxSurge
		p.intOrPercent(rollingPath.Child("maxUnavailable"), unavailable)
		p.intOrPercent(rollingPath.Child("maxSurge"), surge)
		if amount(unavailable) == 0 && amount(surge) == 0 {
			p.invalid(rollingPath.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0")
		}
		p.atMost100Percent(rollingPath.Child("maxUnavailable"), unavailable)
	default:
		valid := []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType,
			appsv1.RollingUpdateDeploymentStrategyType,
		}
		p.add(field.NotSupported(path, internal(strategy), valid))
	}
}

// count is a number in a status.
type count struct {
	name  string
	value int32
}

func (p *problems) counts(path *field.Path, counts []count) {
	for _, c := range counts {
		p.nonNegative(path.Child(c.name), int64(c.value))
	}
}

// atMost checks that numbers are at most limit, which is the field named name.
func (p *problems) atMost(path *field.Path, name string, limit int32, counts ...count) {
	for _, c := range counts {
		if c.value > limit {
			p.invalid(path.Child(c.name), c.value, "cannot be greater than "+name)
		}
	}
}

func (p *problems) notDecremented(path *field.Path, value, old *int32) {
	now := int32(0)
	if value != nil {
		now = *value
	}
	if old != nil && (value == nil || now < *old) {
		p.invalid(path, now, "cannot be decremented")
	}
}
