package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

func TestMain(m *testing.M) { exampletest.Main(m, localcluster.Config{}, nil) }

func TestDifferentObjectsAreHandledTogetherAndNoneTwiceAtOnce(t *testing.T) {
	namespace := exampletest.Namespace(t)
	for i := range 6 {
		exampletest.CreateConfigMap(t, namespace, fmt.Sprintf("c%d", i), nil)
	}
	out, stop := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--namespace", namespace, "--workers", "4", "--work", "200ms"}, out)
	})
	// c0 changes all the time while it is handled: a second worker would be free for it.
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
	out.Wait(t, namespace+"/c0 begin "+last)
	for i := range 6 {
		out.Wait(t, fmt.Sprintf("%s/c%d end", namespace, i))
	}
	stop()
	out.Wait(t, "at most 4 objects at once, at most 1 times the same one\n")
	if n := strings.Count(out.String(), namespace+"/c0 begin"); n > 20 {
		t.Errorf("40 quick changes led to %d runs: those that come during a run should be one", n)
	}
	if !regexp.MustCompile(`(?m)^4 at work: `).MatchString(out.String()) {
		t.Errorf("never were 4 objects handled at the same time:\n%s", out)
	}
}
