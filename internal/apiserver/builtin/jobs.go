package builtin

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Labels of the Pods of a Job that existed before those with a prefix.
const (
	oldJobNameLabel       = "job-name"
	oldControllerUIDLabel = "controller-uid"
)

// Jobs returns the kind Job.
func Jobs() *apiserver.Kind {
	k := apiserver.Builtin[batchv1.Job](batchv1.SchemeGroupVersion.WithKind("Job"), "jobs", batchv1.AddToScheme)
	k.Status, k.Generation = true, true
	k.Categories = []string{"all"}
	k.Rules = apiserver.Rules{
		Default: func(obj apiserver.Object) { defaultJob(obj.(*batchv1.Job)) },
		Prepare: func(obj, old apiserver.Object) {
			job := obj.(*batchv1.Job)
			dropDisabled(&job.Spec.Template.Spec)
			if old == nil {
				if !*job.Spec.ManualSelector {
					generateSelector(job)
				}
				return
			}
			before := old.(*batchv1.Job)
			countChange(job, before, job.Spec, before.Spec)
		},
		// A Job without labels gets those of its template when it is read.
		Stored: func(obj apiserver.Object) bool {
			job := obj.(*batchv1.Job)
			if len(job.Labels) > 0 || len(job.Spec.Template.Labels) == 0 {
				return false
			}
			job.Labels = maps.Clone(job.Spec.Template.Labels)
			return true
		},
		Validate: func(obj, old apiserver.Object) field.ErrorList {
			if old == nil {
				return validateJob(obj.(*batchv1.Job), nil)
			}
			return validateJobUpdate(obj.(*batchv1.Job), old.(*batchv1.Job))
		},
		ValidateSubresource: func(_ string, obj, old apiserver.Object) field.ErrorList {
			return append(apiserver.ValidateCoreMetadataUpdate(obj, old), validateJobStatus(obj.(*batchv1.Job), old.(*batchv1.Job))...)
		},
		Warnings: func(obj, old apiserver.Object) []string {
			if old != nil && obj.GetGeneration() == old.GetGeneration() {
				return nil
			}
			job := obj.(*batchv1.Job)
			var warnings []string
			if old == nil {
				warnings = nameWarnings(podNames, job.Name)
			}
			completions, parallelism := job.Spec.Completions, job.Spec.Parallelism
			if isIndexed(job) && completions != nil && *completions > 100_000 && parallelism != nil && *parallelism > 10_000 {
				warnings = append(warnings, "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
					"Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
			}
			return append(warnings, templateWarnings(job, false, &job.Spec.Template)...)
		},
		Fields: func(obj apiserver.Object) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))}
		},
		FieldLabels:      []string{"status.successful"},
		UnknownField:     "field label %q not supported for Job",
		OrphanDependents: true,
		OrphanWarning: "child pods are preserved by default when jobs are deleted; " +
			"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
	}
	return k
}

func defaultJob(job *batchv1.Job) {
	spec := &job.Spec
	defaultTemplate(&spec.Template)
	if spec.Completions == nil && spec.Parallelism == nil {
		setPointer(&spec.Completions, 1)
	}
	setPointer(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		setPointer(&spec.BackoffLimit, math.MaxInt32)
	}
	setPointer(&spec.BackoffLimit, 6)
	if len(job.Labels) == 0 && spec.Template.Labels != nil {
		job.Labels = maps.Clone(spec.Template.Labels)
	}
	setPointer(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	setPointer(&spec.Suspend, false)
	if spec.PodFailurePolicy != nil {
		setPointer(&spec.PodReplacementPolicy, batchv1.Failed)
		for i := range spec.PodFailurePolicy.Rules {
			for j := range spec.PodFailurePolicy.Rules[i].OnPodConditions {
				setDefault(&spec.PodFailurePolicy.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	setPointer(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	setPointer(&spec.ManualSelector, false)
}

// generateSelector selects the Pods of a new Job by its uid, and gives them labels.
func generateSelector(job *batchv1.Job) {
	template := &job.Spec.Template
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	for key, value := range map[string]string{
		oldJobNameLabel: job.Name, batchv1.JobNameLabel: job.Name, oldControllerUIDLabel: string(job.UID), batchv1.ControllerUidLabel: string(job.UID),
	} {
		if _, exists := template.Labels[key]; !exists {
			template.Labels[key] = value
		}
	}
	setPointer(&job.Spec.Selector, metav1.LabelSelector{})
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	setLabel := job.Spec.Selector.MatchLabels
	if _, exists := setLabel[batchv1.ControllerUidLabel]; !exists {
		setLabel[batchv1.ControllerUidLabel] = string(job.UID)
	}
}

func isIndexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// validateJob checks a Job; old is nil for a new one.
func validateJob(job, old *batchv1.Job) field.ErrorList {
	p := &problems{list: apiserver.ValidateCoreMetadata(job, true, validation.NameIsDNSSubdomain)}
	prefixed := true
	if old != nil {
		_, hasName := old.Spec.Template.Labels[batchv1.JobNameLabel]
		_, hasUID := old.Spec.Template.Labels[batchv1.ControllerUidLabel]
		prefixed = hasName && hasUID
	}
	p.generatedSelector(job, prefixed)
	p.jobSpec(job, old)
	if isIndexed(job) && job.Spec.Completions != nil && *job.Spec.Completions > 0 {
		hostname := fmt.Sprintf("%s-%d", job.Name, *job.Spec.Completions-1)
		if len(utilvalidation.IsDNS1123Label(hostname)) > 0 {
			p.invalid(field.NewPath("metadata", "name"), job.Name, "will not able to create pod with invalid DNS label: "+hostname)
		}
	}
	return p.list
}

// generatedSelector checks the labels and the selector of a Job without a manual selector.
func (p *problems) generatedSelector(job *batchv1.Job, prefixed bool) {
	if *job.Spec.ManualSelector || job.Spec.Selector == nil {
		return
	}
	path, have := field.NewPath("spec", "template", "metadata", "labels"), job.Spec.Template.Labels
	expected := labels.Set{}
	for i, label := range [][2]string{
		{oldControllerUIDLabel, string(job.UID)},
		{oldJobNameLabel, job.Name},
		{batchv1.ControllerUidLabel, string(job.UID)},
		{batchv1.JobNameLabel, job.Name},
	} {
		if i >= 2 && !prefixed {
			break
		}
		expected[label[0]] = label[1]
		if value, exists := have[label[0]]; !exists {
			p.required(path.Key(label[0]), fmt.Sprintf("must be '%s'", label[1]))
		} else if value != label[1] {
			p.invalid(path.Key(label[0]), have, fmt.Sprintf("must be '%s'", label[1]))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && !selector.Matches(expected) {
		p.invalid(field.NewPath("spec", "selector"), job.Spec.Selector, "`selector` not auto-generated")
	}
}

// jobSpec checks the specification of a Job.
func (p *problems) jobSpec(job, old *batchv1.Job) {
	spec, path := &job.Spec, field.NewPath("spec")
	nonNegativePointer(p, path.Child("parallelism"), spec.Parallelism)
	nonNegativePointer(p, path.Child("completions"), spec.Completions)
	nonNegativePointer(p, path.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds)
	nonNegativePointer(p, path.Child("backoffLimit"), spec.BackoffLimit)
	nonNegativePointer(p, path.Child("ttlSecondsAfterFinished"), spec.TTLSecondsAfterFinished)
	nonNegativePointer(p, path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex)
	nonNegativePointer(p, path.Child("maxFailedIndexes"), spec.MaxFailedIndexes)
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		p.required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")
	}
	if by := spec.ManagedBy; by != nil {
		const maxLength = 63
		p.add(utilvalidation.IsDomainPrefixedPath(path.Child("managedBy"), *by)...)
		if len(*by) > maxLength {
			p.add(field.TooLong(path.Child("managedBy"), "", maxLength))
		}
	}
	oneOf(p, path.Child("completionMode"), *spec.CompletionMode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	p.indexes(spec, path)
	p.failurePolicy(spec, path.Child("podFailurePolicy"))
	p.successPolicy(spec, path.Child("successPolicy"))
	if policy := spec.PodReplacementPolicy; spec.PodFailurePolicy != nil {
		oneOf(p, path.Child("podReplacementPolicy"), *policy, batchv1.Failed)
	} else {
		oneOf(p, path.Child("podReplacementPolicy"), *policy, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
	p.add(validateTemplate(&spec.Template, templateOf(old, func() *corev1.PodTemplateSpec { return &old.Spec.Template }), path.Child("template"))...)
	policyPath, policy := path.Child("template", "spec", "restartPolicy"), spec.Template.Spec.RestartPolicy
	switch policy {
	case corev1.RestartPolicyAlways, "":
		p.required(policyPath, `valid values: "OnFailure", "Never"`)
	default:
		if oneOf(p, policyPath, policy, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever) &&
			spec.PodFailurePolicy != nil && policy != corev1.RestartPolicyNever {
			p.invalid(policyPath, policy, `only "Never" is supported when podFailurePolicy is specified`)
		}
	}
	if spec.Selector == nil {
		p.required(path.Child("selector"), "")
	} else {
		p.selector(path.Child("selector"), spec.Selector)
	}
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		p.invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, notMatched)
	}
}

// indexes checks the numbers of an indexed Job, and that another Job has none.
func (p *problems) indexes(spec *batchv1.JobSpec, path *field.Path) {
	const maxIndexes, manyCompletions, maxWithMany = 100_000, 100_000, 10_000
	parallelism, failed, completions := spec.Parallelism, spec.MaxFailedIndexes, spec.Completions
	parallelismPath, failedPath := path.Child("parallelism"), path.Child("maxFailedIndexes")
	switch *spec.CompletionMode {
	case batchv1.NonIndexedCompletion:
		if n := spec.BackoffLimitPerIndex; n != nil {
			p.invalid(path.Child("backoffLimitPerIndex"), *n, "requires indexed completion mode")
		}
		if failed != nil {
			p.invalid(failedPath, *failed, "requires indexed completion mode")
		}
		return
	case batchv1.IndexedCompletion:
	default:
		return
	}
	if completions == nil {
		p.required(path.Child("completions"), "when completion mode is Indexed")
	}
	if *parallelism > maxIndexes {
		p.invalid(parallelismPath, *parallelism, fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", maxIndexes))
	}
	if failed != nil && completions != nil && *failed > *completions {
		p.invalid(failedPath, *failed, "must be less than or equal to completions")
	}
	if failed != nil && *failed > maxIndexes {
		p.invalid(failedPath, *failed, fmt.Sprintf("must be less than or equal to %d", maxIndexes))
	}
	if completions == nil || *completions <= manyCompletions || spec.BackoffLimitPerIndex == nil {
		return
	}
	limit := fmt.Sprintf("must be less than or equal to %d when completions are above %d and used with backoff limit per index", maxWithMany, manyCompletions)
	if failed == nil {
		p.required(failedPath, fmt.Sprintf("must be specified when completions is above %d", manyCompletions))
	}
	if *parallelism > maxWithMany {
		p.invalid(parallelismPath, *parallelism, limit)
	}
	if failed != nil && *failed > maxWithMany {
		p.invalid(failedPath, *failed, limit)
	}
}

func (p *problems) failurePolicy(spec *batchv1.JobSpec, path *field.Path) {
	if spec.PodFailurePolicy == nil {
		return
	}
	const maxRules = 20
	rules := spec.PodFailurePolicy.Rules
	if len(rules) > maxRules {
		p.add(field.TooMany(path.Child("rules"), len(rules), maxRules))
	}
	for i, rule := range rules {
		path := path.Child("rules").Index(i)
		switch action := path.Child("action"); rule.Action {
		case "":
			p.required(action, `valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`)
		case batchv1.PodFailurePolicyActionFailIndex:
			if spec.BackoffLimitPerIndex == nil {
				p.invalid(action, rule.Action, "requires the backoffLimitPerIndex to be set")
			}
		default:
			oneOf(p, action, rule.Action, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
				batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
		}
		if rule.OnExitCodes != nil {
			p.exitCodes(rule.OnExitCodes, &spec.Template.Spec, path.Child("onExitCodes"))
		}
		for j, pattern := range rule.OnPodConditions {
			path := path.Child("onPodConditions").Index(j)
			p.invalidFor(path.Child("type"), string(pattern.Type), utilvalidation.IsQualifiedName(string(pattern.Type)))
			oneOf(p, path.Child("status"), pattern.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
		}
		switch hasCodes, hasConditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
		case hasCodes && hasConditions:
			p.invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")
		case !hasCodes && !hasConditions:
			p.invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func (p *problems) exitCodes(codes *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.PodSpec, path *field.Path) {
	const maxValues = 255
	if codes.Operator == "" {
		p.required(path.Child("operator"), `valid values: ["In" "NotIn"]`)
	} else {
		oneOf(p, path.Child("operator"), codes.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	}
	isContainer := func(c *corev1.Container) bool { return c.Name == *codes.ContainerName }
	if name := codes.ContainerName; name != nil && !slices.ContainsFunc(allContainers(pod), isContainer) {
		p.invalid(path.Child("containerName"), *name, "must be one of the container or initContainer names in the pod template")
	}
	values := path.Child("values")
	if len(codes.Values) == 0 {
		p.invalid(values, codes.Values, "at least one value is required")
	} else if len(codes.Values) > maxValues {
		p.add(field.TooMany(values, len(codes.Values), maxValues))
	}
	for i, value := range codes.Values {
		if codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && value == 0 {
			p.invalid(values.Index(i), value, "must not be 0 for the In operator")
		}
		if slices.Contains(codes.Values[:i], value) {
			p.add(field.Duplicate(values.Index(i), value))
		}
	}
	if !slices.IsSorted(codes.Values) {
		p.invalid(values, codes.Values, "must be ordered")
	}
}

func (p *problems) successPolicy(spec *batchv1.JobSpec, path *field.Path) {
	policy := spec.SuccessPolicy
	if policy == nil {
		return
	}
	if *spec.CompletionMode != batchv1.IndexedCompletion {
		p.invalid(path, internal(policy), "requires indexed completion mode")
		return
	}
	const maxRules, maxLength = 20, 64 * 1024
	rules := path.Child("rules")
	if len(policy.Rules) == 0 {
		p.required(rules, "at least one rules must be specified when the successPolicy is specified")
	}
	if len(policy.Rules) > maxRules {
		p.add(field.TooMany(rules, len(policy.Rules), maxRules))
	}
	if spec.Completions == nil {
		return
	}
	for i, rule := range policy.Rules {
		path := rules.Index(i)
		if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
			p.required(path, "at least one of succeededCount or succeededIndexes must be specified")
		}
		total := int32(0)
		if indexes := rule.SucceededIndexes; indexes != nil {
			if len(*indexes) > maxLength {
				p.add(field.TooLong(path.Child("succeededIndexes"), "", maxLength))
			}
			var err error
			if total, err = countIndexes(*indexes, *spec.Completions); err != nil {
				p.invalid(path.Child("succeededIndexes"), *indexes, fmt.Sprintf("error parsing succeededIndexes: %v", err))
			}
		}
		if n := rule.SucceededCount; n != nil {
			path := path.Child("succeededCount")
			p.nonNegative(path, int64(*n))
			if *n > *spec.Completions {
				p.invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *spec.Completions))
			}
			if rule.SucceededIndexes != nil && *n > total {
				p.invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total))
			}
		}
	}
}

// interval is a range of indexes of a Job, both ends included.
type interval struct{ first, last int32 }

// parseIndexes parses a text such as 1,3-5.
func parseIndexes(text string, completions int32) ([]interval, error) {
	var all []interval
	if text == "" {
		return nil, nil
	}
	number := func(text string) (int32, error) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
		}
		if n >= int(completions) {
			return 0, fmt.Errorf("too large index: %q", text)
		}
		return int32(n), nil
	}
	for part := range strings.SplitSeq(text, ",") {
		ends := strings.Split(part, "-")
		if len(ends) > 2 {
			return nil, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", part)
		}
		first, err := number(ends[0])
		if err != nil {
			return nil, err
		}
		last := first
		if len(ends) == 2 {
			if last, err = number(ends[1]); err != nil {
				return nil, err
			}
			if first >= last {
				return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
			}
		}
		if len(all) > 0 && all[len(all)-1].last >= first {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", all[len(all)-1].last, first)
		}
		all = append(all, interval{first, last})
	}
	return all, nil
}

func countIndexes(text string, completions int32) (total int32, err error) {
	all, err := parseIndexes(text, completions)
	for _, i := range all {
		total += i.last - i.first + 1
	}
	return total, err
}

func validateJobUpdate(job, old *batchv1.Job) field.ErrorList {
	p := &problems{list: validateJob(job, old)}
	p.add(apiserver.ValidateCoreMetadataUpdate(job, old)...)
	spec, before, path := &job.Spec, &old.Spec, field.NewPath("spec")
	p.jobSpec(job, old)
	switch completions := path.Child("completions"); {
	case !isIndexed(job):
		p.immutable(completions, spec.Completions, before.Completions)
	case spec.Completions != nil && !equality.Semantic.DeepEqual(spec.Completions, before.Completions) && *spec.Completions != *spec.Parallelism:
		p.invalid(completions, spec.Completions, "can only be modified in tandem with spec.parallelism")
	}
	p.immutable(path.Child("selector"), spec.Selector, before.Selector)
	p.templateUpdate(job, old, path)
	p.immutable(path.Child("completionMode"), spec.CompletionMode, before.CompletionMode)
	p.immutableInternal(path.Child("podFailurePolicy"), spec.PodFailurePolicy, before.PodFailurePolicy)
	p.immutable(path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex, before.BackoffLimitPerIndex)
	p.immutable(path.Child("managedBy"), spec.ManagedBy, before.ManagedBy)
	p.immutableInternal(path.Child("successPolicy"), spec.SuccessPolicy, before.SuccessPolicy)
	return p.list
}

// immutableInternal is immutable for a value of an internal type.
func (p *problems) immutableInternal(path *field.Path, value, old any) {
	if !equality.Semantic.DeepEqual(value, old) {
		p.invalid(path, internal(value), isImmutable)
	}
}

// templateUpdate checks that the template does not change. A suspended Job without Pods may change where Pods run, and what
// they need.
func (p *problems) templateUpdate(job, old *batchv1.Job, path *field.Path) {
	template, before := &job.Spec.Template, &old.Spec.Template
	idle := *old.Spec.Suspend && (old.Status.StartTime == nil || hasCondition(old, batchv1.JobSuspended)) && old.Status.Active == 0
	if !idle {
		p.immutableInternal(path.Child("template"), template, before)
		return
	}
	allowed := before.DeepCopy()
	switch affinity := template.Spec.Affinity; {
	case allowed.Spec.Affinity != nil && affinity != nil:
		allowed.Spec.Affinity.NodeAffinity = affinity.NodeAffinity
	case allowed.Spec.Affinity != nil:
		if allowed.Spec.Affinity.NodeAffinity = nil; *allowed.Spec.Affinity == (corev1.Affinity{}) {
			allowed.Spec.Affinity = nil
		}
	case affinity != nil:
		allowed.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity.NodeAffinity}
	}
	allowed.Spec.NodeSelector, allowed.Spec.Tolerations = template.Spec.NodeSelector, template.Spec.Tolerations
	allowed.Spec.SchedulingGates = template.Spec.SchedulingGates
	for _, lists := range [][2][]corev1.Container{
		{template.Spec.Containers, allowed.Spec.Containers}, {template.Spec.InitContainers, allowed.Spec.InitContainers},
	} {
		for i := range lists[0] {
			if len(lists[0]) == len(lists[1]) && lists[0][i].Name == lists[1][i].Name {
				lists[1][i].Resources = lists[0][i].Resources
			}
		}
	}
	p.immutableInternal(path.Child("template.spec"), template.Spec, allowed.Spec)
}

func hasCondition(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	return conditionIs(job, kind, corev1.ConditionTrue)
}

func conditionIs(job *batchv1.Job, kind batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == status })
}

// validateJobStatus checks an update of the status. Most rules apply only if the update changes what they are about.
func validateJobStatus(job, old *batchv1.Job) field.ErrorList {
	var p problems
	s, before, path := &job.Status, &old.Status, field.NewPath("status")
	conditions := path.Child("conditions")
	broken := func(rule bool, detail string) {
		if rule {
			p.invalid(conditions, field.OmitValueType{}, detail)
		}
	}
	has := func(kind batchv1.JobConditionType) bool { return hasCondition(job, kind) }
	had := func(kind batchv1.JobConditionType) bool { return hasCondition(old, kind) }
	complete, failed, failing, succeeding := has(batchv1.JobComplete), has(batchv1.JobFailed), has(batchv1.JobFailureTarget), has(batchv1.JobSuccessCriteriaMet)
	finished := complete || failed
	completeChanged, failedChanged := complete != had(batchv1.JobComplete), failed != had(batchv1.JobFailed)
	finishedChanged := finished != (had(batchv1.JobComplete) || had(batchv1.JobFailed))
	startChanged, endChanged := !s.StartTime.Equal(before.StartTime), !s.CompletionTime.Equal(before.CompletionTime)
	activeChanged := s.Active != before.Active

	p.counts(path, []count{{"active", s.Active}, {"succeeded", s.Succeeded}, {"failed", s.Failed}})
	nonNegativePointer(&p, path.Child("ready"), s.Ready)
	nonNegativePointer(&p, path.Child("terminating"), s.Terminating)
	p.uncounted(s.UncountedTerminatedPods, path.Child("uncountedTerminatedPods"))
	broken((completeChanged || failedChanged) && complete && failed, "cannot set Complete=True and Failed=true conditions")
	broken((completeChanged || failing != had(batchv1.JobFailureTarget)) && complete && failing, "cannot set Complete=True and FailureTarget=true conditions")
	end := path.Child("completionTime")
	if (completeChanged || endChanged) && s.CompletionTime != nil && !complete {
		p.invalid(end, s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
	}
	if (completeChanged || endChanged) && s.CompletionTime == nil && complete {
		p.required(end, "completionTime is required for Complete jobs")
	}
	if (startChanged || endChanged) && s.StartTime != nil && s.CompletionTime.Before(s.StartTime) && s.CompletionTime != nil {
		p.invalid(end, s.CompletionTime, "must be equal to or after `startTime`")
	}
	failedIndexesChanged := !equality.Semantic.DeepEqual(s.FailedIndexes, before.FailedIndexes)
	broken((failedChanged || failedIndexesChanged) && failed && !failing, "cannot set Failed=True condition without the FailureTarget=true condition")
	broken((completeChanged || succeeding != had(batchv1.JobSuccessCriteriaMet)) && complete && !succeeding,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	if (finishedChanged || activeChanged) && s.Active > 0 && finished {
		p.invalid(path.Child("active"), s.Active, "active>0 is invalid for finished job")
	}
	nothingToDo := *job.Spec.Suspend && job.Spec.Completions != nil && *job.Spec.Completions == 0
	if (finishedChanged || startChanged) && !nothingToDo && s.StartTime == nil && finished {
		p.required(path.Child("startTime"), "startTime is required for finished job")
	}
	if u := s.UncountedTerminatedPods; u != nil && finished && len(u.Failed)+len(u.Succeeded) > 0 &&
		(finishedChanged || !equality.Semantic.DeepEqual(u, before.UncountedTerminatedPods)) {
		p.invalid(path.Child("uncountedTerminatedPods"), internal(u), "must be empty for finished job")
	}
	p.statusIndexes(job, old, path)
	if finished && s.Terminating != nil && *s.Terminating > 0 && (finishedChanged || !equality.Semantic.DeepEqual(s.Terminating, before.Terminating)) {
		p.invalid(path.Child("terminating"), s.Terminating, "terminating>0 is invalid for finished job")
	}
	if s.Ready != nil && *s.Ready > s.Active && (activeChanged || !equality.Semantic.DeepEqual(s.Ready, before.Ready)) {
		p.invalid(path.Child("ready"), *s.Ready, "cannot set more ready pods than active")
	}
	broken(succeeding && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	broken(succeeding && failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	broken(job.Spec.SuccessPolicy != nil && !succeeding && complete, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		broken(had(kind) && !has(kind), fmt.Sprintf("cannot disable the terminal %s=True condition", kind))
	}
	if s.Failed < before.Failed {
		p.invalid(path.Child("failed"), s.Failed, "cannot decrease the failed counter")
	}
	scalable := isIndexed(job) && equality.Semantic.DeepEqual(job.Spec.Completions, job.Spec.Parallelism)
	if s.Succeeded < before.Succeeded && !scalable {
		p.invalid(path.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter")
	}
	if s.CompletionTime != nil && before.CompletionTime != nil && endChanged {
		p.invalid(end, s.CompletionTime, isImmutable)
	}
	resuming := had(batchv1.JobSuspended) && conditionIs(job, batchv1.JobSuspended, corev1.ConditionFalse)
	if startChanged && before.StartTime != nil && !resuming && !*job.Spec.Suspend {
		p.invalid(path.Child("startTime"), s.StartTime, "field is immutable for unsuspended job once set")
	}
	broken(had(batchv1.JobSuccessCriteriaMet) && !succeeding, "cannot disable the SuccessCriteriaMet=True condition")
	broken(had(batchv1.JobComplete) && !had(batchv1.JobSuccessCriteriaMet) && succeeding,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	return p.list
}

func (p *problems) uncounted(pods *batchv1.UncountedTerminatedPods, path *field.Path) {
	if pods == nil {
		return
	}
	seen := names{}
	for _, list := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", pods.Succeeded}, {"failed", pods.Failed}} {
		for i, uid := range list.uids {
			if path := path.Child(list.name).Index(i); uid == "" {
				p.invalid(path, uid, "must not be empty")
			} else {
				if seen[string(uid)] {
					p.add(field.Duplicate(path, uid))
				}
				seen[string(uid)] = true
			}
		}
	}
}

// statusIndexes checks the completed and failed indexes, if they change.
func (p *problems) statusIndexes(job, old *batchv1.Job, path *field.Path) {
	s, completions := &job.Status, job.Spec.Completions
	completed, failed := path.Child("completedIndexes"), path.Child("failedIndexes")
	completedChanged := s.CompletedIndexes != old.Status.CompletedIndexes
	failedChanged := !equality.Semantic.DeepEqual(s.FailedIndexes, old.Status.FailedIndexes)
	var done, broken []interval
	if completions != nil {
		var err error
		if done, err = parseIndexes(s.CompletedIndexes, *completions); err != nil && completedChanged {
			p.invalid(completed, s.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %v", err))
		}
		if s.FailedIndexes != nil && job.Spec.BackoffLimitPerIndex != nil {
			if broken, err = parseIndexes(*s.FailedIndexes, *completions); err != nil && failedChanged {
				p.invalid(failed, s.FailedIndexes, fmt.Sprintf("error parsing failedIndexes: %v", err))
			}
		}
	}
	if completedChanged && s.CompletedIndexes != "" && !isIndexed(job) {
		p.invalid(completed, s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if failedChanged && s.FailedIndexes != nil && job.Spec.BackoffLimitPerIndex == nil {
		p.invalid(failed, *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if !completedChanged && !failedChanged {
		return
	}
	for _, d := range done {
		for _, b := range broken {
			if d.first <= b.last && b.first <= d.last {
				p.invalid(failed, *s.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", max(d.first, b.first)))
				return
			}
		}
	}
}
