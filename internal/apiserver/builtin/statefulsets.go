package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// StatefulSets returns the kind StatefulSet.
func StatefulSets() *apiserver.Kind {
	k := workload("StatefulSet", "statefulsets", "sts",
		defaultStatefulSet,
		prepareStatefulSet,
		validateStatefulSet,
		validateStatefulSetStatus,
		func(s, _ *appsv1.StatefulSet) []string { return templateWarnings(s, false, &s.Spec.Template) },
	)
	ofTemplate := k.Rules.Warnings
	k.Rules.Warnings = func(obj, old apiserver.Object) []string {
		warnings := ofTemplate(obj, old)
		// also if nothing changes
		if limit := obj.(*appsv1.StatefulSet).Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
			warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical "+
				"revisions; a value >= 0 is recommended")
		}
		return warnings
	}
	k.Scale = replicas()
	k.Rules.Blank = func(obj apiserver.Object) { obj.(*appsv1.StatefulSet).Spec.Replicas = new(int32) }
	return k
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	defaultTemplate(&spec.Template)
	setPointer(&spec.Replicas, 1)
	setPointer(&spec.RevisionHistoryLimit, 10)
	setDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		setPointer(&strategy.RollingUpdate.Partition, 0)
	}
	setPointer(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	setDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted,
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	setDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled,
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		defaultClaimSpec(&claim.Spec)
		setDefault(&claim.Status.Phase, corev1.ClaimPending)
	}
}

func prepareStatefulSet(s, old *appsv1.StatefulSet) {
	dropDisabled(&s.Spec.Template.Spec)
	if rolling := s.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		rolling.MaxUnavailable = nil // the feature MaxUnavailableStatefulSet is off by default
	}
	if old != nil {
		countChange(s, old, s.Spec, old.Spec)
	}
}

func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	var p problems
	s, path := &set.Status, field.NewPath("status")
	p.counts(path, []count{
		{"replicas", s.Replicas},
		{"readyReplicas", s.ReadyReplicas},
		{"currentReplicas", s.CurrentReplicas},
		{"updatedReplicas", s.UpdatedReplicas},
		{"availableReplicas", s.AvailableReplicas},
	})
	p.nonNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	nonNegativePointer(&p, path.Child("collisionCount"), s.CollisionCount)
	p.atMost(path, "status.replicas", s.Replicas, count{"readyReplicas", s.ReadyReplicas},
		count{"currentReplicas", s.CurrentReplicas},
		count{"updatedReplicas", s.UpdatedReplicas}, count{"availableReplicas", s.AvailableReplicas})
	p.atMost(path, "status.readyReplicas", s.ReadyReplicas, count{"availableReplicas", s.AvailableReplicas})
	p.notDecremented(path.Child("collisionCount"), s.CollisionCount, old.Status.CollisionCount)
	return p.list
}

func validateStatefulSet(s, old *appsv1.StatefulSet) field.ErrorList {
	p := newProblems(s, metadataOf(old), validation.NameIsDNSLabel)
	spec, path := &s.Spec, field.NewPath("spec")
	switch spec.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		p.invalid(path.Child("podManagementPolicy"), spec.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'")
	}
	p.statefulSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))
	retention := path.Child("persistentVolumeClaimRetentionPolicy")
	for _, policy := range []struct {
		name  string
		value appsv1.PersistentVolumeClaimRetentionPolicyType
	}{
		{"whenDeleted", spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted},
		{"whenScaled", spec.PersistentVolumeClaimRetentionPolicy.WhenScaled},
	} {
		oneOf(p, retention.Child(policy.name), policy.value,
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
	}
	if old == nil {
		for i := range spec.VolumeClaimTemplates {
			p.claimSpec(&spec.VolumeClaimTemplates[i].Spec, path.Child("volumeClaimTemplates").Index(i).Child("spec"))
		}
	}
	nonNegativePointer(p, path.Child("replicas"), spec.Replicas)
	p.nonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	if spec.Ordinals != nil {
		p.nonNegative(path.Child("ordinals.start"), int64(spec.Ordinals.Start))
	}
	if old == nil && spec.ServiceName != "" {
		p.dnsLabel(path.Child("serviceName"), spec.ServiceName)
	}
	p.requiredSelector(path.Child("selector"), spec.Selector, "statefulset")
	p.statefulTemplate(s, old, path)
	p.alwaysRestarts(&spec.Template, path.Child("template"), "StatefulSet")
	if old != nil {
		rest := *spec
		before := &old.Spec
		rest.Replicas, rest.Template, rest.UpdateStrategy, rest.MinReadySeconds = before.Replicas, before.Template,
			before.UpdateStrategy, before.MinReadySeconds
		rest.Ordinals, rest.RevisionHistoryLimit = before.Ordinals, before.RevisionHistoryLimit
		rest.PersistentVolumeClaimRetentionPolicy = before.PersistentVolumeClaimRetentionPolicy
		if !equality.Semantic.DeepEqual(&rest, before) {
			p.forbidden(path, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
				"'updateStrategy', "+
				"'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")
		}
	}
	return p.list
}

func (p *problems) statefulSetStrategy(strategy *appsv1.StatefulSetUpdateStrategy, path *field.Path) {
	switch rolling := strategy.RollingUpdate; strategy.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if rolling != nil {
			p.invalid(path.Child("rollingUpdate"), internal(rolling), "only allowed for updateStrategy 'RollingUpdate'")
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if rolling != nil {
			nonNegativePointer(p, path.Child("rollingUpdate", "partition"), rolling.Partition)
		}
	default:
		p.invalid(path, internal(strategy), "must be 'RollingUpdate' or 'OnDelete'")
	}
}

// statefulTemplate checks the template with the volumes that the controller adds for claims, and without the names that
// the controller sets.
func (p *problems) statefulTemplate(s, old *appsv1.StatefulSet, spec *field.Path) {
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
	if err != nil {
		p.invalid(spec.Child("selector"), s.Spec.Selector, "")
		return
	}
	path := spec.Child("template")
	template := s.Spec.Template
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		p.invalid(path.Child("metadata", "labels"), template.Labels, notMatched)
	}
	template.Spec.Hostname, template.Spec.Subdomain = "", ""
	if claims := s.Spec.VolumeClaimTemplates; len(claims) > 0 {
		var volumes []corev1.Volume
		claimed := names{}
		for _, claim := range claims {
			if !claimed[claim.Name] {
				volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
				}})
			}
			claimed[claim.Name] = true
		}
		for _, volume := range template.Spec.Volumes {
			if !claimed[volume.Name] {
				volumes = append(volumes, volume)
			}
		}
		template.Spec.Volumes = volumes
	}
	p.add(validateTemplate(&template, templateOf(old, func() *corev1.PodTemplateSpec { return &old.Spec.Template }),
		path)...)
	// The real server checks these twice.
	p.add(metavalidation.ValidateLabels(template.Labels, path.Child("labels"))...)
	p.add(validation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	annotations := podProblems{spec: &template.Spec}
	annotations.podAnnotations(template.Annotations, path.Child("annotations"))
	p.add(annotations.list...)
}
