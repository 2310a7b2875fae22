package store_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/store"
)

// testStore holds an implementation of Store to what Store promises. Each implementation
// has a test that calls it; newStore must return an empty store.
func testStore(t *testing.T, newStore func() store.Store[*corev1.Pod]) {
	t.Helper()
	for name, test := range map[string]func(fixture){
		"empty":                          testEmpty,
		"what was put is got":            testPutGet,
		"put replaces":                   testReplace,
		"delete forgets":                 testDelete,
		"keys are namespace and name":    testKeysAreDistinct,
		"readers own their copies":       testReadersOwnTheirCopies,
		"an old copy stays as it was":    testOldCopiesStay,
		"version tells the kept state":   testVersion,
		"keys are those of the start":    testKeysAreASnapshot,
		"an iteration may stop":          testKeysMayStop,
		"an iteration may be repeated":   testKeysMayBeRepeated,
		"concurrent use":                 testConcurrentUse,
		"objects of every size and form": testForms,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(fixture{t, newStore()})
		})
	}
}

// fixture is what each test gets.
type fixture struct {
	t     *testing.T
	empty store.Store[*corev1.Pod]
}

// pod returns a Pod with something in each of the places where copies are often shallow.
func pod(key kube.Key, revision int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			UID: types.UID("uid of " + key.String()), ResourceVersion: strconv.Itoa(revision),
			Labels:          map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web"}},
		},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"zone": "a"},
			Containers:   []corev1.Container{{Name: "web", Env: []corev1.EnvVar{{Name: "REVISION", Value: strconv.Itoa(revision)}}}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func key(name string) kube.Key { return kube.Key{Namespace: "default", Name: name} }

func expectGet(t *testing.T, s store.Store[*corev1.Pod], want *corev1.Pod) {
	t.Helper()
	got, found, err := s.Get(kube.KeyOf(want))
	if err != nil || !found {
		t.Fatalf("Get of %s: found %t, error %v", kube.KeyOf(want), found, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", kube.KeyOf(want), diff)
	}
}

func expectNone(t *testing.T, s store.Store[*corev1.Pod], k kube.Key) {
	t.Helper()
	if obj, found, err := s.Get(k); found || err != nil || obj != nil {
		t.Errorf("Get of %s, which is not there, returned %v, %t, %v", k, obj, found, err)
	}
	if version, found := s.Version(k); found || version != (store.Version{}) {
		t.Errorf("Version of %s, which is not there, returned %v, %t", k, version, found)
	}
}

func expectKeys(t *testing.T, s store.Store[*corev1.Pod], want ...kube.Key) {
	t.Helper()
	got := slices.Collect(s.Keys())
	byName := func(a, b kube.Key) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(got, byName)
	slices.SortFunc(want, byName)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if s.Len() != len(want) {
		t.Errorf("Len is %d, want %d", s.Len(), len(want))
	}
}

func testEmpty(in fixture) {
	t, s := in.t, in.empty
	expectNone(t, s, key("a"))
	expectKeys(t, s)
	s.Delete(key("a")) // is not an error
	expectKeys(t, s)
}

func testPutGet(in fixture) {
	t, s := in.t, in.empty
	s.Put(pod(key("a"), 1))
	s.Put(pod(key("b"), 2))
	expectGet(t, s, pod(key("a"), 1))
	expectGet(t, s, pod(key("b"), 2))
	expectNone(t, s, key("c"))
	expectKeys(t, s, key("a"), key("b"))
}

func testReplace(in fixture) {
	t, s := in.t, in.empty
	s.Put(pod(key("a"), 2))
	s.Put(pod(key("a"), 1)) // the store knows nothing of order
	expectGet(t, s, pod(key("a"), 1))
	smaller := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	s.Put(smaller.DeepCopy())
	expectGet(t, s, smaller) // nothing of the one before is left in it
	expectKeys(t, s, key("a"))
}

func testDelete(in fixture) {
	t, s := in.t, in.empty
	s.Put(pod(key("a"), 1))
	s.Put(pod(key("b"), 1))
	s.Delete(key("a"))
	expectNone(t, s, key("a"))
	expectKeys(t, s, key("b"))
	s.Put(pod(key("a"), 3))
	expectGet(t, s, pod(key("a"), 3))
}

func testKeysAreDistinct(in fixture) {
	t, s := in.t, in.empty
	keys := []kube.Key{
		{Namespace: "one", Name: "a"},
		{Namespace: "two", Name: "a"},
		{Name: "a"},
		{Name: "one"},
		{Namespace: "on", Name: "ea"},
	}
	for i, k := range keys {
		s.Put(pod(k, i))
	}
	for i, k := range keys {
		expectGet(t, s, pod(k, i))
	}
	s.Delete(keys[0])
	expectKeys(t, s, keys[1:]...)
}

func testReadersOwnTheirCopies(in fixture) {
	t, s := in.t, in.empty
	s.Put(pod(key("a"), 1))
	for range 2 { // the second copy must not be a kept first one
		got, _, err := s.Get(key("a"))
		if err != nil || got == nil {
			t.Fatalf("Get returned %v, %v", got, err)
		}
		got.Name = "changed"
		got.ResourceVersion = "99"
		got.Labels["app"] = "changed"
		got.OwnerReferences[0].Name = "changed"
		got.Spec.NodeSelector["zone"] = "changed"
		got.Spec.Containers[0].Env[0].Value = "changed"
		got.Status.Conditions[0].Status = corev1.ConditionFalse
		expectGet(t, s, pod(key("a"), 1))
	}
	if version, _ := s.Version(key("a")); version.ResourceVersion != "1" {
		t.Errorf("a reader changed the kept version to %s", version.ResourceVersion)
	}
}

func testOldCopiesStay(in fixture) {
	t, s := in.t, in.empty
	s.Put(pod(key("a"), 1))
	before, _, err := s.Get(key("a"))
	if err != nil {
		t.Fatal(err)
	}
	s.Put(pod(key("a"), 2))
	s.Delete(key("a"))
	if diff := cmp.Diff(pod(key("a"), 1), before); diff != "" {
		t.Errorf("what was read before changed (-want +got):\n%s", diff)
	}
}

func testVersion(in fixture) {
	t, s := in.t, in.empty
	expect := func(want store.Version) {
		t.Helper()
		got, found := s.Version(key("a"))
		if diff := cmp.Diff(want, got); diff != "" || !found {
			t.Errorf("found %t, version (-want +got):\n%s", found, diff)
		}
	}
	s.Put(pod(key("a"), 1))
	expect(store.Version{UID: "uid of default/a", ResourceVersion: "1"})
	again := pod(key("a"), 7)
	again.UID = "another"
	s.Put(again)
	expect(store.Version{UID: "another", ResourceVersion: "7"})
}

func testKeysAreASnapshot(in fixture) {
	t, s := in.t, in.empty
	for _, name := range []string{"a", "b", "c"} {
		s.Put(pod(key(name), 1))
	}
	seen := map[kube.Key]int{}
	for k := range s.Keys() {
		// What happens meanwhile, also what the loop itself does, neither blocks nor shows.
		seen[k]++
		s.Put(pod(key("later"), 1))
		s.Put(pod(k, 2))
		s.Delete(key("c"))
	}
	want := map[kube.Key]int{key("a"): 1, key("b"): 1, key("c"): 1}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("keys seen (-want +got):\n%s", diff)
	}
}

func testKeysMayStop(in fixture) {
	t, s := in.t, in.empty
	s.Put(pod(key("a"), 1))
	s.Put(pod(key("b"), 1))
	seen := 0
	for range s.Keys() {
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("the loop ran %d times after it was left, want 1", seen)
	}
	s.Put(pod(key("c"), 1)) // no lock is left behind
	expectKeys(t, s, key("a"), key("b"), key("c"))
}

func testKeysMayBeRepeated(in fixture) {
	t, s := in.t, in.empty
	keys := s.Keys()
	for range keys {
		t.Error("an empty store has a key")
	}
	s.Put(pod(key("a"), 1))
	// The iteration begins when it is ranged over, not when it was made.
	if diff := cmp.Diff([]kube.Key{key("a")}, slices.Collect(keys)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// testConcurrentUse is for the race detector. Besides, what is read must be whole: one
// state, never a mixture of two.
func testConcurrentUse(in fixture) {
	t, s := in.t, in.empty
	const writers, rounds, objects = 4, 200, 5
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() { // waited for below
			for i := range rounds {
				k := key(strconv.Itoa(i % objects))
				s.Put(pod(k, w*rounds+i))
				if i%20 == 19 {
					s.Delete(k)
				}
			}
		})
		all.Go(func() { // waited for below
			for i := range rounds {
				readWhole(t, s, key(strconv.Itoa(i%objects)))
				for range s.Keys() {
					_ = s.Len()
				}
			}
		})
	}
	all.Wait()
	if s.Len() > objects {
		t.Errorf("%d objects are kept, at most %d were put", s.Len(), objects)
	}
}

func readWhole(t *testing.T, s store.Store[*corev1.Pod], k kube.Key) {
	t.Helper()
	_, _ = s.Version(k)
	got, found, err := s.Get(k)
	if err != nil {
		t.Error(err)
	}
	if !found {
		return
	}
	if revision := got.Spec.Containers[0].Env[0].Value; revision != got.ResourceVersion || kube.KeyOf(got) != k {
		t.Errorf("read %s, revision %s, of resource version %s under %s", kube.KeyOf(got), revision, got.ResourceVersion, k)
	}
	got.Labels["reader"] = "mine"
}

func testForms(in fixture) {
	t, s := in.t, in.empty
	large := pod(key("large"), 1)
	large.Annotations = map[string]string{}
	for i := range 1000 {
		large.Annotations[fmt.Sprint("example.com/note-", i)] = fmt.Sprint("a note of some length, number ", i)
	}
	strange := pod(key("strange"), 1)
	maps.Copy(strange.Labels, map[string]string{"": "", "é": "\u2028 \"quoted\" \\ \x00"})
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	for _, obj := range []*corev1.Pod{large, strange, bare} {
		s.Put(obj.DeepCopy())
		expectGet(t, s, obj)
	}
}
