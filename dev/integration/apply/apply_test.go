package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// deployment returns a configuration that the API server completes in many ways: with defaults, and with quantities in
// another format.
func (w world) deployment(name, image string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: "web", Image: image,
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")}},
					}},
					Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				},
			},
		},
	}
}

// Without an informer, an apply makes one read and one write, and compares the resourceVersions for its outcome.
func TestApplyOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, requests := watched(t)

	first := applied(ctx, t, w.c, client.Created, w.deployment("web", "shop:1"))
	requests.want(t, "get", "patch")
	if first.Changed != nil {
		t.Errorf("of an object that was created, these are said to have changed: %v", first.Changed)
	}
	second := applied(ctx, t, w.c, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t, "get", "patch")
	if second.Object.ResourceVersion != first.Object.ResourceVersion {
		t.Errorf("unchanged, and the resourceVersion went from %s to %s", first.Object.ResourceVersion, second.Object.ResourceVersion)
	}
	changed := applied(ctx, t, w.c, client.Updated, w.deployment("web", "shop:2"))
	want := []string{`spec.template.spec.containers[web].image: "shop:1" -> "shop:2"`}
	if diff := cmp.Diff(want, texts(changed.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if changed.Object.Kind != "Deployment" || changed.Object.Spec.RevisionHistoryLimit == nil {
		t.Errorf("not the object as the API server has it: %v", changed.Object)
	}
}

// With an informer, repeated applies of an unchanged object make no request, whatever values the API server has stored.
func TestUnchangedApplyMakesNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*appsv1.Deployment](t, w)
	ctx, requests := watched(t)

	created := applied(ctx, t, c, client.Created, w.deployment("web", "shop:1"))
	requests.want(t, "patch") // the informer covers the namespace and shows that the object does not exist
	shows(created.Object)
	for range 3 {
		result := applied(ctx, t, c, client.Unchanged, w.deployment("web", "shop:1"))
		if result.Object.UID != created.Object.UID || result.Object.Spec.RevisionHistoryLimit == nil {
			t.Error("the result is not the object that the informer shows")
		}
	}
	requests.want(t)

	other := clientOfOtherProcess(t, c)
	applied(ctx, t, other, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t, "patch") // this client has applied nothing yet
	applied(ctx, t, other, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t)
	live := must(client.Get[*appsv1.Deployment](t.Context(), c, kube.KeyOf(created.Object), client.FromAPI()))(t)
	if live.ResourceVersion != created.Object.ResourceVersion {
		t.Error("an apply that changes nothing has changed the resourceVersion")
	}

	// The configuration is the same in another type, and with or without the object's uid.
	applied(ctx, t, c, client.Unchanged, toUnstructured(t, w.deployment("web", "shop:1")))
	meant := w.deployment("web", "shop:1")
	meant.UID = created.Object.UID
	applied(ctx, t, c, client.Unchanged, meant)
	requests.want(t)
	meant.UID = "another"
	if _, err := client.Apply(ctx, c, meant); !errors.Is(err, client.ErrReplaced) {
		t.Errorf("applied to another object than the one that is there: %v", err)
	}
	requests.want(t, "patch")
}

// A new term of leadership uses no state of an earlier term: another process, perhaps of another version, may have
// applied in between. Here it has added a field that this version does not apply.
func TestApplyForgetsStateOfEarlierTerm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*appsv1.Deployment](t, w)
	ctx, requests := watched(t)
	term := func() context.Context {
		held := leadership.New(nil, time.Hour)
		ctx, cancel := leadership.With(ctx, held)
		t.Cleanup(func() { held.Release(); cancel() })
		return ctx
	}
	first := term()
	shows(applied(first, t, c, client.Created, w.deployment("web", "shop:1")).Object)
	requests.want(t, "patch")
	applied(first, t, c, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t)

	newer := w.deployment("web", "shop:1")
	newer.Annotations = map[string]string{"example.com/newer": "yes"}
	shows(applied(ctx, t, clientOfOtherProcess(t, c), client.Updated, newer).Object)
	requests.want(t, "patch")

	second := term()
	mended := applied(second, t, c, client.Updated, w.deployment("web", "shop:1"))
	requests.want(t, "patch")
	if mended.Object.Annotations["example.com/newer"] != "" {
		t.Error("what the other process has applied is still there")
	}
	shows(mended.Object)
	applied(second, t, c, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t)
}

// clientOfOtherProcess returns a client with c's configuration, and without its state of earlier applies.
func clientOfOtherProcess(t *testing.T, c *client.Client) *client.Client {
	t.Helper()
	return must(client.New(c.Config()))(t)
}

// Apply reverts changes of other clients to the fields of the configuration, and keeps their other changes.
func TestApplyRevertsDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*appsv1.Deployment](t, w)
	ctx, requests := watched(t)
	created := applied(ctx, t, c, client.Created, w.deployment("web", "shop:1"))
	requests.want(t, "patch")
	shows(created.Object)

	elsewhere := must(client.Patch(t.Context(), w.as(t, "somebody"), created.Object, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"note":"theirs"}},"spec":{"paused":true}}`))))(t)
	shows(elsewhere)
	applied(ctx, t, c, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t)

	// Another client changes a field of a list element that the configuration does not contain. Lists are compared as a
	// whole, so there is one request to the API server.
	inList := must(client.Patch(t.Context(), w.as(t, "somebody"), created.Object, client.JSONPatch(
		client.Operation{Op: "replace", Path: "/spec/template/spec/containers/0/imagePullPolicy", Value: "Never"})))(t)
	shows(inList)
	applied(ctx, t, c, client.Unchanged, w.deployment("web", "shop:1"))
	applied(ctx, t, c, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t, "patch")

	drifted := must(client.Patch(t.Context(), w.as(t, "somebody"), created.Object, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"replicas":7}}`))))(t)
	shows(drifted)
	mended := applied(ctx, t, c, client.Updated, w.deployment("web", "shop:1"), client.Force())
	requests.want(t, "patch")
	if diff := cmp.Diff([]string{"spec.replicas: 7 -> 2"}, texts(mended.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if !mended.Object.Spec.Paused || mended.Object.Annotations["note"] != "theirs" {
		t.Error("fields of others were touched")
	}
	shows(mended.Object)
	applied(ctx, t, c, client.Unchanged, w.deployment("web", "shop:1"))
	requests.want(t)
}

// Apply removes and reports a field that the configuration does not contain, unless another manager owns it too.
func TestApplyRemovesUnappliedFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	ctx, requests := watched(t)
	created := applied(ctx, t, c, client.Created, w.configMap("settings", map[string]string{"mode": "fast", "level": "3"}))
	shows(created.Object)
	requests.want(t, "patch")
	result := applied(ctx, t, c, client.Updated, w.configMap("settings", map[string]string{"mode": "fast"}))
	requests.want(t, "patch")
	if diff := cmp.Diff([]string{`data.level: "3" -> none`}, texts(result.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if _, still := result.Object.Data["level"]; still {
		t.Error("it is still there")
	}
}

// The outcome is correct with an informer that does not show the last apply yet.
func TestApplyBehindInformer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	still := &frozen{}
	c := must(client.New(client.Config{Cluster: w.cluster, FieldOwner: "tests", Informers: []client.Informer{cache.Hold[cache.Informer](still)}}))(t)
	ctx, requests := watched(t)

	created := applied(ctx, t, c, client.Created, w.configMap("settings", map[string]string{"mode": "fast"}))
	requests.want(t, "patch")
	// The object exists, but the informer does not show it.
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "fast"}))
	requests.want(t, "patch")

	still.object = created.Object
	changed := applied(ctx, t, c, client.Updated, w.configMap("settings", map[string]string{"mode": "slow"}))
	requests.want(t, "patch")
	// The informer shows "fast", but the client applied "slow" last.
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "slow"}))
	requests.want(t, "patch")
	// A configuration with a uid, which the API server treats as the same.
	worded := w.configMap("settings", map[string]string{"mode": "slow"})
	worded.UID = created.Object.UID
	applied(ctx, t, c, client.Unchanged, worded)
	requests.want(t, "patch")
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "slow"}))
	requests.want(t, "patch")
	// Another client has written another field since.
	foreign := must(client.Patch(t.Context(), w.as(t, "somebody"), changed.Object, client.RawPatch("application/merge-patch+json",
		[]byte(`{"data":{"theirs":"1"}}`))))(t)
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "slow"}))
	requests.want(t, "patch")
	// The informer shows the last apply and a write of another client.
	still.object = foreign
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "slow"}))
	requests.want(t)
	must(client.Patch(t.Context(), w.as(t, "somebody"), changed.Object, client.RawPatch("application/merge-patch+json",
		[]byte(`{"data":{"theirs":"2"}}`))))(t)
	// A plan does not report a change of another client, which the informer does not show yet, as its own.
	plan := applied(ctx, t, c, client.Updated, w.configMap("settings", map[string]string{"mode": "fast"}), client.DryRun())
	requests.want(t, "patch (dry run)", "get")
	if diff := cmp.Diff([]string{`data.mode: "slow" -> "fast"`}, texts(plan.Changed)); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
}

// A client takes its own other writes since the last apply into account before any informer shows them: a handler that
// deletes a child and applies it again does not wait for a resync.
func TestApplyAfterOtherWritesOfTheSameClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, write := range map[string]func(ctx context.Context, c *client.Client, obj *corev1.ConfigMap) error{
		"delete": func(ctx context.Context, c *client.Client, obj *corev1.ConfigMap) error {
			return client.Delete(ctx, c, obj)
		},
		"delete live": func(ctx context.Context, c *client.Client, obj *corev1.ConfigMap) error {
			return client.DeleteLive(ctx, c, obj, nil)
		},
		"delete all": func(ctx context.Context, c *client.Client, obj *corev1.ConfigMap) error {
			return client.DeleteAllOf[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: []string{obj.Namespace}, FieldSelector: "metadata.name=" + obj.Name})
		},
		"patch by a client that was made of it": func(ctx context.Context, c *client.Client, obj *corev1.ConfigMap) error {
			other, err := c.With(func(config *client.Config) { config.FieldOwner = "other" })
			if err != nil {
				return err
			}
			_, err = client.Patch(ctx, other, obj, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"mode":"slow"}}`)))
			return err
		},
		"apply by another field owner": func(ctx context.Context, c *client.Client, obj *corev1.ConfigMap) error {
			_, err := client.Apply(ctx, c, w.configMap(obj.Name, map[string]string{"mode": "slow"}), client.FieldOwner("other"), client.Force())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			still := &frozen{}
			c := must(client.New(client.Config{Cluster: w.cluster, FieldOwner: "tests", Informers: []client.Informer{cache.Hold[cache.Informer](still)}}))(t)
			configuration := w.configMap(strings.ReplaceAll(name, " ", "-"), map[string]string{"mode": "fast"})
			still.object = applied(t.Context(), t, c, client.Created, configuration).Object
			ctx, requests := watched(t)
			applied(ctx, t, c, client.Unchanged, configuration)
			requests.want(t)
			if err := write(t.Context(), c, still.object); err != nil {
				t.Fatal(err)
			}
			result := must(client.Apply(t.Context(), c, configuration, client.Force()))(t)
			if result.Outcome == client.Unchanged || result.Object.Data["mode"] != "fast" {
				t.Errorf("applied again it is %s: %v", result.Outcome, result.Object)
			}
			still.object = result.Object
			applied(ctx, t, c, client.Unchanged, configuration)
			requests.want(t)
		})
	}
}

// An apply with a lost response may have been processed, so its state is not stored.
func TestApplyAfterLostResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	still := &frozen{}
	lose := false
	c := must(client.New(client.Config{
		Cluster: w.cluster, FieldOwner: "tests", Informers: []client.Informer{cache.Hold[cache.Informer](still)},
		Interceptors: []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				err := next(ctx, r)
				if lose {
					return errors.New("the answer was lost")
				}
				return err
			}
		}, client.VerbApply)},
	}))(t)
	ctx, requests := watched(t)
	still.object = applied(ctx, t, c, client.Created, w.configMap("settings", map[string]string{"mode": "fast"})).Object
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "fast"}))
	requests.want(t, "patch")
	lose = true
	if result, err := client.Apply(ctx, c, w.configMap("settings", map[string]string{"mode": "slow"})); err == nil || result.Outcome != "" {
		t.Fatalf("outcome %q, error %v", result.Outcome, err)
	}
	lose = false
	requests.want(t, "patch")
	// The informer still shows "fast", and the API server has "slow".
	result := applied(ctx, t, c, client.Updated, w.configMap("settings", map[string]string{"mode": "fast"}))
	requests.want(t, "patch")
	if result.Object.Data["mode"] != "fast" {
		t.Errorf("the mode is %q", result.Object.Data["mode"])
	}
}

// An informer that keeps managedFields shows that another manager took fields, even if the values are the same.
func TestForcedApplyRestoresFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	still := &frozen{showsManagers: true}
	c := must(client.New(client.Config{Cluster: w.cluster, FieldOwner: "tests", Informers: []client.Informer{cache.Hold[cache.Informer](still)}}))(t)
	ctx, requests := watched(t)
	configuration := w.configMap("settings", map[string]string{"mode": "fast"})
	still.object = applied(ctx, t, c, client.Created, configuration).Object
	applied(ctx, t, c, client.Unchanged, configuration)
	requests.want(t, "patch")

	other := w.as(t, "other")
	applied(t.Context(), t, other, client.Updated, w.configMap("settings", map[string]string{"mode": "slow"}), client.Force())
	still.object = applied(t.Context(), t, other, client.Updated, w.configMap("settings", map[string]string{"mode": "fast"})).Object
	shared := applied(ctx, t, c, client.Updated, configuration)
	requests.want(t, "patch")
	if shared.Changed != nil {
		t.Errorf("changed: %v", shared.Changed)
	}
	still.object = shared.Object
	applied(ctx, t, c, client.Unchanged, configuration)
	requests.want(t)
}

// Concurrent applies of one configuration to one object succeed, and have the result of one apply.
func TestApplyConcurrently(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { // waited for below
			for range 5 {
				if _, err := client.Apply(t.Context(), c, w.configMap("settings", map[string]string{"mode": "fast"})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	ctx, requests := watched(t)
	shows(must(client.Get[*corev1.ConfigMap](t.Context(), w.c, kube.Key{Namespace: w.namespace, Name: "settings"}))(t))
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "fast"}))
	requests.want(t)
}

// A conflict names the managers of the fields, and Force takes the fields.
func TestApplyConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created := applied(t.Context(), t, w.as(t, "first"), client.Created, w.deployment("web", "shop:1"))
	must(client.Patch(t.Context(), w.as(t, "editor"), created.Object, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"replicas":7}}`))))(t)

	second := w.deployment("web", "shop:2")
	result, err := client.Apply(t.Context(), w.as(t, "second"), second)
	conflict, ok := errors.AsType[*client.ConflictError](err)
	if !ok || result.Outcome != "" || result.Object == nil {
		t.Fatalf("outcome %q, error %v, want a conflict", result.Outcome, err)
	}
	want := []client.FieldConflict{
		{Manager: "editor", Field: "spec.replicas"},
		{Manager: "first", Field: `spec.template.spec.containers[name="web"].image`},
	}
	slices.SortFunc(conflict.Conflicts, func(a, b client.FieldConflict) int { return len(a.Field) - len(b.Field) })
	if diff := cmp.Diff(want, conflict.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	if !apierrors.IsConflict(err) || errors.Is(err, client.ErrChanged) || conflict.FieldOwner != "second" {
		t.Errorf("not a conflict of field owners: %v", err)
	}
	if class := retry.Classify(err); class != retry.Invalid {
		t.Errorf("the class is %s, want %s: trying again does not help", class, retry.Invalid)
	}
	t.Log(err)

	forced := applied(t.Context(), t, w.as(t, "second"), client.Updated, second, client.Force())
	if diff := cmp.Diff([]string{
		"spec.replicas: 7 -> 2", `spec.template.spec.containers[web].image: "shop:1" -> "shop:2"`,
	}, texts(forced.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

func TestApplyDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	ctx, requests := watched(t)
	applied(ctx, t, c, client.Created, w.configMap("settings", map[string]string{"mode": "fast"}), client.DryRun())
	requests.want(t, "patch (dry run)")
	if must(client.Exists[*corev1.ConfigMap](t.Context(), c, kube.Key{Namespace: w.namespace, Name: "settings"}, client.FromAPI()))(t) {
		t.Fatal("a dry run has created it")
	}
	created := applied(ctx, t, c, client.Created, w.configMap("settings", map[string]string{"mode": "fast"}))
	shows(created.Object)
	requests.want(t, "patch")

	plan := applied(ctx, t, c, client.Updated, w.configMap("settings", map[string]string{"mode": "slow"}), client.DryRun())
	if diff := cmp.Diff([]string{`data.mode: "fast" -> "slow"`}, texts(plan.Changed)); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
	requests.want(t, "patch (dry run)")
	// The stored state is that of the last apply, not of a dry run.
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "fast"}))
	applied(ctx, t, c, client.Unchanged, w.configMap("settings", map[string]string{"mode": "fast"}), client.DryRun())
	requests.want(t)
	applied(ctx, t, clientOfOtherProcess(t, c), client.Unchanged, w.configMap("settings", map[string]string{"mode": "fast"}), client.DryRun())
	requests.want(t, "patch (dry run)")

	whole := must(c.With(func(config *client.Config) { config.DryRun = true }))(t)
	applied(ctx, t, whole, client.Updated, w.configMap("settings", map[string]string{"mode": "slow"}))
	requests.want(t, "patch (dry run)")
	live := must(client.Get[*corev1.ConfigMap](t.Context(), c, kube.KeyOf(created.Object), client.FromAPI()))(t)
	if live.ResourceVersion != created.Object.ResourceVersion {
		t.Error("a dry run has changed the object")
	}
}

// With a uid, Apply neither changes nor creates another object of the same name.
func TestApplyToOneObjectOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := applied(t.Context(), t, w.c, client.Created, w.configMap("settings", map[string]string{"mode": "fast"})).Object
	configuration := w.configMap("settings", map[string]string{"mode": "slow"})
	configuration.UID = old.UID
	applied(t.Context(), t, w.c, client.Updated, configuration)

	if err := client.Delete(t.Context(), w.c, old); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Apply(t.Context(), w.c, configuration); !errors.Is(err, client.ErrGone) || !apierrors.IsNotFound(err) {
		t.Errorf("applied to an object that is gone: %v", err)
	}
	must(client.Create(t.Context(), w.c, w.configMap("settings", nil)))(t)
	_, err := client.Apply(t.Context(), w.c, configuration)
	if !errors.Is(err, client.ErrReplaced) || !apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		t.Errorf("applied to another object of that name: %v", err)
	}
	live := must(client.Get[*corev1.ConfigMap](t.Context(), w.c, kube.KeyOf(old)))(t)
	if len(live.Data) > 0 {
		t.Error("it was changed")
	}
}

func TestApplyIfUnchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := applied(t.Context(), t, w.c, client.Created, w.configMap("settings", map[string]string{"mode": "fast"})).Object
	old.Data["mode"] = "slow"
	updated := applied(t.Context(), t, w.c, client.Updated, old, client.IfUnchanged()).Object
	old.Data["mode"] = "slower"
	if _, err := client.Apply(t.Context(), w.c, old, client.IfUnchanged()); !errors.Is(err, client.ErrChanged) || errors.Is(err, client.ErrReplaced) {
		t.Errorf("the object has changed since: %v", err)
	}
	applied(t.Context(), t, w.c, client.Updated, old) // without IfUnchanged, the resourceVersion is not a precondition
	if updated.Data["mode"] != "slow" {
		t.Error("not applied")
	}
}

func TestApplyConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := appsv1apply.Deployment("web", w.namespace).WithSpec(appsv1apply.DeploymentSpec().WithReplicas(0).
		WithSelector(metav1apply.LabelSelector().WithMatchLabels(map[string]string{"app": "web"})).
		WithTemplate(corev1apply.PodTemplateSpec().WithLabels(map[string]string{"app": "web"}).
			WithSpec(corev1apply.PodSpec().WithContainers(corev1apply.Container().WithName("web").WithImage("shop:1")))))
	result, err := client.ApplyConfiguration(t.Context(), w.c, web)
	if err != nil || result.Outcome != client.Created {
		t.Fatalf("outcome %q, error %v", result.Outcome, err)
	}
	if replicas, found, _ := unstructured.NestedInt64(result.Object.Object, "spec", "replicas"); replicas != 0 || !found {
		t.Errorf("spec.replicas is %d, set: %v", replicas, found)
	}
	web.Spec.WithReplicas(1)
	result, err = client.ApplyConfiguration(t.Context(), w.c, web)
	if err != nil || result.Outcome != client.Updated {
		t.Fatalf("outcome %q, error %v", result.Outcome, err)
	}
}

// Labels of a Deployment are applied with metadata only; the rest of the object is neither sent nor changed.
func TestApplyMetadataOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created := applied(t.Context(), t, w.c, client.Created, w.deployment("web", "shop:1")).Object
	label := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web", Labels: map[string]string{"tier": "front"}},
	}
	labels := w.as(t, "labels")
	result := applied(t.Context(), t, labels, client.Updated, label)
	if diff := cmp.Diff([]string{`metadata.labels.tier: none -> "front"`}, texts(result.Changed)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if result.Object.Kind != "Deployment" || result.Object.Labels["app"] != "web" {
		t.Errorf("not the object's metadata: %v", result.Object)
	}
	applied(t.Context(), t, labels, client.Unchanged, label)

	// An informer of metadata shows all applied fields.
	c, shows := withInformer[*metav1.PartialObjectMetadata](t, w, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	shows(result.Object)
	withMetadata := must(c.With(func(config *client.Config) { config.FieldOwner = "labels" }))(t)
	ctx, requests := watched(t)
	applied(ctx, t, withMetadata, client.Unchanged, label)
	requests.want(t, "get", "patch")
	applied(ctx, t, withMetadata, client.Unchanged, label)
	requests.want(t)
	live := must(client.Get[*appsv1.Deployment](t.Context(), w.c, kube.KeyOf(created)))(t)
	if live.Generation != created.Generation {
		t.Error("the rest of the object has changed")
	}
}
