package apiserver

import (
	"strings"
	"testing"
)

func TestFieldManager(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ parameter, userAgent, want string }{
		{"m", "kubectl/v1", "m"},
		{"", "kubectl/v1.36 (linux)", "kubectl"},
		{"", "a\x07b", "ab"},
		{"", strings.Repeat("é", 100), strings.Repeat("é", 64)},
	} {
		if name := fieldManager(test.parameter, test.userAgent); name != test.want {
			t.Errorf("fieldManager(%q, %q) = %q, want %q", test.parameter, test.userAgent, name, test.want)
		}
	}
}
