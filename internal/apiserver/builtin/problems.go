package builtin

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	isNegative  = "must be greater than or equal to 0"
	isImmutable = "field is immutable"
)

// problems collects what is wrong with an object, in the order in which the real server reports it.
type problems struct{ list field.ErrorList }

func (p *problems) add(errs ...*field.Error) { p.list = append(p.list, errs...) }

func (p *problems) invalid(path *field.Path, value any, detail string) {
	p.add(field.Invalid(path, value, detail))
}

// invalidFor adds an error for each message about a value.
func (p *problems) invalidFor(path *field.Path, value any, messages []string) {
	for _, message := range messages {
		p.invalid(path, value, message)
	}
}

func (p *problems) required(path *field.Path, detail string) { p.add(field.Required(path, detail)) }

func (p *problems) forbidden(path *field.Path, detail string) { p.add(field.Forbidden(path, detail)) }

// nonEmpty reports whether a required text is there.
func (p *problems) nonEmpty(path *field.Path, value string) bool {
	if value == "" {
		p.required(path, "")
	}
	return value != ""
}

func (p *problems) nonNegative(path *field.Path, value int64) {
	if value < 0 {
		p.invalid(path, value, isNegative)
	}
}

// nonNegativePointer is nonNegative for an optional number.
func nonNegativePointer[T int32 | int64](p *problems, path *field.Path, value *T) {
	if value != nil {
		p.nonNegative(path, int64(*value))
	}
}

func (p *problems) positive(path *field.Path, value int64) {
	if value <= 0 {
		p.invalid(path, value, "must be greater than zero")
	}
}

func (p *problems) immutable(path *field.Path, value, old any) {
	if !equality.Semantic.DeepEqual(value, old) {
		p.invalid(path, value, isImmutable)
	}
}

func (p *problems) dnsLabel(path *field.Path, value string) {
	p.invalidFor(path, value, utilvalidation.IsDNS1123Label(value))
}

// requiredLabel checks a required name that is a DNS label.
func (p *problems) requiredLabel(path *field.Path, value string) {
	if p.nonEmpty(path, value) {
		p.dnsLabel(path, value)
	}
}

func (p *problems) selector(path *field.Path, selector *metav1.LabelSelector) {
	p.add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)...)
}

// oneOf checks a value of an enumeration, and reports whether it is one.
func oneOf[T ~string](p *problems, path *field.Path, value T, valid ...T) bool {
	if slices.Contains(valid, value) {
		return true
	}
	p.add(field.NotSupported(path, value, valid))
	return false
}

// requiredOneOf is oneOf for a value that has a default: an empty one is missing.
func requiredOneOf[T ~string](p *problems, path *field.Path, value T, valid ...T) {
	if p.nonEmpty(path, string(value)) {
		oneOf(p, path, value, valid...)
	}
}

// optionalOneOf is oneOf for a value that may be nil.
func optionalOneOf[T ~string](p *problems, path *field.Path, value *T, valid ...T) {
	if value != nil {
		oneOf(p, path, *value, valid...)
	}
}

// names finds duplicates in a list.
type names map[string]bool

// unique adds an error if a name was added before.
func (n names) unique(p *problems, path *field.Path, name string) {
	if n[name] {
		p.add(field.Duplicate(path, name))
	}
	n[name] = true
}

// intOrPercent checks that a value is a number that is not negative, or a percentage.
func (p *problems) intOrPercent(path *field.Path, value intstr.IntOrString) {
	if value.Type == intstr.String {
		p.invalidFor(path, value, utilvalidation.IsValidPercent(value.StrVal))
		return
	}
	p.nonNegative(path, int64(value.IntVal))
}

// atMost100Percent checks that a valid percentage is not greater than 100.
func (p *problems) atMost100Percent(path *field.Path, value intstr.IntOrString) {
	if value.Type == intstr.String && len(utilvalidation.IsValidPercent(value.StrVal)) == 0 && amount(value) > 100 {
		p.invalid(path, value, "must not be greater than 100%")
	}
}

// amount returns the number, or the number of percents.
func amount(value intstr.IntOrString) int {
	if value.Type == intstr.String && len(utilvalidation.IsValidPercent(value.StrVal)) == 0 {
		value = intstr.Parse(value.StrVal[:len(value.StrVal)-1])
	}
	return value.IntValue()
}

// sortedKeys returns the keys of a map in order. The real server checks maps in random order.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
