// Package pages follows pages of the docs: it runs all their commands.
package pages

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/dev/internal/docs/follow"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGettingStarted(t *testing.T) {
	root := repository(t)
	var out bytes.Buffer
	err := follow.Page(t.Context(), filepath.Join(root, "docs", "getting-started.md"), options(t, root, &out))
	if err != nil {
		t.Fatalf("%v\nthe page's output:\n%s", err, out.String())
	}
}

// From a kind with one version to two, and back.
func TestConversion(t *testing.T) {
	root := repository(t)
	var out bytes.Buffer
	err := follow.Page(t.Context(), filepath.Join(root, "docs", "conversion.md"), options(t, root, &out))
	if err != nil {
		t.Fatalf("%v\nthe page's output:\n%s", err, out.String())
	}
}

func repository(t *testing.T) (path string) {
	t.Helper()
	testlength.OnlyLong(t)
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func options(t *testing.T, root string, out *bytes.Buffer) follow.Options {
	t.Helper()
	return follow.Options{Dir: t.TempDir(), Env: []string{"EVENKEEL=" + root}, Stdout: out, Until: 5 * time.Minute}
}
