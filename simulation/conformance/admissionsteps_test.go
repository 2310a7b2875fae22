package conformance

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

func request(method, path, body string) admissionStep {
	return admissionStep{method: method, path: path, body: body}
}

func create(path, body string) admissionStep { return request(http.MethodPost, path, body) }

func update(path, body string) admissionStep { return request(http.MethodPut, path, body) }

func remove(path, body string) admissionStep { return request(http.MethodDelete, path, body) }

func patchAs(media, path, body string) admissionStep {
	return admissionStep{method: http.MethodPatch, path: path, body: body, media: "application/" + media}
}

func merge(path, body string) admissionStep { return patchAs("merge-patch+json", path, body) }

func apply(path, body string) admissionStep { return patchAs("apply-patch+yaml", path, body) }

// named returns an object with a name, and more fields.
func named(name, more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"metadata":{"name":"` + name + `"}` + more + `}`
}

// withResponse returns an answer whose response has some fields changed. "" removes a field.
func withResponse(fields map[string]any) admissionAnswer {
	return func(w http.ResponseWriter, review admissionRequest, response map[string]any) {
		for name, value := range fields {
			if response[name] = value; value == "" {
				delete(response, name)
			}
		}
		respondReview(w, review, response)
	}
}

// patching returns an answer with a JSON patch.
func patching(patch string) admissionAnswer {
	return withResponse(map[string]any{"patchType": "JSONPatch", "patch": base64.StdEncoding.EncodeToString([]byte(patch))})
}

// patchingOnce returns an answer with a JSON patch for objects that are not nil and do not have the label.
func patchingOnce(label string) admissionAnswer {
	return func(w http.ResponseWriter, review admissionRequest, response map[string]any) {
		metadata, _ := review.Object["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		switch {
		case metadata == nil || labels[label] != nil:
			respondReview(w, review, response)
		case labels == nil:
			patching(`[{"op":"add","path":"/metadata/labels","value":{"`+label+`":"x"}}]`)(w, review, response)
		default:
			patching(`[{"op":"add","path":"/metadata/labels/`+label+`","value":"x"}]`)(w, review, response)
		}
	}
}

// warning returns an answer with a warning.
func warning(text string) admissionAnswer {
	return withResponse(map[string]any{"warnings": []any{text}})
}

func denying(result any) admissionAnswer {
	return withResponse(map[string]any{"allowed": false, "result": nil, "status": result})
}

func answers(a admissionAnswer) admissionStep { return admissionStep{answer: a} }

const deploymentSpec = `"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`

const podContainers = `"spec":{"containers":[{"name":"c","image":"i"}]}`

func admissionScenarios() map[string]admissionScenario {
	both := []admissionHook{{name: "m-all"}, {name: "v-all"}}
	return map[string]admissionScenario{
		"subresources": subresourceScenario(),
		"operations": {hooks: both, steps: []admissionStep{
			create("configmaps", named("a", `"data":{"a":"b"}`)), update("configmaps/a", named("a", `"data":{"a":"c"}`)), update("configmaps/a", named("a", `"data":{"a":"c"}`)),
			merge("configmaps/a", `{"data":{"a":"d"}}`), patchAs("strategic-merge-patch+json", "configmaps/a", `{"data":{"a":"e"}}`),
			patchAs("json-patch+json", "configmaps/a", `[{"op":"replace","path":"/data/a","value":"f"}]`), merge("configmaps/a", `{}`),
			apply("configmaps/a?fieldManager=x&force=true", named("a", `"data":{"a":"g"}`)), apply("configmaps/new?fieldManager=x", named("new", `"data":{"a":"g"}`)),
			apply("configmaps/a?fieldManager=x", named("a", `"data":{"a":"g"}`)),
			create("configmaps?dryRun=All&fieldValidation=Strict&fieldManager=me", named("b", "")), merge("configmaps/a?dryRun=All", `{"data":{"a":"h"}}`),
			create("configmaps", named("a", "")), update("configmaps/missing", named("missing", "")), merge("configmaps/missing", `{}`), remove("configmaps/missing", ""),
			update("configmaps/a", `{"metadata":{"name":"a","resourceVersion":"1"}}`), update("configmaps/a", `{"metadata":{"name":"a","uid":"6f2b1c1e-0000-4000-8000-000000000000"}}`),
			create("configmaps", `{"metadata":{"generateName":"gen-1-"}}`), create("configmaps", `{"metadata":{"name":"A_"}}`), merge("configmaps/a", `{"metadata":{"labels":{"a":"-"}}}`),
			create("configmaps", named("a", `"data":7`)),
			remove("configmaps/a?dryRun=All", ""), remove("configmaps/a", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background","gracePeriodSeconds":3}`),
			remove("configmaps/new?propagationPolicy=Foreground", ""), merge("configmaps/new", `{"metadata":{"finalizers":null}}`),
			create("configmaps", named("c", "")), create("configmaps", named("d", `"immutable":true`)), merge("configmaps/d", `{"data":{"a":"b"}}`), remove("configmaps", ""),
			create("configmaps", `{"metadata":{"name":"f","finalizers":["a/b"]}}`), remove("configmaps/f", ""), remove("configmaps/f", ""), merge("configmaps/f", `{"metadata":{"finalizers":null}}`),
			remove("configmaps?dryRun=All", ""), remove("configmaps/f", `{"preconditions":{"uid":"x"}}`),
			create("configmaps", named("p", "")), remove("configmaps/p", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"6f2b1c1e-0000-4000-8000-000000000000"}}`),
			remove("configmaps?labelSelector=none%3Dx", ""), create("configmaps", `{"metadata":{"name":"o","finalizers":["orphan"]}}`), remove("configmaps/o?propagationPolicy=Background", ""),
		}},
		"custom": {hooks: both, steps: []admissionStep{
			create("gizmos", named("a", `"spec":{"size":1,"unknown":1}`)), create("gizmos2", named("b", `"spec":{"size":1}`)), update("gizmos/a", named("a", `"spec":{"size":2}`)),
			merge("gizmos2/a", `{"spec":{"size":3}}`), merge("gizmos/a/status", `{"status":{"phase":"x"},"spec":{"size":4}}`), merge("gizmos/a/scale", `{"spec":{"replicas":5}}`),
			update("gizmos/a/status", named("a", `"status":{"phase":"y"}`)), merge("gizmos2/a/status", `{"status":{"phase":"z"}}`), merge("gizmos2/a/scale", `{"spec":{"replicas":6}}`),
			merge("gizmos/a", `{"spec":{"size":10}}`), merge("gizmos/a", `{"spec":{"size":"x"}}`), create("gizmos", named("c", `"spec":{"size":10}`)),
			apply("gizmos/a?fieldManager=x", named("a", `"spec":{"note":"x"}`)), apply("gizmos2/d?fieldManager=x", named("d", `"spec":{"note":"x"}`)),
			apply("gizmos/a/status?fieldManager=x", named("a", `"status":{"size":1}`)), patchAs("json-patch+json", "gizmos/a", `[{"op":"replace","path":"/spec/size","value":6}]`),
			create("gizmos", `{"metadata":{"generateName":"gen-2-"}}`), create("planets", named("a", "")), merge("planets/a", `{"spec":{"size":1}}`),
			remove("gizmos2/a", ""), remove("gizmos", ""), remove("planets/a", ""),
		}},
		"deployments": {hooks: both, steps: []admissionStep{
			create("deployments", named("a", deploymentSpec)), merge("deployments/a/scale", `{"spec":{"replicas":3}}`), update("deployments/a/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":4}}`),
			merge("deployments/a/status", `{"status":{"observedGeneration":1}}`), merge("deployments/a", `{"spec":{"replicas":5}}`), merge("deployments/a/scale?dryRun=All", `{"spec":{"replicas":6}}`),
			merge("deployments/a/scale", `{"spec":{"replicas":-1}}`), apply("deployments/a/scale?fieldManager=x&force=true", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":7}}`), remove("deployments/a", ""),
		}},
		"pods": {hooks: both, steps: []admissionStep{
			create("pods", named("a", podContainers)), merge("pods/a", `{"metadata":{"labels":{"a":"b"}}}`), merge("pods/a/status", `{"status":{"phase":"Pending"}}`),
			create("pods/a/binding", `{"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"n"}}`), create("pods/a/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"b"},"target":{"kind":"Node","name":"n"}}`),
			create("pods/a/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a"},"target":{"kind":"Other"}}`), create("pods/a/eviction", `{"apiVersion":"policy/v1","kind":"Eviction"}`),
			create("pods/missing/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"missing"},"target":{"kind":"Node","name":"n"}}`), create("pods/missing/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"missing"}}`),
			create("pods/a/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a"},"target":{"kind":"Node","name":"n"}}`),
			create("pods/a/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a"},"target":{"kind":"Node","name":"n"}}`),
			create("pods/a/eviction?dryRun=All", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`),
			create("pods/a/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"},"deleteOptions":{"gracePeriodSeconds":0}}`),
			create("pods", named("b", podContainers)), remove("pods/b", ""), remove("pods/b?gracePeriodSeconds=0", ""), create("pods", named("c", podContainers)), remove("pods?gracePeriodSeconds=0", ""),
		}},
		"namespaces": {hooks: both, steps: []admissionStep{
			create("namespaces", named("namespaces-1", "")), merge("namespaces/namespaces-1", `{"metadata":{"labels":{"a":"b"}}}`), merge("namespaces/namespaces-1/status", `{"status":{"phase":"Active"}}`),
			update("namespaces/namespaces-1/finalize", named("namespaces-1", `"spec":{"finalizers":["kubernetes","a/b"]}`)), remove("namespaces/namespaces-1", ""),
			create("namespaces", `{"metadata":{"generateName":"gen-3-"}}`),
		}},
		"selectors": {hooks: []admissionHook{
			{name: "v-namespace", fields: `"namespaceSelector":{"matchLabels":{"of":"selectors"}}`},
			{name: "v-othernamespace", fields: `"namespaceSelector":{"matchLabels":{"of":"other"}}`},
			{name: "v-nonamespace", fields: `"namespaceSelector":{"matchExpressions":[{"key":"of","operator":"DoesNotExist"}]}`},
			{name: "v-object", fields: `"objectSelector":{"matchLabels":{"a":"b"}}`},
			{name: "v-noobject", fields: `"objectSelector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}`},
			{name: "v-cluster", fields: scoped("Cluster")},
			{name: "v-namespaced", fields: scoped("Namespaced")},
			{name: "v-status", fields: `"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*/status"],"operations":["UPDATE"]}]`},
			{name: "v-connect", fields: `"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"],"operations":["CONNECT","DELETE"]}]`},
			{name: "v-norules", fields: `"rules":[]`},
			{name: "v-noresources", fields: `"rules":[{"apiGroups":["*"],"apiVersions":["v1"],"resources":["*"],"operations":["CREATE","DELETE"]},{"apiGroups":["*"],"apiVersions":["v1"],"resources":["*/scale"],"operations":["*"]}]`},
		}, steps: []admissionStep{
			create("configmaps", named("a", "")), merge("configmaps/a", `{"metadata":{"labels":{"a":"b"}}}`), merge("configmaps/a", `{"metadata":{"labels":{"a":"c"}}}`), merge("configmaps/a", `{"metadata":{"labels":null}}`),
			remove("configmaps/a", ""), create("gizmos", `{"metadata":{"name":"a","labels":{"a":"b"}}}`), merge("gizmos/a/status", `{"status":{"phase":"x"}}`), merge("gizmos/a/scale", `{"spec":{"replicas":1}}`),
			merge("gizmos/a/scale", `{"metadata":{"labels":{"a":"b"}}}`),
			create("planets", `{"metadata":{"name":"a","labels":{"of":"selectors"}}}`), merge("planets/a", `{"spec":{"size":1}}`), remove("planets/a", ""),
			create("namespaces", `{"metadata":{"name":"selectors-1","labels":{"of":"selectors"}}}`), merge("namespaces/selectors-1", `{"metadata":{"labels":{"of":"other"}}}`), merge("namespaces/selectors-1/status", `{"status":{"phase":"Active"}}`), remove("namespaces/selectors-1", ""),
		}},
		"versions": {hooks: []admissionHook{
			{name: "m-exact1", fields: `"matchPolicy":"Exact",` + ofVersions("v1"), answer: patchingOnce("exact1")},
			{name: "m-exact2", fields: `"matchPolicy":"Exact",` + ofVersions("v2"), answer: patchingOnce("exact2")},
			{name: "m-one", fields: ofVersions("v1"), answer: patchingOnce("one")},
			{name: "m-two", fields: ofVersions("v2"), answer: patchingOnce("two")},
			{name: "v-one", fields: ofVersions("v1")},
			{name: "v-two", fields: ofVersions("v2")},
			{name: "v-both", fields: ofVersions(`v2","v1`)},
			{name: "v-three", fields: ofVersions("v3")},
		}, steps: []admissionStep{
			create("gizmos", named("a", "")), create("gizmos2", named("b", "")), merge("gizmos/a", `{"spec":{"size":1}}`), merge("gizmos2/a", `{"spec":{"size":2}}`),
			merge("gizmos2/a/status", `{"status":{"phase":"x"}}`), merge("gizmos2/a/scale", `{"spec":{"replicas":1}}`), merge("gizmos/a/scale", `{"spec":{"replicas":2}}`), apply("gizmos2/a?fieldManager=x", named("a", `"spec":{"note":"x"}`)),
			remove("gizmos2/a", ""), remove("gizmos/b", ""),
		}},
		"order": {hooks: []admissionHook{
			{name: "m-c", answer: patchingOnce("c")},
			{name: "m-b", fields: `"reinvocationPolicy":"IfNeeded"`, answer: patchingOnce("b")},
			{name: "m-a", fields: `"reinvocationPolicy":"IfNeeded"`},
			{name: "m-e", fields: `"reinvocationPolicy":"IfNeeded"`},
			{name: "m-d", fields: `"objectSelector":{"matchLabels":{"c":"x"}},"reinvocationPolicy":"IfNeeded"`, answer: patching(`[{"op":"test","path":"/metadata/labels/c","value":"x"}]`)},
			{name: "m-f", fields: `"reinvocationPolicy":"IfNeeded"`, answer: patching(`[]`)},
			{name: "m-aa", fields: `"objectSelector":{"matchLabels":{"c":"x"}},"reinvocationPolicy":"IfNeeded"`, answer: patchingOnce("aa")},
			{name: "v-b", answer: warning("b")},
			{name: "v-a", answer: warning("a")},
		}, steps: []admissionStep{
			create("configmaps", named("a", "")), merge("configmaps/a", `{"data":{"x":"y"}}`), merge("configmaps/a", `{"metadata":{"labels":{"c":null,"b":null}}}`), create("gizmos", named("a", "")), update("gizmos/a", named("a", "")), create("deployments", named("a", deploymentSpec)), merge("deployments/a/scale", `{"spec":{"replicas":3}}`),
			create("pods", named("a", podContainers)), merge("pods/a/status", `{"status":{"phase":"Running"}}`),
		}},
		"reinvocation": {hooks: []admissionHook{
			{name: "m-a", fields: `"reinvocationPolicy":"IfNeeded"`, answer: patching(`[{"op":"add","path":"/metadata/annotations","value":{"x":"y"}}]`)},
			{name: "m-b", answer: patching(`[{"op":"add","path":"/metadata/annotations","value":{"x":"z"}}]`)},
			{name: "m-c", fields: `"reinvocationPolicy":"IfNeeded"`, answer: patching(`[{"op":"add","path":"/metadata/annotations","value":{"x":"a"}}]`)},
		}, steps: []admissionStep{create("configmaps", named("a", "")), create("gizmos", named("a", "")), create("pods", named("a", podContainers))}},
		"conditions": {hooks: conditionHooks(), steps: []admissionStep{
			create("configmaps", named("a", `"data":{"a":"b"}`)), merge("configmaps/a", `{"data":{"a":"c"}}`), remove("configmaps/a", ""), create("gizmos", named("a", `"spec":{"size":1}`)), merge("gizmos2/a", `{"spec":{"size":2}}`), merge("gizmos/a/status", `{"status":{"phase":"x"}}`), remove("gizmos/a", ""),
			create("configmaps", named("bad", "")), create("configmaps?dryRun=All", named("c", "")),
		}},
		"bad-condition": {hooks: []admissionHook{{name: "v-fail", fields: `"matchConditions":[{"name":"x","expression":"object.nothing == 1"}]`}, {name: "v-before"}, {name: "v-other"}, {name: "m-first"}}, steps: []admissionStep{
			create("configmaps", named("a", "")), create("gizmos", named("a", "")), create("configmaps", `{"metadata":{"generateName":"gen-4-"}}`),
		}},
		"mixed-conditions": {hooks: []admissionHook{{name: "v-fail", fields: `"matchConditions":[{"name":"x","expression":"object.nothing == 1"},{"name":"y","expression":"object.other == 1"},{"name":"z","expression":"object.metadata.name == 'a'"}]`}}, steps: []admissionStep{
			create("configmaps", named("a", "")), create("configmaps", named("b", "")),
		}},
		"dry-run": {hooks: []admissionHook{{name: "m-none", fields: `"sideEffects":"None"`}, {name: "v-dry", fields: `"sideEffects":"NoneOnDryRun"`}}, steps: []admissionStep{
			create("configmaps?dryRun=All", named("a", "")), create("configmaps", named("a", "")), merge("configmaps/a?dryRun=All", `{}`), apply("configmaps/a?fieldManager=x&dryRun=All", named("a", `"data":{"a":"b"}`)), remove("configmaps?dryRun=All", ""), remove("configmaps/a", `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`),
		}},
		"denials":            {hooks: both, steps: denials()},
		"mutating-answers":   {hooks: []admissionHook{{name: "m-all"}}, steps: invalidAnswers(true)},
		"validating-answers": {hooks: []admissionHook{{name: "v-all"}}, steps: invalidAnswers(false)},
		"ignored":            {hooks: []admissionHook{{name: "m-all", fields: `"failurePolicy":"Ignore"`}, {name: "v-all", fields: `"failurePolicy":"Ignore"`}}, steps: invalidAnswers(true)},
		"patches":            {hooks: []admissionHook{{name: "m-all"}, {name: "v-all"}}, steps: patches()},
		"review-versions": {hooks: []admissionHook{
			{name: "m-old", fields: `"admissionReviewVersions":["v1beta1"]`, answer: asV1beta1},
			{name: "v-oldfirst", fields: `"admissionReviewVersions":["v1beta1","v1"]`, answer: asV1beta1},
			{name: "v-both", fields: `"admissionReviewVersions":["v3","v1","v1beta1"]`},
		}, steps: []admissionStep{
			create("configmaps", named("a", "")), remove("configmaps/a", ""), answers(respondReview), create("configmaps", named("b", "")),
			answers(withV1beta1(map[string]any{"uid": ""})), create("configmaps", named("c", "")),
			answers(withV1beta1(map[string]any{"allowed": false})), create("configmaps", named("d", "")),
			answers(withV1beta1(map[string]any{"patch": "WyB7Im9wIjoiYWRkIiwicGF0aCI6Ii9kYXRhIiwidmFsdWUiOnsiYSI6ImIifX1d"})), create("configmaps", named("e", "")),
		}},
		"configurations": {hooks: []admissionHook{{name: "v-all", fields: `"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]`}}, steps: []admissionStep{
			create(configurationsPath+"mutatingwebhookconfigurations", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"other"}}`), remove(configurationsPath+"mutatingwebhookconfigurations/other", ""),
			create("leases", named("a", "")), update("leases/b", named("b", `"spec":{"holderIdentity":"x"}`)), update("leases/b", named("b", "")), remove("leases/a", ""),
		}},
		"create-by-update": {hooks: []admissionHook{{name: "m-all", fields: leaseRules, answer: patching(`[{"op":"add","path":"/metadata/labels","value":{"m":"x"}}]`)}, {name: "v-all", fields: leaseRules}}, steps: []admissionStep{
			update("leases/a", named("a", "")), apply("leases/b?fieldManager=x", named("b", "")), merge("leases/c", `{}`), update("leases/a", `{"metadata":{"name":"a","resourceVersion":"1"}}`),
		}},
		"time-outs": {hooks: []admissionHook{{name: "m-slow", fields: `"timeoutSeconds":1,"failurePolicy":"Ignore"`, answer: slow}, {name: "v-slow", fields: `"timeoutSeconds":1`, answer: slow}, {name: "v-ignored", fields: `"timeoutSeconds":1,"failurePolicy":"Ignore"`, answer: slow}}, steps: []admissionStep{
			create("configmaps", named("a", "")),
		}},
	}
}

const leaseRules = `"rules":[{"apiGroups":["coordination.k8s.io"],"apiVersions":["v1"],"resources":["leases"],"operations":["*"]}]`

func scoped(scope string) string {
	return `"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["configmaps","gizmos","gizmos/*","planets","namespaces"],"operations":["*"],"scope":"` + scope + `"}]`
}

func ofVersions(versions string) string {
	return `"rules":[{"apiGroups":["admission.example.com"],"apiVersions":["` + versions + `"],"resources":["gizmos","gizmos/*"],"operations":["*"]}]`
}

// slow does not respond before the end of the request.
func slow(_ http.ResponseWriter, review admissionRequest, _ map[string]any) { <-review.ended }

func asV1beta1(w http.ResponseWriter, review admissionRequest, response map[string]any) {
	withV1beta1(nil)(w, review, response)
}

func withV1beta1(fields map[string]any) admissionAnswer {
	return func(w http.ResponseWriter, review admissionRequest, response map[string]any) {
		withResponse(fields)(&renamedVersion{w}, review, response)
	}
}

func conditionHooks() []admissionHook {
	var hooks []admissionHook
	for i, expression := range []string{
		"true", "false", "object.metadata.name == 'a'", "has(oldObject.metadata)", "oldObject == null", "object == null", "request.operation == 'CREATE'", "request.name == 'a'", "request.namespace == 'conditions'",
		"request.resource.resource == 'configmaps'", "request.kind.kind == 'Gizmo'", "request.kind.version == 'v2'", "request.requestKind.version == 'v2'", "request.dryRun", "request.subResource == 'status'", "'system:masters' in request.userInfo.groups", "object != null && has(object.spec) && object.spec.size == 2",
		"authorizer.group('').resource('pods').check('get').allowed()", "authorizer.requestResource.check('create').allowed()", "object == null || object.metadata.uid == ''", "request.options.kind == 'CreateOptions'", "has(request.options)",
	} {
		hooks = append(hooks, admissionHook{name: fmt.Sprintf("v-%02d", i), fields: fmt.Sprintf(`"failurePolicy":"Ignore","matchConditions":[{"name":"x","expression":%q}]`, expression)})
	}
	return hooks
}

func denials() []admissionStep {
	var steps []admissionStep
	for _, result := range []any{
		nil,
		map[string]any{},
		map[string]any{"message": "no"},
		map[string]any{"reason": "Because"},
		map[string]any{"code": 403, "reason": "Forbidden", "message": "no"},
		map[string]any{"code": 200, "status": "Success", "message": "yes"},
		map[string]any{"code": 700},
		map[string]any{"code": 409, "reason": "Conflict"},
		map[string]any{"code": 422, "reason": "Invalid", "message": "x", "details": map[string]any{"name": "n", "kind": "K", "causes": []any{map[string]any{"reason": "FieldValueInvalid", "field": "a.b", "message": "m"}}}},
		map[string]any{"code": 429, "reason": "TooManyRequests", "details": map[string]any{"retryAfterSeconds": 3}},
		map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "message": "m"},
		map[string]any{"code": 404, "reason": "NotFound"},
		map[string]any{"code": 500, "reason": "InternalError"},
	} {
		steps = append(steps, answers(denying(result)), create("configmaps", named("a", "")))
	}
	steps = append(steps, answers(respondReview), create("configmaps", named("a", "")), create("pods", named("p", podContainers)), create("deployments", named("d", deploymentSpec)), create("gizmos", named("a", "")), answers(denying(map[string]any{"message": "no", "code": 403})),
		update("configmaps/a", named("a", `"data":{"a":"b"}`)), merge("configmaps/a", `{}`), merge("gizmos/a/status", `{"status":{"phase":"x"}}`), merge("gizmos/a/scale", `{"spec":{"replicas":1}}`), remove("configmaps/a", ""), remove("configmaps", ""), apply("gizmos/a?fieldManager=x", named("a", `"spec":{"note":"x"}`)), apply("gizmos/b?fieldManager=x", named("b", "")),
		create("configmaps?dryRun=All", named("x", "")), create("pods/p/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`), create("pods/p/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`), merge("deployments/d/scale", `{"spec":{"replicas":1}}`), create("configmaps", `{"metadata":{"generateName":"gen-5-"}}`), create("configmaps", named("a", "")),
		answers(withResponse(map[string]any{"allowed": false, "warnings": []any{"w", "w", "two"}})), create("configmaps", named("x", "")),
		answers(withResponse(map[string]any{"warnings": []any{"w\nx", "", "é"}, "auditAnnotations": map[string]any{"a": "b", "c d": "e"}})), create("configmaps", named("x", "")),
		answers(withResponse(map[string]any{"warnings": []any{strings.Repeat("é", 3000), "a\u200bb\"c\\d", strings.Repeat("b", 3000), "w", "w"}})), create("configmaps?dryRun=All", named("y", "")),
		answers(withResponse(map[string]any{"warnings": longWarnings()})), create("configmaps?dryRun=All", named("y", "")))
	return steps
}

// longWarnings returns more warnings than a response has, also if each is cut.
func longWarnings() []any {
	var warnings []any
	for i := range 20 {
		warnings = append(warnings, fmt.Sprint(i, strings.Repeat("x", 300)))
	}
	return warnings
}

func invalidAnswers(mutating bool) []admissionStep {
	text := func(text string) admissionAnswer {
		return func(w http.ResponseWriter, _ admissionRequest, _ map[string]any) { _, _ = w.Write([]byte(text)) }
	}
	code := func(code int, body string) admissionAnswer {
		return func(w http.ResponseWriter, _ admissionRequest, _ map[string]any) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	redirect := func(code int, to string) admissionAnswer {
		return func(w http.ResponseWriter, _ admissionRequest, _ map[string]any) {
			w.Header().Set("Location", to)
			w.WriteHeader(code)
		}
	}
	review := func(version, kind, rest string) admissionAnswer {
		return func(w http.ResponseWriter, review admissionRequest, _ map[string]any) {
			_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"response":{"uid":%q,"allowed":true%s}}`, version, kind, review.UID, rest)
		}
	}
	const version, kind = "admission.k8s.io/v1", "AdmissionReview"
	all := []admissionAnswer{
		code(500, "broken"), code(404, "none"), code(400, ""), code(503, `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no","code":409,"reason":"Conflict"}`), code(201, ""), code(429, "x"), code(401, "x"), code(403, "x"), code(302, ""), code(204, ""), code(418, "x"),
		redirect(307, "/other"), redirect(302, "/other"),
		text(""), text("{"), text("[]"), text("null"), text("{}"), text("7"), text("<html>"), text(`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no","code":409}`), text(`{"apiVersion":"v1","kind":"Status","status":"Success"}`),
		text(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), text(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":null}`), text(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{}}`), text(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":"yes"}}`), text(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":7}`),
		review("admission.k8s.io/v1beta1", kind, ""), review("admission.k8s.io/v2", kind, ""), review("", kind, ""), review(version, "", ""), review("", "", ""), review(version, "Other", ""), review("v1", "Pod", ""), review(version, kind, `,"unknown":1`), review(version, kind, `} ,"x":{"y":1`), review(version, kind, `,"allowed":false`), review(version, kind, `,"Allowed":false`),
		withResponse(map[string]any{"uid": "6f2b1c1e-0000-4000-8000-000000000000"}), withResponse(map[string]any{"uid": ""}), withResponse(map[string]any{"uid": "x"}),
		withResponse(map[string]any{"patch": "W10="}), withResponse(map[string]any{"patchType": "JSONPatch"}), withResponse(map[string]any{"patchType": ""}), withResponse(map[string]any{"patch": "W10=", "patchType": "MergePatch"}), withResponse(map[string]any{"patch": "W10=", "patchType": "x"}), withResponse(map[string]any{"patch": "!", "patchType": "JSONPatch"}), withResponse(map[string]any{"patch": nil, "patchType": "JSONPatch"}),
		withResponse(map[string]any{"patch": base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/data","value":{"a":"b"}}]`)), "patchType": "MergePatch"}),
		withEmptyPatchType, withResponse(map[string]any{"status": map[string]any{"message": "m"}}), withResponse(map[string]any{"status": 7}), withResponse(map[string]any{"warnings": "w"}),
		func(http.ResponseWriter, admissionRequest, map[string]any) { panic(http.ErrAbortHandler) },
	}
	if mutating {
		for _, p := range []string{`7`, `{}`, `null`, `[{}]`, `[{"op":"x","path":"/a"}]`, `[7]`, `[`, `[null]`, ``} {
			all = append(all, patching(p))
		}
	}
	var steps []admissionStep
	for i, a := range all {
		steps = append(steps, answers(a), create("configmaps?dryRun=All", named(fmt.Sprint("a", i), "")))
	}
	return append(steps, answers(code(500, "x")), remove("configmaps/a", ""), remove("configmaps", ""), merge("configmaps/missing", "{}"))
}

// withEmptyPatchType returns a patch without the name of its type.
func withEmptyPatchType(w http.ResponseWriter, review admissionRequest, response map[string]any) {
	empty := ""
	response["patch"], response["patchType"] = "W10=", &empty
	respondReview(w, review, response)
}

func patches() []admissionStep {
	steps := []admissionStep{create("configmaps", named("old", `"data":{"a":"b"}`)), create("gizmos", named("old", `"spec":{"size":1}`)), create("deployments", named("old", deploymentSpec)), create("pods", named("old", podContainers))}
	for i, p := range []string{
		`[]`, `[{"op":"test","path":"/metadata/name","value":"none"}]`, `[{"op":"remove","path":"/nothing"}]`, `[{"op":"replace","path":"/nothing","value":1}]`, `[{"op":"add","path":"/a/b/c","value":1}]`, `[{"op":"add","path":"nothing","value":1}]`, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"add","path":"/metadata/labels","value":{"a":"-"}}]`, `[{"op":"add","path":"/metadata/labels","value":{"a":1}}]`, `[{"op":"add","path":"/metadata/labels","value":7}]`,
		`[{"op":"add","path":"/unknown","value":1}]`, `[{"op":"add","path":"/spec","value":{"size":2,"unknown":3}}]`, `[{"op":"add","path":"/spec","value":{"size":10}}]`, `[{"op":"add","path":"/spec","value":{"size":"x"}}]`, `[{"op":"add","path":"/spec","value":7}]`, `[{"op":"add","path":"/spec","value":null}]`, `[{"op":"add","path":"/spec","value":{}}]`, `[{"op":"add","path":"/status","value":{"phase":"x"}}]`, `[{"op":"remove","path":"/spec"}]`, `[{"op":"add","path":"/data","value":{"x":"y"}}]`, `[{"op":"add","path":"/data","value":{"not valid":"y"}}]`,
		`[{"op":"replace","path":"/metadata/name","value":"other"}]`, `[{"op":"remove","path":"/metadata/name"}]`, `[{"op":"add","path":"/metadata/namespace","value":"default"}]`, `[{"op":"remove","path":"/metadata/namespace"}]`, `[{"op":"add","path":"/metadata/uid","value":"6f2b1c1e-0000-4000-8000-000000000000"}]`, `[{"op":"add","path":"/metadata/resourceVersion","value":"1"}]`, `[{"op":"add","path":"/metadata/resourceVersion","value":"x"}]`, `[{"op":"add","path":"/metadata/generation","value":77}]`, `[{"op":"add","path":"/metadata/creationTimestamp","value":"2020-01-01T00:00:00Z"}]`, `[{"op":"add","path":"/metadata/deletionTimestamp","value":"2020-01-01T00:00:00Z"}]`, `[{"op":"add","path":"/metadata/finalizers","value":["a/b"]}]`, `[{"op":"add","path":"/metadata/finalizers","value":["a"]}]`, `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"1"},{"apiVersion":"v1","kind":"Pod","name":"x","uid":"1"}]}]`, `[{"op":"add","path":"/metadata/managedFields","value":null}]`, `[{"op":"add","path":"/metadata/managedFields","value":[]}]`, `[{"op":"add","path":"/metadata/managedFields","value":[{"manager":"x","operation":"Other"}]}]`, `[{"op":"add","path":"/metadata/generateName","value":"gen-6-"}]`,
		`[{"op":"replace","path":"/kind","value":"Other"}]`, `[{"op":"remove","path":"/kind"}]`, `[{"op":"replace","path":"/apiVersion","value":"v9"}]`, `[{"op":"remove","path":"/apiVersion"}]`, `[{"op":"replace","path":"/apiVersion","value":"admission.example.com/v2"}]`, `[{"op":"remove","path":"/metadata"}]`, `[{"op":"replace","path":"/metadata","value":7}]`, `[{"op":"replace","path":"","value":{}}]`, `[{"op":"replace","path":"","value":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"all"}}}]`,
		`[{"op":"add","path":"/spec/replicas","value":9}]`, `[{"op":"remove","path":"/spec/replicas"}]`, `[{"op":"remove","path":"/spec/selector"}]`, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"side","image":"s"}}]`, `[{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"s"}}]`, `[{"op":"replace","path":"/spec/containers/0/image","value":"other:1"}]`, `[{"op":"remove","path":"/spec/containers"}]`, `[{"op":"copy","from":"/metadata/name","path":"/metadata/annotations/a"}]`, `[{"op":"move","from":"/data","path":"/binaryData"}]`,
	} {
		name := fmt.Sprint("a", i)
		steps = append(steps, answers(patchingMutation(p)), create("configmaps", named(name, `"data":{"a":"b"}`)), create("gizmos", named(name, `"spec":{"size":1}`)), merge("gizmos/old", `{"spec":{"note":"n`+fmt.Sprint(i)+`"}}`))
		switch {
		case i >= 10 && i < 16:
			// Not compared are writes without changes after a webhook has added unknown fields, which the real server keeps in
			// etcd until the next write.
			steps = append(steps, merge("gizmos/old/status", fmt.Sprintf(`{"status":{"phase":"x%d"}}`, i)), update("gizmos2/old", named("old", `"spec":{"size":1}`)))
		case i >= 22:
			steps = append(steps, update("configmaps/old", named("old", `"data":{"a":"c"}`)), apply("gizmos/old?fieldManager=x", named("old", `"spec":{"note":"x`+fmt.Sprint(i)+`"}`)))
		}
		if i == 6 || i == 10 || i == 18 || i == 21 || i >= 48 {
			steps = append(steps, create("deployments", named(name, deploymentSpec)), create("pods", named(name, podContainers)), merge("deployments/old/scale", `{"spec":{"replicas":3}}`), merge("pods/old/status", `{"status":{"phase":"Running"}}`))
		}
		if i == 21 || i == 23 {
			steps = append(steps, create("configmaps", `{"metadata":{"generateName":"gen-7-"}}`))
		}
	}
	return append(steps, remove("gizmos/old", ""), answers(patching(`[]`)), remove("gizmos/old", ""), answers(patching(`[{"op":"add","path":"/a","value":1}]`)), remove("configmaps/old", ""), remove("configmaps", ""))
}

// patchingMutation returns an answer of mutating webhooks with a patch; validating webhooks allow the request.
func patchingMutation(patch string) admissionAnswer {
	return func(w http.ResponseWriter, review admissionRequest, response map[string]any) {
		if review.validating {
			respondReview(w, review, response)
			return
		}
		patching(patch)(w, review, response)
	}
}

// renamedVersion changes reviews to the version v1beta1.
type renamedVersion struct{ http.ResponseWriter }

func (w *renamedVersion) Write(text []byte) (int, error) {
	_, err := w.ResponseWriter.Write([]byte(strings.Replace(string(text), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1)))
	return len(text), err
}

// signingRequest is a request for a certificate.
const signingRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1IQUNBUUF3RGpFTU1Bb0dBMVVFQXd3RGQyVmlNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRApRZ0FFN2U3YlloeVprMXhkMW1UTkw2TkR3U0JVYUdZQU5YK0ZEVnFqQTVtVWo5eGg2bzl5RnVMVmhtb2RQYzZiCkM0cTlxaFNTMEdCZnhLaVo5R29hdFJZcm1LQUFNQW9HQ0NxR1NNNDlCQU1DQTBjQU1FUUNJR2QrNVkvREpjMSsKTVFSNkVWVzduMzU2U2NWaExMcUFSS1hKemF3cDJ4UjBBaUJEUjFjOGdodjZEUmEvSmxucUV0djAraU52NUtMUgpWM3J6TXR3YW45YUZWUT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="

// tokenRequest returns a TokenRequest with more fields.
func tokenRequest(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"` + more + `}`
}

// subresourceScenario is about the subresources that random operations do not address.
func subresourceScenario() admissionScenario {
	const rules = `"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["pods/*","serviceaccounts/*","certificatesigningrequests","certificatesigningrequests/*"],"operations":["*"]}]`
	return admissionScenario{hooks: []admissionHook{{name: "m-sub", fields: rules}, {name: "v-sub", fields: rules}}, steps: []admissionStep{
		create("pods", named("a", `"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}`)),
		merge("pods/a/resize", `{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"x","containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"2"}}}]}}`),
		merge("pods/a/resize?dryRun=All", `{"spec":{"containers":[{"name":"c","image":"j","resources":{"requests":{"cpu":"3"}}}]}}`),
		update("pods/a/resize", named("a", `"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"4"}}}]}`)),
		merge("pods/a/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"d","image":"i"}]}}`),
		merge("pods/a/ephemeralcontainers", `{"spec":{"ephemeralContainers":null}}`),
		apply("pods/a/ephemeralcontainers?fieldManager=x", named("a", `"spec":{"ephemeralContainers":[{"name":"f","image":"i"}]}`)),
		create("serviceaccounts", named("s", "")),
		create("serviceaccounts/s/token", tokenRequest(`"spec":{"audiences":["a"]}`)),
		create("serviceaccounts/s/token?dryRun=All", tokenRequest("")),
		create("serviceaccounts/s/token", tokenRequest(`"metadata":{"name":"other"}`)),
		create("serviceaccounts/s/token", tokenRequest(`"spec":{"expirationSeconds":1}`)),
		create("serviceaccounts/s/token", tokenRequest(`"spec":{"boundObjectRef":{"kind":"Pod","name":"none"}}`)),
		create("serviceaccounts/none/token", tokenRequest("")),
		create("certificatesigningrequests", named("admission-1", `"spec":{"request":"`+signingRequest+`","signerName":"example.com/s","usages":["client auth"],"username":"u"}`)),
		merge("certificatesigningrequests/admission-1/approval", `{"spec":{"signerName":"x.com/y"},"status":{"certificate":"eA==","conditions":[{"type":"Approved","status":"True"}]}}`),
		merge("certificatesigningrequests/admission-1/status", `{"status":{"conditions":[{"type":"Approved","status":"True"},{"type":"E","status":"True"}]}}`),
		answers(patching(`[{"op":"add","path":"/spec/nodeName","value":"zz"}]`)), merge("pods/a/resize", `{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"5"}}}]}}`),
		answers(patching(`[{"op":"add","path":"/spec/audiences","value":["fromhook"]}]`)), create("serviceaccounts/s/token", tokenRequest(`"spec":{"audiences":["a"]}`)),
		answers(patching(`[{"op":"add","path":"/spec/expirationSeconds","value":5}]`)), create("serviceaccounts/s/token", tokenRequest(`"spec":{"audiences":["a"]}`)),
		answers(denying(map[string]any{"message": "no"})), merge("pods/a/resize", `{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"6"}}}]}}`), create("serviceaccounts/s/token", tokenRequest("")), merge("certificatesigningrequests/admission-1/approval", `{"status":{"conditions":[{"type":"Approved","status":"True"},{"type":"G","status":"True"}]}}`),
		answers(respondReview), remove("certificatesigningrequests/admission-1", ""),
	}}
}
