package conformance

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// parameterKinds are a kind that the real server reads from a cache, one that it reads from etcd, and a custom one.
func parameterKinds() []string { return []string{"configmaps", "events", "plants"} }

// TestListParameters compares lists with all combinations of their version, its match, the limit and the token.
func TestListParameters(t *testing.T) {
	runParameters(t, func(d *director) []operation {
		var ops []operation
		for _, version := range []string{"", "0", "00", "$first", "$middle", "$latest", "$listed", "x"} {
			for _, match := range []string{"", "Exact", "NotOlderThan", "Wrong"} {
				for _, limit := range []string{"", "1", "2", "-1"} {
					for _, token := range []string{"", "$continue", "wrong"} {
						query := ""
						for _, p := range [][2]string{{"resourceVersion", version}, {"resourceVersionMatch", match}, {"limit", limit}, {"continue", token}} {
							if p[1] != "" {
								query += "&" + p[0] + "=" + p[1]
							}
						}
						ops = append(ops, d.list(http.MethodGet, trimAnd(query)), d.named(http.MethodGet, trimAnd(query)))
					}
				}
			}
		}
		// The real server waits for three seconds until a version exists, unless it reads from etcd.
		future := "resourceVersion=" + futureVersion
		ops = append(ops, d.named(http.MethodGet, future+"&resourceVersionMatch=Exact"), d.named(http.MethodGet, future+"&limit=1"))
		if testlength.Count(0, 1) == 1 || d.kind.resource == "events" {
			ops = append(ops, d.named(http.MethodGet, future), d.list(http.MethodGet, future+"&limit=1"), d.list(http.MethodGet, future+"&resourceVersionMatch=Exact"),
				d.list(http.MethodGet, future+"&resourceVersionMatch=NotOlderThan"))
		}
		return ops
	})
}

// TestWatchParameters compares watches with all combinations of their version, its match, initial events and bookmarks.
func TestWatchParameters(t *testing.T) {
	runParameters(t, func(d *director) []operation {
		var ops []operation
		for _, version := range []string{"", "0", "00", "$first", "$middle", "$latest", "$listed", "x"} {
			for _, match := range []string{"", "NotOlderThan", "Exact", "Wrong"} {
				for _, send := range []string{"", "true", "false", "x"} {
					for _, bookmarks := range []string{"", "true"} {
						query := watchQuery(version, match, send, bookmarks)
						named := d.named(http.MethodGet, trimAnd("watch=true&"+query))
						named.watch = true
						ops = append(ops, d.watch(query), named)
					}
				}
			}
		}
		return ops
	})
}

// runParameters runs operations in sequences with the same history. The short form runs every third operation.
func runParameters(t *testing.T, operations func(d *director) []operation) {
	t.Helper()
	r := newRunner(t, memoryServer(t, 1))
	step := testlength.Count(3, 1)
	for i, resource := range parameterKinds() {
		t.Run(resource, func(t *testing.T) {
			k := kindOf(resource)
			d := &director{generator: newGenerator([]*kind{k}, 1, 1), kind: k, name: "a"} // which the last write for a watch changes
			if k.clusterScoped {
				d.name = "$ns-x"
			}
			var chosen []operation
			for j, o := range operations(d) {
				if j%step == i%step {
					chosen = append(chosen, o)
				}
			}
			for chunk := range slices.Chunk(chosen, 48) {
				ops := slices.Concat(d.history(), chunk)
				if difference := r.run(t, ops); difference != "" {
					ops, difference = r.shrink(t, ops, difference)
					t.Errorf("shortened to %d operations:\n%s\n%s", len(ops), list(ops), difference)
				}
			}
		})
	}
}

// history makes operations that create, change and delete some objects, and list them in between.
func (d *director) history() []operation {
	var ops []operation
	object := func(name string) *director {
		other := &director{generator: d.generator, kind: d.kind, name: name}
		if d.kind.clusterScoped {
			other.name = "$ns-" + name
		}
		return other
	}
	for _, name := range []string{"a", "b", "c", "d", "x"} {
		ops = append(ops, object(name).existing()...)
	}
	label := func(name, app string) operation {
		return object(name).patch("application/merge-patch+json", `{"metadata":{"labels":{"app":"`+app+`"}}}`)
	}
	ops = append(ops, label("a", "web"), label("x", "web"), label("b", "web"), d.list(http.MethodGet, "limit=1"), label("b", "v1"))
	c := object("c")
	ops = append(ops, c.operation(http.MethodDelete, c.name, ""), label("d", "web"))
	return append(ops, object("e").existing()...)
}

// trimAnd removes the separators of parameters at both ends.
func trimAnd(query string) string { return strings.Trim(query, "&") }

// named lists or watches the object with the name of the director.
func (d *director) named(method, query string) operation {
	return d.read(method, "", trimAnd("fieldSelector=metadata.name%3D"+d.name+"&"+query))
}
