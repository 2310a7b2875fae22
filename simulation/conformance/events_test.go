package conformance

import (
	"strings"

	apibuiltin "github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

// eventKinds returns the kind Event, which two groups serve with other names of some fields. Most bodies have a field in the
// group that has it.
func eventKinds() []*kind {
	const legacy, current = "v1", "events.k8s.io/v1"
	both := func(legacyName, currentName string, f field) []field {
		old, renamed := f, f
		old.name, old.apiVersion, renamed.name, renamed.apiVersion = legacyName, legacy, currentName, current
		return []field{old, renamed}
	}
	long := `"` + strings.Repeat("x", 129) + `"`
	times := values(`"2020-01-01T00:00:00Z"`, `"2020-01-02T00:00:00Z"`, `null`, `"wrong"`)
	counts := values(`1`, `2`, `0`, `-1`)
	object := func(g *generator) string {
		return `{` + pick(g, `"namespace":"$ns"`, `"namespace":"$ns"`, `"namespace":"$ns"`, `"namespace":"$ns-x"`, `"namespace":""`) +
			often(g, 70, `,"kind":"`+pick(g, "Pod", "ConfigMap")+`","name":"`+g.value()+`"`) +
			often(g, 20, `,"uid":"u1","apiVersion":"v1","resourceVersion":"7","fieldPath":"spec.x"`) + `}`
	}
	k := &kind{
		resource: "events", name: "Event", apiVersion: legacy, otherVersions: []string{current, current}, weight: 2, memory: apibuiltin.Events,
		createOnUpdate: true,
		notWith:        "services", // whose addresses it repairs
		unreachable:    map[string]string{"get 500": "without a cache, the error of a wrong version is 400"},
		minimal:        `"involvedObject":{"namespace":"$ns"}`,
		fieldSelectors: []string{
			"reason=R", "type=Normal", "source=kubelet", "involvedObject.kind=Pod", "involvedObject.name=web,reason=R", "regarding.kind=Pod",
			"regarding.name=web", "reportingComponent=example.com/c", "reportingController=example.com/c", "involvedObject.uid=u1", "regarding.fieldPath=spec.x",
		},
		fields: []field{
			{name: "reason", weight: 2, required: true, value: values(`"R"`, `"R"`, `"R"`, `"Other"`, `""`, long)},
			{name: "type", weight: 2, required: true, value: values(`"Normal"`, `"Normal"`, `"Normal"`, `"Warning"`, `"Wrong"`, `""`)},
			{name: "action", required: true, value: values(`"Start"`, `"Start"`, `"Start"`, `"Stop"`, `""`, long)},
			{name: "reportingInstance", required: true, value: values(`"c-0"`, `"c-0"`, `"c-0"`, `"c-1"`, `""`, long)},
			{name: "eventTime", weight: 3, value: values(`"2020-01-01T00:00:00.000000Z"`, `"2020-01-01T00:00:00.000000Z"`, `"2020-01-01T00:00:00.1234567Z"`,
				`"2020-01-01T00:00:00.123456Z"`, `"2021-01-01T00:00:00.000000Z"`, `null`)},
			{name: "eventTime", apiVersion: current, required: true, value: values(`"2020-01-01T00:00:00.000000Z"`)},
			{name: "series", weight: 2, value: values(`{"count":2,"lastObservedTime":"2020-01-01T00:00:00.000000Z"}`,
				`{"count":3,"lastObservedTime":"2020-01-02T00:00:00.000000Z"}`, `{"count":1}`, `{}`, `null`)},
			{name: "related", value: object},
		},
		patch: func(g *generator, media string) string {
			if media == "json-patch" {
				return pick(g, `[{"op":"add","path":"/series","value":{"count":2,"lastObservedTime":"2020-01-01T00:00:00.000000Z"}}]`,
					`[{"op":"replace","path":"/series/count","value":5}]`, `[{"op":"replace","path":"/type","value":"Warning"}]`)
			}
			return pick(g, `{"series":{"count":4,"lastObservedTime":"2020-01-03T00:00:00.000000Z"}}`, `{"count":5}`, `{"deprecatedCount":6}`,
				`{"message":"m"}`, `{"note":"n"}`, `{"series":null}`, `{"reason":"`+g.value()+`"}`, `{"involvedObject":{"name":"n"}}`, `{"regarding":{"name":"n"}}`,
				`{"eventTime":"2020-01-01T00:00:00.000000Z"}`)
		},
	}
	for _, fields := range [][]field{
		both("involvedObject", "regarding", field{required: true, value: object}),
		both("reportingComponent", "reportingController", field{required: true, value: values(
			`"example.com/c"`, `"example.com/c"`, `"example.com/c"`, `"other"`, `""`, `"not qualified"`)}),
		both("message", "note", field{value: values(`"m"`, `"n"`, `"`+strings.Repeat("x", 1025)+`"`)}),
		both("source", "deprecatedSource", field{value: values(`{"component":"kubelet"}`, `{"component":"kubelet","host":"h"}`, `{}`)}),
		both("firstTimestamp", "deprecatedFirstTimestamp", field{value: times}),
		both("lastTimestamp", "deprecatedLastTimestamp", field{value: times}),
		both("count", "deprecatedCount", field{value: counts}),
	} {
		k.fields = append(k.fields, fields...)
	}
	return []*kind{k}
}
