package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestObjectsAreHandledInParallel(t *testing.T) {
	exampletest.InMemory(t, simulation.Config{})
	namespace := exampletest.Namespace(t)
	for i := range 6 {
		exampletest.CreateConfigMap(t, namespace, fmt.Sprintf("c%d", i), nil)
	}
	const work = 200 * time.Millisecond
	out, stop := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--namespace", namespace, "--workers", "4", "--work", work.String()}, out)
	})
	// c0 changes all the time while it is handled, and other workers are free.
	began := time.Now()
	var last string
	for i := range 40 {
		patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i)
		changed, err := exampletest.Core(t).ConfigMaps(namespace).Patch(t.Context(), "c0", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatalf("change a ConfigMap: %v", err)
		}
		last = changed.ResourceVersion
		if i == 0 {
			out.Wait(t, namespace+"/c0 begin")
		}
	}
	took := time.Since(began)
	out.Wait(t, namespace+"/c0 begin "+last)
	for i := range 6 {
		out.Wait(t, fmt.Sprintf("%s/c%d end", namespace, i))
	}
	// One run for the list, one after another while it changes, and one for the last change.
	if n, most := strings.Count(out.String(), namespace+"/c0 begin"), 3+int(took/work); n > most {
		t.Errorf("40 changes in %s led to %d runs of %s each, want %d at most: changes during a run should lead to one run", took, n, work, most)
	}
	// On a busy machine the first runs may have ended before the others began.
	together := regexp.MustCompile(`(?m)^4 at work: `)
	exampletest.Eventually(t, "4 objects are handled at the same time", func(ctx context.Context) (bool, string) {
		if together.MatchString(out.String()) {
			return true, ""
		}
		for i := range 6 {
			patch := fmt.Appendf(nil, `{"data":{"again":"%d"}}`, time.Now().UnixNano())
			if _, err := exampletest.Core(t).ConfigMaps(namespace).Patch(ctx, fmt.Sprint("c", i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return false, err.Error()
			}
		}
		return false, out.String()
	})
	stop()
	out.Wait(t, "at most 4 objects at once, at most 1 times the same one\n")
}
