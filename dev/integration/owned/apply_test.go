package owned

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

func (e env) loadBalancer(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
}

// giveAddress makes a load balancer ready, as its controller would do.
func (e env) giveAddress(name string) {
	e.Helper()
	before := must(client.Get[*corev1.Service](e.Context(), e.c, e.key(name)))(e)
	after := before.DeepCopy()
	after.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	must(client.Patch(e.Context(), e.c, before, client.MergeFrom(before, after), client.Subresource("status")))(e)
}

// A wave is applied when all lower waves are ready. The report contains the reason of the wait. The objects of the
// caller are not changed.
func TestWavesWaitForLowerWaves(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	service, config := e.loadBalancer("web"), e.configMap("web", "colour", "blue")
	given := []kube.Object{service.DeepCopy(), config.DeepCopy()}
	children := slices.Concat(owned.Wave(1, config), owned.Wave(0, service))

	report := e.apply(set, app, children...)
	e.want(report.Results, "Service web: created", "ConfigMap web: waiting")
	if report.Ready() || !strings.Contains(report.Pending(), "Service "+e.namespace+"/web") {
		t.Errorf("ready %t, pending %q", report.Ready(), report.Pending())
	}
	if e.get(e.key("web")) != nil {
		t.Fatal("the second wave was applied although the first is not ready")
	}
	report = e.apply(set, app, children...)
	e.want(report.Results, "Service web: unchanged", "ConfigMap web: waiting")

	e.giveAddress("web")
	report = e.apply(set, app, children...)
	e.want(report.Results, "Service web: unchanged", "ConfigMap web: created")
	if !report.Ready() || report.Pending() != "" {
		t.Errorf("ready %t, pending %q", report.Ready(), report.Pending())
	}
	live, ok := owned.Object[*corev1.Service](report, e.key("web"))
	if !ok || len(live.Status.LoadBalancer.Ingress) != 1 || !metav1.IsControlledBy(live, app) {
		t.Errorf("found %t: %+v", ok, live)
	}
	if keys := owned.OwnerKeys[*corev1.Service]("webapp")(live); !slices.Equal(keys, []kube.Key{e.key("web")}) {
		t.Errorf("the owners are %v", keys)
	}
	if diff := cmp.Diff(given, []kube.Object{service, config}); diff != "" {
		t.Errorf("the caller's objects were changed: %s", diff)
	}
}

// A field that another client has changed is corrected and reported. Fields that other clients have added stay.
func TestDriftIsCorrected(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	child := e.configMap("web", "colour", "blue")
	e.apply(set, app, owned.Of(child)...)
	before := e.get(e.key("web"))
	after := before.DeepCopy()
	after.Data["colour"], after.Data["shape"] = "red", "round"
	must(client.Patch(t.Context(), e.c, before, client.MergeFrom(before, after)))(t)

	report := e.apply(set, app, owned.Of(child)...)
	e.want(report.Results, "ConfigMap web: updated")
	want := []client.FieldChange{{Path: "data.colour", Before: "red", After: "blue"}}
	if diff := cmp.Diff(want, report.Results[0].Changed); diff != "" {
		t.Error(diff)
	}
	if got := e.get(e.key("web")).Data; !maps.Equal(got, map[string]string{"colour": "blue", "shape": "round"}) {
		t.Error(got)
	}
	e.want(e.apply(set, app, owned.Of(child)...).Results, "ConfigMap web: unchanged")
}

// With ReportConflicts, fields of other clients stay.
func TestReportConflicts(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(func(c *owned.Config) { c.ReportConflicts = true }), e.app("web")
	child := e.configMap("web", "colour", "blue")
	e.apply(set, app, owned.Of(child)...)
	must(client.Apply(t.Context(), e.c, e.configMap("web", "colour", "red"), client.FieldOwner("somebody"), client.Force()))(t)
	report, err := set.Apply(t.Context(), app, owned.Of(child)...)
	e.want(report.Results, "ConfigMap web: failed")
	if err == nil || !strings.Contains(err.Error(), "somebody") {
		t.Error(err)
	}
	if got := e.get(e.key("web")).Data["colour"]; got != "red" {
		t.Errorf("the colour is %q", got)
	}
}

// CreateOnly children are created and then left to other clients. Child.Ready gets them in the type of the desired
// object.
func TestCreateOnly(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	child := owned.Child{Object: e.configMap("web", "password", "first"), CreateOnly: true}
	e.want(e.apply(set, app, child).Results, "ConfigMap web: created")
	child.Object = e.configMap("web", "password", "second")
	report := e.apply(set, app, child)
	e.want(report.Results, "ConfigMap web: unchanged")
	got, ok := owned.Object[*corev1.ConfigMap](report, e.key("web"))
	if !ok || got.Data["password"] != "first" || !report.Ready() {
		t.Errorf("%t, ready %t: %+v", ok, report.Ready(), got)
	}
}

// An object that is adopted as a CreateOnly child keeps its fields.
func TestCreateOnlyAdoptionKeepsFields(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	must(client.Create(t.Context(), e.c, e.configMap("web", "password", "theirs")))(t)
	set := e.set(func(c *owned.Config) { c.AdoptOrphans = true })
	child := owned.Child{Object: e.configMap("web", "password", "ours"), CreateOnly: true}
	e.want(e.apply(set, app, child).Results, "ConfigMap web: updated")
	got := e.get(e.key("web"))
	if got.Data["password"] != "theirs" || !metav1.IsControlledBy(got, app) || got.Labels[owned.LabelSet] != "webapp" {
		t.Errorf("%+v", got)
	}
	e.want(e.apply(set, app, child).Results, "ConfigMap web: unchanged")
	e.want(e.apply(set, app).Results, "ConfigMap web: deleted")
}

// Every deletion has the uid and the resourceVersion as preconditions, and the configured propagation.
func TestDeletionsHavePreconditions(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	var all []*client.Request
	watching := must(e.c.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				all = append(all, r)
				return next(ctx, r)
			}
		}, client.VerbDelete)}
	}))(t)
	set := e.set(func(c *owned.Config) {
		c.Client, c.Propagation = watching, metav1.DeletePropagationForeground
	})
	frozenConfig := e.configMap("frozen", "colour", "blue")
	frozenConfig.Immutable = new(true)
	e.apply(set, app, recreated(frozenConfig, e.configMap("old"), e.configMap("last"))...)
	frozenConfig.Data["colour"] = "red"
	e.apply(set, app, recreated(frozenConfig, e.configMap("old"), e.configMap("last"))...)
	e.apply(set, app, owned.Of(e.configMap("last"))...)
	must(set.Delete(t.Context(), app))(t)
	versions := map[string]bool{}
	for _, r := range all {
		p := r.Delete.Preconditions
		if p == nil || p.UID == nil || *r.Delete.PropagationPolicy != metav1.DeletePropagationForeground {
			t.Errorf("%s %s: %+v", r.Kind.Kind, r.Key, r.Delete)
			continue
		}
		versions[r.Key.Name] = versions[r.Key.Name] || p.ResourceVersion != nil
	}
	if want := map[string]bool{"frozen": true, "old": true, "last": true}; !maps.Equal(versions, want) {
		t.Errorf("deleted, with resourceVersion: %v", versions)
	}
}

// The owner is read once for all pruned children. A child is read only if it has changed since it was found.
func TestPruneReadsOwnerOnce(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	recording := &requestlog.Recording{}
	c := must(e.c.With(func(c *client.Config) { c.Interceptors = []client.Interceptor{recording.Intercept} }))(t)
	set := e.set(func(config *owned.Config) { config.Client = c })
	e.apply(set, app, owned.Of(e.configMap("a"), e.configMap("b"), e.configMap("c"))...)
	recording.Reset()
	e.apply(set, app)
	var requests []string
	for _, r := range recording.Requests() {
		if r.Verb != client.VerbList {
			requests = append(requests, string(r.Verb)+" "+r.Key.Name)
		}
	}
	if want := []string{"get web", "delete a", "delete b", "delete c"}; !slices.Equal(requests, want) {
		t.Errorf("pruning makes the requests %q, want %q", requests, want)
	}
}

// An undesired child is deleted only if the owner's uid identifies it. Copies of a child with its labels, and
// children of another owner, stay.
func TestPruneRequiresOwnerUID(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app, owned.Of(e.configMap("kept"), e.configMap("old"))...)

	old := e.get(e.key("old"))
	renamed := e.configMap("copy")
	renamed.Labels, renamed.Annotations = old.Labels, old.Annotations
	renamed.OwnerReferences = old.OwnerReferences // as in the output of kubectl get -o yaml
	must(client.Create(t.Context(), e.c, renamed))(t)
	unowned := e.configMap("unowned")
	unowned.Labels, unowned.Annotations = old.Labels, map[string]string{"evenkeel.dev/child": e.key("unowned").String()}
	must(client.Create(t.Context(), e.c, unowned))(t)
	foreign := e.configMap("others")
	foreign.Labels, foreign.Annotations = old.Labels, map[string]string{"evenkeel.dev/child": e.key("others").String()}
	other := e.app("other")
	if err := ownerref.SetController(t.Context(), e.c, other, foreign); err != nil {
		t.Fatal(err)
	}
	must(client.Create(t.Context(), e.c, foreign))(t)

	report := e.apply(set, app, owned.Of(e.configMap("kept"))...)
	e.want(report.Results, "ConfigMap kept: unchanged",
		"ConfigMap copy: foreign", "ConfigMap old: deleted", "ConfigMap others: foreign", "ConfigMap unowned: foreign")
	if !report.Ready() {
		t.Error("what is not desired keeps the children from being ready")
	}
	if e.get(e.key("old")) != nil {
		t.Error("old is still there")
	}
	for _, name := range []string{"kept", "copy", "unowned", "others"} {
		if e.get(e.key(name)) == nil {
			t.Errorf("%s was deleted", name)
		}
	}
}

// A child that another client has deleted and created again is not pruned: it is not the object in the cache.
func TestPruneKeepsReplacedObject(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	informer := &frozen{t: t, objects: map[kube.Key]*corev1.ConfigMap{}}
	cached := clustertest.Client(t, e.cluster, informer.shown())
	set := e.set(func(c *owned.Config) { c.Client = cached })
	e.apply(set, app, owned.Of(e.configMap("old"))...)
	informer.objects[e.key("old")] = e.get(e.key("old"))
	if err := client.Delete(t.Context(), e.c, e.configMap("old")); err != nil {
		t.Fatal(err)
	}
	must(client.Create(t.Context(), e.c, e.configMap("old", "of", "a user")))(t)

	report, err := set.Apply(t.Context(), app)
	if err == nil || report.Results[0].Outcome != "failed" {
		t.Errorf("%v, %v", outcomes(report.Results), err)
	}
	if e.get(e.key("old")) == nil {
		t.Error("the user's object was deleted")
	}

	// It is not applied either.
	report, err = set.Apply(t.Context(), app, owned.Of(e.configMap("old", "of", "the set"))...)
	e.want(report.Results, "ConfigMap old: foreign")
	if _, ok := errors.AsType[*owned.ForeignError](err); !ok {
		t.Error(err)
	}
	if got := e.get(e.key("old")).Data["of"]; got != "a user" {
		t.Errorf("the user's object was changed: %q", got)
	}
}

// By default, a child that is not applied yet delays all pruning; with PruneFirst it does not.
func TestPrunePolicies(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	e.apply(e.set(), app, owned.Of(e.configMap("old"))...)
	desired := slices.Concat(owned.Of(e.loadBalancer("web")), owned.Wave(1, e.configMap("new")))
	e.want(e.apply(e.set(), app, desired...).Results,
		"Service web: created", "ConfigMap new: waiting", "ConfigMap old: waiting")
	never := e.set(func(c *owned.Config) { c.Prune = owned.PruneNever })
	e.want(e.apply(never, app).Results, "ConfigMap old: waiting", "Service web: waiting")
	first := e.set(func(c *owned.Config) { c.Prune = owned.PruneFirst })
	e.want(e.apply(first, app, desired...).Results,
		"Service web: unchanged", "ConfigMap new: waiting", "ConfigMap old: deleted")
}

// An object of another owner with the name of a child is not changed. An orphan can be adopted.
func TestForeignObjectsAreNotChanged(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	other := e.app("other")
	e.apply(e.set(), other, owned.Of(e.configMap("controlled"))...)
	labelled := e.configMap("labelled", "of", "others")
	labelled.Labels = map[string]string{owned.LabelSet: "another", "evenkeel.dev/owner-uid": "u1"}
	labelled.Annotations = map[string]string{"evenkeel.dev/owner": "shop/theirs"}
	must(client.Create(t.Context(), e.c, labelled))(t)
	must(client.Create(t.Context(), e.c, e.configMap("nobodys", "of", "nobody")))(t)
	former := e.configMap("former", "of", "nobody")
	former.Labels = map[string]string{owned.LabelSet: "webapp", "evenkeel.dev/owner-uid": "earlier"}
	former.Annotations = map[string]string{"evenkeel.dev/owner": e.key("web").String()}
	must(client.Create(t.Context(), e.c, former))(t)

	children := owned.Of(e.configMap("controlled", "of", "web"), e.configMap("labelled", "of", "web"),
		e.configMap("nobodys", "of", "web"), e.configMap("former", "of", "web"), e.configMap("own", "of", "web"))
	report, err := set.Apply(t.Context(), app, children...)
	e.want(report.Results, "ConfigMap controlled: foreign", "ConfigMap labelled: foreign", "ConfigMap nobodys: foreign",
		"ConfigMap former: foreign", "ConfigMap own: created")
	foreign, ok := errors.AsType[*owned.ForeignError](err)
	if !ok || !strings.Contains(foreign.Holder, "WebApp other") {
		t.Errorf("the error is %v", err)
	}
	for _, part := range []string{"set another of shop/theirs", "no owner", "an earlier " + e.key("web").String()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q: %v", part, err)
		}
	}
	for _, name := range []string{"labelled", "nobodys", "former"} {
		if got := e.get(e.key(name)).Data["of"]; got == "web" {
			t.Errorf("%s was changed", name)
		}
	}

	adopting := e.set(func(c *owned.Config) { c.AdoptOrphans = true })
	report, _ = adopting.Apply(t.Context(), app, children...)
	e.want(report.Results, "ConfigMap controlled: foreign", "ConfigMap labelled: foreign", "ConfigMap nobodys: updated",
		"ConfigMap former: updated", "ConfigMap own: unchanged")
	if got := e.get(e.key("former")); !metav1.IsControlledBy(got, app) || got.Labels["evenkeel.dev/owner-uid"] != string(app.GetUID()) {
		t.Errorf("not taken over: %+v", got.ObjectMeta)
	}
}

func job(namespace, image string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "migrate"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: image}},
		}}},
	}
}

// A change of an immutable field is an error that names the field. If Recreate permits it, the child is deleted, and
// created in a later run.
func TestImmutableFields(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	frozenConfig := e.configMap("frozen", "colour", "blue")
	frozenConfig.Immutable = new(true)
	e.apply(set, app, owned.Of(frozenConfig, job(e.namespace, "one"))...)
	uid := e.get(e.key("frozen")).UID

	changed := frozenConfig.DeepCopy()
	changed.Data["colour"] = "red"
	report, err := set.Apply(t.Context(), app, owned.Of(changed, job(e.namespace, "two"))...)
	e.want(report.Results, "ConfigMap frozen: failed", "Job migrate: failed")
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "/frozen: data cannot be changed") || !strings.Contains(err.Error(), "spec.template") {
		t.Errorf("the error is %v", err)
	}
	if e.get(e.key("frozen")).UID != uid {
		t.Fatal("it was created anew, and nobody has allowed that")
	}

	children := []owned.Child{
		{Object: changed, Recreate: true},
		{Object: job(e.namespace, "two"), Recreate: true},
	}
	recorder := &recorder{}
	set = e.set(func(c *owned.Config) { c.Events = recorder })
	report = e.apply(set, app, children...)
	e.want(report.Results, "ConfigMap frozen: recreating", "Job migrate: recreating")
	if report.Ready() || len(recorder.notes()) != 2 {
		t.Errorf("ready %t, events %q", report.Ready(), recorder.notes())
	}
	clustertest.Eventually(t, func() string {
		report = e.apply(set, app, children...)
		if r := report.Results[1]; r.Object == nil {
			return r.String() + " " + string(r.Outcome) // the Job's orphan finalizer may delay the deletion
		}
		return ""
	})
	got := e.get(e.key("frozen"))
	if got.UID == uid || got.Data["colour"] != "red" {
		t.Errorf("it was not created anew: %+v", got)
	}
}

// A child that the API server rejects for another reason is not deleted.
func TestOtherInvalidFieldsDoNotRecreate(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app, recreated(job(e.namespace, "one"))...)
	bad := job(e.namespace, "two") // an immutable field is changed, and another field is invalid
	bad.Spec.Parallelism = new(int32(-1))
	report, err := set.Apply(t.Context(), app, recreated(bad)...)
	e.want(report.Results, "Job migrate: failed")
	if err == nil {
		t.Error("no error")
	}
	if got := must(client.Get[*batchv1.Job](t.Context(), e.c, e.key("migrate")))(t); got.DeletionTimestamp != nil {
		t.Error("it was deleted")
	}
}

// Invalid children are rejected before any request.
func TestInvalidChildrenRejectedWithoutRequest(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app) // the kinds that the cluster serves are cached
	seen := newCalls()
	ctx := kube.ObserveCalls(t.Context(), seen)
	nameless := e.configMap("")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "p"}}
	_, err := set.Apply(ctx, app, owned.Of(e.configMap("a"), e.configMap("a"), nameless, pod, nil, configMapIn("elsewhere", "b"))...)
	for _, part := range []string{"twice", "has no name", "Config.Kinds", "Object is nil", "Config.Namespaces"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not tell %q: %v", part, err)
		}
	}
	unread := &unstructured.Unstructured{}
	unread.SetGroupVersionKind(appKind)
	unread.SetName("web")
	if _, err := set.Apply(ctx, unread); err == nil || !strings.Contains(err.Error(), "uid") {
		t.Errorf("an owner without a uid: %v", err)
	}
	if requests := seen.Take(); len(requests) != 0 {
		t.Errorf("requests were made: %q", requests)
	}
}

// A lower wave may contain the namespace of a child or the definition of its kind.
func TestKindsAndNamespacesCreatedByLowerWaves(t *testing.T) {
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		app := e.app("web")
		crdKind := definition(gadgetKind, "gadgets", "Namespaced").GroupVersionKind()
		other := e.namespace + "-made"
		set := e.set(func(c *owned.Config) {
			c.Kinds = append(c.Kinds, crdKind, gadgetKind, namespaceKind)
			c.Namespaces = []string{metav1.NamespaceAll}
		})
		gadget := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": 3}}} // an int, as people write it
		gadget.SetGroupVersionKind(gadgetKind)
		gadget.SetName("g")
		children := slices.Concat(
			owned.Of(definition(gadgetKind, "gadgets", "Namespaced"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}),
			owned.Wave(1, gadget, configMapIn(other, "c")))

		plan := must(set.Plan(t.Context(), app, children...))(t)
		e.want(plan.Results, "CustomResourceDefinition gadgets.gadgets.example.com: created", "Namespace "+other+": created",
			"Gadget g: created", "ConfigMap c: created")
		clustertest.Eventually(t, func() string {
			report, err := set.Apply(t.Context(), app, children...)
			return unready(report, err)
		})
		clustertest.Eventually(t, func() string {
			if report := must(set.Delete(t.Context(), app))(t); report.Remaining() != "" {
				return report.Remaining()
			}
			return ""
		})
	})
}

// If the cache does not contain the existing objects, Apply neither takes over foreign objects nor leaves children
// behind.
func TestApplyWithEmptyCache(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	informer := &frozen{t: t, objects: map[kube.Key]*corev1.ConfigMap{}}
	cached := clustertest.Client(t, e.cluster, informer.shown())
	set := e.set(func(c *owned.Config) { c.Client = cached })
	must(client.Create(t.Context(), e.c, e.configMap("foreign", "of", "a user")))(t)
	e.apply(e.set(), app, owned.Of(e.configMap("own"))...)

	report, err := set.Apply(t.Context(), app, owned.Of(e.configMap("foreign", "of", "the set"), e.configMap("own"))...)
	e.want(report.Results[:1], "ConfigMap foreign: foreign")
	if r := report.Results[1]; r.Err != nil || r.Object == nil || r.Outcome == owned.Created {
		t.Errorf("the child that the cache does not show: %+v", r)
	}
	if got := e.get(e.key("foreign")).Data["of"]; got != "a user" {
		t.Errorf("the user's object was changed: %q, %v", got, err)
	}
	report = must(set.Delete(t.Context(), app))(t)
	e.want(report.Results, "ConfigMap own: deleted")
	if report.Remaining() != "" || e.get(e.key("own")) != nil {
		t.Error("a child was left behind")
	}
}
