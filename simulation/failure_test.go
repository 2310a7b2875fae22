package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// recordingTB is a testing.TB that records failures in place of failing.
type recordingTB struct {
	testing.TB
	failed   bool
	messages strings.Builder
}

func (r *recordingTB) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(&r.messages, format+"\n", args...)
}

func (r *recordingTB) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recordingTB) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recordingTB) Log(args ...any) { fmt.Fprintln(&r.messages, args...) }

func (r *recordingTB) FailNow() { runtime.Goexit() }

func (r *recordingTB) Failed() bool { return r.failed }

// failureOf returns the output of a test that fails.
func failureOf(t *testing.T, config simulation.Config, f func(tb testing.TB, c *simulation.Cluster)) string {
	t.Helper()
	recording := &recordingTB{}
	synctest.Test(t, func(t *testing.T) {
		var cleanups []func()
		recording.TB = cleanupTB{t, &cleanups}
		ended := make(chan struct{})
		go func() { // waited for below
			defer close(ended)
			defer func() {
				for _, f := range cleanups {
					f()
				}
			}()
			f(recording, simulation.New(recording, config))
		}()
		<-ended
	})
	if !recording.failed {
		t.Error("the test did not fail")
	}
	return recording.messages.String()
}

// cleanupTB keeps the functions of Cleanup.
type cleanupTB struct {
	testing.TB
	cleanups *[]func()
}

func (c cleanupTB) Cleanup(f func()) { *c.cleanups = append(*c.cleanups, f) }

func expectOutput(t *testing.T, output string, contains ...string) {
	t.Helper()
	for _, text := range contains {
		if !strings.Contains(output, text) {
			t.Errorf("the output lacks %q:\n%s", text, output)
		}
	}
}

// A key that is requeued at once, or after a time so short that the virtual time hardly advances.
func TestControllerWithEndlessRequeues(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, time.Nanosecond} {
		for name, await := range map[string]func(*simulation.Cluster){
			"Settle":  (*simulation.Cluster).Settle,
			"Advance": func(c *simulation.Cluster) { c.Advance(time.Hour) },
		} {
			t.Run(fmt.Sprintf("%s/%v", name, delay), func(t *testing.T) {
				t.Parallel()
				continued := false
				output := failureOf(t, simulation.Config{YAML: motto}, func(tb testing.TB, c *simulation.Cluster) {
					c.Run(newCopier(tb, c, func(controller.Handler[*corev1.ConfigMap]) controller.Handler[*corev1.ConfigMap] {
						return func(context.Context, *corev1.ConfigMap) error {
							return controller.RequeueAfter(delay, "poll the vault")
						}
					}))
					await(c)
					continued = true
				})
				if continued {
					t.Errorf("the test continued after %s", name)
				}
				expectOutput(t, output, "stopped copier, which is never idle: copier: default/motto ran 99 times within a second, now because of requeue (poll the vault)",
					"of default/motto: requeue (poll the vault)")
			})
		}
	}
}

func TestControllerThatNeverSettles(t *testing.T) {
	t.Parallel()
	count := func(next controller.Handler[*corev1.ConfigMap]) controller.Handler[*corev1.ConfigMap] {
		return func(ctx context.Context, cm *corev1.ConfigMap) error {
			cm.Data["runs"] = fmt.Sprint(len(cm.Data["runs"]), time.Now())
			if err := next(ctx, cm); err != nil {
				return err
			}
			return controller.RequeueAfter(time.Second, "poll the vault")
		}
	}
	output := failureOf(t, simulation.Config{}, func(tb testing.TB, c *simulation.Cluster) {
		c.Run(newCopier(tb, c, count))
		c.Apply(motto)
		c.Settle()
	})
	expectOutput(t, output,
		"not idle after 10m", "copier: default/motto is delayed, requeue (poll the vault)",
		"copier: apply secrets default/motto (", "the latest runs of copier:", "of default/motto: requeue (poll the vault) -> ")
}

// A client that writes as fast as it can must not stop virtual time.
func TestWriteLoopWithoutDelay(t *testing.T) {
	t.Parallel()
	output := failureOf(t, simulation.Config{}, func(_ testing.TB, c *simulation.Cluster) {
		c.Apply(motto)
		c.Go("loop", func(ctx context.Context) error {
			for n := 0; ctx.Err() == nil; n++ {
				simulation.Edit(c, "default/motto", "", func(cm *corev1.ConfigMap) { cm.Data["n"] = fmt.Sprint(n) }) //nolint:contextcheck // it has the test's
			}
			return nil
		})
		c.Settle()
	})
	expectOutput(t, output, "not idle after", "writes", "test: update configmaps default/motto (40 times")
}

func TestProgramError(t *testing.T) {
	t.Parallel()
	output := failureOf(t, simulation.Config{}, func(_ testing.TB, c *simulation.Cluster) {
		c.Go("broken", func(context.Context) error { return os.ErrPermission })
		c.Settle()
	})
	expectOutput(t, output, "broken ended: permission denied")
}

func TestFatalDuringRun(t *testing.T) {
	t.Parallel()
	output := failureOf(t, simulation.Config{}, func(tb testing.TB, c *simulation.Cluster) {
		c.Run(newCopier(tb, c))
		c.Apply(motto)
		c.Settle()
		tb.Fatal("no")
	})
	expectOutput(t, output, "no\n", "run 1 of default/motto: ", "test: apply configmaps default/motto")
}

func TestExpectedFieldsThatDiffer(t *testing.T) {
	t.Parallel()
	output := failureOf(t, simulation.Config{}, func(_ testing.TB, c *simulation.Cluster) {
		c.Apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {example.com/tier: front}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: side, image: "side:1"}, {name: web, image: "web:1", args: [a, b]}]
`)
		c.Expect(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {example.com/tier: back}}
spec:
  replicas: 3
  paused: null
  selector: {matchLabels: {app: web}}
  template: {spec: {containers: [{name: web, image: "web:2", args: [a]}, {name: log}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: web}
`)
		simulation.ExpectGone[*corev1.Secret](c, "default/web")
		simulation.Get[*corev1.Secret](c, "default/motto")
	})
	expectOutput(t, output, `Deployment default/web differs:
	metadata.labels[example.com/tier]: "front", want "back"
	spec.replicas: 2, want 3
	spec.template.spec.containers[web].args: ["a","b"], want ["a"]
	spec.template.spec.containers[web].image: "web:1", want "web:2"
	spec.template.spec.containers[log]: none, want {"name":"log"}
`, `secrets "web" not found`, `secrets "motto" not found; existing: none`)
}

func TestInvalidManifests(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\n",
		"b.yaml": "a: b\na: c\n",
		"c.json": `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.example.com"}, "spec": {}}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output := failureOf(t, simulation.Config{Manifests: []string{folder, "missing.yaml"}}, func(testing.TB, *simulation.Cluster) {})
	expectOutput(t, output, "missing.yaml: no such file")
	output = failureOf(t, simulation.Config{Manifests: []string{folder}}, func(testing.TB, *simulation.Cluster) {})
	expectOutput(t, output, "a.yaml, document 1: ConfigMap without metadata.name", `b.yaml, document 1: `, `key "a" already set in map`, "c.json, document 1: apply CustomResourceDefinition a.example.com: ", "spec.group")
}

// A comparison with nothing would always succeed.
func TestYAMLWithoutObjects(t *testing.T) {
	t.Parallel()
	output := failureOf(t, simulation.Config{}, func(_ testing.TB, c *simulation.Cluster) { c.Expect("---\n# nothing\n") })
	expectOutput(t, output, "the YAML text has no object")
}

// A controller that cannot list its objects is idle, so only the report shows why it did nothing.
func TestUnreadyControllerIsReported(t *testing.T) {
	t.Parallel()
	output := failureOf(t, simulation.Config{}, func(tb testing.TB, c *simulation.Cluster) {
		c.Intercept(func(r simulation.Request, _ func()) error {
			if r.UserAgent == "copier" && !r.IsWrite() {
				return apierrors.NewForbidden(r.Resource.GroupResource(), "", errors.New("no role"))
			}
			return nil
		})
		c.Run(newCopier(tb, c))
		c.Apply(motto)
		c.Settle()
		simulation.Get[*corev1.Secret](c, "default/motto")
	})
	expectOutput(t, output, "copier is not ready: ", "no role", "copier has not run a handler")
}

func TestServeInBubble(t *testing.T) {
	t.Parallel()
	output := failureOf(t, simulation.Config{}, func(_ testing.TB, c *simulation.Cluster) { c.Serve() })
	expectOutput(t, output, "Serve needs real time")
}

// A handler that never returns must end the test with its stack, not with the timeout of the test binary.
func TestHandlerThatBlocksForever(t *testing.T) {
	t.Parallel()
	const env = "SIMULATION_BLOCKED_HANDLER"
	if os.Getenv(env) == "" {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHandlerThatBlocksForever$")
		command.Env = append(os.Environ(), env+"=1")
		output, err := command.CombinedOutput()
		if err == nil {
			t.Error("the test passed")
		}
		expectOutput(t, string(output), "default/motto is processing",
			"copier ended: ", "still running after the drain time: handlers of default/motto", "blockForever", "failure_test.go")
		return
	}
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Run(newCopier(t, c, blockForever))
		c.Apply(motto)
		c.Settle()
	})
}

// The watchdog of a test ends with it, also if the test ends in the middle.
func TestWatchdogEndsWithFailedTest(t *testing.T) {
	t.Parallel()
	const env, ended = "SIMULATION_FAILED_TEST", "the watchdog has ended"
	if os.Getenv(env) == "" {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWatchdogEndsWithFailedTest$", "-test.v")
		command.Env = append(os.Environ(), env+"=1")
		output, err := command.CombinedOutput()
		if err == nil {
			t.Error("the test passed")
		}
		expectOutput(t, string(output), "a watchdog watches", ended)
		return
	}
	watched := func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*watchdog).watch(")
	}
	t.Cleanup(func() {
		if !watched() {
			t.Log(ended)
		}
	})
	simulation.Test(t, simulation.Config{}, func(t *testing.T, _ *simulation.Cluster) {
		if watched() {
			t.Log("a watchdog watches")
		}
		t.FailNow()
	})
}

func blockForever(controller.Handler[*corev1.ConfigMap]) controller.Handler[*corev1.ConfigMap] {
	return func(context.Context, *corev1.ConfigMap) error {
		<-make(chan struct{})
		return nil
	}
}
