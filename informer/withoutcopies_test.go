package informer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// readers returns the ways to read one object: with a copy, and without.
func readers() map[string]func(i *informer.Informer[configMap], name string) (configMap, error) {
	return map[string]func(i *informer.Informer[configMap], name string) (configMap, error){
		"Get": func(i *informer.Informer[configMap], name string) (configMap, error) {
			obj, _, err := i.Get(key(name))
			return obj, err
		},
		"List": func(i *informer.Informer[configMap], name string) (obj configMap, err error) {
			for obj, err = range i.List(informer.Query{Index: "name", Value: name}) {
				return obj, err
			}
			return nil, nil
		},
		"Get without copies": func(i *informer.Informer[configMap], name string) (configMap, error) {
			obj, _, err := i.WithoutCopies().Get(key(name))
			return obj, err
		},
		"List without copies": func(i *informer.Informer[configMap], name string) (obj configMap, err error) {
			for obj, err = range i.WithoutCopies().List(informer.Query{Index: "name", Value: name}) {
				return obj, err
			}
			return nil, nil
		},
	}
}

func withReaders(t *testing.T, test func(l *library)) {
	t.Helper()
	withLibrary(t, informer.Config[configMap]{Indexes: []informer.Index[configMap]{
		{Name: "name", Values: func(m configMap) []string { return []string{m.Name} }},
	}}, test)
}

// mustRead reads the object a, whose value must be want.
func (l *library) mustRead(reader, want string) configMap {
	l.Helper()
	obj, err := readers()[reader](l.informer, "a")
	if err != nil || obj == nil || obj.Data["value"] != want {
		l.Fatalf("%s: %v, %v; want %q", reader, obj, err, want)
	}
	return obj
}

// Reads without copies return the same object as long as it is kept decoded and does not change. Other reads return
// copies of it.
func TestReadsWithoutCopies(t *testing.T) {
	t.Parallel()
	withReaders(t, func(l *library) {
		for _, value := range []string{"1", "2", "3"} {
			l.put("a", value)
			before := l.informer.Snapshot()
			for range 3 { // a former state that was read lately is replaced by the third read
				l.mustRead("Get without copies", value)
			}
			shared := l.mustRead("Get without copies", value)
			for range 3 {
				for name := range readers() {
					obj := l.mustRead(name, value)
					if isShared := strings.Contains(name, "without"); isShared != (obj == shared) {
						l.Errorf("%s of state %s: the same object %t, want %t", name, value, obj == shared, isShared)
					}
					if !strings.Contains(name, "without") {
						obj.Data["value"] = "changed"
					}
				}
			}
			l.put("a", value+"0")
			if obj, _, err := before.Get(key("a")); err != nil || obj.Data["value"] != value {
				l.Errorf("the snapshot has %v, %v", obj, err)
			}
			l.mustRead("List without copies", value+"0")
		}
		if err := informer.SetDecodedBudget(l.cluster, 0); err != nil {
			l.Fatal(err)
		}
		for range 3 { // nothing is kept, so each reader owns its object
			l.mustRead("List without copies", "30").Data["value"] = "changed"
			l.mustRead("Get without copies", "30").Data["value"] = "changed"
		}
	})
}

// Reads without copies of combined Retrievers return the state of each, also after SetRetriever.
func TestReadsWithoutCopiesOfCombinedRetrievers(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		selected := func(selector string) informer.Retriever[configMap] {
			return informer.RetrieveSelected[configMap](l.cluster, kube.Selection{LabelSelector: selector})
		}
		l.put("b", "2")
		i, err := informer.New(informer.Config[configMap]{Retriever: informer.Combine(selected("value=1"), selected("value=2"))})
		if err != nil {
			l.Fatal(err)
		}
		defer joinSynced(l.T, i)()
		reader := i.WithoutCopies()
		check := func(want string) {
			l.Helper()
			shared := map[string]configMap{}
			for range 5 {
				var got []string
				for obj, err := range reader.List(informer.Query{}) {
					if err != nil {
						l.Fatal(err)
					}
					got = append(got, obj.Name+obj.Data["value"])
					if before := shared[obj.Name]; before != nil && before != obj {
						l.Errorf("%s: another object than before", obj.Name)
					}
					shared[obj.Name] = obj
					if again, _, err := reader.Get(kube.KeyOf(obj)); err != nil || again != obj {
						l.Errorf("Get %s: another object than List returned, %v", obj.Name, err)
					}
				}
				if slices.Sort(got); strings.Join(got, " ") != want {
					l.Fatalf("%v, want %s", got, want)
				}
			}
		}
		check("a1 b2 c1")
		l.put("a", "2") // another Retriever has it now
		check("a2 b2 c1")
		if err := i.SetRetriever(l.Context(), selected("value=2")); err != nil {
			l.Fatal(err)
		}
		check("a2 b2")
		if obj, found, err := reader.Get(key("c")); found || err != nil {
			l.Errorf("an object that is not selected anymore: %v, error %v", obj, err)
		}
	})
}

// counts is a type that cannot be decoded from objects with other values.
type counts struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Data map[string]int `json:"data"`
}

func (c *counts) DeepCopyObject() runtime.Object {
	return &counts{c.TypeMeta, *c.ObjectMeta.DeepCopy(), maps.Clone(c.Data)}
}

// An object that cannot be decoded is an error of each read, and hides no other object.
func TestReadsWithoutCopiesOfUndecodableObjects(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		config := l.server.Config("test")
		config.ContentType = runtime.ContentTypeJSON
		cluster, err := kube.Connect(config, func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("ConfigMap"), &counts{})
			return nil
		})
		if err != nil {
			l.Fatal(err)
		}
		i, err := informer.New(informer.Config[*counts]{Retriever: informer.Retrieve[*counts](cluster)})
		if err != nil {
			l.Fatal(err)
		}
		defer joinSynced(l.T, i)()
		l.server.Apply("configmaps", key("d"), "test", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"d"}}`)
		synctest.Wait()
		for range 5 {
			var good, bad int
			for obj, err := range i.WithoutCopies().List(informer.Query{}) {
				if err != nil {
					bad++
				} else if obj.Name == "d" {
					good++
				}
			}
			if good != 1 || bad != 3 {
				l.Errorf("%d objects and %d errors, want 1 and 3", good, bad)
			}
			if _, _, err := i.WithoutCopies().Get(key("a")); err == nil || !strings.Contains(err.Error(), "decode ns/a") {
				l.Errorf("Get: %v", err)
			}
		}
	})
}

// The next read of any kind, also of another state, finds that a reader has changed a shared object. Later reads are
// right.
func TestChangesOfSharedObjectsAreFound(t *testing.T) {
	t.Parallel()
	changes := map[string]func(obj configMap){
		"a value":       func(obj configMap) { obj.Data["value"] = "changed" },
		"a label":       func(obj configMap) { delete(obj.Labels, "value") },
		"bytes":         func(obj configMap) { obj.BinaryData["k"][0] = 'x' },
		"a pointer":     func(obj configMap) { obj.Immutable = new(bool) },
		"the map":       func(obj configMap) { obj.Data = nil },
		"an owner's ID": func(obj configMap) { obj.OwnerReferences[0].UID = "x" },
		"a time":        func(obj configMap) { obj.CreationTimestamp = metav1.Unix(42, 0) },
	}
	for name, change := range changes {
		for reader := range readers() {
			for _, hasNewState := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", reader, ", new state ", hasNewState), func(t *testing.T) {
					t.Parallel()
					withReaders(t, func(l *library) {
						change(l.mustRead("Get without copies", "1"))
						want := "1"
						if hasNewState {
							want = "2"
							l.put("a", want)
						}
						_, err := readers()[reader](l.informer, "a")
						if err == nil || !strings.Contains(err.Error(), "read ns/a: a reader of Informer.WithoutCopies has changed the object") {
							l.Errorf("error %v", err)
						}
						l.mustRead(reader, want)
					})
				})
			}
		}
	}
}

// Many goroutines read without copies while the objects change.
func TestConcurrentReadsWithoutCopies(t *testing.T) {
	t.Parallel()
	withReaders(t, func(l *library) {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() { // waited for below
				for range 50 {
					for obj, err := range l.informer.WithoutCopies().List(informer.Query{}) {
						if err != nil || obj.Labels["value"] != obj.Data["value"] {
							l.Errorf("%v, %v", obj, err)
						}
					}
					if _, _, err := l.informer.Get(kube.Key{Namespace: "ns", Name: "b"}); err != nil {
						l.Error(err)
					}
				}
			})
		}
		for n := range 10 {
			l.put("a", fmt.Sprint(n))
			if err := informer.SetDecodedBudget(l.cluster, int64(n%3)<<20); err != nil {
				l.Error(err)
			}
		}
		group.Wait()
		synctest.Wait()
	})
}
