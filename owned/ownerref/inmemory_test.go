package ownerref_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

// shop is a custom kind that only a scheme knows.
type shop struct{ corev1.ConfigMap }

func shops() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Shop"}, &shop{})
	return scheme
}

func (s *shop) DeepCopyObject() runtime.Object { return &shop{*s.ConfigMap.DeepCopy()} }

func named(obj kube.Object, namespace, name, uid string) kube.Object {
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetUID(types.UID(uid))
	return obj
}

func TestSetControllerInMemory(t *testing.T) {
	t.Parallel()
	controller := func(version, kind, name, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true), BlockOwnerDeletion: new(true)}
	}
	plain := ref("ReplicaSet", "plain", "r2", false)
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(schema.GroupVersionKind{Group: "shop.example.com", Version: "v2", Kind: "Shop"})
	for name, test := range map[string]struct {
		scheme *runtime.Scheme
		owner  kube.Object
		child  kube.Object
		want   []metav1.OwnerReference
	}{
		"a built-in kind":             {owner: named(&appsv1.Deployment{}, "shop", "web", "d1"), child: object("p", ""), want: []metav1.OwnerReference{controller("apps/v1", "Deployment", "web", "d1")}},
		"a registered kind":           {scheme: shops(), owner: named(&shop{}, "shop", "s", "s1"), child: object("p", ""), want: []metav1.OwnerReference{controller("shop.example.com/v1", "Shop", "s", "s1")}},
		"the kind of the object":      {owner: named(metadata, "shop", "s", "s1"), child: object("p", ""), want: []metav1.OwnerReference{controller("shop.example.com/v2", "Shop", "s", "s1")}},
		"a cluster-scoped owner":      {owner: named(&corev1.Node{}, "", "n1", "n1"), child: object("p", ""), want: []metav1.OwnerReference{controller("v1", "Node", "n1", "n1")}},
		"both cluster-scoped":         {owner: named(&corev1.Node{}, "", "n1", "n1"), child: named(&corev1.PersistentVolume{}, "", "pv", ""), want: []metav1.OwnerReference{controller("v1", "Node", "n1", "n1")}},
		"a child without a kind":      {owner: named(&corev1.Node{}, "", "n1", "n1"), child: named(&shop{}, "shop", "s", ""), want: []metav1.OwnerReference{controller("v1", "Node", "n1", "n1")}},
		"beside other owners":         {owner: named(&corev1.Node{}, "", "n1", "n1"), child: object("p", "", plain), want: []metav1.OwnerReference{plain, controller("v1", "Node", "n1", "n1")}},
		"an owner becomes controller": {owner: named(&appsv1.ReplicaSet{}, "shop", "plain", "r2"), child: object("p", "", plain), want: []metav1.OwnerReference{controller("apps/v1", "ReplicaSet", "plain", "r2")}},
	} {
		if err := ownerref.SetControllerInMemory(test.scheme, test.owner, test.child); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, test.child.GetOwnerReferences()); diff != "" {
			t.Errorf("%s: references (-want +got):\n%s", name, diff)
		}
	}
}

func TestSetControllerInMemoryFails(t *testing.T) {
	t.Parallel()
	web := named(&appsv1.Deployment{}, "shop", "web", "d1")
	var nobody *corev1.Pod
	for name, test := range map[string]struct {
		owner, child kube.Object
		is           error
		want         string
	}{
		"another namespace":       {owner: web, child: named(&corev1.Pod{}, "bank", "p", ""), is: ownerref.ErrScope, want: "Pod bank/p is not in the namespace of Deployment shop/web"},
		"a cluster-scoped child":  {owner: web, child: named(&corev1.Node{}, "", "n", ""), is: ownerref.ErrScope, want: "Node n lives in no namespace"},
		"an unknown child":        {owner: web, child: named(&shop{}, "", "s", ""), is: ownerref.ErrScope, want: "*ownerref_test.shop s lives in no namespace"},
		"another controller":      {owner: web, child: object("p", "", ref("ReplicaSet", "r", "r1", true)), want: "Pod shop/p has a controller already: ReplicaSet r (uid r1)"},
		"an earlier controller":   {owner: web, child: object("p", "", ref("Deployment", "web", "d0", true)), want: "an earlier object of that name"},
		"an owner without a uid":  {owner: named(&appsv1.Deployment{}, "shop", "web", ""), child: object("p", ""), want: "Deployment shop/web has no uid"},
		"itself":                  {owner: object("p", "p1"), child: object("p", "p1"), want: "would own itself"},
		"an owner without a kind": {owner: named(&shop{}, "shop", "s", "s1"), child: object("p", ""), want: "the kind of a *ownerref_test.shop is unknown"},
		"no owner":                {owner: nobody, child: object("p", ""), want: "the owner is nil"},
		"no child":                {owner: web, child: nobody, want: "the child is nil"},
	} {
		var before []metav1.OwnerReference
		if test.child != kube.Object(nobody) {
			before = test.child.GetOwnerReferences()
		}
		err := ownerref.SetControllerInMemory(nil, test.owner, test.child)
		if err == nil || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.want)
		}
		if strings.Contains(test.want, "earlier") {
			if owned, ok := errors.AsType[*ownerref.AlreadyOwnedError](err); !ok || !owned.Former {
				t.Errorf("%s: the error is %#v", name, err)
			}
		}
		if test.child != kube.Object(nobody) && !cmp.Equal(before, test.child.GetOwnerReferences()) {
			t.Errorf("%s: the child was changed: %+v", name, test.child.GetOwnerReferences())
		}
	}
}

// A function that computes the children of an object needs neither a client nor a cluster.
func ExampleSetControllerInMemory() {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "4711"}}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-settings"}}
	if err := ownerref.SetControllerInMemory(nil, web, child); err != nil {
		fmt.Println(err)
		return
	}
	owner := metav1.GetControllerOf(child)
	fmt.Println(owner.APIVersion, owner.Kind, owner.Name, owner.UID)

	child.Namespace = "bank"
	fmt.Println(errors.Is(ownerref.SetControllerInMemory(nil, web, child), ownerref.ErrScope))
	// Output:
	// apps/v1 Deployment web 4711
	// true
}
