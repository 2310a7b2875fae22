package controllers

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// preferred returns one served kind of each resource.
func preferred(kinds []*apiserver.Kind) []*apiserver.Kind {
	seen := map[schema.GroupResource]bool{}
	return slices.DeleteFunc(slices.Clone(kinds), func(k *apiserver.Kind) bool {
		resource := resourceOf(k)
		defer func() { seen[resource] = true }()
		return seen[resource]
	})
}

func resourceOf(k *apiserver.Kind) schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

func version(obj metav1.Object) uint64 {
	n, _ := strconv.ParseUint(obj.GetResourceVersion(), 10, 64) // the server in memory has no other versions
	return n
}

// state has all objects, as of the latest committed write. The zero value is empty.
type state struct {
	kinds   []*apiserver.Kind
	objects map[schema.GroupResource]map[types.NamespacedName]apiserver.Object
	byUID   map[types.UID]*entry
	// dependents are the uids of objects that refer to an owner, which may not exist.
	dependents map[types.UID]map[types.UID]bool
}

// entry is an object.
type entry struct {
	kind *apiserver.Kind // that requests use
	obj  apiserver.Object
}

// serve sets the served kinds, and returns the objects of resources that are not served any more.
func (s *state) serve(kinds []*apiserver.Kind) (lost []*entry) {
	s.kinds = kinds
	for _, e := range s.byUID {
		if k := s.kind(resourceOf(e.kind)); k != nil {
			e.kind = k
		} else {
			lost = append(lost, e)
		}
	}
	return lost
}

// kind returns the served kind of a resource, or nil.
func (s *state) kind(resource schema.GroupResource) *apiserver.Kind {
	for _, k := range s.kinds {
		if resourceOf(k) == resource {
			return k
		}
	}
	return nil
}

// referenced returns the served kind to which an owner reference refers, or nil.
func (s *state) referenced(ref metav1.OwnerReference) *apiserver.Kind {
	want := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	for _, k := range s.kinds {
		if k.GroupVersionKind == want {
			return k
		}
	}
	return nil
}

func (s *state) apply(c apiserver.Change) {
	if s.objects == nil {
		s.objects = map[schema.GroupResource]map[types.NamespacedName]apiserver.Object{}
		s.byUID = map[types.UID]*entry{}
		s.dependents = map[types.UID]map[types.UID]bool{}
	}
	resource := resourceOf(c.Kind)
	if c.Old != nil {
		for _, ref := range c.Old.GetOwnerReferences() {
			delete(s.dependents[ref.UID], c.Old.GetUID())
		}
		delete(s.byUID, c.Old.GetUID())
		delete(s.objects[resource], objectKey(c.Old))
	}
	if c.Object == nil {
		return
	}
	k := s.kind(resource)
	if k == nil {
		k = c.Kind
	}
	if s.objects[resource] == nil {
		s.objects[resource] = map[types.NamespacedName]apiserver.Object{}
	}
	s.objects[resource][objectKey(c.Object)] = c.Object
	s.byUID[c.Object.GetUID()] = &entry{k, c.Object}
	for _, ref := range c.Object.GetOwnerReferences() {
		if s.dependents[ref.UID] == nil {
			s.dependents[ref.UID] = map[types.UID]bool{}
		}
		s.dependents[ref.UID][c.Object.GetUID()] = true
	}
}

// dependentsOf returns the objects that refer to an owner, in the order of their keys.
func (s *state) dependentsOf(owner types.UID) []*entry {
	var all []*entry
	for uid := range s.dependents[owner] {
		all = append(all, s.byUID[uid])
	}
	slices.SortFunc(all, func(a, b *entry) int { return strings.Compare(collectorKey(a), collectorKey(b)) })
	return all
}

func objectKey(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
