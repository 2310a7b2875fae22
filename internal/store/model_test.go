package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// model is a simple implementation of a store's guarantees.
type model struct {
	objects map[kube.Key]*wire.Object
	marked  map[kube.Key]bool // nil: no list is open
}

func (m *model) snapshot() *model { return &model{objects: maps.Clone(m.objects)} }

func (m *model) query(q Query) []string {
	var all []string
	for key, o := range m.objects {
		switch {
		case q.Namespace != "" && q.Namespace != key.Namespace,
			q.Labels != nil && !q.Labels.Matches(labels.Set(o.Labels())),
			q.OwnerUID != "" && !slices.ContainsFunc(o.OwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == q.OwnerUID }),
			q.Index != "" && !slices.Contains(indexValues(q.Index, o), q.Value):
			continue
		}
		all = append(all, describe(o))
	}
	slices.Sort(all)
	return all
}

// describe returns all data of an object as text.
func describe(o *wire.Object) string {
	return fmt.Sprintf("%v %s %s %s %d %t %q", o.Format, o.Key, o.UID, o.ResourceVersion, o.Generation, o.Deleting, o.Bytes)
}

var errIndex = errors.New("this object cannot be indexed")

// indexValues returns the values of the model's two indexes.
func indexValues(index string, o *wire.Object) []string {
	values, _ := tryIndexValues(index, o)
	return values
}

func tryIndexValues(index string, o *wire.Object) ([]string, error) {
	value := o.Annotations()[index]
	if value == "fail" {
		return nil, errIndex
	}
	return strings.Fields(value), nil
}

func modelIndexes() []Index {
	return []Index{
		{Name: "first", Values: func(o *wire.Object) ([]string, error) { return tryIndexValues("first", o) }},
		{Name: "second", Values: func(o *wire.Object) ([]string, error) { return tryIndexValues("second", o) }},
	}
}

// weakHashes collide often. With weak hashes of terms, results that depend only on hashes are wrong, so they are used
// only if the objects are checked.
func weakHashes(weakTerms bool) hashes {
	h := newHashes()
	strong := h.key
	h.key = func(namespace, name string) uint64 { return strong(namespace, name) & (1<<62 | 3) }
	if weakTerms {
		h.term = func(s string) uint64 { return uint64(len(s)) % 2 }
	}
	return h
}

func TestStoreMatchesModel(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]hashes{"strong": newHashes(), "weak keys": weakHashes(false), "weak": weakHashes(true)} {
		for seed := range uint64(testlength.Count(1, 2)) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				w := &walk{
					T: t, random: rand.New(rand.NewPCG(seed, 7)), indexed: modelIndexes(), exact: name != "weak",
					model: model{objects: map[kube.Key]*wire.Object{}},
				}
				if !w.exact {
					w.indexed = nil // the store does not check their values
				}
				w.store = newStore(Config{Indexes: w.indexed}, h, seed)
				for range 600 {
					w.step()
				}
				checkAll(t, w.store)
				if w.store.Sizes().Generation == 0 {
					t.Error("too few objects for a dictionary")
				}
			})
		}
	}
}

func FuzzStore(f *testing.F) {
	f.Add(uint64(1), uint16(300))
	f.Add(uint64(2), uint16(1000))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		w := &walk{
			T: t, random: rand.New(rand.NewPCG(seed, 9)), indexed: modelIndexes(), exact: true,
			model: model{objects: map[kube.Key]*wire.Object{}},
		}
		w.store = newStore(Config{Indexes: w.indexed}, weakHashes(false), seed)
		for range steps % 2000 {
			w.step()
		}
	})
}
