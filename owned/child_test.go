package owned

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// A Child may stand among objects: as a value or a pointer, with its own wave or that of the call.
func TestChildKeepsSettingsAmongObjects(t *testing.T) {
	t.Parallel()
	config, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	for name, test := range map[string]struct {
		object     kube.Object
		wave       int
		want       kube.Object
		createOnly bool
	}{
		"object":            {config, 1, config, false},
		"child":             {Child{Object: secret, CreateOnly: true}, 1, secret, true},
		"child with a wave": {Child{Object: secret, CreateOnly: true, Wave: 2}, 2, secret, true},
		"pointer":           {&Child{Object: secret, CreateOnly: true}, 1, secret, true},
		"nil":               {nil, 1, nil, false},
		"empty child":       {Child{}, 1, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Wave(1, config, test.object)[1]
			if got.Object != test.want || got.Wave != test.wave || got.CreateOnly != test.createOnly {
				t.Errorf("Wave returned %s", fmt.Sprintf("%T, wave %d, create-only %t", got.Object, got.Wave, got.CreateOnly))
			}
		})
	}
}
