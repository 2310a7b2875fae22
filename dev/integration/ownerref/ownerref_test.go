// Package ownerref tests package ownerref on an API server in memory and on a real one.
package ownerref

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// anyCluster has no garbage collector.
var anyCluster anycluster.Cluster

func TestMain(m *testing.M) { anyCluster.Main(m, localcluster.Config{}) }

type env struct{ clustertest.Env }

func newEnv(t *testing.T) env {
	t.Helper()
	return env{clustertest.NewEnv(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true}))}
}

func (e env) configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
}

func (e env) create(name string) *corev1.ConfigMap {
	e.Helper()
	return clustertest.Must(client.Create(e.Context(), e.Client, e.configMap(name)))(e)
}

func (e env) live(obj *corev1.ConfigMap) *corev1.ConfigMap {
	e.Helper()
	return clustertest.Must(client.GetLive(e.Context(), e.Client, obj))(e)
}

// Scopes are discovered from the cluster, and an impossible owner is rejected before a write.
func TestScopes(t *testing.T) {
	e := newEnv(t)
	owner := e.create("owner")
	node := clustertest.Must(client.Create(t.Context(), e.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}))(t)
	elsewhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: owner.ObjectMeta}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	loose := &unstructured.Unstructured{}
	loose.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	loose.SetName("u")
	for name, test := range map[string]struct {
		owner, child kube.Object
		want         string // in the error; "": none
	}{
		"in one namespace":                       {owner, e.configMap("c"), ""},
		"in another namespace":                   {owner, elsewhere, "not in the namespace"},
		"namespaced owner of cluster-scoped":     {owner, role, "lives in no namespace"},
		"metadata-only owner, unstructured":      {metadata, loose, "lives in no namespace"},
		"metadata-only owner, in its namespace":  {metadata, e.configMap("c"), ""},
		"cluster-scoped owner of namespaced":     {node, elsewhere, ""},
		"cluster-scoped owner of cluster-scoped": {node, role, ""},
		"an owner without a uid":                 {e.configMap("o"), e.configMap("c"), "no uid"},
		"itself":                                 {owner, owner, "itself"},
		"a nil child":                            {owner, (*corev1.ConfigMap)(nil), "nil"},
	} {
		for kind, set := range map[string]func(context.Context, *client.Client, kube.Object, kube.Object) error{
			"controller": ownerref.SetController, "plain": ownerref.Set,
		} {
			err := set(t.Context(), e.Client, test.owner, test.child)
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%s, %s: %v", name, kind, err)
			case strings.Contains(test.want, "namespace") && !errors.Is(err, ownerref.ErrScope):
				t.Errorf("%s, %s: not an ErrScope: %v", name, kind, err)
			}
		}
	}
}

// hasOwner reports whether child has a reference to owner.
func hasOwner(owner, child metav1.Object) bool {
	return slices.ContainsFunc(child.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() })
}

// References are set once, in place, and references of other owners are kept.
func TestSetInMemory(t *testing.T) {
	e := newEnv(t)
	first, second, child := e.create("first"), e.create("second"), e.configMap("child")
	set := func(owner kube.Object) {
		t.Helper()
		if err := ownerref.Set(t.Context(), e.Client, owner, child); err != nil {
			t.Fatal(err)
		}
	}
	set(first)
	if ref := child.OwnerReferences[0]; ref.Controller != nil || ref.BlockOwnerDeletion != nil || ref.APIVersion != "v1" || ref.Kind != "ConfigMap" {
		t.Errorf("a plain reference: %+v", ref)
	}
	set(second)
	child.OwnerReferences[0].APIVersion = "v0" // by an earlier version of the program
	child.OwnerReferences = append(child.OwnerReferences, child.OwnerReferences[0])
	if err := ownerref.SetController(t.Context(), e.Client, first, child); err != nil {
		t.Fatal(err)
	}
	refs := child.OwnerReferences
	if len(refs) != 2 || refs[0].APIVersion != "v1" || !*refs[0].Controller || !*refs[0].BlockOwnerDeletion || refs[1].UID != second.UID {
		t.Errorf("the references are %+v", refs)
	}
	owned, ok := errors.AsType[*ownerref.AlreadyOwnedError](ownerref.SetController(t.Context(), e.Client, second, child))
	if !ok || owned.Controller.UID != first.UID || owned.Former {
		t.Errorf("%+v", owned)
	}
	former := e.configMap("first")
	former.UID = "another"
	owned, ok = errors.AsType[*ownerref.AlreadyOwnedError](ownerref.SetController(t.Context(), e.Client, former, child))
	if !ok || !owned.Former {
		t.Errorf("%+v", owned)
	}
	set(first)
	if metav1.GetControllerOf(child) != nil {
		t.Error("it is still the controller")
	}
}

// Adopt writes once, and nothing if the reference exists. Release removes only its own reference.
func TestAdoptAndRelease(t *testing.T) {
	e := newEnv(t)
	owner, other, child := e.create("owner"), e.create("other"), e.create("child")
	given := child.DeepCopy()
	seen := &fixture.Calls{Text: fixture.Verb}
	ctx := kube.ObserveCalls(t.Context(), seen)
	adopted := clustertest.Must(ownerref.Adopt(ctx, e.Client, owner, child))(t)
	if !metav1.IsControlledBy(adopted, owner) || hasOwner(owner, child) || child.ResourceVersion != given.ResourceVersion {
		t.Errorf("adopted %+v, given %+v", adopted.OwnerReferences, child.OwnerReferences)
	}
	if requests := seen.Take(); !slices.Equal(requests, []string{"get", "patch"}) {
		t.Errorf("requests %q", requests)
	}
	clustertest.Must(ownerref.Adopt(ctx, e.Client, owner, adopted))(t)
	if requests := seen.Take(); len(requests) != 0 {
		t.Errorf("it is so already: %q", requests)
	}
	if _, err := ownerref.Adopt(ctx, e.Client, other, adopted); !isAlreadyOwned(err) {
		t.Errorf("by another: %v", err)
	}
	// The cache of the other owner does not show it yet.
	if _, err := ownerref.Adopt(ctx, e.Client, other, child); !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) {
		t.Errorf("by another that does not know: %v", err)
	}
	if got := e.live(child); !metav1.IsControlledBy(got, owner) || len(got.OwnerReferences) != 1 {
		t.Errorf("%+v", got.OwnerReferences)
	}

	before := e.live(child)
	both := before.DeepCopy()
	if err := ownerref.Set(t.Context(), e.Client, other, both); err != nil {
		t.Fatal(err)
	}
	clustertest.Must(client.Patch(t.Context(), e.Client, before, client.MergeFrom(before, both)))(t)
	if _, err := ownerref.Release(ctx, e.Client, owner, before); !errors.Is(err, client.ErrChanged) {
		t.Errorf("a stale list: %v", err)
	}
	released := clustertest.Must(ownerref.Release(ctx, e.Client, owner, e.live(child)))(t)
	if len(released.OwnerReferences) != 1 || !hasOwner(other, released) {
		t.Errorf("released %+v", released.OwnerReferences)
	}
	released = clustertest.Must(ownerref.Release(ctx, e.Client, other, released))(t)
	if len(released.OwnerReferences) != 0 {
		t.Errorf("released %+v", released.OwnerReferences)
	}
	seen.Take()
	clustertest.Must(ownerref.Release(ctx, e.Client, other, released))(t)
	if requests := seen.Take(); len(requests) != 0 {
		t.Errorf("it is so already: %q", requests)
	}
}

func isAlreadyOwned(err error) bool {
	_, ok := errors.AsType[*ownerref.AlreadyOwnedError](err)
	return ok
}

// An object that is being deleted neither adopts nor is adopted. The live state decides, not the cache.
func TestAdoptRejectsObjectsBeingDeleted(t *testing.T) {
	e := newEnv(t)
	hold := func(name string) *corev1.ConfigMap {
		held := e.configMap(name)
		held.Finalizers = []string{"example.com/held"}
		return clustertest.Must(client.Create(t.Context(), e.Client, held))(t)
	}
	remove := func(obj *corev1.ConfigMap) {
		t.Helper()
		if err := client.Delete(t.Context(), e.Client, obj); err != nil {
			t.Fatal(err)
		}
	}
	owner, child := hold("owner"), hold("child")
	t.Cleanup(func() {
		for _, obj := range []*corev1.ConfigMap{owner, child} {
			_, _ = client.Patch(context.WithoutCancel(t.Context()), e.Client, obj, client.JSONPatch(client.Operation{Op: "remove", Path: "/metadata/finalizers"}))
		}
	})
	remove(child)
	if _, err := ownerref.Adopt(t.Context(), e.Client, owner, child); !errors.Is(err, client.ErrTerminating) {
		t.Errorf("a stale child that is being deleted: %v", err)
	}
	if _, err := ownerref.Adopt(t.Context(), e.Client, owner, e.live(child)); !errors.Is(err, client.ErrTerminating) {
		t.Errorf("a child that is being deleted: %v", err)
	}
	free := e.create("free")
	remove(owner)
	if _, err := ownerref.Adopt(t.Context(), e.Client, owner, free); !errors.Is(err, client.ErrTerminating) {
		t.Errorf("an owner that is being deleted: %v", err)
	}
	gone := e.create("gone")
	remove(gone)
	if _, err := ownerref.Adopt(t.Context(), e.Client, gone, free); !errors.Is(err, client.ErrGone) {
		t.Errorf("an owner that is gone: %v", err)
	}
	e.create("gone")
	if _, err := ownerref.Adopt(t.Context(), e.Client, gone, free); !errors.Is(err, client.ErrReplaced) {
		t.Errorf("an owner that was replaced: %v", err)
	}
	second := e.create("here")
	remove(free)
	e.create("free")
	if _, err := ownerref.Adopt(t.Context(), e.Client, second, free); !errors.Is(err, client.ErrReplaced) {
		t.Errorf("a child that was replaced: %v", err)
	}
}

// The API server accepts a reference that was set without a client, and it is the one that SetController sets.
func TestSetControllerInMemoryEqualsSetController(t *testing.T) {
	e := newEnv(t)
	owner := e.create("owner")
	offline, online := e.configMap("offline"), e.configMap("online")
	if err := ownerref.SetControllerInMemory(nil, owner, offline); err != nil {
		t.Fatal(err)
	}
	if err := ownerref.SetController(t.Context(), e.Client, owner, online); err != nil {
		t.Fatal(err)
	}
	stored := clustertest.Must(client.Create(t.Context(), e.Client, offline))(t)
	if diff := cmp.Diff(online.OwnerReferences, stored.OwnerReferences); diff != "" || !hasOwner(owner, stored) {
		t.Errorf("references (-SetController +SetControllerInMemory):\n%s", diff)
	}
}
