package conformance

import (
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	apibuiltin "github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

// workloadKinds returns the kinds that have templates of Pods.
func workloadKinds() []*kind {
	group := func(resource, name string, memory func() *apiserver.Kind, options []option, hasScale bool, status func(g *generator) string) *kind {
		k := &kind{resource: resource, name: name, apiVersion: "apps/v1", memory: builtin(memory)}
		spec := func(g *generator) string {
			return g.workloadSpec(pick(g, `{"matchLabels":{"a":"b"}}`, `{"matchLabels":{"a":"b"}}`, `{"matchLabels":{"a":"b"}}`, `{"matchLabels":{"a":"b"}}`, `{"matchLabels":{"a":"b"}}`,
				`{"matchLabels":{"a":"b"}}`, `{"matchLabels":{"a":"c"}}`, `{}`, ``, `{"matchLabels":{"Not Valid":"b"}}`, `{"matchLabels":{"a":"Not Valid"}}`,
				`{"matchExpressions":[{"key":"a","operator":"In"}]}`, `{"matchExpressions":[{"key":"a","operator":"Wrong"}]}`, `{"matchExpressions":[{"key":"a","operator":"Exists"}]}`), options)
		}
		k.minimal = `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
		k.fields = []field{{name: "spec", required: true, value: spec}, {name: "status", value: status}}
		k.subresources = []subresource{{
			name: "status", operations: []string{"get", "update", "patch", "apply"}, percent: 20,
			body: func(g *generator, _ operation, m string) string {
				return `{"apiVersion":"apps/v1","kind":"` + name + `","metadata":` + m + `,"status":` + status(g) + `}`
			},
		}}
		if hasScale {
			k.subresources = append(k.subresources, subresource{
				name: "scale", operations: []string{"get", "update", "patch"}, percent: 15,
				body: func(g *generator, _ operation, m string) string {
					return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":` + m + `,"spec":{"replicas":` + pick(g, "1", "2", "0", "-1") + `}}`
				},
			})
		}
		k.patch = func(g *generator, media string) string {
			if g.IntN(2) == 0 {
				return g.podPatch(media, "/spec/template/spec")
			}
			o := pick(g, append(options, option{"replicas", []string{"2", "3", "-1", "null"}}, option{"selector", []string{`{"matchLabels":{"a":"c"}}`}})...)
			value := pick(g, o.values...)
			if media == "json-patch" {
				return `[{"op":"add","path":"/spec/` + o.name + `","value":` + value + `}]`
			}
			return `{"spec":{"` + o.name + `":` + value + `}}`
		}
		return k
	}
	numbers := func(names ...string) func(g *generator) string {
		return func(g *generator) string {
			if g.IntN(6) == 0 {
				return pick(g, `{}`, `{"conditions":[{"type":"Available","status":"True"}]}`, `{"conditions":null}`)
			}
			var fields []string
			for _, name := range append(names, "observedGeneration", "collisionCount") {
				if g.IntN(3) == 0 {
					fields = append(fields, `"`+name+`":`+pick(g, "1", "2", "3", "0", "-1"))
				}
			}
			return `{` + strings.Join(fields, ",") + `}`
		}
	}
	seconds := option{"minReadySeconds", []string{"0", "5", "-1", "600"}}
	history := option{"revisionHistoryLimit", []string{"0", "5", "-1"}}
	replicas := option{"replicas", []string{"0", "1", "3", "-1", "null"}}
	return []*kind{
		group("deployments", "Deployment", apibuiltin.Deployments, []option{
			replicas, seconds, history,
			{"strategy", []string{
				`{}`, `{"type":"Recreate"}`, `{"type":"Recreate","rollingUpdate":{}}`, `{"type":"RollingUpdate","rollingUpdate":null}`, `{"type":"Wrong"}`, `{"type":"Wrong","rollingUpdate":{"maxSurge":1}}`,
				`{"rollingUpdate":{"maxSurge":0,"maxUnavailable":0}}`, `{"rollingUpdate":{"maxSurge":"0%","maxUnavailable":0}}`, `{"rollingUpdate":{"maxSurge":-1,"maxUnavailable":"x"}}`,
				`{"rollingUpdate":{"maxSurge":"200%","maxUnavailable":"101%"}}`, `{"rollingUpdate":{"maxSurge":1}}`,
			}},
			{"progressDeadlineSeconds", []string{"10", "0", "-1", "5"}},
			{"paused", []string{"true", "false"}},
		}, true, numbers("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "terminatingReplicas")),
		group("replicasets", "ReplicaSet", apibuiltin.ReplicaSets, []option{replicas, seconds}, true,
			numbers("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas")),
		group("daemonsets", "DaemonSet", apibuiltin.DaemonSets, []option{
			seconds, history,
			{"updateStrategy", []string{
				`{}`, `{"type":"OnDelete"}`, `{"type":"Wrong"}`, `{"rollingUpdate":{"maxUnavailable":0}}`, `{"rollingUpdate":{"maxUnavailable":0,"maxSurge":"10%"}}`, `{"rollingUpdate":{"maxSurge":1}}`,
				`{"rollingUpdate":{"maxUnavailable":"101%"}}`, `{"rollingUpdate":{"maxUnavailable":"x","maxSurge":-1}}`, `{"type":"Wrong","rollingUpdate":{"maxUnavailable":1}}`,
			}},
		}, false, numbers("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable", "numberUnavailable")),
		group("statefulsets", "StatefulSet", apibuiltin.StatefulSets, []option{
			replicas, seconds, history,
			{"serviceName", []string{`"s"`, `"Not Valid"`, `""`}},
			{"podManagementPolicy", []string{`"Parallel"`, `"OrderedReady"`, `"Wrong"`}},
			{"updateStrategy", []string{
				`{}`, `{"type":"OnDelete"}`, `{"type":"OnDelete","rollingUpdate":{}}`, `{"type":"Wrong"}`, `{"type":"RollingUpdate"}`, `{"rollingUpdate":{"partition":2}}`, `{"rollingUpdate":{"partition":-1}}`,
				`{"rollingUpdate":{"maxUnavailable":2}}`,
			}},
			{"ordinals", []string{`{"start":1}`, `{"start":-1}`}},
			{"persistentVolumeClaimRetentionPolicy", []string{`{"whenDeleted":"Delete"}`, `{"whenScaled":"Wrong"}`, `{}`}},
			{"volumeClaimTemplates", []string{
				`[{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]`, `[{"metadata":{"name":"v"},"spec":{}}]`,
				`[{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce","ReadWriteOncePod","Wrong"],"resources":{"requests":{"storage":"0"}},"storageClassName":"Not Valid","volumeMode":"Block"}}]`,
			}},
		}, true, numbers("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")),
		jobKind(),
	}
}

// workloadSpec returns a specification with a selector (empty: none) and a template.
func (g *generator) workloadSpec(selector string, options []option) string {
	labels := pick(g, `{"a":"b"}`, `{"a":"b"}`, `{"a":"b"}`, `{"a":"b"}`, `{"a":"b"}`, `{"a":"b"}`, `{"a":"b"}`, `{"a":"b","x":"y"}`, `{"a":"b","x":"not valid"}`, `{}`)
	if g.IntN(2) == 0 {
		selector, labels = `{"matchLabels":{"a":"b"}}`, `{"a":"b"}`
	}
	fields := `"template":{"metadata":{"labels":` + labels + often(g, 5, pick(g, `,"annotations":{"Not Valid":"x"}`, `,"annotations":{"n":"x"}`)) + `},"spec":` +
		g.podSpec(often(g, 4, `,"restartPolicy":`+pick(g, `"Never"`, `"Always"`, `"Wrong"`)), containerFields(), templateFields()) + `}`
	if selector != "" {
		fields += `,"selector":` + selector
	}
	return `{` + fields + g.some(options) + `}`
}

func jobKind() *kind {
	options := []option{
		{"parallelism", []string{"0", "1", "2", "-1", "200000"}},
		{"completions", []string{"0", "1", "2", "-1", "200000", "null"}},
		{"completionMode", []string{`"Indexed"`, `"Indexed"`, `"Indexed"`, `"NonIndexed"`, `"Wrong"`}},
		{"activeDeadlineSeconds", []string{"5", "-1"}},
		{"backoffLimit", []string{"0", "-1"}},
		{"backoffLimitPerIndex", []string{"1", "-1"}},
		{"maxFailedIndexes", []string{"1", "5", "-1"}},
		{"ttlSecondsAfterFinished", []string{"0", "-1"}},
		{"suspend", []string{"true", "true", "false"}},
		{"manualSelector", []string{"true", "false"}},
		{"selector", []string{`{"matchLabels":{"a":"b"}}`, `{"matchLabels":{"batch.kubernetes.io/controller-uid":"x"}}`, `{}`}},
		{"managedBy", []string{`"example.com/x"`, `"x"`}},
		{"podReplacementPolicy", []string{`"Failed"`, `"TerminatingOrFailed"`, `"Wrong"`}},
		{"podFailurePolicy", []string{
			`{"rules":[{"action":"FailJob","onExitCodes":{"operator":"In","values":[1,2]}}]}`, `{"rules":[{"action":"","onExitCodes":{"operator":"","values":[]}}]}`,
			`{"rules":[{"action":"FailIndex","onExitCodes":{"containerName":"x","operator":"In","values":[2,0,2]}}]}`, `{"rules":[{"action":"Wrong","onPodConditions":[{"type":"Not Valid","status":"Wrong"}]}]}`,
			`{"rules":[{"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget"}]}]}`, `{"rules":[{"action":"Ignore"}]}`,
			`{"rules":[{"action":"Count","onPodConditions":[{"type":"X"}],"onExitCodes":{"operator":"Wrong","values":[1]}}]}`,
		}},
		{"successPolicy", []string{
			`{"rules":[{"succeededCount":1}]}`, `{"rules":[]}`, `{"rules":[{}]}`, `{"rules":[{"succeededIndexes":"0-1","succeededCount":3}]}`, `{"rules":[{"succeededIndexes":"x"}]}`,
			`{"rules":[{"succeededIndexes":"1,0"}]}`, `{"rules":[{"succeededIndexes":"9"}]}`, `{"rules":[{"succeededIndexes":"0-0"}]}`, `{"rules":[{"succeededIndexes":"0-1-2","succeededCount":-1}]}`,
		}},
	}
	spec := func(g *generator) string {
		labels := pick(g, `{}`, `{"metadata":{}}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"job-name":"x"}}}`, `{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"x"}}}`)
		if g.IntN(3) == 0 { // which can be updated: the selector is not generated
			return `{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
				`"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"` + often(g, 20, g.some(containerFields())) + `}]}}` + g.some(options[:9]) + `}`
		}
		template := strings.TrimSuffix(labels, "}") + map[bool]string{false: ","}[labels == "{}"] + `"spec":` +
			g.podSpec(pick(g, `,"restartPolicy":"Never"`, `,"restartPolicy":"Never"`, `,"restartPolicy":"Never"`, `,"restartPolicy":"OnFailure"`, `,"restartPolicy":"OnFailure"`, `,"restartPolicy":"Wrong"`, ``), containerFields(), templateFields()) + `}`
		return `{"template":` + template + g.some(options) + `}`
	}
	status := func(g *generator) string {
		conditions := pick(g, ``, ``, `"conditions":[{"type":"Complete","status":"True"}],`, `"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}],`,
			`"conditions":[{"type":"FailureTarget","status":"True"},{"type":"Failed","status":"True"}],`, `"conditions":[{"type":"Failed","status":"True"}],`,
			`"conditions":[{"type":"Suspended","status":"True"}],`, `"conditions":[{"type":"Suspended","status":"False"}],`)
		return `{` + conditions + `"active":` + pick(g, "0", "0", "1", "-1") + g.some([]option{
			{"startTime", []string{`"2020-01-01T00:00:00Z"`, `"2020-01-02T00:00:00Z"`}},
			{"completionTime", []string{`"2020-01-01T12:00:00Z"`, `"2020-01-03T00:00:00Z"`}},
			{"succeeded", []string{"1", "2", "-1"}},
			{"failed", []string{"1", "2"}},
			{"ready", []string{"0", "1", "2"}},
			{"terminating", []string{"0", "1", "-1"}},
			{"completedIndexes", []string{`"0"`, `"0-1"`, `"x"`}},
			{"failedIndexes", []string{`"0"`, `"1"`}},
			{"uncountedTerminatedPods", []string{`{"succeeded":["a"]}`, `{"succeeded":["a","a"],"failed":[""]}`, `{}`}},
		}) + `}`
	}
	return &kind{
		resource: "jobs", name: "Job", apiVersion: "batch/v1", memory: builtin(apibuiltin.Jobs),
		minimal: `"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`,
		fields: []field{{name: "spec", required: true, value: spec}, {name: "status", value: status}}, fieldSelectors: []string{"status.successful=1"},
		subresources: []subresource{{
			name: "status", operations: []string{"get", "update", "patch", "apply"}, percent: 25,
			body: func(g *generator, _ operation, m string) string {
				return `{"apiVersion":"batch/v1","kind":"Job","metadata":` + m + `,"status":` + status(g) + `}`
			},
		}},
		patch: func(g *generator, media string) string {
			if g.IntN(2) == 0 {
				return g.podPatch(media, "/spec/template/spec")
			}
			o := pick(g, options...)
			value := pick(g, o.values...)
			if media == "json-patch" {
				return `[{"op":"add","path":"/spec/` + o.name + `","value":` + value + `}]`
			}
			return `{"spec":{"` + o.name + `":` + value + `}}`
		},
	}
}
