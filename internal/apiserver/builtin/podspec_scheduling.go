package builtin

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *podProblems) tolerations(tolerations []corev1.Toleration, path *field.Path) {
	for i, t := range tolerations {
		path := path.Index(i)
		if t.Key != "" {
			p.add(metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			p.invalid(path.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			p.invalid(path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if messages := content.IsLabelValue(t.Value); len(messages) > 0 {
				p.invalid(path.Child("operator"), t.Value, strings.Join(messages, ";"))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				p.invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'")
			}
		case "Lt", "Gt": // a feature that is off by default
			valid := []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, "Lt", "Gt"}
			p.add(field.NotSupported(path.Child("operator"), t.Operator, valid))
		default:
			oneOf(&p.problems, path.Child("operator"), t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
		}
		if t.Effect != "" {
			oneOf(&p.problems, path.Child("effect"), t.Effect,
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
		}
	}
}

func (p *podProblems) affinity(a *corev1.Affinity, path *field.Path) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	weight := func(path *field.Path, weight int32) {
		if weight <= 0 || weight > 100 {
			p.invalid(path.Child("weight"), weight, "must be in the range 1-100")
		}
	}
	if node := a.NodeAffinity; node != nil {
		path := path.Child("nodeAffinity")
		if selector := node.RequiredDuringSchedulingIgnoredDuringExecution; selector != nil {
			terms := path.Child(required, "nodeSelectorTerms")
			if len(selector.NodeSelectorTerms) == 0 {
				p.required(terms, "must have at least one node selector term")
			}
			for i, term := range selector.NodeSelectorTerms {
				p.nodeTerm(term, false, terms.Index(i))
			}
		}
		for i, term := range node.PreferredDuringSchedulingIgnoredDuringExecution {
			weight(path.Child(preferred).Index(i), term.Weight)
			p.nodeTerm(term.Preference, true, path.Child(preferred).Index(i).Child("preference"))
		}
	}
	terms := func(hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm, path *field.Path) {
		for i, term := range hard {
			p.podTerm(term, path.Child(required).Index(i))
		}
		for i, term := range soft {
			weight(path.Child(preferred).Index(i), term.Weight)
			p.podTerm(term.PodAffinityTerm, path.Child(preferred).Index(i).Child("podAffinityTerm"))
		}
	}
	if pod := a.PodAffinity; pod != nil {
		terms(pod.RequiredDuringSchedulingIgnoredDuringExecution, pod.PreferredDuringSchedulingIgnoredDuringExecution,
			path.Child("podAffinity"))
	}
	if pod := a.PodAntiAffinity; pod != nil {
		terms(pod.RequiredDuringSchedulingIgnoredDuringExecution, pod.PreferredDuringSchedulingIgnoredDuringExecution,
			path.Child("podAntiAffinity"))
	}
}

// nodeTerm checks a term of node affinity. A preferred one may have values that no label can have.
func (p *podProblems) nodeTerm(term corev1.NodeSelectorTerm, preferred bool, path *field.Path) {
	const notAnOperator = "not a valid selector operator"
	for i, r := range term.MatchExpressions {
		path := path.Child("matchExpressions").Index(i)
		values := path.Child("values")
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				p.required(values, "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				p.forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				p.required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			p.invalid(path.Child("operator"), r.Operator, notAnOperator)
		}
		p.add(metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
		for j, value := range r.Values {
			if !preferred {
				p.invalidFor(values.Index(j), value, content.IsLabelValue(value))
			}
		}
	}
	for i, r := range term.MatchFields {
		path := path.Child("matchFields").Index(i)
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			p.invalid(path.Child("operator"), r.Operator, notAnOperator)
		} else if len(r.Values) != 1 {
			p.required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node "+
				"field selector")
		}
		if r.Key != metav1.ObjectNameField {
			p.invalid(path.Child("key"), r.Key, "not a valid field selector key")
			continue
		}
		for j, value := range r.Values {
			p.invalidFor(path.Child("values").Index(j), value, validation.NameIsDNSSubdomain(value, false))
		}
	}
}

func (p *podProblems) podTerm(term corev1.PodAffinityTerm, path *field.Path) {
	p.selector(path.Child("labelSelector"), term.LabelSelector)
	p.selector(path.Child("namespaceSelector"), term.NamespaceSelector)
	for _, name := range term.Namespaces {
		p.invalidFor(path.Child("namespace"), name, validation.ValidateNamespaceName(name, false))
	}
	p.labelKeys(term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector, path)
	if term.TopologyKey == "" {
		p.required(path.Child("topologyKey"), "can not be empty")
	}
	p.add(metavalidation.ValidateLabelName(term.TopologyKey, path.Child("topologyKey"))...)
}

// labelKeys checks the keys of labels whose values are added to a selector.
func (p *podProblems) labelKeys(match, mismatch []string, selector *metav1.LabelSelector, path *field.Path) {
	for _, keys := range []struct {
		path *field.Path
		keys []string
	}{{path.Child("matchLabelKeys"), match}, {path.Child("mismatchLabelKeys"), mismatch}} {
		if len(keys.keys) > 0 && selector == nil {
			p.forbidden(keys.path, "must not be specified when labelSelector is not set")
			continue
		}
		for i, key := range keys.keys {
			p.add(metavalidation.ValidateLabelName(key, keys.path.Index(i))...)
		}
	}
	if selector != nil {
		indexes, selected := map[string]int{}, map[string]bool{}
		for i, key := range match {
			indexes[key] = i
		}
		for key := range selector.MatchLabels {
			selected[key] = true
		}
		for _, r := range selector.MatchExpressions {
			if i, exists := indexes[r.Key]; exists && selected[r.Key] {
				p.invalid(path.Index(i), r.Key, "exists in both matchLabelKeys and labelSelector")
			}
			selected[r.Key] = true
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			p.invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func (p *podProblems) topologySpread(path *field.Path) {
	constraints := p.spec.TopologySpreadConstraints
	for i, c := range constraints {
		path := path.Index(i)
		p.positive(path.Child("maxSkew"), int64(c.MaxSkew))
		if c.TopologyKey == "" {
			p.required(path.Child("topologyKey"), "can not be empty")
		}
		oneOf(&p.problems, path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, corev1.DoNotSchedule,
			corev1.ScheduleAnyway)
		for _, other := range constraints[i+1:] {
			if c.TopologyKey == other.TopologyKey && c.WhenUnsatisfiable == other.WhenUnsatisfiable {
				p.add(field.Duplicate(path.Child("{topologyKey, whenUnsatisfiable}"),
					fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		if n := c.MinDomains; n != nil {
			p.positive(path.Child("minDomains"), int64(*n))
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				p.invalid(path.Child("minDomains"), n, fmt.Sprintf("can only use minDomains if "+
					"whenUnsatisfiable=DoNotSchedule, not %s", c.WhenUnsatisfiable))
			}
		}
		optionalOneOf(&p.problems, path.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy,
			corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		optionalOneOf(&p.problems, path.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor,
			corev1.NodeInclusionPolicyIgnore)
		p.labelKeys(c.MatchLabelKeys, nil, c.LabelSelector, path)
		p.selector(path.Child("labelSelector"), c.LabelSelector)
	}
}
