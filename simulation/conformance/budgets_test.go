package conformance

import (
	"fmt"
	"net/http"
	"strings"

	apibuiltin "github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

// budgetKinds returns the kind PodDisruptionBudget.
func budgetKinds() []*kind {
	limits := []string{`1`, `0`, `2`, `-1`, `"50%"`, `"0%"`, `"100%"`, `"101%"`, `"x"`, `"5"`, `"-1%"`, `null`}
	options := []option{
		{"minAvailable", limits},
		{"maxUnavailable", limits},
		{"selector", []string{
			`{"matchLabels":{"app":"web"}}`, `{"matchLabels":{"app":"v1"}}`, `{}`, `null`, `{"matchLabels":{"Not Valid":"b"}}`, `{"matchLabels":{"a":"Not Valid"}}`,
			`{"matchExpressions":[{"key":"app","operator":"In"}]}`, `{"matchExpressions":[{"key":"app","operator":"Wrong"}]}`, `{"matchExpressions":[{"key":"app","operator":"Exists"}]}`,
		}},
		{"unhealthyPodEvictionPolicy", []string{`"AlwaysAllow"`, `"IfHealthyBudget"`, `"Wrong"`, `""`, `null`}},
	}
	spec := func(g *generator) string {
		switch g.IntN(3) {
		case 0:
			return `{"minAvailable":` + pick(g, `1`, `"50%"`) + `,"selector":{"matchLabels":{"app":"web"}}}`
		case 1:
			return `{"maxUnavailable":` + pick(g, `1`, `"50%"`) + `,"selector":{"matchLabels":{"app":"` + g.value() + `"}}` + often(g, 50, `,"unhealthyPodEvictionPolicy":"AlwaysAllow"`) + `}`
		}
		return strings.Replace(`{`+g.some(options)+`}`, `{,`, `{`, 1)
	}
	return []*kind{{
		resource: "poddisruptionbudgets", name: "PodDisruptionBudget", apiVersion: "policy/v1", memory: builtin(apibuiltin.PodDisruptionBudgets),
		minimal: `"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}`,
		fields:  []field{{name: "spec", required: true, value: spec}, {name: "status", value: (*generator).budgetStatus}},
		subresources: []subresource{{
			name: "status", operations: []string{"get", "update", "patch", "apply"}, percent: 30,
			body: func(g *generator, _ operation, m string) string {
				return `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":` + m + `,"status":` + g.budgetStatus() + `}`
			},
		}},
		patch: func(g *generator, media string) string {
			o := pick(g, options...)
			value := pick(g, o.values...)
			if media == "json-patch" {
				return `[{"op":"add","path":"/spec/` + o.name + `","value":` + value + `}]`
			}
			return pick(g, `{"spec":{"`+o.name+`":`+value+`}}`, `{"spec":{"`+o.name+`":`+value+`}}`, `{"status":`+g.budgetStatus()+`}`)
		},
		scenario: (*generator).disruption,
	}}
}

// budgetStatus returns a status, which often allows disruptions.
func (g *generator) budgetStatus() string {
	if g.IntN(6) == 0 {
		return pick(g, `{}`, `{"disruptionsAllowed":-1,"currentHealthy":-2,"desiredHealthy":-3,"expectedPods":-4}`,
			`{"disruptionsAllowed":1,"currentHealthy":1,"desiredHealthy":0,"expectedPods":1,"conditions":[{"type":"DisruptionAllowed","status":"Wrong","reason":"","lastTransitionTime":null}]}`,
			`{"disruptionsAllowed":1,"currentHealthy":1,"desiredHealthy":0,"expectedPods":1,"disruptedPods":{"other":"2020-01-01T00:00:00Z"}}`)
	}
	status := fmt.Sprintf(`{"observedGeneration":%s,"disruptionsAllowed":%s,"currentHealthy":%s,"desiredHealthy":%s,"expectedPods":2`,
		pick(g, "1", "2", "3", "3", "9"), pick(g, "0", "0", "1", "1", "2"), pick(g, "0", "1", "2"), pick(g, "0", "1", "1", "2"))
	status += often(g, 30, `,"conditions":[{"type":"DisruptionAllowed","status":"`+pick(g, "True", "False")+`","observedGeneration":1,"reason":"`+
		pick(g, "SyncFailed", "SufficientPods", "InsufficientPods")+`","message":"`+pick(g, "", "a message")+`","lastTransitionTime":"2020-01-01T00:00:00Z"}]`)
	return status + often(g, 20, `,"disruptedPods":`+pick(g, `{"a":"2020-01-01T00:00:00Z"}`, `{"b":"2020-01-01T00:00:00Z"}`, `{}`)) + `}`
}

// disruption makes operations that end with an eviction: of a Pod that runs or not, and that a budget selects or not.
func (g *generator) disruption() []operation {
	d := &director{generator: g, kind: kindOf("pods"), name: pick(g, "a", "a", "b")}
	budgets := &director{generator: g, kind: kindOf("poddisruptionbudgets"), name: pick(g, "a", "a", "a", "b")}
	var ops []operation
	if g.IntN(4) > 0 {
		ops = append(ops, budgets.existing()...)
	}
	if g.IntN(4) > 0 {
		ops = append(ops, budgets.status(g.budgetStatus()))
	}
	if g.IntN(3) > 0 {
		ops = append(ops, d.operation(http.MethodPost, "", d.object("")), d.patch(d.mergePatch(), `{"metadata":{"labels":{"app":"`+pick(g, "web", "web", "web", "v1")+`"}}}`))
	}
	if g.IntN(4) > 0 {
		ops = append(ops, d.status(`{"phase":"`+pick(g, "Running", "Running", "Running", "Running", "Succeeded", "Failed", "Pending")+`","conditions":[{"type":"Ready","status":"`+
			pick(g, "True", "True", "False")+`"}]}`))
	}
	for range pick(g, 1, 1, 2) {
		o := d.operation(http.MethodPost, d.name, "")
		g.evict(&o)
		ops = append(ops, o)
	}
	return ops
}

// status patches the status of the object.
func (d *director) status(status string) operation {
	o := d.patch("application/merge-patch+json", `{"status":`+status+`}`)
	o.subresource = "status"
	return o
}

// evict makes an eviction of a Pod. Those with a uid are few: if it is wrong, the real server tries for 10 s to evict a Pod
// that does not run.
func (g *generator) evict(o *operation) {
	o.method, o.subresource = http.MethodPost, "eviction"
	o.query = pick(g, "", "", "", "", "", "dryRun=All", "fieldValidation=Strict", "fieldManager=m", "dryRun=Some")
	options := pick(g, "", "", "", "", `{}`, `{"gracePeriodSeconds":0}`, `{"gracePeriodSeconds":0}`, `{"gracePeriodSeconds":-1}`, `{"dryRun":["All"]}`, `{"dryRun":["Some"]}`,
		`{"preconditions":{"resourceVersion":"$rv"}}`, `{"preconditions":{"resourceVersion":"$old"}}`, `{"preconditions":{"uid":"$uid","resourceVersion":"$rv"}}`,
		`{"propagationPolicy":"Foreground"}`, `{"propagationPolicy":"Wrong"}`, `{"orphanDependents":true}`, `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`, `{"unknown":1}`)
	if g.IntN(60) == 0 {
		options = `{"preconditions":{"uid":"$uid"}}`
	}
	if options != "" {
		options = `,"deleteOptions":` + options
	}
	name := o.name
	switch g.IntN(25) {
	case 0:
		name = "other"
	case 1:
		name = ""
	}
	metadata := `{"name":"` + name + `"` + often(g, 10, `,"namespace":"`+pick(g, "$ns", "elsewhere")+`"`) + often(g, 5, `,"unknown":1`) + `}`
	version := pick(g, "policy/v1", "policy/v1", "policy/v1", "policy/v1", "policy/v1beta1", "policy/v1beta1", "policy/v2", "v1")
	o.body = pick(g, `{"apiVersion":"`+version+`","kind":"Eviction","metadata":`+metadata+options+`}`, `{"metadata":`+metadata+options+`}`)
	if g.IntN(40) == 0 {
		o.body = pick(g, ``, `{}`, `[]`, `{"apiVersion":"v1","kind":"Pod","metadata":`+metadata+`}`)
	}
	if g.IntN(10) == 0 {
		o.header["Accept"] = "application/vnd.kubernetes.protobuf"
	}
}

// bind makes a binding of a Pod to a node.
func (g *generator) bind(o *operation) {
	o.method, o.subresource = http.MethodPost, "binding"
	o.query = pick(g, "", "", "", "", "", "dryRun=All", "fieldValidation=Strict", "fieldManager=m", "dryRun=Some")
	name := o.name
	if g.IntN(20) == 0 {
		name = pick(g, "other", "")
	}
	metadata := `{"name":"` + name + `"` + often(g, 10, `,"namespace":"`+pick(g, "$ns", "elsewhere")+`"`) +
		often(g, 20, pick(g, `,"uid":"$uid"`, `,"uid":"11111111-2222-4333-8444-555555555555"`, `,"resourceVersion":"$rv"`, `,"resourceVersion":"$old"`)) +
		often(g, 20, pick(g, `,"labels":{"app":"bound"}`, `,"annotations":{"n":"bound"}`)) + `}`
	target := pick(g, `{"kind":"Node","name":"n1"}`, `{"kind":"Node","name":"n1"}`, `{"name":"n2"}`, `{"kind":"Node","name":"n1"}`, `{"kind":"Pod","name":"n1"}`, `{"kind":"Node"}`, `{}`)
	o.body = pick(g, `{"apiVersion":"v1","kind":"Binding","metadata":`+metadata+`,"target":`+target+`}`, `{"metadata":`+metadata+`,"target":`+target+`}`)
	if g.IntN(30) == 0 {
		o.body = pick(g, ``, `{}`, `{"apiVersion":"v1","kind":"Pod","metadata":`+metadata+`}`)
	}
}
