package ownerref_test

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dev/integration/ownerref has the tests that need a cluster.

func object(name, uid string, owners ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), OwnerReferences: owners}}
}

func ref(kind, name, uid string, controller bool) metav1.OwnerReference {
	ref := metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(uid)}
	if controller {
		ref.Controller = new(true)
	}
	return ref
}

func TestOwnersAreIdentifiedByUID(t *testing.T) {
	t.Parallel()
	child := object("web-1", "p1", ref("ReplicaSet", "web", "r1", true), ref("ReplicaSet", "other", "r2", false))
	web, plain, sameName, unread := object("web", "r1"), object("other", "r2"), object("web", "r9"), object("web", "")
	for name, test := range map[string]struct {
		owner           *corev1.Pod
		has, controlled bool
	}{
		"controller":                {web, true, true},
		"plain owner":               {plain, true, false},
		"same name and another uid": {sameName, false, false},
		"no uid":                    {unread, false, false},
	} {
		if got := metav1.IsControlledBy(child, test.owner); got != test.controlled {
			t.Errorf("%s: IsControlledBy is %t", name, got)
		}
		changed := child.DeepCopy()
		if got := ownerref.Remove(test.owner, changed); got != test.has || hasOwner(test.owner, changed) {
			t.Errorf("%s: Remove: %t, %+v", name, got, changed.OwnerReferences)
		}
		if len(child.OwnerReferences) != 2 {
			t.Fatalf("%s: the references of the original were changed", name)
		}
	}
}

// hasOwner reports whether child has a reference to owner.
func hasOwner(owner, child metav1.Object) bool {
	return slices.ContainsFunc(child.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() })
}

// SetController must detect invalid objects without a request: this cluster does not exist.
func TestInvalidObjectsRejectedWithoutRequest(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://nowhere.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	for want, test := range map[string]struct{ owner, child kube.Object }{
		"no uid":       {object("web", ""), object("web-1", "")},
		"itself":       {object("web", "r1"), object("web", "r1")},
		"child is nil": {object("web", "r1"), nil},
		"owner is nil": {nil, object("web-1", "")},
	} {
		if err := ownerref.SetController(t.Context(), c, test.owner, test.child); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
