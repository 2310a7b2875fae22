package crds_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/crds"
)

// fullSpec has about 40 fields of the schema, which has 7 CEL rules.
const fullSpec = `"color":"red","replicas":%d,"minimum":1,"ratio":0.5,"note":"abc","zone":"a","host":"10.0.0.1","started":"2020-01-01T00:00:00Z",` +
	`"port":80,"enabled":true,"tags":["a","b"],"parts":[{"name":"x","weight":7},{"name":"y","note":"n"}],"order":["a","b"],"labels":{"a":"1"},` +
	`"limits":{"memory":"1Gi","deep":{"level":1,"text":"t"}},"source":{"repo":"a"},"free":{"known":1,"other":{"a":[1,2]}},` +
	`"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"x":1}},"choice":{"left":1}`

// Writes of a custom resource with a schema, in a namespace with 100 objects.
func BenchmarkWrites(b *testing.B) {
	base := newServer(b, gadgets(b))
	object := func(name, metadata string, replicas int) string {
		return `{"apiVersion":"conformance.evenkeel.dev/v1","kind":"Gadget","metadata":{"name":"` + name + `"` + metadata + `},"spec":{` + fmt.Sprintf(fullSpec, replicas) + `}}`
	}
	send := func(tb testing.TB, s *apiserver.Server, method, path, media, body string) {
		tb.Helper()
		status, _, text := exchange(tb, s, method, path, media, body)
		if status >= http.StatusBadRequest {
			tb.Fatalf("%s %s: %s", method, path, text)
		}
	}
	for i := range 100 {
		send(b, base, http.MethodPost, gadgetsPath, "application/json", object(fmt.Sprintf("o-%d", i), "", 3))
	}
	b.Run("create", func(b *testing.B) {
		s := base.Fork()
		for i := 0; b.Loop(); i++ {
			send(b, s, http.MethodPost, gadgetsPath, "application/json", object(fmt.Sprintf("n-%d", i), "", 3))
		}
	})
	b.Run("update", func(b *testing.B) {
		s := base.Fork()
		send(b, s, http.MethodPatch, gadgetsPath+"/o-1", "application/merge-patch+json", `{"spec":{"replicas":5}}`)
		for i := 0; b.Loop(); i++ {
			version := s.Version() // of the object: nothing else is written
			send(b, s, http.MethodPut, gadgetsPath+"/o-1", "application/json", object("o-1", `,"resourceVersion":"`+version+`"`, 3+i%2))
		}
	})
	b.Run("merge patch", func(b *testing.B) {
		s := base.Fork()
		for i := 0; b.Loop(); i++ {
			send(b, s, http.MethodPatch, gadgetsPath+"/o-1", "application/merge-patch+json", fmt.Sprintf(`{"spec":{"replicas":%d}}`, 3+i%2))
		}
	})
	b.Run("status patch", func(b *testing.B) {
		s := base.Fork()
		for i := 0; b.Loop(); i++ {
			send(b, s, http.MethodPatch, gadgetsPath+"/o-1/status", "application/merge-patch+json", fmt.Sprintf(`{"status":{"replicas":%d,"phase":"Ready"}}`, 3+i%2))
		}
	})
	b.Run("apply", func(b *testing.B) {
		s := base.Fork()
		for i := 0; b.Loop(); i++ {
			send(b, s, http.MethodPatch, gadgetsPath+"/p-1?fieldManager=m", "application/apply-patch+yaml", object("p-1", "", 3+i%2))
		}
	})
}

// A definition that no process has compiled yet, and one whose schema a Compiler knows.
func BenchmarkKinds(b *testing.B) {
	crd := gadgets(b)
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			if _, err := new(crds.Compiler).Kinds(crd, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("known", func(b *testing.B) {
		c := new(crds.Compiler)
		for b.Loop() {
			if _, err := c.Kinds(crd, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
