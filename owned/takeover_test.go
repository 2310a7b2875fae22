package owned

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A child is taken over once for each list of former managers.
func TestMustTakeOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		former     []string
		annotation string
		createOnly bool
		want       bool
	}{
		"no former managers":        {nil, "", false, false},
		"former managers removed":   {nil, "old", false, false},
		"not taken over yet":        {[]string{"old"}, "", false, true},
		"taken over":                {[]string{"old"}, "old", false, false},
		"another manager was added": {[]string{"old", "older"}, "old", false, true},
		"only created":              {[]string{"old"}, "", true, false},
		"only created before":       {[]string{"old"}, "older", true, false},
	} {
		p := &pass{set: &Set{config: Config{Former: Former{Managers: test.former}}}}
		live := &metav1.PartialObjectMetadata{}
		live.Annotations = map[string]string{annotationTakenOver: test.annotation}
		if got := p.mustTakeOver(&item{Child: Child{CreateOnly: test.createOnly}}, live); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
