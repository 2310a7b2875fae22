package usercode_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestIsNil(t *testing.T) {
	t.Parallel()
	var pod *corev1.Pod
	var obj kube.Object
	for name, test := range map[string]struct {
		v    any
		want bool
	}{
		"nothing":                        {nil, true},
		"an interface without an Object": {obj, true},
		"a nil pointer":                  {pod, true},
		"a nil pointer in an Object":     {kube.Object(pod), true},
		"an object":                      {&corev1.Pod{}, false},
		"a struct":                       {corev1.Pod{}, false},
	} {
		if got := usercode.IsNil(test.v); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
