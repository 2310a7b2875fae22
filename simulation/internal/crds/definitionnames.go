package crds

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// others returns the other definitions of a group.
func others(
	s *apiserver.Server, crd *apiextensionsv1.CustomResourceDefinition,
) []*apiextensionsv1.CustomResourceDefinition {
	var found []*apiextensionsv1.CustomResourceDefinition
	for _, obj := range s.Objects(definitionsResource()) {
		if other := definition(obj); other.Spec.Group == crd.Spec.Group && other.Name != crd.Name {
			found = append(found, other)
		}
	}
	return found
}

// acceptNames accepts the names of a definition that no other definition of the group has. It reports whether it
// changed the definition.
func (d *definitions) acceptNames(s *apiserver.Server, crd *apiextensionsv1.CustomResourceDefinition) bool {
	want, accepted := crd.Spec.Names, crd.Status.AcceptedNames
	if equality.Semantic.DeepEqual(want, accepted) {
		return false
	}
	var resources, kinds []string
	for _, other := range append(others(s, crd), crd) {
		names := other.Status.AcceptedNames
		resources = append(append(resources, names.Plural, names.Singular), names.ShortNames...)
		kinds = append(kinds, names.Kind, names.ListKind)
	}
	status, reason, message := true, "NoConflicts", "no conflicts found"
	accept := func(want string, accepted *string, used []string, conflict string) {
		if want != *accepted && slices.Contains(used, want) {
			status, reason, message = false, conflict, inUse(want)
			return
		}
		*accepted = want
	}
	accept(want.Plural, &accepted.Plural, resources, "PluralConflict")
	accept(want.Singular, &accepted.Singular, resources, "SingularConflict")
	var conflicts []string
	for _, name := range want.ShortNames {
		if !slices.Contains(accepted.ShortNames, name) && slices.Contains(resources, name) {
			conflicts = append(conflicts, inUse(name))
		}
	}
	switch len(conflicts) {
	case 0:
		accepted.ShortNames = want.ShortNames
	case 1:
		status, reason, message = false, "ShortNamesConflict", conflicts[0]
	default:
		status, reason, message = false, "ShortNamesConflict", "["+strings.Join(conflicts, ", ")+"]"
	}
	accept(want.Kind, &accepted.Kind, kinds, "KindConflict")
	accept(want.ListKind, &accepted.ListKind, kinds, "ListKindConflict")
	accepted.Categories = want.Categories

	changed := crd.DeepCopy()
	changed.Status.AcceptedNames = accepted
	setCondition(changed, apiextensionsv1.NamesAccepted, status, reason, message)
	established := slices.ContainsFunc(crd.Status.Conditions,
		func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established
		})
	switch {
	case hasCondition(crd, apiextensionsv1.Established):
	case status:
		setCondition(changed, apiextensionsv1.Established, false, "Installing", "the initial names have been accepted")
	case !established:
		setCondition(changed, apiextensionsv1.Established, false, "NotAccepted", "not all names are accepted")
	}
	if reflect.DeepEqual(changed.Status, crd.Status) {
		return false
	}
	updateStatus(s, changed)
	return true
}

func inUse(name string) string { return fmt.Sprintf("%q is already in use", name) }
