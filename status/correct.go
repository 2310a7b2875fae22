package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// maxType is the limit of the API server for the type of a condition, in bytes.
const maxType = 316

// correctConditions corrects the conditions in the status to of obj that differ from those in from, as Set does: the
// API server would reject the whole status for one of them. It leaves out the changes of conditions that it cannot
// correct. invalid names these.
func correctConditions(obj kube.Object, from, to map[string]any) (invalid error) {
	before, _ := conditionList(from)
	after, listed := conditionList(to)
	_, untyped := obj.(runtime.Unstructured)
	if !listed || len(after) == 0 || !untyped && !hasConditions(obj) {
		return nil
	}
	var errs []error
	seen, kept := map[string]int{}, make([]any, 0, len(after))
	for i, entry := range after {
		conditionType := typeOf(entry)
		olds, n := allOf(before, conditionType), seen[conditionType]
		seen[conditionType]++
		var old condition
		if n < len(olds) {
			old = olds[n]
		}
		if !reflect.DeepEqual(old, entry) {
			var err error
			if n > 0 && old == nil {
				err = fmt.Errorf("there are two of type %q: remove one", usercode.ShortenTo(conditionType, 128))
			} else {
				entry, err = correctedEntry(entry, old, untyped)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("status.conditions[%d] was not written: %w", i, err))
				entry = old
			}
		}
		if entry != nil {
			kept = append(kept, entry)
		}
	}
	to[conditionsField] = kept
	return retry.WithClass(errors.Join(errs...), retry.Invalid)
}

// hasConditions reports whether status.conditions of a Go type are metav1.Conditions. Others have other limits.
func hasConditions(obj kube.Object) bool {
	t := reflect.TypeOf(obj)
	for _, name := range []string{"Status", "Conditions"} {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return false
		}
		field, ok := t.FieldByName(name)
		if !ok {
			return false
		}
		t = field.Type
	}
	return t == reflect.TypeFor[[]metav1.Condition]()
}

// correctedEntry returns a valid condition. A condition without a Go type may be of a kind that requires less of it, so
// only its texts are corrected.
func correctedEntry(entry, old condition, untyped bool) (condition, error) {
	var c metav1.Condition
	if encoded, err := json.Marshal(entry); err != nil || json.Unmarshal(encoded, &c) != nil {
		return entry, nil //nolint:nilerr // not a metav1.Condition: the API server decides
	}
	fixed := corrected(c)
	switch {
	case c.Type == "":
		return nil, errors.New("it has no type: set one")
	case !untyped && !isType(c.Type):
		return nil, fmt.Errorf("its type %q is not a qualified name", usercode.ShortenTo(c.Type, 128))
	case fixed.Status != metav1.ConditionTrue && fixed.Status != metav1.ConditionFalse &&
		fixed.Status != metav1.ConditionUnknown && !untyped:
		return nil, fmt.Errorf("%s: its status %q is not True, False or Unknown", c.Type,
			usercode.ShortenTo(string(c.Status), 128))
	}
	set := func(name, value, corrected string) {
		if value != corrected {
			entry[name] = corrected
		}
	}
	set("message", c.Message, fixed.Message)
	if c.Reason != "" || !untyped {
		set("reason", c.Reason, fixed.Reason)
	}
	if untyped {
		return entry, nil
	}
	set("status", string(c.Status), string(fixed.Status))
	if fixed.ObservedGeneration != c.ObservedGeneration {
		delete(entry, observedField)
	}
	if c.LastTransitionTime.IsZero() {
		entry[sinceField] = now().UTC().Format(time.RFC3339)
		if since := old[sinceField]; since != nil && old["status"] == entry["status"] {
			entry[sinceField] = since
		}
	}
	return entry, nil
}

// isType reports whether the API server accepts the type of a condition: a name of letters, digits, "-", "_" and ".",
// maybe after a domain and a "/".
func isType(text string) bool {
	domain, name, qualified := strings.Cut(text, "/")
	if !qualified {
		domain, name = "", text
	}
	digitOrLetter := func(r byte) bool { return isLetter(rune(r)) || '0' <= r && r <= '9' }
	return len(text) <= maxType && (!qualified || validation.IsDNS1123Subdomain(domain) == nil) && name != "" &&
		digitOrLetter(name[0]) && digitOrLetter(name[len(name)-1]) &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r > 127 || !digitOrLetter(byte(r)) && !strings.ContainsRune("-_.", r)
		})
}
