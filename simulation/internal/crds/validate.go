package crds

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// check returns what is wrong with an object; old is nil for a new object. The order of the checks is the real
// server's. The errors of each check have a random order there, and the order of their fields here.
func (v *version) check(subresource string, obj, old apiserver.Object, warn func(text ...string)) field.ErrorList {
	errs := v.base.Validate(obj, old)
	u := obj.(*unstructured.Unstructured)
	if u.GroupVersionKind() != v.kind {
		return errs // which say so
	}
	c := &change{version: v, content: u.Object, warn: warn}
	if old != nil {
		c.before = old.(*unstructured.Unstructured).Object
	}
	if subresource == "status" {
		errs = append(errs, c.checkStatusSchema()...)
	} else {
		errs = append(errs, c.checkSchema()...)
		errs = append(errs, checkScaleSpec(c.content, v.scale)...)
	}
	errs = append(errs, checkScaleStatus(c.content, v.scale)...)
	if subresource != "status" && v.schema.embedded {
		errs = append(errs,
			sorted(objectmeta.Validate(context.Background(), nil, c.content, v.schema.structural, false))...)
	}
	errs = append(errs, c.checkLists()...)
	return append(errs, c.checkRules(errs)...)
}

// change is a write of an object.
type change struct {
	*version
	content map[string]any
	before  map[string]any // the old content; nil for a new object
	warn    func(text ...string)
}

// correlate finds the old values of unchanged parts, whose errors are tolerated. That takes as long as all checks, so
// objects are checked without it first, and once more if there are errors.
func (c *change) correlate() *common.CorrelatedObject {
	return common.NewCorrelatedObject(c.content, c.before, &model.Structural{Structural: c.schema.structural})
}

func (c *change) checkSchema() field.ErrorList {
	errs := validation.ValidateCustomResource(nil, c.content, c.schema.validator)
	if len(errs) > 0 && c.before != nil {
		errs = validation.ValidateCustomResourceUpdate(nil, c.content, c.before, c.schema.validator,
			validation.WithRatcheting(c.correlate()))
	}
	return sorted(errs)
}

func (c *change) checkStatusSchema() field.ErrorList {
	status, exists := c.content["status"]
	if !exists {
		return nil
	}
	path := field.NewPath("status")
	errs := validation.ValidateCustomResource(path, status, c.schema.status)
	if len(errs) > 0 {
		errs = validation.ValidateCustomResourceUpdate(path, status, c.before["status"], c.schema.status,
			validation.WithRatcheting(c.correlate().Key("status")))
	}
	return sorted(errs)
}

// sorted sorts errors by their fields.
func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// checkLists finds duplicates in lists that are sets or maps. If the old object has any, new ones are tolerated.
func (c *change) checkLists() field.ErrorList {
	if !c.schema.keyed {
		return nil
	}
	errs := sorted(listtype.ValidateListSetsAndMaps(nil, c.schema.structural, c.content))
	if len(errs) > 0 && c.before != nil &&
		len(listtype.ValidateListSetsAndMaps(nil, c.schema.structural, c.before)) > 0 {
		return nil
	}
	return errs
}

// checkRules evaluates the CEL rules, unless errors of the schema could make them fail. Failures of unchanged parts are
// warnings.
func (c *change) checkRules(errs field.ErrorList) field.ErrorList {
	rules := c.schema.rules()
	if rules == nil {
		return nil
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return field.ErrorList{field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors "+
					"to complete validation")}
		}
	}
	var old any // nil for a new object; a nil map would be an empty old object
	if c.before != nil {
		old = c.before
	}
	evaluate := func(ctx context.Context, options ...cel.Option) field.ErrorList {
		failed, _ := rules.Validate(ctx, nil, c.schema.structural, c.content, old, celconfig.RuntimeCELCostBudget,
			options...)
		return failed
	}
	ctx := context.Background()
	failed := evaluate(ctx)
	if len(failed) > 0 && c.before != nil {
		var warnings recorder
		failed = evaluate(warning.WithWarningRecorder(ctx, &warnings), cel.WithRatcheting(c.correlate()))
		slices.Sort(warnings) // the rules of different fields have a random order
		c.warn(warnings...)
	}
	return sorted(failed)
}

// recorder collects the warnings of CEL rules.
type recorder []string

func (r *recorder) AddWarning(_, text string) { *r = append(*r, text) }

// checkScaleSpec checks the fields of the spec that the subresource scale reads.
func checkScaleSpec(content map[string]any, scale *apiextensionsv1.CustomResourceSubresourceScale) field.ErrorList {
	if scale == nil {
		return nil
	}
	return checkReplicas(content, scale.SpecReplicasPath)
}

// checkScaleStatus checks the fields of the status that the subresource scale reads.
func checkScaleStatus(content map[string]any, scale *apiextensionsv1.CustomResourceSubresourceScale) field.ErrorList {
	if scale == nil {
		return nil
	}
	errs := checkReplicas(content, scale.StatusReplicasPath)
	if path := scale.LabelSelectorPath; path != nil {
		if selector, _, err := unstructured.NestedString(content, fieldsOf(*path)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), selector, err.Error()))
		}
	}
	return errs
}

func checkReplicas(content map[string]any, path string) field.ErrorList {
	replicas, _, err := unstructured.NestedInt64(content, fieldsOf(path)...)
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case replicas < 0:
		problem = "should be a non-negative integer"
	case replicas > math.MaxInt32:
		problem = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), replicas, problem)}
}

// fieldsOf returns the fields of a path such as .spec.replicas.
func fieldsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
