package retryrules_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
)

// The table in docs/architecture.md must match Defaults.
func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for class, p := range retryrules.Defaults() {
		row := fmt.Sprintf("| %s | x%v | %s | %.0f %% | no limit |", p.Base, p.Factor, p.Max, p.Jitter*100)
		if p.MaxRetries < 0 {
			row = "| | | | | none |"
		} else if p.MaxRetries > 0 {
			row = fmt.Sprintf("| %s | x%v | %s | %.0f %% | %d |", p.Base, p.Factor, p.Max, p.Jitter*100, p.MaxRetries)
		}
		documented := false
		for line := range strings.Lines(string(page)) {
			documented = documented || strings.Contains(line, "`"+string(class)+"`") && strings.Contains(line, row)
		}
		if !documented {
			t.Errorf("docs/architecture.md has no row for class %s that contains %q", class, row)
		}
	}
}
