package builtin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

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
			p.invalid(field.NewPath("metadata", "name"), job.Name, "will not able to create pod with invalid "+
				"DNS label: "+hostname)
		}
	}
	return p.list
}

// generatedSelector checks the labels and the selector of a Job without a manual selector.
func (p *problems) generatedSelector(job *batchv1.Job, prefixed bool) {
	if *job.Spec.ManualSelector || job.Spec.Selector == nil {
		return
	}
	path, actual := field.NewPath("spec", "template", "metadata", "labels"), job.Spec.Template.Labels
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
		if value, exists := actual[label[0]]; !exists {
			p.required(path.Key(label[0]), fmt.Sprintf("must be '%s'", label[1]))
		} else if value != label[1] {
			p.invalid(path.Key(label[0]), actual, fmt.Sprintf("must be '%s'", label[1]))
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
	oneOf(p, path.Child("completionMode"), *spec.CompletionMode, batchv1.NonIndexedCompletion,
		batchv1.IndexedCompletion)
	p.indexes(spec, path)
	p.failurePolicy(spec, path.Child("podFailurePolicy"))
	p.successPolicy(spec, path.Child("successPolicy"))
	if policy := spec.PodReplacementPolicy; spec.PodFailurePolicy != nil {
		oneOf(p, path.Child("podReplacementPolicy"), *policy, batchv1.Failed)
	} else {
		oneOf(p, path.Child("podReplacementPolicy"), *policy, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
	p.add(validateTemplate(&spec.Template, templateOf(old, func() *corev1.PodTemplateSpec {
		return &old.Spec.Template
	}), path.Child("template"))...)
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
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil &&
		!selector.Matches(labels.Set(spec.Template.Labels)) {
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
		p.invalid(parallelismPath, *parallelism,
			fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", maxIndexes))
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
	limit := fmt.Sprintf("must be less than or equal to %d when completions are above %d and used with backoff "+
		"limit per index", maxWithMany, manyCompletions)
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
			oneOf(p, path.Child("status"), pattern.Status, corev1.ConditionFalse, corev1.ConditionTrue,
				corev1.ConditionUnknown)
		}
		switch hasCodes, hasConditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
		case hasCodes && hasConditions:
			p.invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")
		case !hasCodes && !hasConditions:
			p.invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func (p *problems) exitCodes(
	codes *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.PodSpec, path *field.Path,
) {
	const maxValues = 255
	if codes.Operator == "" {
		p.required(path.Child("operator"), `valid values: ["In" "NotIn"]`)
	} else {
		oneOf(p, path.Child("operator"), codes.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn,
			batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	}
	isContainer := func(c *corev1.Container) bool { return c.Name == *codes.ContainerName }
	if name := codes.ContainerName; name != nil && !slices.ContainsFunc(allContainers(pod), isContainer) {
		p.invalid(path.Child("containerName"), *name, "must be one of the container or initContainer names in the "+
			"pod template")
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
				p.invalid(path.Child("succeededIndexes"), *indexes,
					fmt.Sprintf("error parsing succeededIndexes: %v", err))
			}
		}
		if n := rule.SucceededCount; n != nil {
			path := path.Child("succeededCount")
			p.nonNegative(path, int64(*n))
			if *n > *spec.Completions {
				p.invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of specified "+
					"completions)", *spec.Completions))
			}
			if rule.SucceededIndexes != nil && *n > total {
				p.invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the "+
					"specified succeededIndexes field)", total))
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
			return nil, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most "+
				"two parts separated by '-'", part)
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
