package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWebhookConfigurationsAreValidatedAlike creates configurations of webhooks and definitions with conversion webhooks,
// valid ones and invalid ones, as a dry run on both servers. Both have the same responses.
func TestWebhookConfigurationsAreValidatedAlike(t *testing.T) {
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	servers := []*server{realServer(t), simulated(t, nil)}
	compared := 0
	compare := func(name, path, body string) {
		t.Helper()
		var results [2]string
		for i, s := range servers {
			results[i] = newNames().text(s.send(t.Context(), http.MethodPost, path+"?dryRun=All", body, nil))
		}
		if diff := cmp.Diff(results[0], results[1]); diff != "" {
			t.Errorf("%s (-real +memory)\n%s", name, diff)
		}
		compared++
	}
	for name, change := range invalidHooks() {
		for _, kind := range []string{"Validating", "Mutating"} {
			hook := map[string]string{
				"name": `"a.example.com"`, "sideEffects": `"None"`, "admissionReviewVersions": `["v1"]`,
				"clientConfig": `{"url":"https://example.com/a"}`,
				"rules":        `[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]`,
			}
			text := change
			if field, value, ok := strings.Cut(change, "="); ok {
				hook[field] = value
				text = encode(hook)
			}
			body := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sWebhookConfiguration","metadata":{"name":"conformance"},"webhooks":[%s]}`, kind, text)
			compare(kind+" "+name, admission+strings.ToLower(kind)+"webhookconfigurations", body)
		}
	}
	for name, conversion := range conversions() {
		for _, preserve := range []bool{false, true} {
			body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"foos.validation.example.com"},
"spec":{"group":"validation.example.com","scope":"Namespaced","preserveUnknownFields":%t,"names":{"kind":"Foo","plural":"foos"},"conversion":%s,
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, preserve, conversion)
			compare(fmt.Sprintf("%s, preserve %t", name, preserve), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
		}
	}
	t.Logf("%d responses are equal", compared)
}

// encode returns the fields of a hook as JSON, in a fixed order.
func encode(hook map[string]string) string {
	var fields []string
	for _, name := range []string{
		"name", "sideEffects", "admissionReviewVersions", "clientConfig", "rules", "failurePolicy", "matchPolicy",
		"timeoutSeconds", "namespaceSelector", "objectSelector", "matchConditions", "reinvocationPolicy",
	} {
		if hook[name] != "" {
			fields = append(fields, fmt.Sprintf("%q:%s", name, hook[name]))
		}
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// invalidHooks returns changes of a valid hook: the field and its value, or whole hooks.
func invalidHooks() map[string]string {
	hooks := map[string]string{
		"nothing": "name=\"a.example.com\"", "two": `{},{}`, "empty": `{}`, "none": "",
		"short name": `name="a.b"`, "name in capitals": `name="A.example.com"`, "no name": `name=""`,
		"side effects": `sideEffects="Some"`, "unknown side effects": `sideEffects="x"`, "no side effects": `sideEffects=null`,
		"v1beta1": `admissionReviewVersions=["v1beta1"]`, "both versions": `admissionReviewVersions=["v1beta1","v1"]`, "no versions": `admissionReviewVersions=[]`,
		"unknown version": `admissionReviewVersions=["v3"]`, "version twice": `admissionReviewVersions=["v1","v1"]`, "invalid version": `admissionReviewVersions=["V1","1"]`,
		"time-out 0": `timeoutSeconds=0`, "time-out 31": `timeoutSeconds=31`, "time-out 30": `timeoutSeconds=30`,
		"failure policy": `failurePolicy="x"`, "match policy": `matchPolicy="x"`, "reinvocation": `reinvocationPolicy="x"`,
		"namespace selector": `namespaceSelector={"matchExpressions":[{"key":"a","operator":"In"}]}`,
		"object selector":    `objectSelector={"matchLabels":{"a b":"c"}}`,
		"condition":          `matchConditions=[{"name":"a","expression":"true"}]`,
		"condition twice":    `matchConditions=[{"name":"a","expression":"true"},{"name":"a","expression":"false"}]`,
		"condition's name":   `matchConditions=[{"name":"a b","expression":"true"}]`, "condition without a name": `matchConditions=[{"expression":"true"}]`,
		"condition without an expression": `matchConditions=[{"name":"a","expression":" "}]`,
		"condition with a syntax error":   `matchConditions=[{"name":"a","expression":"object."}]`,
		"condition that is not a boolean": `matchConditions=[{"name":"a","expression":"1"}]`,
		"condition with a variable":       `matchConditions=[{"name":"a","expression":"variables.x"}]`,
		"condition with params":           `matchConditions=[{"name":"a","expression":"params.x == 1"}]`,
		"condition with authorizer":       `matchConditions=[{"name":"a","expression":"authorizer.group('').resource('pods').check('get').allowed()"}]`,
		"65 conditions":                   `matchConditions=[` + strings.TrimSuffix(strings.Repeat(`{"name":"a","expression":"true"},`, 65), ",") + `]`,
		"clientConfig empty":              `clientConfig={}`, "both clients": `clientConfig={"url":"https://a","service":{"namespace":"a","name":"b"}}`,
		"bundle": `clientConfig={"url":"https://a","caBundle":"eA=="}`,
	}
	for i, url := range urls() {
		hooks[fmt.Sprint("url ", i)] = fmt.Sprintf(`clientConfig={"url":%q}`, url)
	}
	for i, service := range services() {
		hooks[fmt.Sprint("service ", i)] = `clientConfig={"service":` + service + `}`
	}
	for i, resources := range []string{
		`[]`, `[""]`, `["*"]`, `["*/*"]`, `["*","pods"]`, `["pods","*"]`, `["*/*","pods"]`, `["pods/*","pods/status"]`, `["pods/status","pods/*"]`,
		`["*/scale","pods/scale"]`, `["*","pods/status"]`, `["*","*/*"]`, `["pods","pods"]`, `["a/b/c"]`, `["/"]`, `["pods/","pods/*"]`,
	} {
		hooks[fmt.Sprint("resources ", i)] = `rules=[{"apiGroups":[""],"apiVersions":["v1"],"resources":` + resources + `,"operations":["CREATE"]}]`
	}
	for i, rule := range []string{
		`{}`, `{"apiGroups":["*","a"],"apiVersions":["*","v1"],"resources":["a"],"operations":["*","CREATE"]}`,
		`{"apiGroups":["a"],"apiVersions":[""],"resources":["a"],"operations":["create"]}`, `{"apiGroups":["a"],"apiVersions":["v1"],"resources":["a"],"operations":["*"],"scope":"x"}`,
		`{"apiGroups":["a","a"],"apiVersions":["v1"],"resources":["a"],"operations":["CONNECT","CONNECT"],"scope":"Cluster"}`,
	} {
		hooks[fmt.Sprint("rule ", i)] = `rules=[` + rule + `]`
	}
	return hooks
}

func urls() []string {
	return []string{
		"", "http://example.com", "https://", "https:///a", "https://user@example.com", "https://user:pass@example.com", "https://example.com/a#b", "https://example.com/a?b=c",
		"https://example.com/a?", "example.com", "https://example.com:x", "https://[::1]:443/a", "%zz", "ftp://user@/a?b#c",
	}
}

func services() []string {
	services := []string{`{}`, `{"namespace":"a"}`, `{"name":"a"}`, `{"namespace":"a","name":"b"}`, `{"namespace":"A","name":"B"}`, `{"namespace":"a","name":"b","port":0}`, `{"namespace":"a","name":"b","port":70000}`, `{"namespace":"a","name":"b","port":-1}`}
	for _, path := range []string{"", "/", "//", "a", "/a", "/a/", "/a//b", "/a/B", "/a/b.c", "a/b", "/a//", "///", "/a?b", "A"} {
		services = append(services, fmt.Sprintf(`{"namespace":"a","name":"b","path":%q}`, path))
	}
	return services
}

// conversions returns conversions of definitions.
func conversions() map[string]string {
	all := map[string]string{
		"null": `null`, "empty": `{}`, "None": `{"strategy":"None"}`, "empty strategy": `{"strategy":""}`, "unknown": `{"strategy":"x"}`,
		"Webhook": `{"strategy":"Webhook"}`, "None with webhook": `{"strategy":"None","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://a"}}}`,
		"no client":      `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"]}}`,
		"no versions":    `{"strategy":"Webhook","webhook":{"conversionReviewVersions":[],"clientConfig":{"url":"https://a"}}}`,
		"versions":       `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v2","v2","V"],"clientConfig":{"url":"https://a"}}}`,
		"invalid bundle": `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://a","caBundle":"eA=="}}}`,
	}
	for i, url := range urls() {
		all[fmt.Sprint("url ", i)] = fmt.Sprintf(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q}}}`, url)
	}
	for i, service := range services() {
		all[fmt.Sprint("service ", i)] = `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":` + service + `}}}`
	}
	return all
}
