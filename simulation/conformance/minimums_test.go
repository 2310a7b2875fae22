package conformance

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
)

// count identifies operations that are counted together.
type count struct {
	kind, verb string
	code       int
}

func compareCounts(a, b count) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.verb, b.verb), cmp.Compare(a.code, b.code))
}

// minimum is how many of 1,000 operations on a kind must be of a verb and end with a code. directed returns operations of
// which at least the last ends so. It is used if random operations have not reached the minimum. The object that they
// address does not exist before.
type minimum struct {
	verb        string
	code        int
	perThousand int
	directed    func(d *director) []operation
	// applies is false for kinds that cannot have this code. Default: all kinds.
	applies func(k *kind) bool
}

func (m minimum) appliesTo(k *kind) bool {
	return (m.applies == nil || m.applies(k)) && k.unreachable[fmt.Sprintf("%s %d", m.verb, m.code)] == ""
}

// minimumsOf returns the minimums of a kind.
func minimumsOf(k *kind) []minimum {
	all := minimums()
	if k.minimums != nil {
		all = k.minimums()
	}
	return slices.DeleteFunc(all, func(m minimum) bool { return !m.appliesTo(k) })
}

// least returns the minimum for a kind.
func (m minimum) least(kinds []*kind, k *kind, operations int) int {
	n := m.perThousand * expected(kinds, k, operations) / 1000
	if operations >= fullLength {
		return max(1, n)
	}
	return n
}

// expiredPerThousand is the minimum of lists and of watches that end with 410. They are made by runExpired.
const expiredPerThousand = 2

// minimums are the same for all kinds that have no own ones. A kind that cannot reach one has it in unreachable, with the reason.
func minimums() []minimum {
	isPod := func(k *kind) bool { return k.resource == "pods" }
	namespaced := func(k *kind) bool { return !k.clusterScoped }
	// The real server waits for three seconds, but not for kinds without a cache.
	slow := func(k *kind) bool {
		return k.resource == "configmaps" || k.resource == "widgets" || k.resource == "events"
	}
	return []minimum{
		{verb: "create", code: 201, perThousand: 40, directed: (*director).existing},
		{verb: "create", code: 400, perThousand: 15, directed: func(d *director) []operation {
			return []operation{d.operation(http.MethodPost, "", `{"metadata":`)}
		}},
		{verb: "create", code: 403, perThousand: 1, applies: namespaced, directed: (*director).inTerminatingNamespace},
		{verb: "create", code: 404, perThousand: 8, applies: namespaced, directed: func(d *director) []operation {
			o := d.operation(http.MethodPost, "", d.object(""))
			o.namespace = "$ns-missing"
			return []operation{o}
		}},
		{verb: "create", code: 409, perThousand: 20, directed: func(d *director) []operation {
			return append(d.existing(), d.existing()...)
		}},
		{verb: "create", code: 422, perThousand: 20, directed: func(d *director) []operation {
			return []operation{d.operation(http.MethodPost, "", d.object(`,"finalizers":["not qualified"]`))}
		}},

		{verb: "update", code: 200, perThousand: 20, directed: func(d *director) []operation {
			return append(d.existing(), d.operation(http.MethodPut, d.name, d.object(`,"resourceVersion":"$rv","annotations":{"n":"`+d.value()+`"}`)))
		}},
		{verb: "update", code: 201, perThousand: 5, directed: func(d *director) []operation {
			return []operation{d.operation(http.MethodPut, d.name, d.object(""))}
		}, applies: func(k *kind) bool { return k.createOnUpdate }},
		{verb: "update", code: 400, perThousand: 10, directed: func(d *director) []operation {
			return append(d.existing(), d.operation(http.MethodPut, d.name+"-2", d.object(`,"resourceVersion":"$rv"`)))
		}},
		{verb: "update", code: 404, perThousand: 8, directed: func(d *director) []operation {
			return []operation{d.operation(http.MethodPut, d.name, d.object(`,"resourceVersion":"1"`))}
		}, applies: func(k *kind) bool { return !k.createOnUpdate }},
		{verb: "update", code: 409, perThousand: 8, directed: func(d *director) []operation {
			return append(d.changed(), d.operation(http.MethodPut, d.name, d.object(`,"resourceVersion":"$old"`)))
		}},
		{verb: "update", code: 422, perThousand: 8, directed: func(d *director) []operation {
			return append(d.existing(), d.operation(http.MethodPut, d.name, d.object(`,"resourceVersion":"$rv","finalizers":["not qualified"]`)))
		}},

		{verb: "patch", code: 200, perThousand: 12, directed: (*director).changed},
		{verb: "patch", code: 400, perThousand: 4, directed: func(d *director) []operation {
			return append(d.existing(), d.patch(d.mergePatch(), `{"metadata":`))
		}},
		{verb: "patch", code: 404, perThousand: 12, directed: func(d *director) []operation {
			return []operation{d.patch(d.mergePatch(), `{}`)}
		}},
		{verb: "patch", code: 409, perThousand: 2, directed: func(d *director) []operation {
			return append(d.changed(), d.patch(d.mergePatch(), `{"metadata":{"resourceVersion":"$old","labels":{"app":"late"}}}`))
		}},
		{verb: "patch", code: 415, perThousand: 1, directed: func(d *director) []operation {
			return append(d.existing(), d.patch(pick(d.generator, "text/plain", "application/json", "application/vnd.kubernetes.protobuf"), `{}`))
		}},
		{verb: "patch", code: 422, perThousand: 5, directed: func(d *director) []operation {
			return append(d.existing(), d.patch("application/json-patch+json", `[{"op":"test","path":"/metadata/name","value":"nobody"}]`))
		}},

		{verb: "apply", code: 200, perThousand: 8, directed: func(d *director) []operation {
			return append(d.existing(), d.apply("m1", d.object(`,"annotations":{"n":"`+d.value()+`"}`)))
		}},
		{verb: "apply", code: 201, perThousand: 6, directed: func(d *director) []operation {
			return []operation{d.apply("m1", d.object(""))}
		}},
		{verb: "apply", code: 400, perThousand: 4, directed: func(d *director) []operation {
			return []operation{d.apply("m1", `{"metadata":{"name":"other"}}`)}
		}},
		{verb: "apply", code: 404, perThousand: 2, applies: namespaced, directed: func(d *director) []operation {
			o := d.apply("m1", d.object(""))
			o.namespace = "$ns-missing"
			return []operation{o}
		}},
		{verb: "apply", code: 409, perThousand: 4, directed: func(d *director) []operation {
			return []operation{
				d.apply("m1", d.object(`,"annotations":{"n":"first"}`)), d.apply("m2", d.object(`,"annotations":{"n":"second"}`)),
			}
		}},
		{verb: "apply", code: 422, perThousand: 4, directed: func(d *director) []operation {
			return []operation{d.apply("", d.object(""))}
		}},
		{verb: "apply", code: 500, perThousand: 4, directed: func(d *director) []operation {
			return []operation{d.apply("m1", d.object(`,"annotations":["none"]`))}
		}},

		{verb: "delete", code: 200, perThousand: 12, directed: func(d *director) []operation {
			return append(d.existing(), d.operation(http.MethodDelete, d.name, pick(d.generator, ``, `{}`, `{"preconditions":{"uid":"$uid"}}`)))
		}},
		{verb: "delete", code: 404, perThousand: 8, directed: func(d *director) []operation {
			return []operation{d.operation(http.MethodDelete, d.name, "")}
		}},
		{verb: "delete", code: 409, perThousand: 2, directed: func(d *director) []operation {
			return append(d.changed(), d.operation(http.MethodDelete, d.name, `{"preconditions":{`+
				pick(d.generator, `"uid":"11111111-2222-4333-8444-555555555555"`, `"resourceVersion":"$old"`)+`}}`))
		}},
		{verb: "delete", code: 422, perThousand: 3, directed: func(d *director) []operation {
			return append(d.existing(), d.operation(http.MethodDelete, d.name, `{"propagationPolicy":"Wrong"}`))
		}},
		{verb: "deletecollection", code: 200, perThousand: 6, directed: func(d *director) []operation {
			return append(d.withFinalizer(), d.list(http.MethodDelete, pick(d.generator, "", "propagationPolicy=Foreground", "propagationPolicy=Orphan")),
				d.list(http.MethodGet, ""), d.patch(d.mergePatch(), `{"metadata":{"finalizers":null}}`), d.list(http.MethodDelete, ""))
		}, applies: func(k *kind) bool { return !k.noDeleteCollection }},
		{verb: "deletecollection", code: 405, perThousand: 1, directed: func(d *director) []operation {
			return []operation{d.list(http.MethodDelete, "")}
		}, applies: func(k *kind) bool { return k.noDeleteCollection }},

		{verb: "evict", code: 201, perThousand: 6, applies: isPod, directed: func(d *director) []operation { return append(d.existing(), d.eviction("")) }},
		{verb: "evict", code: 400, perThousand: 2, applies: isPod, directed: func(d *director) []operation {
			o := d.eviction("")
			o.body = `{"metadata":{"name":"other"}}`
			return []operation{o}
		}},
		{verb: "evict", code: 403, perThousand: 1, applies: isPod, directed: func(d *director) []operation {
			return d.postInTerminatingNamespace(d.eviction(""))
		}},
		{verb: "evict", code: 404, perThousand: 2, applies: isPod, directed: func(d *director) []operation { return []operation{d.eviction("")} }},
		{verb: "evict", code: 409, perThousand: 1, applies: isPod, directed: func(d *director) []operation {
			return append(d.changed(), d.eviction(`,"deleteOptions":{"preconditions":{"resourceVersion":"$old"}}`))
		}},
		{verb: "evict", code: 422, perThousand: 1, applies: isPod, directed: func(d *director) []operation {
			return append(d.existing(), d.eviction(`,"deleteOptions":{"dryRun":["Some"]}`))
		}},
		{verb: "evict", code: 429, perThousand: 4, applies: isPod, directed: func(d *director) []operation {
			return append(d.disrupted(`{"observedGeneration":2,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}`), d.eviction(""))
		}},
		{verb: "evict", code: 500, perThousand: 2, applies: isPod, directed: func(d *director) []operation {
			second := &director{generator: d.generator, kind: kindOf("poddisruptionbudgets"), name: d.name + "-2"}
			return slices.Concat(d.disrupted(`{}`), second.existing(), second.selecting(d), []operation{d.eviction("")})
		}},
		{verb: "bind", code: 201, perThousand: 4, applies: isPod, directed: func(d *director) []operation { return append(d.existing(), d.binding("Node")) }},
		{verb: "bind", code: 403, perThousand: 1, applies: isPod, directed: func(d *director) []operation {
			return d.postInTerminatingNamespace(d.binding("Node"))
		}},
		{verb: "bind", code: 404, perThousand: 2, applies: isPod, directed: func(d *director) []operation { return []operation{d.binding("Node")} }},
		{verb: "bind", code: 409, perThousand: 1, applies: isPod, directed: func(d *director) []operation {
			return append(d.existing(), d.binding("Node"), d.binding("Node"))
		}},
		{verb: "bind", code: 500, perThousand: 1, applies: isPod, directed: func(d *director) []operation { return append(d.existing(), d.binding("Pod")) }},

		{verb: "get", code: 200, perThousand: 12, directed: func(d *director) []operation {
			return append(d.existing(), d.operation(http.MethodGet, d.name, ""))
		}},
		{verb: "get", code: 404, perThousand: 12, directed: func(d *director) []operation {
			return []operation{d.operation(http.MethodGet, d.name, "")}
		}},
		{verb: "get", code: 406, perThousand: 2, directed: func(d *director) []operation {
			o := d.operation(http.MethodGet, d.name, "")
			o.header["Accept"] = "text/plain"
			return append(d.existing(), o)
		}},
		{verb: "get", code: 500, perThousand: 2, directed: func(d *director) []operation {
			return append(d.existing(), d.read(http.MethodGet, d.name, "resourceVersion=x"))
		}},
		{verb: "get", code: 504, perThousand: 1, applies: slow, directed: func(d *director) []operation {
			return append(d.existing(), d.read(http.MethodGet, d.name, "resourceVersion="+futureVersion))
		}},

		{verb: "list", code: 200, perThousand: 25, directed: func(d *director) []operation {
			return append(d.existing(), d.list(http.MethodGet, ""))
		}},
		{verb: "list", code: 400, perThousand: 10, directed: func(d *director) []operation {
			return []operation{d.list(http.MethodGet, "continue=wrong")}
		}},
		{verb: "list", code: 406, perThousand: 3, directed: func(d *director) []operation {
			o := d.list(http.MethodGet, "")
			o.header["Accept"] = "text/plain"
			return []operation{o}
		}},
		{verb: "list", code: http.StatusGone, perThousand: expiredPerThousand},
		{verb: "list", code: 422, perThousand: 4, directed: func(d *director) []operation {
			return []operation{d.list(http.MethodGet, "resourceVersionMatch=Exact")}
		}},
		{verb: "list", code: 504, perThousand: 1, applies: slow, directed: func(d *director) []operation {
			return []operation{d.list(http.MethodGet, "resourceVersion="+futureVersion)}
		}},

		{verb: "watch", code: 200, perThousand: 15, directed: func(d *director) []operation {
			return append([]operation{d.watch("resourceVersion=$first")}, append(d.changed(), d.operation(http.MethodDelete, d.name, ""))...)
		}},
		{verb: "watch", code: http.StatusGone, perThousand: expiredPerThousand},
		{verb: "watch", code: 422, perThousand: 2, directed: func(d *director) []operation {
			return []operation{d.watch("sendInitialEvents=true")}
		}},
		{verb: "watch", code: 504, perThousand: 1, applies: func(k *kind) bool { return slow(k) && k.resource != "events" }, directed: func(d *director) []operation {
			return []operation{d.watch(watchQuery(futureVersion, "NotOlderThan", "true", ""))} // of events, the time to retry is random
		}},
		{verb: "watch", code: 500, perThousand: 1, directed: func(d *director) []operation {
			return []operation{d.watch("resourceVersion=x")}
		}},
	}
}

// shortfall is a minimum that has not been reached.
type shortfall struct {
	count
	minimum
	kind      *kind
	have, min int
}

func (s shortfall) String() string {
	return fmt.Sprintf("%s %s %d: %d operations, at least %d", s.kind.resource, s.minimum.verb, s.minimum.code, s.have, s.min)
}

// fullLength is the number of operations from which each minimum is at least 1.
const fullLength = 5000

// expected returns how many of the operations are on a kind.
func expected(kinds []*kind, k *kind, operations int) int {
	total := 0
	for _, k := range kinds {
		total += max(1, k.weight)
	}
	return operations * max(1, k.weight) / total
}

// missing returns the minimums that have not been reached. They are proportional to the operations on each kind.
func (r *runner) missing(kinds []*kind, operations int, expire bool) []shortfall {
	var all []shortfall
	for _, k := range kinds {
		for _, m := range minimumsOf(k) {
			c := count{k.resource, m.verb, m.code}
			if m.code == http.StatusGone && !expire {
				continue
			}
			least := m.least(kinds, k, operations)
			if have := r.coverage[c]; have < least {
				all = append(all, shortfall{count: c, minimum: m, kind: k, have: have, min: least})
			}
		}
	}
	slices.SortFunc(all, func(a, b shortfall) int { return compareCounts(a.count, b.count) })
	return all
}
