package apiobject

import "testing"

func TestCheckSegments(t *testing.T) {
	t.Parallel()
	for _, valid := range []string{"", "a", "a.b", "...", "system:node", "a b", "a..b", "é"} {
		if err := CheckSegments("a", valid); err != nil {
			t.Errorf("%q: %v", valid, err)
		}
		if err := CheckPath("/api/v1/" + valid + "/a"); err != nil {
			t.Errorf("path with %q: %v", valid, err)
		}
	}
	for _, invalid := range []string{".", "..", "a/b", "../a", "/", "a%2fb", "%", "a\nb", "\r", "\x00", "\u0085"} {
		if err := CheckSegments("a", invalid); err == nil {
			t.Errorf("%q: no error", invalid)
		}
	}
	for _, invalid := range []string{"/api/v1/../x", "/api/./v1", "/..", "/api/v1/namespaces/a\nb"} {
		if err := CheckPath(invalid); err == nil {
			t.Errorf("path %q: no error", invalid)
		}
	}
}
