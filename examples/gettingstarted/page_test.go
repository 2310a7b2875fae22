// Package gettingstarted tests docs/getting-started.md: it runs all commands of the page.
package gettingstarted

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/internal/docs/follow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGettingStarted(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = follow.Page(t.Context(), filepath.Join(root, "docs", "getting-started.md"), follow.Options{
		Dir:    t.TempDir(),
		Env:    []string{"EVENKEEL=" + root},
		Stdout: &out,
		Until:  5 * time.Minute,
	})
	if err != nil {
		t.Fatalf("%v\nthe page's output:\n%s", err, out.String())
	}
}
