package toolkit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// The tests of this file run without a garbage collector. For the next owner of the same name, this is like a garbage
// collector that has missed the deletion of the former owner.

// recreated has an owner that was deleted and created again under the same name, and the child of the first owner.
type recreated struct {
	*testing.T
	c             *client.Client
	namespace     string
	first, second *corev1.ConfigMap // the owners
	child         *corev1.ConfigMap // as applied for the first owner
}

func newRecreated(t *testing.T) recreated {
	t.Helper()
	c := clustertest.Client(t, clustertest.Connect(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true})))
	r := recreated{T: t, c: c, namespace: clustertest.Namespace(t, c)}
	r.first = r.owner()
	if _, err := r.set(time.Hour).Apply(t.Context(), r.first, owned.Of(r.configMap("child"))...); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), c, r.first); err != nil {
		t.Fatal(err)
	}
	r.second, r.child = r.owner(), r.get("child")
	return r
}

func (r recreated) configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}, Data: map[string]string{"colour": "blue"}}
}

func (r recreated) owner() *corev1.ConfigMap {
	r.Helper()
	owner, err := client.Create(r.Context(), r.c, r.configMap("owner"))
	if err != nil {
		r.Fatal(err)
	}
	return owner
}

func (r recreated) get(name string) *corev1.ConfigMap {
	r.Helper()
	obj, err := client.Get[*corev1.ConfigMap](r.Context(), r.c, kube.Key{Namespace: r.namespace, Name: name})
	if errors.Is(err, client.ErrGone) {
		return nil
	}
	if err != nil {
		r.Fatal(err)
	}
	return obj
}

func (r recreated) set(grace time.Duration, change ...func(*owned.Config)) *owned.Set {
	r.Helper()
	config := owned.Config{
		Client: r.c, Name: "former", Kinds: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		Former: owned.Former{OwnerGrace: grace},
	}
	for _, c := range change {
		c(&config)
	}
	set, err := owned.New(config)
	if err != nil {
		r.Fatal(err)
	}
	return set
}

// apply applies the child for an owner, and returns the child's result.
func (r recreated) apply(set *owned.Set, owner kube.Object) (owned.Report, owned.Result, error) {
	r.Helper()
	report, err := set.Apply(r.Context(), owner, owned.Of(r.configMap("child"))...)
	if len(report.Results) != 1 {
		r.Fatalf("the results are %v: %v", report.Results, err)
	}
	return report, report.Results[0], err
}

// reasons collects the reasons of Events.
type reasons []string

func (r *reasons) Event(_ corev1.ObjectReference, _, reason, _, _ string) { *r = append(*r, reason) }

// A child of a former owner that the garbage collector does not delete is deleted after the grace period, and created
// again by the next run. Until then, the report says what the child waits for.
func TestChildOfFormerOwnerIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRecreated(t)
	report, result, err := r.apply(r.set(time.Hour), r.second)
	foreign, ok := errors.AsType[*owned.ForeignError](err)
	if result.Outcome != "foreign" || !ok || !foreign.Former || !strings.Contains(err.Error(), "it is deleted at "+
		r.second.CreationTimestamp.Add(time.Hour).UTC().Format(time.RFC3339)) {
		t.Errorf("in the grace time: %s, %v", result.Outcome, err)
	}
	if states := report.States(); states[0].Status != readiness.InProgress {
		t.Errorf("the states are %v", states)
	}
	if report.RunAgain <= 59*time.Minute || report.RunAgain > time.Hour {
		t.Errorf("it asks to run again in %s", report.RunAgain)
	}
	if plan, _ := r.set(time.Hour).Plan(t.Context(), r.second, owned.Of(r.configMap("child"))...); plan.Results[0].Outcome != "foreign" {
		t.Errorf("the plan says %s", plan)
	}
	if now := r.get("child"); now == nil || now.ResourceVersion != r.child.ResourceVersion {
		t.Fatal("it was changed in the grace time")
	}

	plan, err := r.set(time.Nanosecond).Plan(t.Context(), r.second, owned.Of(r.configMap("child"))...)
	if err != nil || plan.Results[0].Outcome != "recreating" || !strings.Contains(plan.String(), "it belonged to ConfigMap owner (uid "+string(r.first.UID)) {
		t.Errorf("the plan says %s: %v", plan, err)
	}
	if now := r.get("child"); now == nil || now.ResourceVersion != r.child.ResourceVersion {
		t.Fatal("the plan has changed it")
	}

	events := &reasons{}
	_, result, err = r.apply(r.set(time.Nanosecond, func(c *owned.Config) { c.Events = events }), r.second)
	if err != nil || result.Outcome != "recreating" || r.get("child") != nil {
		t.Fatalf("after the grace time: %s, %v", result.Outcome, err)
	}
	if len(*events) != 1 || (*events)[0] != "ChildRecreating" {
		t.Errorf("the Events have reasons %q", *events)
	}
	if _, result, err = r.apply(r.set(time.Nanosecond), r.second); err != nil || result.Outcome != owned.Created {
		t.Errorf("%s, %v", result.Outcome, err)
	}
	if now := r.get("child"); !metav1.IsControlledBy(now, r.second) {
		t.Errorf("%+v", now)
	}
}

// A run that began with the former owner, which was replaced in the meantime, deletes nothing. For this run, the child
// of the current owner looks like a child of a former owner.
func TestRunOfReplacedOwnerDeletesNothing(t *testing.T) {
	t.Parallel()
	r := newRecreated(t)
	set := r.set(time.Nanosecond)
	for range 2 { // the child is deleted, and created for the second owner
		if _, _, err := r.apply(set, r.second); err != nil {
			t.Fatal(err)
		}
	}
	uid := r.get("child").UID
	_, result, err := r.apply(set, r.first)
	if result.Outcome != "failed" || !errors.Is(err, client.ErrReplaced) {
		t.Errorf("%s, %v", result.Outcome, err)
	}
	if now := r.get("child"); now == nil || now.UID != uid {
		t.Error("the child of the present owner was deleted")
	}

	if err := client.Delete(t.Context(), r.c, r.second); err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[*corev1.ConfigMap]error{r.first: client.ErrGone, r.second: nil} {
		if _, _, err := r.apply(set, owner); !errors.Is(err, want) {
			t.Errorf("without an owner: %v", err)
		}
	}
	if now := r.get("child"); now == nil || now.UID != uid {
		t.Error("the child was deleted without an owner")
	}
}

// An object is deleted only if it certainly belongs to the former owner, and to no other owner.
func TestOnlyChildOfFormerOwnerIsDeleted(t *testing.T) {
	t.Parallel()
	for name, patch := range map[string]string{
		"another set's":           `{"metadata":{"labels":{"evenkeel.dev/set":"another"}}}`,
		"without the set's label": `{"metadata":{"labels":{"evenkeel.dev/set":null}}}`,
		"of another uid":          `{"metadata":{"labels":{"evenkeel.dev/owner-uid":"u1"}}}`,
		"a copy":                  `{"metadata":{"annotations":{"evenkeel.dev/child":"shop/other"}}}`,
		"shared with an owner":    "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecreated(t)
			change := client.RawPatch(types.MergePatchType, []byte(patch))
			if patch == "" {
				shared := r.child.DeepCopy()
				if err := ownerref.Set(t.Context(), r.c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: r.namespace, Name: "another", UID: "another",
				}}, shared); err != nil {
					t.Fatal(err)
				}
				change = client.MergeFrom(r.child, shared)
			}
			if _, err := client.Patch(t.Context(), r.c, r.child, change); err != nil {
				t.Fatal(err)
			}
			report, result, err := r.apply(r.set(time.Nanosecond), r.second)
			foreign, ok := errors.AsType[*owned.ForeignError](err)
			if result.Outcome != "foreign" || !ok || !foreign.Former || !strings.Contains(err.Error(), "if it stays, delete it") || report.RunAgain != 0 {
				t.Errorf("%s, %v, run again in %s", result.Outcome, err, report.RunAgain)
			}
			if now := r.get("child"); now == nil || now.DeletionTimestamp != nil {
				t.Error("it was deleted")
			}
		})
	}
}

// A child that another client takes over between the read and the deletion is not deleted.
func TestConcurrentlyChangedChildOfFormerOwnerStays(t *testing.T) {
	t.Parallel()
	r := newRecreated(t)
	taken := false
	meddling, err := r.c.With(func(config *client.Config) {
		config.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, request *client.Request) error {
				if !taken && request.Key.Name == "child" {
					taken = true
					if _, err := client.Patch(ctx, r.c, r.child, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))); err != nil {
						return err
					}
				}
				return next(ctx, request)
			}
		}, client.VerbDelete)}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, result, err := r.apply(r.set(time.Nanosecond, func(c *owned.Config) { c.Client = meddling }), r.second)
	foreign, ok := errors.AsType[*owned.ForeignError](err)
	if result.Outcome != "foreign" || !ok || !foreign.Orphan {
		t.Errorf("%s, %v", result.Outcome, err)
	}
	if r.get("child") == nil {
		t.Error("it was deleted")
	}
}

// A former owner's child with a finalizer is deleted once, and then reported as terminating.
func TestChildOfFormerOwnerWithFinalizer(t *testing.T) {
	t.Parallel()
	r := newRecreated(t)
	finalizers := func(list string) {
		t.Helper()
		if _, err := client.Patch(t.Context(), r.c, r.child, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/volume"]`)
	set := r.set(time.Nanosecond)
	if _, result, err := r.apply(set, r.second); err != nil || result.Outcome != "recreating" {
		t.Fatalf("%s, %v", result.Outcome, err)
	}
	_, result, err := r.apply(set, r.second)
	if result.Outcome != "foreign" || err == nil || !strings.Contains(err.Error(), "held by finalizers example.com/volume") {
		t.Errorf("%s, %v", result.Outcome, err)
	}
	finalizers("null")
	if _, result, err = r.apply(set, r.second); err != nil || result.Outcome != owned.Created {
		t.Errorf("%s, %v", result.Outcome, err)
	}
}
