package leader

import (
	"os/exec"
	"strings"
	"testing"
)

// client-go's typed clients link the types of all of k8s.io/api, which made a program 18 MB larger.
func TestTypedClientsAreNotLinked(t *testing.T) {
	t.Parallel()
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(listed)) {
		for _, banned := range []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/applyconfigurations"} {
			if strings.HasPrefix(path, banned) {
				t.Errorf("package leader links %s", path)
			}
		}
	}
}
