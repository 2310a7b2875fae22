package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Apply applies the objects of a YAML text, or of Lists in it, as a user does with kubectl apply --server-side: in
// their order, in namespace default if a namespaced object has none, and strictly: unknown fields are errors.
func (c *Cluster) Apply(manifests string) {
	c.tb.Helper()
	for _, obj := range c.decode(manifests) {
		if err := apply(c.ctx(), c.client, obj); err != nil {
			c.tb.Fatalf("simulation: %v", err)
		}
	}
}

// decode returns the objects of a YAML text.
func (c *Cluster) decode(manifests string) []*unstructured.Unstructured {
	c.tb.Helper()
	documents, err := split("YAML", []byte(manifests))
	if err != nil {
		c.tb.Fatalf("simulation: %v", err)
	}
	var objects []*unstructured.Unstructured
	for _, d := range documents {
		decoded, err := d.decode()
		if err != nil {
			c.tb.Fatalf("simulation: %v", err)
		}
		objects = append(objects, decoded...)
	}
	if len(objects) == 0 {
		c.tb.Fatalf("simulation: the YAML text has no object")
	}
	return objects
}

func apply(ctx context.Context, c *client.Client, obj *unstructured.Unstructured) error {
	if err := setNamespace(ctx, c, obj); err != nil {
		return err
	}
	_, err := client.Apply(ctx, c, obj, client.Force())
	return err
}

// setNamespace sets namespace default if obj is namespaced and has no namespace.
func setNamespace(ctx context.Context, c *client.Client, obj *unstructured.Unstructured) error {
	resource, err := c.Cluster().Resource(ctx, obj.GroupVersionKind())
	if err != nil {
		return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	if resource.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	return nil
}

// Get returns the object with the key "namespace/name", or "name" of a cluster-scoped object. It fails the test if the
// object does not exist. The option client.OfKind is required for unstructured objects, which Edit, Delete and
// ExpectGone accept too.
func Get[T kube.Object](c *Cluster, key string, options ...client.ReadOption) T {
	c.tb.Helper()
	obj, err := client.Get[T](c.ctx(), c.client, c.key(key), options...)
	if err != nil {
		c.tb.Fatalf("simulation: %v%s", err, existing[T](c, err))
	}
	return obj
}

// Edit changes an object as a user does with kubectl edit, and returns it. It repeats edit with the latest object if
// another client was faster. subresource is "", or for example "status" for a test in the role of another controller.
func Edit[T kube.Object](c *Cluster, key, subresource string, edit func(obj T), options ...client.ReadOption) T {
	c.tb.Helper()
	var target []client.WriteOption
	if subresource != "" {
		target = append(target, client.Subresource(subresource))
	}
	for {
		obj := Get[T](c, key, options...)
		edit(obj)
		updated, err := client.Update(c.ctx(), c.client, obj, target...)
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			c.tb.Fatalf("simulation: %v", err)
		}
		return updated
	}
}

// Delete deletes an object as a user. Finalizers may delay the deletion, and the garbage collector deletes dependents.
func Delete[T kube.Object](c *Cluster, key string, options ...client.ReadOption) {
	c.tb.Helper()
	if err := client.Delete(c.ctx(), c.client, Get[T](c, key, options...)); err != nil {
		c.tb.Fatalf("simulation: %v", err)
	}
}

// ExpectGone reports an error if the object exists.
func ExpectGone[T kube.Object](c *Cluster, key string, options ...client.ReadOption) {
	c.tb.Helper()
	obj, err := client.Get[T](c.ctx(), c.client, c.key(key), options...)
	if err == nil {
		c.tb.Errorf("%T %s exists: deletionTimestamp %v, finalizers %v", obj, key, obj.GetDeletionTimestamp(),
			obj.GetFinalizers())
	} else if !apierrors.IsNotFound(err) {
		c.tb.Fatalf("simulation: %v", err)
	}
}

// existing returns the keys of all objects of type T, if err says that one does not exist.
func existing[T kube.Object](c *Cluster, err error) string {
	if !apierrors.IsNotFound(err) {
		return ""
	}
	all, err := client.All[T](c.ctx(), c.client, kube.Selection{})
	if err != nil {
		return "" // also for unstructured objects, whose kind is in an option
	}
	keys := make([]string, len(all))
	for i, obj := range all {
		keys[i] = kube.KeyOf(obj).String()
	}
	return "; existing: " + orNone(strings.Join(keys, ", "))
}

func (c *Cluster) key(text string) kube.Key {
	c.tb.Helper()
	key, err := kube.ParseKey(text)
	if err != nil {
		c.tb.Fatalf("simulation: %v", err)
	}
	return key
}

// Expect reports an error for each field of the objects in a YAML text that differs in the cluster. Fields that the
// text does not have are not compared; null expects that a field is missing. In a list of objects that all have a name
// or a type in the text, elements are compared by it, and further elements are allowed. Other lists must have the same
// elements.
func (c *Cluster) Expect(manifests string) {
	c.tb.Helper()
	for _, want := range c.decode(manifests) {
		if err := setNamespace(c.ctx(), c.client, want); err != nil {
			c.tb.Fatalf("simulation: %v", err)
		}
		got, err := client.Get[*unstructured.Unstructured](c.ctx(), c.client, kube.KeyOf(want),
			client.OfKind(want.GroupVersionKind()))
		if err != nil {
			c.tb.Errorf("simulation: %v", err)
			continue
		}
		if differences := compare("", want.Object, got.Object); len(differences) > 0 {
			c.tb.Errorf("%s %s differs:\n\t%s", want.GetKind(), kube.KeyOf(want), strings.Join(differences, "\n\t"))
		}
	}
}

// compare returns the differences of the fields of want.
func compare(path string, want, got any) []string {
	different := func() []string {
		return []string{fmt.Sprintf("%s: %s, want %s", strings.TrimPrefix(path, "."), text(got), text(want))}
	}
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			return different()
		}
		var differences []string
		for _, name := range slices.Sorted(maps.Keys(want)) {
			field := "." + name
			if strings.ContainsAny(name, "./") {
				field = "[" + name + "]"
			}
			differences = append(differences, compare(path+field, want[name], fields[name])...)
		}
		return differences
	case []any:
		elements, ok := got.([]any)
		if !ok {
			return different()
		}
		if id := identity(want); id != "" {
			return compareByID(path, id, want, elements)
		}
		if len(want) != len(elements) {
			return different()
		}
		var differences []string
		for i := range want {
			differences = append(differences, compare(fmt.Sprintf("%s[%d]", path, i), want[i], elements[i])...)
		}
		return differences
	}
	if !reflect.DeepEqual(want, got) {
		return different()
	}
	return nil
}

// identity returns the field that identifies the elements of a list: name, type, or none.
func identity(list []any) string {
	for _, id := range []string{"name", "type"} {
		if len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool {
			fields, ok := e.(map[string]any)
			return !ok || fields[id] == nil
		}) {
			return id
		}
	}
	return ""
}

func compareByID(path, id string, want, got []any) []string {
	var differences []string
	for _, w := range want {
		value := w.(map[string]any)[id] // identity has checked it
		at := fmt.Sprintf("%s[%v]", path, value)
		i := slices.IndexFunc(got, func(e any) bool {
			fields, ok := e.(map[string]any)
			return ok && reflect.DeepEqual(fields[id], value)
		})
		if i < 0 {
			differences = append(differences, fmt.Sprintf("%s: none, want %s", strings.TrimPrefix(at, "."), text(w)))
			continue
		}
		differences = append(differences, compare(at, w, got[i])...)
	}
	return differences
}

// text returns a value as JSON, cut if it is long.
func text(value any) string {
	const longest = 300
	if value == nil {
		return "none"
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if len(encoded) > longest {
		return string(encoded[:longest]) + "..."
	}
	return string(encoded)
}
