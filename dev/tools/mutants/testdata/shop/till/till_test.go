package till

import (
	"os"
	"testing"

	"example.com/shop/price"
)

func TestLabel(t *testing.T) {
	if got := price.Label("a"); got != "A" {
		t.Errorf("got %q", got)
	}
}

// TestSecondRun fails on its second run, as a test with a cluster may on a busy machine. The file counts the runs.
func TestSecondRun(t *testing.T) {
	price.Discount(1)
	name := os.Getenv("SHOP_RUNS")
	if name == "" {
		return
	}
	runs, _ := os.ReadFile(name)
	runs = append(runs, 'x')
	if err := os.WriteFile(name, runs, 0o600); err != nil {
		t.Fatal(err)
	}
	if len(runs) == 2 {
		t.Error("second run")
	}
}
