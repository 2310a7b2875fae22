package conformance

import (
	"net/http"
	"strings"
	"testing"
)

// expiredLength is the number of random operations in a sequence before a compaction, and after it.
const expiredLength = 40

// runExpired runs sequences that go on after both servers have lost their history. The real server is restarted for that:
// its caches would serve older versions. It returns the first difference of each sequence, which is not shortened, because
// each attempt would take seconds.
func (r *runner) runExpired(t *testing.T, kinds []*kind, seed uint64, operations int) []string {
	t.Helper()
	// Each kind is in as many sequences as its minimums need.
	var repeated []*kind
	for round := 0; ; round++ {
		before := len(repeated)
		for _, k := range kinds {
			if k.alone != nil {
				continue
			}
			if round == 0 || round*certainlyExpired < (minimum{perThousand: expiredPerThousand}).least(kinds, k, operations) {
				repeated = append(repeated, k)
			}
		}
		if len(repeated) == before {
			break
		}
	}
	var sequences [][]operation
	var all [][]*side
	var differences []string
	for n := range (len(repeated) + 1) / 2 { // two kinds each
		g := newGenerator(kinds, seed, firstExpired+uint64(n))
		g.kinds = []*kind{repeated[2*n], repeated[(2*n+1)%len(repeated)]}
		sequences = append(sequences, g.operations(expiredLength, g.operation))
		sides := r.begin(t)
		all = append(all, sides)
		if d := r.runIn(t, sides, sequences[n]); d != "" {
			differences = append(differences, list(sequences[n])+d)
		}
		// The versions and tokens that the operations after the compaction use.
		if d := r.runIn(t, sides, g.tokens()); d != "" {
			differences = append(differences, d)
		}
		sequences[n] = append(g.operations(expiredLength, g.expired), g.certainlyExpired()...)
	}
	r.begin(t) // a last write, so that no sequence has the current version
	for _, s := range []*server{r.real, r.memory} {
		if err := s.expire(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	for n, sides := range all {
		if d := r.runIn(t, sides, sequences[n]); d != "" {
			differences = append(differences, "after a compaction:\n"+list(sequences[n])+d)
		}
	}
	return differences
}

// certainlyExpired makes operations of which this number on each kind are lists that fail, and as many are watches.
const certainlyExpired = 2

func (g *generator) certainlyExpired() []operation {
	var ops []operation
	for _, k := range g.kinds {
		d := &director{generator: g, kind: k}
		ops = append(ops,
			d.list(http.MethodGet, "resourceVersion=$first&resourceVersionMatch=Exact"), d.list(http.MethodGet, "resourceVersion=$first&limit=2"),
			d.watch("resourceVersion=$first"), d.watch("resourceVersion=$first&allowWatchBookmarks=true"))
		// The pages of a list whose version is lost, while its objects change.
		change := func(name string) []operation {
			object := &director{generator: g, kind: k, name: name}
			if k.clusterScoped {
				object.name = "$ns-" + name
			}
			return pick(g, object.existing(), []operation{object.patch("application/merge-patch+json", `{"metadata":{"annotations":{"n":"`+g.value()+`"}}}`)},
				[]operation{object.operation(http.MethodDelete, object.name, "")})
		}
		ops = append(ops, d.list(http.MethodGet, "continue=$continue"))
		for _, name := range []string{"t2", "t0", "t25"} {
			ops = append(ops, change(name)...)
			ops = append(ops, d.list(http.MethodGet, "continue=$continue&limit=1"))
		}
		ops = append(ops, d.list(http.MethodGet, "continue=$continue&resourceVersion=0"), d.list(http.MethodGet, "resourceVersion=$listed&resourceVersionMatch=Exact"))
	}
	return ops
}

// tokens makes operations after which there is a token of each of the kinds.
func (g *generator) tokens() []operation {
	var ops []operation
	for i, k := range g.kinds {
		for _, name := range []string{"t1", "t2", "t3"} {
			d := &director{generator: g, kind: k, name: name}
			if i > 0 && k == g.kinds[0] {
				break
			}
			if k.clusterScoped {
				d.name = "$ns-" + name
			}
			ops = append(ops, d.existing()...)
		}
		d := &director{generator: g, kind: k}
		ops = append(ops, d.list(http.MethodGet, "limit=1"))
	}
	return ops
}

// expired makes a random operation that reads an old version, or another one.
func (g *generator) expired() operation {
	d := &director{generator: g, kind: pick(g, g.kinds...), name: "a"}
	if d.kind.clusterScoped {
		d.name = "$ns-x"
	}
	switch g.IntN(4) {
	case 0:
		version := pick(g, "$first", "$first", "$middle", "$latest", "$listed", "1")
		o := d.list(http.MethodGet, pick(g, "continue=$continue", "continue=$continue&limit=1", "continue=$continue&limit=2", "continue=$continue&resourceVersion=0",
			"resourceVersion="+version, "resourceVersion="+version+"&resourceVersionMatch=Exact", "resourceVersion="+version+"&limit=1",
			"resourceVersion="+version+"&resourceVersionMatch=Exact&limit=2", "resourceVersion="+version+"&resourceVersionMatch=NotOlderThan"))
		if g.IntN(4) == 0 && !d.kind.clusterScoped {
			o.query = strings.TrimPrefix(o.query, "labelSelector=sequence%3D$ns&")
		}
		g.accept(&o)
		return o
	case 1:
		version, bookmarks := pick(g, "$first", "$first", "$middle", "$latest", "$listed", "1"), pick(g, "", "true", "false")
		o := d.watch(pick(g, watchQuery(version, "", "", bookmarks), watchQuery(version, "NotOlderThan", "true", bookmarks), watchQuery(version, "NotOlderThan", "false", bookmarks)))
		g.accept(&o)
		return o
	}
	return g.operation()
}
