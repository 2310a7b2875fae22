package simulation_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func patternNamed(t *testing.T, name string) bugPattern {
	t.Helper()
	all := bugPatterns()
	i := slices.IndexFunc(all, func(b bugPattern) bool { return b.name == name })
	if i < 0 {
		t.Fatalf("no pattern is named %q", name)
	}
	return all[i]
}

const markedTooEarly = "marked as done before it is done"

var update = flag.Bool("update", false, "write testdata/explore.txt") //nolint:gochecknoglobals // a flag

// The report is in docs/exploration.md.
func TestExploreReportsFinding(t *testing.T) {
	t.Parallel()
	b := patternNamed(t, markedTooEarly)
	failures := simulation.Failures(t, b.scenario(b.buggy, 0))
	if len(failures) != 1 {
		t.Fatalf("%d failures, want one: %q", len(failures), failures)
	}
	const file = "testdata/explore.txt"
	got := failures[0] + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the report differs from %s, which -update writes (-want +got):\n%s", file, diff)
	}
}

// The line of the report repeats the run, and no other one.
func TestExploreRepeatsRun(t *testing.T) {
	b := patternNamed(t, markedTooEarly)
	t.Setenv("EVENKEEL_EXPLORE", "crash-after:apps:1")
	failures := simulation.Failures(t, b.scenario(b.buggy, 0))
	if len(failures) != 1 || !strings.Contains(failures[0], "The rule was broken in 1 of 5 runs") {
		t.Errorf("failures %q, want one in one of the 5 runs, of which 4 have no fault", failures)
	}
	t.Setenv("EVENKEEL_EXPLORE", "crash-before:apps:1")
	if failures := simulation.Failures(t, b.scenario(b.buggy, 0)); len(failures) > 0 {
		t.Errorf("a crash before the creation fails: %q", failures)
	}
	t.Setenv("EVENKEEL_EXPLORE", "crash:apps:1")
	if failures := simulation.Failures(t, b.scenario(b.buggy, 0)); len(failures) != 1 || !strings.Contains(failures[0], `the kind "crash" is unknown`) {
		t.Errorf("failures %q, want that the kind is unknown", failures)
	}
}

// Random plans find a bug that needs two faults, and the report has only these.
func TestExploreShrinksPlan(t *testing.T) {
	t.Parallel()
	// The handler survives one crash, and gives up after the second one.
	scenario := bugPattern{steps: steps(createApp)}.scenario(func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
		for _, name := range []string{"a", "b", "c", "d"} {
			if p.cached(name) == nil {
				if err := ignoreExists(p.create(ctx, child(app, name, nil))); err != nil {
					return err
				}
			}
		}
		return nil
	}, 60)
	starts := func() simulation.Scenario {
		s, count := scenario(), 0
		run := s.Programs["apps"]
		s.Programs["apps"] = func(ctx context.Context, config *rest.Config) error {
			if count++; count == 3 {
				return errors.New("started three times")
			}
			return run(ctx, config)
		}
		s.Finally = func(context.Context, *simulation.Cluster) error {
			count = 10 // the restart of an idle program is not a fault
			return nil
		}
		return s
	}
	failures := simulation.Failures(t, starts)
	if len(failures) != 1 || !strings.HasPrefix(failures[0], "apps ended: started three times (") {
		t.Fatalf("failures %q, want one: the program ends when it is started for the third time", failures)
	}
	_, plan, _ := strings.Cut(failures[0], "Repeat: EVENKEEL_EXPLORE=")
	plan, _, _ = strings.Cut(plan, " ")
	if n := strings.Count(plan, "crash"); n != 2 || strings.Count(plan, ",") != 1 {
		t.Errorf("the plan %q has %d crashes, want two, and nothing else", plan, n)
	}
}

func TestScenarioMistakes(t *testing.T) {
	t.Parallel()
	run := func(context.Context, *rest.Config) error { return nil }
	for name, test := range map[string]struct {
		scenario simulation.Scenario
		want     []string
	}{
		"empty": {simulation.Scenario{}, []string{"no Programs"}},
		"all at once": {
			simulation.Scenario{
				Programs: map[string]func(context.Context, *rest.Config) error{"": run, "test": run, "a:b": run, "c": nil},
				Steps:    steps(createApp, nil), Runs: -1,
			},
			[]string{`the name ""`, `the name "test"`, `the name "a:b"`, `the program "c" of Programs is nil`, "element 1 of Steps is nil", "Runs is -1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := simulation.Failures(t, func() simulation.Scenario { return test.scenario })
			if len(failures) != 1 {
				t.Fatalf("failures %q, want one", failures)
			}
			for _, want := range test.want {
				if !strings.Contains(failures[0], want) {
					t.Errorf("%q does not contain %q", failures[0], want)
				}
			}
		})
	}
}

func TestFaultsAreParsed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"crash-after:apps:1", "crash-before+step:apps:12", "stale+step:apps:3:deployments.apps", "relist:apps:1:configmaps",
		"lost:apps:1,step-before:apps:2",
	} {
		if got, err := simulation.ParseFaults(text, "apps"); err != nil || got != text {
			t.Errorf("%q becomes %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                 "want kind:program:write",
		"crash-after:apps":                 "want kind:program:write",
		"crash-after:apps:1:configmaps":    "only stale and relist have a resource",
		"stale:apps:1":                     "only stale and relist have a resource",
		"crash-after:apps:0":               `"0" is not the number of a write`,
		"crash-after:apps:x":               `"x" is not the number of a write`,
		"crash-after:other:1":              `the program "other" is unknown, want one of ["apps"]`,
		"lost+step:apps:1":                 "lost cannot have +step",
		"crash-after:apps:1,sleep:apps:1":  `the kind "sleep" is unknown`,
		"relist+step:apps:1:configmaps":    "relist cannot have +step",
		"crash-after:apps:1:configmaps:no": "want kind:program:write",
	} {
		if _, err := simulation.ParseFaults(text, "apps"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// Two runs with the same faults make the same requests.
func TestRunsOfScenarioAreEqual(t *testing.T) {
	t.Parallel()
	b := patternNamed(t, "children known from memory")
	plans, different := simulation.DifferentTraces(t, b.scenario(b.corrected, 0))
	if plans < 30 || len(different) > 0 {
		t.Errorf("%d of %d plans have different runs:\n%s", len(different), plans, strings.Join(different, "\n"))
	}
}

// Always is checked after each write, and its first error is the finding.
func TestExploreChecksAlways(t *testing.T) {
	t.Parallel()
	b := patternNamed(t, "object replaced after AlreadyExists")
	scenario := b.scenario(b.buggy, 0)
	failures := simulation.Failures(t, func() simulation.Scenario {
		s := scenario()
		uid := ""
		s.Always = func(ctx context.Context, c *simulation.Cluster) error {
			objects, err := client.All[*corev1.ConfigMap](ctx, c.Client(), kube.Selection{LabelSelector: "owner"})
			for _, object := range objects {
				if uid != "" && uid != string(object.UID) {
					return errors.New("volume was replaced")
				}
				uid = string(object.UID)
			}
			return err
		}
		return s
	})
	if len(failures) == 0 || !strings.HasPrefix(failures[0], "volume was replaced (") {
		t.Errorf("failures %q, want that the volume was replaced", failures)
	}
}

// The end is the same, but what the object held is lost.
func TestExploreReportsReplacedObject(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(ctx context.Context, p *process) error{
		"delete": func(ctx context.Context, p *process) error {
			return p.maps.Delete(ctx, "volume", metav1.DeleteOptions{})
		},
		"deletecollection": func(ctx context.Context, p *process) error {
			return p.maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "owner=shop"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bugPattern{steps: steps(createApp, editApp)}
			failures := simulation.Failures(t, b.scenario(func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
				if p.cached("volume") != nil {
					return nil
				}
				err := p.create(ctx, child(app, "volume", nil))
				if !apierrors.IsAlreadyExists(err) || p.memory["replaced"] != "" {
					return ignoreExists(err)
				}
				p.memory["replaced"] = "yes"
				if err := remove(ctx, p); err != nil {
					return err
				}
				return p.create(ctx, child(app, "volume", nil))
			}, 0))
			const want = "apps deleted configmaps default/volume, which was created again, more often than in runs without faults ("
			if len(failures) != 1 || !strings.HasPrefix(failures[0], want) {
				t.Errorf("failures %q, want one: %s", failures, want)
			}
		})
	}
}

// What differs between runs without faults, or is not finished in them, hides no bug.
func TestExploreFindsBugsBesideRandomFields(t *testing.T) {
	t.Parallel()
	early := patternNamed(t, markedTooEarly)
	early.steps = steps(func(c *simulation.Cluster) {
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/other]}}`)
		simulation.Delete[*corev1.ConfigMap](c, "default/held")
	}, createApp)
	for name, test := range map[string]struct {
		scenario func() simulation.Scenario
		want     string
	}{
		"a random password that is missing": {bugPattern{steps: steps(createApp)}.scenario(func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			err := p.create(ctx, child(app, "secret", nil))
			if err != nil {
				return ignoreExists(err) // the password may be missing
			}
			return p.patch(ctx, child(app, "secret", nil), `{"data": {"password": "`+rand.Text()+`"}}`)
		}, 0), "data.password is not set, want "},
		"an object whose deletion does not end": {early.scenario(early.buggy, 0), "ConfigMap default/job is missing"},
		"an object that is deleted at the end": {bugPattern{steps: steps(createApp, editApp, setText(`"off"`))}.scenario(
			func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
				if app.Data["text"] == "off" {
					return ignoreMissing(p.maps.Delete(ctx, "volume", metav1.DeleteOptions{}))
				}
				if p.cached("volume") != nil {
					return nil
				}
				err := p.create(ctx, child(app, "volume", nil))
				if !apierrors.IsAlreadyExists(err) || p.memory["replaced"] != "" {
					return ignoreExists(err)
				}
				p.memory["replaced"] = "yes"
				if err := p.maps.Delete(ctx, "volume", metav1.DeleteOptions{}); err != nil {
					return err
				}
				return p.create(ctx, child(app, "volume", nil))
			}, 40), "apps deleted configmaps default/volume, which was created again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := simulation.Failures(t, test.scenario)
			if len(failures) == 0 || !strings.Contains(failures[0], test.want) {
				t.Errorf("failures %q, want one: %s", failures, test.want)
			}
		})
	}
}

// Of objects with random names only the number is compared.
func TestExploreCountsObjectsWithRandomNames(t *testing.T) {
	t.Parallel()
	b := bugPattern{steps: steps(createApp)}
	failures := simulation.Failures(t, b.scenario(func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
		if app.Annotations["done"] != "" {
			return nil
		}
		if err := p.create(ctx, child(app, "job-"+strings.ToLower(rand.Text()[:6]), nil)); err != nil {
			return err
		}
		return p.annotate(ctx, app, "yes")
	}, 0))
	if len(failures) == 0 || !strings.Contains(failures[0], " exists (apps created configmaps default/job-") {
		t.Errorf("failures %q, want that two objects exist after a crash", failures)
	}
}

// A scenario in which nothing can be explored is a mistake.
func TestExploreReportsIdlePrograms(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context, _ *rest.Config) error {
		<-ctx.Done()
		return nil
	}
	for want, run := range map[string]func(context.Context, *rest.Config) error{
		"the program apps made no request": wait,
		"no program made a write": func(ctx context.Context, config *rest.Config) error {
			clients, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			if _, err := clients.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil {
				return err
			}
			return wait(ctx, config)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			failures := simulation.Failures(t, func() simulation.Scenario {
				return simulation.Scenario{
					Programs: map[string]func(context.Context, *rest.Config) error{"apps": run}, Steps: steps(createApp),
				}
			})
			if len(failures) != 1 || !strings.HasPrefix(failures[0], want) {
				t.Errorf("failures %q, want one: %s", failures, want)
			}
		})
	}
}

// A scenario that breaks a rule without faults is reported before faults are tried.
func TestExploreReportsScenarioThatFails(t *testing.T) {
	t.Parallel()
	b := bugPattern{steps: steps(createApp)}
	idle := b.scenario(func(context.Context, *process, *corev1.ConfigMap) error { return nil }, 0)
	for name, test := range map[string]struct {
		change func(s *simulation.Scenario)
		want   string
	}{
		"step": {func(s *simulation.Scenario) { s.Steps = steps(deleteApp) }, "not found"},
		"finally": {func(s *simulation.Scenario) {
			s.Finally = func(context.Context, *simulation.Cluster) error { return errors.New("too few") }
		}, "too few"},
		"always": {func(s *simulation.Scenario) {
			s.Always = func(context.Context, *simulation.Cluster) error { return errors.New("never") }
		}, "never"},
		"ends": {func(s *simulation.Scenario) {
			s.Programs["apps"] = func(context.Context, *rest.Config) error { return errors.New("no flags") }
		}, "apps ended: no flags"},
		"returns nil": {func(s *simulation.Scenario) {
			s.Programs["apps"] = func(context.Context, *rest.Config) error { return nil }
		}, "apps ended: it returned nil"},
		"cluster": {func(s *simulation.Scenario) { s.Cluster.YAML = "{kind: Missing}" }, "not a Kubernetes object"},
		"never idle": {func(s *simulation.Scenario) {
			*s = patternNamed(t, "each run writes").scenario(patternNamed(t, "each run writes").buggy, 0)()
		}, "not idle after"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := simulation.Failures(t, func() simulation.Scenario {
				s := idle()
				test.change(&s)
				return s
			})
			if len(failures) != 1 || !strings.HasPrefix(failures[0], "the scenario fails without faults: ") || !strings.Contains(failures[0], test.want) {
				t.Errorf("failures %q, want one with %q", failures, test.want)
			}
		})
	}
}

// A program with leader election waits for the lease of the one that crashed. 137 s are longer than the usual time for
// a recovery.
func TestExploreLeaderElection(t *testing.T) {
	t.Parallel()
	for _, duration := range []time.Duration{15 * time.Second, 137 * time.Second} {
		t.Run(duration.String(), func(t *testing.T) {
			t.Parallel()
			run := func(ctx context.Context, config *rest.Config) error { return runElected(ctx, config, duration) }
			simulation.Explore(t, func() simulation.Scenario {
				return simulation.Scenario{
					Cluster:  simulation.Config{WithoutControllers: true},
					Programs: map[string]func(context.Context, *rest.Config) error{"one": run, "one-more": run},
					Steps:    steps(createApp, editApp), Runs: 20,
				}
			})
		})
	}
}

func runElected(ctx context.Context, config *rest.Config, duration time.Duration) error {
	cluster, err := kube.Connect(config)
	if err != nil {
		return err
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	elector, err := leader.New(leader.Config{Cluster: cluster, Namespace: "default", Name: "apps", Identity: config.UserAgent, LeaseDuration: duration})
	if err != nil {
		return err
	}
	writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "apps"})
	if err != nil {
		return err
	}
	apps, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "apps", LeaderElector: elector,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{LabelSelector: "app=true"}),
		Handler: func(ctx context.Context, app *corev1.ConfigMap) error {
			_, err := client.Apply(ctx, writer, child(app, "copy", app.Data))
			return err
		},
	})
	if err != nil {
		return err
	}
	return apps.Run(ctx)
}

func TestObjectsAreCompared(t *testing.T) {
	t.Parallel()
	object := func(name string, fields ...any) map[string]any {
		o := map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}}
		for i := 0; i < len(fields); i += 2 {
			o[fields[i].(string)] = fields[i+1]
		}
		return o
	}
	generated := func(name, text string) map[string]any {
		o := object(name, "data", map[string]any{"text": text})
		o["metadata"].(map[string]any)["generateName"] = "copy-"
		return o
	}
	owner := func(uid string) map[string]any {
		o := object("owner")
		o["metadata"].(map[string]any)["uid"] = uid
		return o
	}
	const uidA, uidB = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	for name, test := range map[string]struct {
		want, got []map[string]any
		text      string
	}{
		"equal":         {[]map[string]any{object("a", "data", map[string]any{"x": "1"})}, []map[string]any{object("a", "data", map[string]any{"x": "1"})}, ""},
		"field":         {[]map[string]any{object("a", "data", map[string]any{"x": "1"})}, []map[string]any{object("a", "data", map[string]any{"x": "2"})}, "ConfigMap default/a: data.x is 2, want 1"},
		"missing field": {[]map[string]any{object("a", "data", map[string]any{"x": "1"})}, []map[string]any{object("a", "data", map[string]any{})}, "ConfigMap default/a: data is {}, want not set\nConfigMap default/a: data.x is not set, want 1"},
		"missing":       {[]map[string]any{object("a")}, nil, "ConfigMap default/a is missing"},
		"added":         {nil, []map[string]any{object("a")}, "ConfigMap default/a exists"},
		"generated names": {
			[]map[string]any{generated("copy-aaaaa", "1"), generated("copy-bbbbb", "2")},
			[]map[string]any{generated("copy-ccccc", "2"), generated("copy-ddddd", "1")},
			"",
		},
		"generated names in others": {
			[]map[string]any{generated("copy-aaaaa", "1"), object("copy-aaaaa-b", "owner", "copy-aaaaa")},
			[]map[string]any{generated("copy-ccccc", "1"), object("copy-ccccc-b", "owner", "copy-ccccc")},
			"",
		},
		"former revisions": {
			[]map[string]any{object("a")}, []map[string]any{object("a"), {"kind": "ControllerRevision", "metadata": map[string]any{
				"name": "a-1", "ownerReferences": []any{map[string]any{"kind": "StatefulSet", "name": "a"}},
			}}}, "",
		},
		"a revision of the program": {
			[]map[string]any{object("a")},
			[]map[string]any{object("a"), {"kind": "ControllerRevision", "metadata": map[string]any{"name": "a-1"}}},
			"ControllerRevision a-1 exists",
		},
		"uids": {
			[]map[string]any{owner(uidA), object("child", "owner", uidA)},
			[]map[string]any{object("child", "owner", uidB), owner(uidB)},
			"",
		},
		"uid of a missing object": {
			[]map[string]any{owner(uidA), object("child", "owner", uidA)},
			[]map[string]any{owner(uidB), object("child", "owner", uidA)},
			"ConfigMap default/child: owner is <uid>, want <uid of ConfigMap default/owner>",
		},
		"times":           {[]map[string]any{object("a", "at", "2000-01-01T00:00:00Z")}, []map[string]any{object("a", "at", "2000-01-01T00:00:05Z")}, ""},
		"times in status": {[]map[string]any{object("a", "status", map[string]any{"x": "1", "startTime": "yesterday"})}, []map[string]any{object("a", "status", map[string]any{"x": "1"})}, ""},
		"lists by name": {
			[]map[string]any{object("a", "list", []any{map[string]any{"name": "x"}, map[string]any{"name": "y"}})},
			[]map[string]any{object("a", "list", []any{map[string]any{"name": "y"}, map[string]any{"name": "x"}})},
			"",
		},
		"lists of values": {
			[]map[string]any{object("a", "args", []any{"x", "y"})},
			[]map[string]any{object("a", "args", []any{"y", "x"})},
			"ConfigMap default/a: args[0] is y, want x\nConfigMap default/a: args[1] is x, want y",
		},
		"lists with equal names": {
			[]map[string]any{object("a", "list", []any{map[string]any{"name": "x", "v": "1"}, map[string]any{"name": "x", "v": "2"}})},
			[]map[string]any{object("a", "list", []any{map[string]any{"name": "x", "v": "2"}, map[string]any{"name": "x", "v": "2"}})},
			"ConfigMap default/a: list[x].v is 2, want 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := simulation.CompareObjects(test.want, test.got); text != test.text {
				t.Errorf("differences:\n%s\nwant:\n%s", text, test.text)
			}
		})
	}
}
