package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/examples/internal/manifest"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// The cluster of TestMain exists before the demo, which must not change it.
func TestMain(m *testing.M) {
	exampletest.Main(m, localcluster.Config{Controllers: true, Nodes: 1}, nil)
}

func TestOncePrintsFigures(t *testing.T) {
	testlength.OnlyLong(t)
	out := exampletest.NewOutput()
	if err := run(t.Context(), []string{"--once", "--timeout", "5m"}, out); err != nil {
		t.Fatalf("the demo failed: %v\n%s", err, out)
	}
	// Five rounds of two Pods each. But if Pods heal more slowly than rounds begin, a round ends fewer Pods, and
	// another round may begin before the observer has seen the fifth.
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var rounds, ended, healed int
	n, err := fmt.Sscanf(lines[len(lines)-1], "demo: %d rounds, %d pods terminated, %d healed, 0 errors", &rounds, &ended, &healed)
	if err != nil || n != 3 || rounds < 5 || ended < 5 || ended > 2*rounds || healed != ended {
		t.Errorf("the last line is %q\n%s", lines[len(lines)-1], out)
	}
	told := func(kind string) int {
		happening := regexp.MustCompile(`^ *\d+\.\ds  ` + kind + ` `)
		return len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !happening.MatchString(l) }))
	}
	for kind, want := range map[string]int{kindEnded: ended, kindHealed: healed, kindProblem: 0} {
		if n := told(kind); n != want {
			t.Errorf("%d events of kind %s were printed, want %d\n%s", n, kind, want, out)
		}
	}
	// The log may contain that the machine is slow, but no errors.
	worse := regexp.MustCompile(`(?m)^ *\d+\.\ds  ` + kindLog + ` .*(level=ERROR|hot-loop|panic).*$`)
	if line := worse.FindString(out.String()); line != "" {
		t.Errorf("unexpected log line: %s", line)
	}
	if n := told(kindRound); n < 1 || n > rounds { // if two rounds end shortly after each other, only the later one is printed
		t.Errorf("%d of %d rounds were printed\n%s", n, rounds, out)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("the output has colors, but is not a terminal:\n%s", out)
	}
}

func TestInterruptedDemoCleansUpExistingCluster(t *testing.T) {
	exampletest.AnyCluster(t, simulation.Config{})
	before := namespaces(t)
	out, stop := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--kubeconfig", exampletest.Kubeconfig(t)}, out)
	})
	out.Wait(t, " healed ")
	out.Wait(t, "  round ")
	stop()
	if !regexp.MustCompile(`\ndemo: [1-9]\d* rounds, [1-9]\d* pods terminated, [1-9]\d* healed, 0 errors\n$`).MatchString(out.String()) {
		t.Errorf("the last line has no figures:\n%s", out)
	}
	if after := namespaces(t); !slices.Equal(before, after) {
		t.Errorf("namespaces are %v after the demo, were %v", after, before)
	}
	cluster, err := kube.Connect(exampletest.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := manifest.Client(cluster)
	if err != nil {
		t.Fatal(err)
	}
	definition := kube.Key{Name: "podterminators.chaos.evenkeel.dev"}
	if _, err := client.Get[*apiextensionsv1.CustomResourceDefinition](t.Context(), c, definition); !errors.Is(err, client.ErrGone) {
		t.Errorf("get the CustomResourceDefinition after the demo: %v, want not found", err)
	}
	if _, err := exampletest.Core(t).Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the cluster has changed: %v", err)
	}
}

func TestInterruptedSetUpCleansUp(t *testing.T) {
	exampletest.AnyCluster(t, simulation.Config{})
	before := namespaces(t)
	out, stop := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return run(ctx, []string{"--kubeconfig", exampletest.Kubeconfig(t)}, &interruption{out, "8 Pods run\n", cancel}) // the PodTerminator does not exist yet
	})
	out.Wait(t, "\ndemo: ")
	stop()
	for _, hint := range []string{"kubectl delete namespace evenkeel-demo-", "kubectl delete crd podterminators.", "(interrupted: cleaning up"} {
		if !strings.Contains(out.String(), hint) {
			t.Errorf("the output lacks %q:\n%s", hint, out)
		}
	}
	if !strings.HasSuffix(out.String(), "\ndemo: interrupted before the first round\n") {
		t.Errorf("the last line does not say that it was interrupted:\n%s", out)
	}
	if after := namespaces(t); !slices.Equal(before, after) {
		t.Errorf("namespaces are %v after the demo, were %v", after, before)
	}
}

func TestOnlyErrorsOfInterruptAreIgnored(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		once bool
		err  error
		want error
	}{
		"interrupted":             {err: fmt.Errorf("wait: %w", context.Canceled)},
		"failed, and interrupted": {err: broken, want: broken},
		"interrupted with --once": {once: true, err: context.Canceled, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (options{once: tt.once}).ignoreInterrupt(ctx, tt.err); !errors.Is(got, tt.want) {
				t.Errorf("ignoreInterrupt(%v) is %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}

func TestErrorContainsOperatorFailures(t *testing.T) {
	d := &demo{options: options{timeout: 10 * time.Millisecond}, printer: newPrinter(io.Discard), observer: &observer{}}
	if err := d.problem(); err != nil {
		t.Errorf("before the first run: %v", err)
	}
	broken := errors.New("broken")
	failing := d.printRuns(func(context.Context, *v1alpha1.PodTerminator) error {
		return broken
	})
	if err := failing(t.Context(), &v1alpha1.PodTerminator{}); !errors.Is(err, broken) {
		t.Fatalf("the middleware returned %v, want the handler's error", err)
	}
	if err := d.problem(); !errors.Is(err, broken) {
		t.Errorf("the error of --once is %v, want the operator's error", err)
	}
	_, err := d.untilObserved(t.Context(), "see a round", func(observations) bool { return false })
	if !errors.Is(err, broken) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error of a wait is %v, want one with the operator's error", err)
	}
}

func TestOnceInterruptedIsAnError(t *testing.T) {
	exampletest.AnyCluster(t, simulation.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := exampletest.NewOutput()
	ended := make(chan error, 1)
	go func() { // waited for below
		ended <- run(ctx, []string{"--once", "--kubeconfig", exampletest.Kubeconfig(t)}, &interruption{out, " healed ", cancel})
	}()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that it was cancelled\n%s", err, out)
	}
}

func TestTimeoutIsAnError(t *testing.T) {
	testlength.OnlyLong(t)
	var err error
	for _, timeout := range []string{"3s", "20s", "90s"} { // a busy machine may need longer for the steps before
		var out *exampletest.Output
		if out, err = runBare(t, timeout); strings.Contains(out.String(), "\ndemo: ") {
			t.Errorf("figures were printed nevertheless:\n%s", out)
		}
		if err != nil && strings.Contains(err.Error(), "wait for Deployment") && strings.Contains(err.Error(), "the controller has not processed it yet") {
			return
		}
	}
	t.Errorf("the error is %v; want that the Deployment has no Pods", err)
}

// runBare runs the demo on a cluster that does not run Pods.
func runBare(t *testing.T, timeout string) (*exampletest.Output, error) {
	t.Helper()
	bare, err := localcluster.Start(t.Context(), localcluster.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bare.Stop(); err != nil {
			t.Error(err)
		}
	}()
	out := exampletest.NewOutput()
	return out, run(t.Context(), []string{"--once", "--timeout", timeout, "--kubeconfig", bare.Kubeconfig()}, out)
}

func TestInvalidArguments(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"an unknown flag":     {args: []string{"--twice"}, want: "-twice"},
		"no such kubeconfig":  {args: []string{"--kubeconfig", filepath.Join(t.TempDir(), "none")}, want: "none"},
		"an empty kubeconfig": {args: []string{"--kubeconfig", emptyFile(t)}, want: "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := run(ctx, tt.args, exampletest.NewOutput())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one that names %q", err, tt.want)
			}
		})
	}
}

// interruption writes to out, and interrupts when a text is written, before the writer continues.
type interruption struct {
	out       io.Writer
	at        string
	interrupt func()
}

// Write implements io.Writer.
func (i *interruption) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.at) {
		i.interrupt()
	}
	return i.out.Write(p)
}

func emptyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func namespaces(t *testing.T) []string {
	t.Helper()
	list, err := exampletest.Core(t).Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("list namespaces: %v", err)
	}
	var names []string
	for _, namespace := range list.Items {
		if !strings.HasPrefix(namespace.Name, "kube-") { // the API server creates these at any time
			names = append(names, namespace.Name)
		}
	}
	return names
}
