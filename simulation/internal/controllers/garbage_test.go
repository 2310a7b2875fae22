package controllers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// child returns a ConfigMap with owner references. owner is kind name uid, for a Secret, ConfigMap, Gadget or
// Namespace.
func child(name string, owners ...string) string {
	var refs []string
	for _, owner := range owners {
		parts := strings.Fields(owner)
		apiVersion := "v1"
		if parts[0] == "Gadget" || parts[0] == "Widget" {
			apiVersion = "example.org/v1"
		}
		refs = append(refs, fmt.Sprintf("{apiVersion: %s, kind: %s, name: %s, uid: %s, blockOwnerDeletion: %t}", apiVersion, parts[0], parts[1], parts[2], len(parts) == 4))
	}
	return fmt.Sprintf("{metadata: {name: %s, ownerReferences: [%s]}}", name, strings.Join(refs, ", "))
}

const cms, secrets, gadgets = "v1/configmaps", "v1/secrets", "example.org/v1/gadgets"

func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	const absent = "7d3f0b5e-0000-4000-8000-000000000000"
	inWorlds(t, map[string]func(w *world){
		"background": func(w *world) {
			uid := w.apply(secrets, `{metadata: {name: owner}}`)
			w.apply(cms, child("a", "Secret owner "+uid))
			w.apply(cms, child("b", "Secret owner "+uid+" block"))
			w.run(time.Minute)
			w.expect(cms, "a b")
			w.delete(secrets, "one/owner", "")
			w.run(0)
			w.expect(cms, "")
		},
		"chain": func(w *world) {
			uid := w.apply(secrets, `{metadata: {name: owner}}`)
			uid = w.apply(gadgets, child("middle", "Secret owner "+uid))
			w.apply(cms, child("a", "Gadget middle "+uid))
			w.delete(secrets, "one/owner", "Background")
			w.run(0)
			w.expect(gadgets, "")
			w.expect(cms, "")
		},
		"foreground waits for blocking dependents": func(w *world) {
			uid := w.apply(gadgets, `{metadata: {name: owner}}`)
			w.apply(cms, child("blocks", "Gadget owner "+uid+" block"))
			w.apply(cms, child("other", "Gadget owner "+uid))
			w.patch(cms, "one/blocks", `{metadata: {finalizers: [example.org/x]}}`)
			w.patch(cms, "one/other", `{metadata: {finalizers: [example.org/x]}}`)
			w.delete(gadgets, "one/owner", "Foreground")
			w.run(time.Minute)
			w.expect(gadgets, "owner(deleting)")
			w.expect(cms, "blocks(deleting) other(deleting)")
			w.patch(cms, "one/blocks", `{metadata: {finalizers: null}}`)
			w.run(0)
			w.expect(gadgets, "")
			w.expect(cms, "other(deleting)")
		},
		"foreground without dependents": func(w *world) {
			w.apply(gadgets, `{metadata: {name: owner}}`)
			w.delete(gadgets, "one/owner", "Foreground")
			w.run(0)
			w.expect(gadgets, "")
		},
		"foreground through a chain": func(w *world) {
			uid := w.apply(gadgets, `{metadata: {name: top}}`)
			uid = w.apply(gadgets, child("middle", "Gadget top "+uid+" block"))
			w.apply(cms, child("leaf", "Gadget middle "+uid+" block"))
			w.patch(cms, "one/leaf", `{metadata: {finalizers: [example.org/x]}}`)
			w.delete(gadgets, "one/top", "Foreground")
			w.run(time.Minute)
			w.expect(gadgets, "middle(deleting) top(deleting)")
			w.patch(cms, "one/leaf", `{metadata: {finalizers: null}}`)
			w.run(0)
			w.expect(gadgets, "")
		},
		"foreground of objects that own each other": func(w *world) {
			a := w.apply(gadgets, `{metadata: {name: a}}`)
			b := w.apply(gadgets, child("b", "Gadget a "+a+" block"))
			w.apply(gadgets, child("a", "Gadget b "+b+" block"))
			w.delete(gadgets, "one/a", "Foreground")
			w.run(time.Minute)
			w.expect(gadgets, "")
		},
		"a dependent that does not block any more": func(w *world) {
			uid := w.apply(gadgets, `{metadata: {name: owner}}`)
			w.apply(cms, child("a", "Gadget owner "+uid+" block"))
			w.patch(cms, "one/a", `{metadata: {finalizers: [example.org/x]}}`)
			w.delete(gadgets, "one/owner", "Foreground")
			w.run(0)
			w.expect(gadgets, "owner(deleting)")
			w.apply(cms, child("a", "Gadget owner "+uid))
			w.run(0)
			w.expect(gadgets, "")
		},
		"orphan": func(w *world) {
			uid := w.apply(gadgets, `{metadata: {name: owner}}`)
			other := w.apply(gadgets, `{metadata: {name: other}}`)
			w.apply(cms, child("a", "Gadget owner "+uid+" block"))
			w.apply(gadgets, child("b", "Gadget owner "+uid, "Gadget other "+other))
			w.delete(gadgets, "one/owner", "Orphan")
			w.expect(gadgets, "b other owner(deleting)")
			w.run(time.Minute)
			w.expect(gadgets, "b other")
			w.expect(cms, "a")
			if refs := w.owners(cms, "one/a"); refs != "" {
				w.t.Errorf("the orphan has the owners %s", refs)
			}
			if refs := w.owners(gadgets, "one/b"); refs != "other" {
				w.t.Errorf("the dependent of two owners has the owners %s", refs)
			}
		},
		"absent owner": func(w *world) {
			w.apply(cms, child("a", "Secret owner "+absent))
			w.run(0)
			w.expect(cms, "")
		},
		"owner with another uid": func(w *world) {
			w.apply(secrets, `{metadata: {name: owner}}`)
			w.apply(cms, child("a", "Secret owner "+absent))
			w.run(0)
			w.expect(cms, "")
		},
		"owner of another kind": func(w *world) {
			uid := w.apply(secrets, `{metadata: {name: owner}}`)
			w.apply(cms, child("a", "Gadget owner "+uid))
			w.run(0)
			w.expect(cms, "")
		},
		"one of two owners is absent": func(w *world) {
			uid := w.apply(secrets, `{metadata: {name: owner}}`)
			w.apply(cms, child("a", "Secret owner "+uid, "Secret absent "+absent))
			w.apply(gadgets, child("b", "Secret absent "+absent, "Secret owner "+uid))
			w.run(0)
			w.expect(cms, "a")
			for resource, key := range map[string]string{cms: "one/a", gadgets: "one/b"} {
				if refs := w.owners(resource, key); refs != "owner" {
					w.t.Errorf("%s has the owners %s", key, refs)
				}
			}
		},
		"one of two owners waits for its dependents": func(w *world) {
			uid := w.apply(gadgets, `{metadata: {name: owner}}`)
			other := w.apply(gadgets, `{metadata: {name: other}}`)
			w.apply(cms, child("a", "Gadget owner "+uid+" block", "Gadget other "+other+" block"))
			w.delete(gadgets, "one/owner", "Foreground")
			w.run(0)
			w.expect(gadgets, "other")
			if refs := w.owners(cms, "one/a"); refs != "other" {
				w.t.Errorf("the dependent has the owners %s", refs)
			}
		},
		"kind that is served later": func(w *world) {
			w.apply(cms, child("a", "Widget owner "+absent))
			w.apply(cms, child("b", "Widget owner "+absent, "Secret absent "+absent))
			w.run(time.Hour)
			w.expect(cms, "a b")
			k := widgets()
			if err := w.server.Serve(k.GroupVersion().WithResource(k.Resource).GroupResource(), k); err != nil {
				w.t.Fatal(err)
			}
			w.run(0)
			w.expect(cms, "")
			uid := w.apply("example.org/v1/widgets", `{metadata: {name: owner}}`)
			w.apply(cms, child("c", "Widget owner "+uid))
			w.run(0)
			if err := w.server.Serve(k.GroupVersion().WithResource(k.Resource).GroupResource()); err != nil {
				w.t.Fatal(err)
			}
			w.run(time.Hour)
			w.expect(cms, "c") // nothing is known about the owner
		},
		"owner in another namespace": func(w *world) {
			uid := w.apply(secrets, `{metadata: {name: owner, namespace: two}}`)
			w.apply(cms, child("a", "Secret owner "+uid))
			w.run(0)
			w.expect(cms, "")
		},
		"cluster-scoped owner": func(w *world) {
			uid := w.apply("v1/namespaces", `{metadata: {name: owner}}`)
			w.apply(cms, child("a", "Namespace owner "+uid))
			w.run(time.Hour)
			w.expect(cms, "a")
			w.delete("v1/namespaces", "owner", "")
			w.run(time.Minute)
			w.expect(cms, "")
		},
		"cluster-scoped object with a namespaced owner": func(w *world) {
			uid := w.apply(secrets, `{metadata: {name: owner}}`)
			w.apply("v1/namespaces", child("a", "Secret owner "+uid))
			w.delete(secrets, "one/owner", "")
			w.run(time.Hour)
			if w.get("v1/namespaces", "a") == nil {
				w.t.Error("the namespace was deleted")
			}
		},
		"objects that exist before the controllers": func(w *world) {
			w.apply(cms, child("a", "Secret owner "+absent))
			w.apply(cms, child("b", "Widget owner "+absent))
			w.manager.Reload()
			w.run(0)
			w.expect(cms, "b")
		},
		"request that fails": func(w *world) {
			began := time.Now()
			w.fail = func(req *http.Request) int {
				if req.Method == http.MethodDelete && time.Since(began) < time.Second {
					return http.StatusInternalServerError
				}
				return 0
			}
			w.apply(cms, child("a", "Secret owner "+absent))
			w.run(time.Second / 2)
			w.expect(cms, "a")
			w.run(time.Minute)
			w.expect(cms, "")
		},
		"object that changes before it is deleted": func(w *world) {
			uid := w.apply(secrets, `{metadata: {name: owner}}`)
			w.fail = func(req *http.Request) int {
				if req.Method == http.MethodDelete && w.get(cms, "one/a")["data"] == nil {
					w.patch(cms, "one/a", `{data: {a: b}, metadata: {ownerReferences: [{apiVersion: v1, kind: Secret, name: owner, uid: `+uid+`}]}}`)
				}
				return 0
			}
			w.apply(cms, child("a", "Secret absent "+absent))
			w.run(time.Hour)
			w.expect(cms, "a")
		},
	})
}

// owners returns the names of an object's owners.
func (w *world) owners(resource, key string) string {
	w.t.Helper()
	refs, _ := w.get(resource, key)["metadata"].(map[string]any)["ownerReferences"].([]any)
	var names []string
	for _, ref := range refs {
		names = append(names, ref.(map[string]any)["name"].(string))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
