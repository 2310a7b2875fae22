package owned

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// A child that runs once, such as a Job with ttlSecondsAfterFinished, is created again only if it was deleted before it
// had finished. The owner records that, so a new process with a stale owner does not create it either.
func TestFinishedChildIsNotCreatedAgain(t *testing.T) {
	for _, last := range []string{"Current", "Failed"} {
		t.Run(last, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			app := e.app("web")
			once := owned.Child{Object: e.configMap("migrate"), Once: true, CreateOnly: true, Ready: func(obj kube.Object) readiness.State {
				if status := obj.(*corev1.ConfigMap).Data["status"]; status != "" {
					return readiness.State{Status: readiness.Status(status)}
				}
				return readiness.State{Status: readiness.InProgress}
			}}
			after := owned.Child{Object: e.configMap("server"), Wave: 1}
			remove := func() {
				if err := client.Delete(t.Context(), e.c, e.configMap("migrate")); err != nil {
					t.Fatal(err)
				}
			}
			e.want(e.apply(e.set(), app, once, after).Results, "ConfigMap migrate: created", "ConfigMap server: waiting")
			remove() // it has not finished
			e.want(e.apply(e.set(), app, once, after).Results, "ConfigMap migrate: created", "ConfigMap server: waiting")

			e.merge(e.configMap("migrate"), `{"data":{"status":"`+last+`"}}`)
			e.apply(e.set(), app, once, after)
			remove()
			stale := app
			live := must(client.GetLive(t.Context(), e.c, app))(t)
			for _, owner := range []*unstructured.Unstructured{stale, live} {
				report := e.apply(e.set(), owner, once, after)
				server := "ConfigMap server: waiting"
				if last == "Current" {
					server = "ConfigMap server: unchanged"
				}
				e.want(report.Results, "ConfigMap migrate: unchanged", server)
				if report.Ready() != (last == "Current") {
					t.Errorf("ready %t: %s", report.Ready(), report.Pending())
				}
				if _, err := client.Get[*corev1.ConfigMap](t.Context(), e.c, e.key("migrate")); !errors.Is(err, client.ErrGone) {
					t.Errorf("it was created again: %v", err)
				}
			}
			// Another child of the set that runs once is another record, and a set of another name has its own.
			next := once
			next.Object = e.configMap("migrate-2")
			e.want(e.apply(e.set(), live, next).Results[:1], "ConfigMap migrate-2: created")
			other := e.set(func(c *owned.Config) { c.Name = "another" })
			e.want(e.apply(other, live, once).Results[:1], "ConfigMap migrate: created")
		}))
	}
}

// A change of immutable fields neither runs a finished child again nor is its error: it would not matter if the child had
// been deleted before the change. Before the end, Recreate applies.
func TestFinishedChildKeepsImmutableFields(t *testing.T) {
	for name, recreate := range map[string]bool{"Recreate": true, "default": false} {
		t.Run(name, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			set, app := e.set(), e.app("web")
			child := func(colour string) owned.Child {
				config := e.configMap("migrate", "colour", colour)
				config.Immutable = new(true)
				return owned.Child{Object: config, Once: true, Recreate: recreate, Ready: doneByAnnotation}
			}
			e.want(e.apply(set, app, child("red")).Results, "ConfigMap migrate: created")
			if recreate {
				e.want(e.apply(set, app, child("blue")).Results, "ConfigMap migrate: recreating")
				e.want(e.apply(set, app, child("blue")).Results, "ConfigMap migrate: created")
			} else if _, err := set.Apply(t.Context(), app, child("blue")); !apierrors.IsInvalid(err) {
				t.Errorf("a change before the end: %v", err)
			}
			kept := e.get(e.key("migrate"))
			e.merge(e.configMap("migrate"), `{"metadata":{"annotations":{"done":"yes"}}}`)
			e.apply(set, app, child(kept.Data["colour"]))
			live := must(client.GetLive(t.Context(), e.c, app))(t)
			for _, owner := range []*unstructured.Unstructured{app, live} {
				report := e.apply(set, owner, child("green"))
				e.want(report.Results, "ConfigMap migrate: unchanged")
				if !report.Ready() || !strings.Contains(report.Results[0].Note, "it has finished and has other immutable fields") {
					t.Errorf("ready %t, note %q", report.Ready(), report.Results[0].Note)
				}
			}
			if got := e.get(e.key("migrate")); got == nil || got.UID != kept.UID || got.Data["colour"] != kept.Data["colour"] {
				t.Errorf("the finished child is %v", got)
			}
		}))
	}
}

// A Job with ttlSecondsAfterFinished is created again each time that it was deleted, unless it has Once. The Set reports
// that once for each child.
func TestFinishedJobThatIsCreatedAgainIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		child    owned.Child // without its object
		spec     string
		warnings int
	}{
		"a TTL":                {owned.Child{}, `"ttlSecondsAfterFinished":3600`, 1},
		"create-only":          {owned.Child{CreateOnly: true}, `"ttlSecondsAfterFinished":0`, 1},
		"once":                 {owned.Child{Once: true}, `"ttlSecondsAfterFinished":3600`, 0},
		"create-only and once": {owned.Child{CreateOnly: true, Once: true}, `"ttlSecondsAfterFinished":3600`, 0},
		"without a TTL":        {owned.Child{}, `"backoffLimit":1`, 0},
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			var log testlog.Buffer
			e.c.Cluster().SetLogger(slog.New(slog.NewTextHandler(&log, nil)))
			set, app, other := e.set(), e.app("web"), e.app("other")
			job := &unstructured.Unstructured{}
			if err := job.UnmarshalJSON([]byte(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"migrate"},"spec":{"suspend":true,` + tc.spec + `,
				"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"migrate","image":"migrate"}]}}}}`)); err != nil {
				t.Fatal(err)
			}
			job.SetNamespace(e.namespace)
			tc.child.Object = job
			remove := func() {
				if err := client.Delete(t.Context(), e.c, job, client.Propagation("Background")); err != nil {
					t.Fatal(err)
				}
			}
			e.want(e.apply(set, other, tc.child).Results, "Job migrate: created") // the first one of this owner
			remove()
			for n := range 4 {
				report := e.apply(set, app, tc.child)
				e.want(report.Results, "Job migrate: created")
				if note := report.Results[0].Note; (note != "") != (tc.warnings > 0 && n == 1) {
					t.Errorf("creation %d has the note %q", n, note)
				}
				e.want(e.apply(set, app, tc.child).Results, "Job migrate: unchanged")
				remove()
			}
			text := `msg="child is created again and again" owner="WebApp ` + e.namespace + `/web" child="Job ` + e.namespace + `/migrate"`
			if n := strings.Count(log.String(), text); n != tc.warnings || n != strings.Count(log.String(), "level=WARN") {
				t.Errorf("%d warnings, want %d; the log:\n%s", n, tc.warnings, log.String())
			}
		}))
	}
}

// A child that has finished and is being deleted when the first run after its end begins is not created again.
func TestFinishedChildBeingDeletedIsNotCreatedAgain(t *testing.T) {
	for name, createOnly := range map[string]bool{"applied": false, "create-only": true} {
		t.Run(name, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			app := e.app("web")
			child := owned.Child{Object: e.configMap("migrate"), Once: true, CreateOnly: createOnly, Ready: func(obj kube.Object) readiness.State {
				switch {
				case obj.GetDeletionTimestamp() != nil:
					return readiness.State{Status: readiness.Terminating}
				case obj.(*corev1.ConfigMap).Data["status"] == "done":
					return readiness.State{Status: readiness.Current}
				}
				return readiness.State{Status: readiness.InProgress}
			}}
			remove := func(data string) {
				e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":["example.com/hold"]}`+data+`}`)
				if err := client.Delete(t.Context(), e.c, e.configMap("migrate")); err != nil {
					t.Fatal(err)
				}
				e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: terminating")
				e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":null}}`)
			}
			e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: created")
			remove("") // it has not finished
			e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: created")
			remove(`,"data":{"status":"done"}`)
			e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: unchanged")
		}))
	}
}

// A Job with a TTL that Recreate replaces for a new image is not created again and again.
func TestRecreatedJobWithTTLIsNotReported(t *testing.T) {
	t.Run("", inBubble(func(t *testing.T) {
		t.Helper()
		e := newEnv(t)
		var log testlog.Buffer
		e.c.Cluster().SetLogger(slog.New(slog.NewTextHandler(&log, nil)))
		set, app := e.set(), e.app("web")
		job := &unstructured.Unstructured{}
		for _, image := range []string{"one", "two", "three"} {
			if err := job.UnmarshalJSON([]byte(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"migrate"},"spec":{"suspend":true,"ttlSecondsAfterFinished":3600,
				"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"migrate","image":"` + image + `"}]}}}}`)); err != nil {
				t.Fatal(err)
			}
			job.SetNamespace(e.namespace)
			created := false
			for range 5 {
				report := must(set.Apply(t.Context(), app, owned.Child{Object: job, Recreate: true}))(t)
				created = created || report.Results[0].Outcome == owned.Created
				time.Sleep(200 * time.Millisecond)
			}
			if !created || strings.Contains(log.String(), "again and again") {
				t.Errorf("image %s: created %v, the log:\n%s", image, created, log.String())
			}
		}
	}))
}

// migration returns a child of type Once whose image is immutable.
func (e env) migration(image string, recreate bool) owned.Child {
	job := e.configMap("migrate")
	job.Immutable, job.Data = new(true), map[string]string{"image": image}
	return owned.Child{Object: job, Once: true, Recreate: recreate, Ready: doneByAnnotation}
}

// A child finishes while a program with other immutable fields starts: no run has seen the end yet.
func TestChildThatFinishesDuringUpgradeIsNotCreatedAgain(t *testing.T) {
	for name, recreate := range map[string]bool{"Recreate": true, "default": false} {
		t.Run(name, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			app := e.app("web")
			child := func(image string) owned.Child { return e.migration(image, recreate) }
			e.want(e.apply(e.set(), app, child("one")).Results, "ConfigMap migrate: created")
			e.merge(e.configMap("migrate"), `{"metadata":{"annotations":{"done":"yes"}}}`)
			e.want(e.apply(e.set(), app, child("two")).Results, "ConfigMap migrate: unchanged")
			if err := client.Delete(t.Context(), e.c, e.configMap("migrate")); err != nil {
				t.Fatal(err)
			}
			e.want(e.apply(e.set(), app, child("two")).Results, "ConfigMap migrate: unchanged")
		}))
	}
}

// Between the rejected change and the next read, another client replaces the child, or its deletion begins, after which
// it ends. In both cases the child has not finished.
func TestChildThatOthersEndDuringUpgradeHasNotFinished(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, e env)
		want   string
	}{
		"replaced": {func(t *testing.T, e env) {
			t.Helper()
			e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":null}}`)
			if err := client.Delete(t.Context(), e.c, e.configMap("migrate")); err != nil {
				t.Fatal(err)
			}
			another := e.configMap("migrate")
			another.Annotations = map[string]string{"done": "yes"}
			must(client.Create(t.Context(), e.c, another))(t)
		}, "ConfigMap migrate: foreign"},
		"being deleted": {func(t *testing.T, e env) {
			t.Helper()
			if err := client.Delete(t.Context(), e.c, e.configMap("migrate")); err != nil {
				t.Fatal(err)
			}
		}, "ConfigMap migrate: terminating"},
	} {
		for recreate, mode := range map[bool]string{true: "Recreate", false: "default"} {
			t.Run(name+"/"+mode, inBubble(func(t *testing.T) {
				t.Helper()
				e := newEnv(t)
				app := e.app("web")
				child := func(image string) owned.Child { return e.migration(image, recreate) }
				set := e.set()
				e.want(e.apply(set, app, child("one")).Results, "ConfigMap migrate: created")
				e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":["owned.example.com/held"]}}`)
				changed := false
				intervening := must(e.c.With(func(c *client.Config) {
					c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
						return func(ctx context.Context, r *client.Request) error {
							err := next(ctx, r)
							if apierrors.IsInvalid(err) && !changed {
								changed = true
								tc.change(t, e)
							}
							return err
						}
					}, client.VerbApply)}
				}))(t)
				set = e.set(func(c *owned.Config) { c.Client = intervening })
				report, err := set.Apply(t.Context(), app, child("two"))
				e.want(report.Results, tc.want)
				e.merge(e.configMap("migrate"), `{"metadata":{"annotations":{"done":"yes"}}}`)
				report, _ = set.Apply(t.Context(), app, child("two"))
				e.want(report.Results, tc.want)
				live := must(client.GetLive(t.Context(), e.c, app))(t)
				if note := live.GetAnnotations()["evenkeel.dev/finished"]; note != "" || !changed {
					t.Errorf("changed %v, error %v, noted as finished: %s", changed, err, note)
				}
			}))
		}
	}
}

// doneByAnnotation is the readiness of a child that has finished when it has an annotation.
func doneByAnnotation(obj kube.Object) readiness.State {
	if obj.GetAnnotations()["done"] != "" {
		return readiness.State{Status: readiness.Current}
	}
	return readiness.State{Status: readiness.InProgress}
}
