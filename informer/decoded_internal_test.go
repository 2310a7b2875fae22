package informer

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimepkg "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// shelf reads ConfigMaps through a decoded with a budget.
type shelf struct {
	*testing.T
	decoded *decoded
	store   *store.Store
	use     decodedUse
	large   int // the number of an object of 20 KB
}

func newShelf(t *testing.T, budget int64, objects int) *shelf {
	t.Helper()
	s := &shelf{T: t, decoded: newDecoded(), store: store.New(store.Config{}), large: -1}
	s.decoded.setBudget(budget)
	for n := range objects {
		s.put(n)
	}
	return s
}

func (s *shelf) put(n int) {
	s.Helper()
	encoded, err := wire.FromObject(s.object(n), nil)
	if err == nil {
		_, _, err = s.store.Put(encoded)
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *shelf) object(n int) *corev1.ConfigMap {
	value := "v"
	if n == s.large {
		value = strings.Repeat("v", 20<<10)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: fmt.Sprint("m", n), UID: "uid", ResourceVersion: "1",
	}, Data: map[string]string{"k": value}}
}

// read reads an object, and reports whether it was kept decoded.
func (s *shelf) read(n int) bool {
	s.Helper()
	ref, found := s.store.Get(kube.KeyOf(s.object(n)))
	if !found {
		s.Fatalf("object %d is missing", n)
	}
	return s.readState(ref, n)
}

func (s *shelf) readState(ref store.Ref, n int) bool {
	s.Helper()
	k := readKey{ref.Store(), reflect.TypeFor[*corev1.ConfigMap](), ref.KeyInState()}
	obj, r, err := s.decoded.find(k, ref.Kept, false)
	if err != nil {
		s.Fatal(err)
	}
	if r.again {
		s.decoded.keep(k, r, &s.use, ref.Kept, s.object(n), slog.New(slog.DiscardHandler))
	}
	if size := s.use.bytes.Load(); size > s.decoded.budget || size != s.decoded.size {
		s.Fatalf("%d bytes, %d of this informer, with a budget of %d", s.decoded.size, size, s.decoded.budget)
	}
	return obj != nil
}

// A part of the objects stays if more are read in turn than the budget has room for.
func TestDecodedObjectsStayDuringLongLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const room, objects = 100, 200
		s := newShelf(t, 1<<20, objects)
		for s.read(0); !s.read(0); {
		}
		s.decoded.setBudget(room * s.use.bytes.Load())
		size := int64(0)
		for range 3 {
			s.read(0)
		}
		if size = s.use.bytes.Load(); size == 0 {
			t.Fatal("nothing is kept")
		}
		s.decoded.setBudget(room * size)
		hits := 0
		for list := range 60 {
			for n := range objects {
				if s.read(n) && list >= 20 {
					hits++
				}
			}
			time.Sleep(time.Second)
		}
		if part := float64(hits) / (40 * objects); part < 0.35 {
			t.Errorf("%.2f of the reads found their object, want 0.35 of the possible 0.5", part)
		}
		// Other objects take the room over when these are not read anymore.
		recent := 0
		for list := range 200 {
			for n := range 20 {
				if s.read(n) && list >= 150 {
					recent++
				}
			}
			time.Sleep(time.Second)
		}
		if recent < 50*20*9/10 {
			t.Errorf("%d of %d reads of the few objects that are read now found them", recent, 50*20)
		}
	})
}

// No pattern of reads keeps an object out that is read much more often than others.
func TestNoPatternOfReadsKeepsObjectOut(t *testing.T) {
	t.Parallel()
	for _, others := range []int{14, 15, 16, 31} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(t, 1<<20, 1200)
			for n := range 2400 { // more than there is room for
				s.read(n % 1200)
			}
			hits := 0
			for round := range 300 {
				if s.read(0) {
					hits++
				}
				for n := range others {
					s.read(1 + (round*others+n)%1199)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if hits < 100 {
				t.Errorf("with %d others between the reads: %d hits of 300", others, hits)
			}
		})
	}
}

// A large object replaces as many small ones as it needs.
func TestLargeObjectReplacesSmallOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const small = 1200
		s := newShelf(t, 1<<20, small)
		s.large = small
		s.put(small)
		for n := range 20 * small {
			s.read(n % small)
		}
		hits := 0
		for n := range 3000 {
			if s.read(small) {
				hits++
			}
			s.read(n % small)
			time.Sleep(time.Millisecond)
		}
		if hits < 2000 {
			t.Errorf("%d of 3000 reads of the large object found it", hits)
		}
	})
}

// Objects that are read again and again replace those that are not read anymore within a second.
func TestRepeatedListReplacesIdleObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const objects, listed = 1200, 300
		s := newShelf(t, 1<<20, objects)
		for n := range 2 * objects { // more than there is room for
			s.read(n % objects)
		}
		hits := 0
		for range 100 {
			hits = 0
			for n := range listed {
				if s.read(objects - 1 - n) {
					hits++
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if hits < listed*9/10 {
			t.Errorf("%d of %d reads found their object after a second", hits, listed)
		}
	})
}

// Objects that are read in a random order are seldom replaced, because copies of them cost time.
func TestRandomReadsSeldomReplace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const objects, reads = 2000, 20000
		s := newShelf(t, 1<<20, objects)
		random := rand.New(rand.NewPCG(1, 2))
		hits, replaced, before := 0, 0, map[*entry]bool{}
		for n := range 2 * reads {
			if s.read(random.IntN(objects)) && n >= reads {
				hits++
			}
			if clock := s.decoded.clock; len(clock) > 0 && !before[clock[len(clock)-1]] { // a new one
				before[clock[len(clock)-1]] = true
				if n >= reads {
					replaced++
				}
			}
			time.Sleep(time.Millisecond)
		}
		if hits < reads*4/10 || replaced > reads/15 {
			t.Errorf("%d of %d reads found their object, want 0.4 of the possible 0.5; %d were kept instead of others, "+
				"want 0.07 at most", hits, reads, replaced)
		}
	})
}

func TestDecodedObjectsGiveWayWhenMemoryIsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, 1<<20, 3)
		short := false
		s.decoded.isShort = func() bool { return short }
		for range 3 {
			s.read(0)
		}
		if !s.read(0) {
			t.Fatal("the object is not kept")
		}
		short = true
		time.Sleep(2 * time.Second)
		for range 3 {
			if s.read(0) || s.use.bytes.Load() != 0 {
				t.Fatal("the object is kept while memory is short")
			}
		}
		s.decoded.checked.Store(time.Now().Add(time.Hour).Unix()) // the clock is set back
		short = false
		time.Sleep(2 * time.Second)
		for range 3 {
			s.read(0)
		}
		if !s.read(0) {
			t.Error("the object is not kept when memory is not short anymore")
		}
	})
}

// What the next garbage collection frees does not count.
func TestMemoryNearLimit(t *testing.T) {
	if isNearMemoryLimit() {
		t.Error("memory is short without a limit")
	}
	runtime.GC()
	live := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(live)
	used := int64(live[0].Value.Uint64() - live[1].Value.Uint64())
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(used + 100<<20))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	garbage := make([][]byte, 1)
	for range 200 {
		garbage[0] = make([]byte, 1<<20)
		if isNearMemoryLimit() {
			t.Fatal("garbage counts")
		}
	}
	runtime.KeepAlive(garbage)
	if debug.SetMemoryLimit(1 << 20); !isNearMemoryLimit() {
		t.Error("memory is not short above the limit")
	}
}

// Copies of all built-in types are complete.
func TestCopiesOfBuiltInTypesAreComplete(t *testing.T) {
	t.Parallel()
	kinds := scheme.Scheme.AllKnownTypes()
	if len(kinds) < 100 {
		t.Fatalf("%d kinds", len(kinds))
	}
	for kind, goType := range kinds {
		for _, isFull := range []bool{true, false} {
			v := reflect.New(goType)
			fill(v.Elem(), isFull, 0)
			obj, ok := reflect.TypeAssert[kube.Object](v)
			if !ok {
				continue
			}
			if size, complete := compareCopies(v, reflect.ValueOf(copyOf(obj)), math.MaxInt64, new(structFields)); !complete || size <= 0 {
				t.Errorf("%s, full %t: size %d, complete %t", kind, isFull, size, complete)
			}
		}
	}
}

// fill sets all fields of a value, or makes its slices, maps and pointers to structs empty, but not nil.
func fill(v reflect.Value, isFull bool, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth < 14 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), isFull, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), isFull, depth+1)
			}
		}
	case reflect.Slice:
		length := 0
		if isFull && depth < 14 {
			length = 1
		}
		v.Set(reflect.MakeSlice(v.Type(), length, length))
		for i := range length {
			fill(v.Index(i), isFull, depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if isFull && depth < 14 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, isFull, depth+1)
			fill(value, isFull, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

func TestCopiesOfUnstructuredObjects(t *testing.T) {
	t.Parallel()
	deep := any("end")
	for range 9000 {
		deep = map[string]any{"next": deep}
	}
	for name, test := range map[string]struct {
		content any
		limit   int64
		fits    bool
	}{
		"values":    {map[string]any{"a": []any{nil, 1.5, int64(3), "x", true, map[string]any{}, []any{}}, "b": nil}, 1 << 20, true},
		"deep":      {deep, 1 << 40, true},
		"too large": {deep, 1 << 10, false},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": test.content}}
		size, complete := compareCopies(reflect.ValueOf(obj), reflect.ValueOf(copyOf(obj)), test.limit, new(structFields))
		if fits := size <= test.limit; !complete || fits != test.fits {
			t.Errorf("%s: size %d, complete %t", name, size, complete)
		}
	}
}

// Of more objects than there are places for reads, some are kept.
func TestLongListsFillTheRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const objects = 6000
		s := newShelf(t, 1<<20, objects)
		for range 30 {
			for n := range objects {
				s.read(n)
			}
			time.Sleep(time.Second)
		}
		if used := s.use.bytes.Load(); used < 1<<19 {
			t.Errorf("%d bytes used of 1 MiB", used)
		}
	})
}

// Two states of an object that are read in turn, as from a snapshot and the present, do not evict each other.
func TestTwoStatesOfObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, 1<<20, 1)
		former, _ := s.store.Get(kube.KeyOf(s.object(0)))
		s.large = 0
		s.put(0)
		hits := 0
		for range 100 {
			if s.read(0) {
				hits++
			}
			s.readState(former, 0)
		}
		if hits < 90 {
			t.Errorf("%d of 100 reads of the present state found it", hits)
		}
	})
}

// TestSizesOfDecodedObjects compares the estimate with the memory that the Go runtime counts.
func TestSizesOfDecodedObjects(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", Labels: map[string]string{"app": "web", "tier": "front"},
		CreationTimestamp: metav1.Now(),
	}}
	for n := range 3 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", n), Image: "registry.example.com/team/image:v1.2.3", Args: []string{"--flag=value", "--other"},
			Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}},
		})
	}
	content := map[string]any{"metadata": map[string]any{"name": "x", "labels": map[string]any{"a": "b"}}, "spec": map[string]any{}}
	for n := range 30 {
		content["spec"].(map[string]any)[fmt.Sprint("field", n)] = []any{"text", int64(n), map[string]any{"k": "v"}}
	}
	for name, obj := range map[string]kube.Object{"typed": pod, "unstructured": &unstructured.Unstructured{Object: content}} {
		const count = 2000
		copies := make([]any, count)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for n := range copies {
			copies[n] = obj.DeepCopyObject()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		actual := float64(after.HeapAlloc-before.HeapAlloc) / count
		size, complete := compareCopies(reflect.ValueOf(obj), reflect.ValueOf(copies[0]), 1<<20, new(structFields))
		if !complete {
			t.Errorf("%s: the copy is not complete", name)
		}
		estimate := float64(size)
		runtime.KeepAlive(copies)
		if ratio := estimate / actual; ratio < 0.6 || ratio > 1.4 {
			t.Errorf("%s: estimated %.0f bytes, actual %.0f (strings are shared by copies)", name, estimate, actual)
		}
	}
}

// interned is a type whose copies have the same constants.
type interned struct {
	corev1.ConfigMap
	Mode *string
}

var internedMode = new("fixed") //nolint:gochecknoglobals // a constant

func (o *interned) DeepCopyObject() runtimepkg.Object {
	return &interned{*o.ConfigMap.DeepCopy(), internedMode}
}

// Reads find every change that is visible in JSON, and nothing that readers may do.
func TestChangesAreFoundBySums(t *testing.T) {
	t.Parallel()
	quantity := func(obj kube.Object) *resource.Quantity {
		return obj.(*corev1.Pod).Spec.Volumes[0].EmptyDir.SizeLimit
	}
	pod := func() kube.Object {
		size := resource.MustParse("1Gi")
		volume := corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}
		return &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume}}}
	}
	for name, test := range map[string]struct {
		object func() kube.Object
		change func(kube.Object)
		want   bool
	}{
		"a time":             {pod, func(obj kube.Object) { obj.(*corev1.Pod).DeletionTimestamp = new(metav1.Unix(3, 0)) }, true},
		"a quantity":         {pod, func(obj kube.Object) { quantity(obj).Add(resource.MustParse("1Mi")) }, true},
		"its text":           {pod, func(obj kube.Object) { _ = quantity(obj).String() }, false},
		"other methods":      {pod, func(obj kube.Object) { _, _ = obj.(*corev1.Pod).Marshal(); _ = fmt.Sprintf("%+v", obj) }, false},
		"the same constants": {func() kube.Object { return &interned{Mode: new("fixed")} }, func(kube.Object) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDecoded()
			k := readKey{object: reflect.TypeOf(test.object()), key: kube.Key{Name: "a"}}
			kept := d.keep(k, reading{shared: true}, new(decodedUse), store.Kept{}, test.object(), slog.New(slog.DiscardHandler))
			if len(d.clock) != 1 || d.clock[0].obj != kept {
				t.Fatal("the object is not kept")
			}
			test.change(kept)
			if _, _, err := d.find(k, store.Kept{}, false); (err != nil) != test.want {
				t.Errorf("error %v, want one: %t", err, test.want)
			}
		})
	}
}
