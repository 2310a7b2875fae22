package crds

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

type ruleCost struct {
	path *field.Path
	cost uint64
}

// checkRuleTexts checks the texts of CEL rules.
func checkRuleTexts(s *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	multiline := func(text string) bool { return strings.ContainsAny(text, "\n\r") }
	reasons := []string{
		string(apiextensions.FieldValueDuplicate), string(apiextensions.FieldValueForbidden),
		string(apiextensions.FieldValueInvalid), string(apiextensions.FieldValueRequired),
	}
	for i, r := range s.XValidations {
		path := path.Index(i)
		rule, message := strings.TrimSpace(r.Rule), strings.TrimSpace(r.Message)
		switch {
		case rule == "":
			errs = append(errs, field.Required(path.Child("rule"), "rule is not specified"))
		case r.Message != "" && message == "":
			errs = append(errs, field.Invalid(path.Child("message"), r.Message, "must be non-empty if specified"))
		case multiline(message):
			errs = append(errs, field.Invalid(path.Child("message"), r.Message, "must not contain line breaks"))
		case multiline(rule) && message == "":
			errs = append(errs,
				field.Required(path.Child("message"), "message must be specified if rule contains line breaks"))
		}
		if r.MessageExpression != "" && strings.TrimSpace(r.MessageExpression) == "" {
			errs = append(errs,
				field.Required(path.Child("messageExpression"), "messageExpression must be non-empty if specified"))
		}
		if r.Reason != nil && !slices.Contains(reasons, string(*r.Reason)) {
			errs = append(errs, field.NotSupported(path.Child("reason"), *r.Reason, reasons))
		}
		if r.FieldPath == "" {
			continue
		}
		if strings.TrimSpace(r.FieldPath) == "" {
			errs = append(errs, field.Invalid(path.Child("fieldPath"), r.FieldPath, "must be non-empty if specified"))
		}
		if multiline(r.FieldPath) {
			errs = append(errs, field.Invalid(path.Child("fieldPath"), r.FieldPath, "must not contain line breaks"))
		}
		if structural, err := structuralschema.NewStructural(s); err == nil {
			if _, _, err := cel.ValidFieldPath(r.FieldPath, structural); err != nil {
				errs = append(errs, field.Invalid(path.Child("fieldPath"), r.FieldPath, "must be a valid path"))
			}
		}
	}
	return errs
}

// compileRules compiles the CEL rules of a schema, and estimates their costs.
func (c *propsCheck) compileRules(s *apiextensions.JSONSchemaProps, at place) field.ErrorList {
	path := at.path.Child("x-kubernetes-validations")
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(at.structural, at.declared, celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var errs field.ErrorList
	for i, result := range results {
		path, rule := path.Index(i), s.XValidations[i]
		cost := multiply(result.MaxCost, result.MaxCardinality)
		if at.cardinality != nil {
			cost = multiply(result.MaxCost, *at.cardinality)
		}
		if cost > ruleCostLimit {
			errs = append(errs,
				field.Forbidden(path.Child("rule"), tooExpensive("estimated rule cost", cost, ruleCostLimit)))
		}
		c.observe(path.Child("rule"), cost)
		switch err := result.Error; {
		case err == nil:
		case err.Type == apiservercel.ErrorTypeRequired:
			errs = append(errs, field.Required(path.Child("rule"), err.Detail))
		default:
			errs = append(errs, field.Invalid(path.Child("rule"), rule, err.Detail))
		}
		if err := result.MessageExpressionError; err != nil {
			errs = append(errs, field.Invalid(path.Child("messageExpression"), rule, err.Detail))
		} else if result.MessageExpression != nil {
			if result.MessageExpressionMaxCost > ruleCostLimit {
				errs = append(errs, field.Forbidden(path.Child("messageExpression"),
					tooExpensive("estimated messageExpression cost", result.MessageExpressionMaxCost, ruleCostLimit)))
			}
			c.observe(path.Child("messageExpression"), result.MessageExpressionMaxCost)
		}
		switch {
		case result.UsesOldSelf && at.uncorrelatable != nil:
			errs = append(errs, field.Invalid(path.Child("rule"), rule.Rule, fmt.Sprintf("oldSelf cannot be used on "+
				"the uncorrelatable portion of the schema within %v", at.uncorrelatable)))
		case !result.UsesOldSelf && rule.OptionalOldSelf != nil:
			errs = append(errs, field.Invalid(path.Child("optionalOldSelf"), *rule.OptionalOldSelf,
				"may not be set if oldSelf is not used in rule"))
		}
	}
	return errs
}

// observe adds the cost of an expression to the total.
func (c *propsCheck) observe(path *field.Path, cost uint64) {
	if c.total += cost; c.total < cost {
		c.total = math.MaxUint64
	}
	if cost < schemaCostLimit/100 {
		return
	}
	c.expensive = append(c.expensive, ruleCost{path, cost})
	slices.SortStableFunc(c.expensive, func(a, b ruleCost) int {
		if a.cost > b.cost {
			return -1
		}
		return 1
	})
	c.expensive = c.expensive[:min(4, len(c.expensive))]
}

// tooExpensive describes a cost above its limit.
func tooExpensive(what string, cost, limit uint64) string {
	factor := float64(cost) / float64(limit)
	text := fmt.Sprintf("%.1fx", factor)
	switch {
	case factor > 100:
		text = "more than 100x"
	case factor < 1.5:
		text = fmt.Sprintf("%fx", factor)
	}
	return fmt.Sprintf("%s exceeds budget by factor of %s (try simplifying the rule, or adding maxItems, "+
		"maxProperties, and maxLength where arrays, maps, and strings are declared)", what, text)
}
