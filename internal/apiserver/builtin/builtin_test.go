package builtin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// The package simulation/conformance compares the kinds with the real server. The tests here find what is broken without
// one.

const (
	podsPath        = "/api/v1/namespaces/shop/pods"
	deploymentsPath = "/apis/apps/v1/namespaces/shop/deployments"
	jobsPath        = "/apis/batch/v1/namespaces/shop/jobs"

	deployment = `{"metadata":{"name":"%s"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{` +
		`"containers":[{"name":"web","image":"web:1","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}],"volumeMounts":[{"name":"v","mountPath":"/v"}],` +
		`"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m"}},"readinessProbe":{"httpGet":{"port":80}}}],"volumes":[{"name":"v","configMap":{"name":"m"}}]}}}}`
)

func newServer(tb testing.TB) *apiserver.Server {
	tb.Helper()
	s, err := apiserver.New(apiserver.Config{Kinds: Kinds(), NamespacesExist: true, Seed: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func send(tb testing.TB, s *apiserver.Server, method, path, media, body string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, "http://apiserver.invalid"+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/"+media)
	res, err := s.Transport().RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// mustSend returns the response to a request that succeeds.
func mustSend(tb testing.TB, s *apiserver.Server, method, path, media, body string) string {
	tb.Helper()
	code, text := send(tb, s, method, path, media, body)
	if code >= http.StatusBadRequest {
		tb.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}

func TestStrategicPatchMergesContainersByName(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	mustSend(t, s, "POST", deploymentsPath, "json", fmt.Sprintf(deployment, "web"))
	text := mustSend(t, s, "PATCH", deploymentsPath+"/web", "strategic-merge-patch+json",
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"},{"name":"log","image":"log"}]}}}}`)
	for _, want := range []string{`"image":"web:2"`, `"mountPath":"/v"`, `"image":"log","resources":{}`, `"imagePullPolicy":"Always"`, `"generation":2`, `"maxSurge":"25%"`, `"successThreshold":1`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestInvalidObjects(t *testing.T) {
	t.Parallel()
	pod := func(fields string) string { return `{"metadata":{"name":"a"},"spec":{` + fields + `}}` }
	container := func(fields string) string { return pod(`"containers":[{"name":"c","image":"i",` + fields + `}]`) }
	for name, c := range map[string]struct{ path, body, message string }{
		"no containers":      {podsPath, pod(`"containers":[]`), `spec.containers: Required value`},
		"duplicate names":    {podsPath, pod(`"containers":[{"name":"c","image":"i"},{"name":"c","image":"i"}]`), `spec.containers[1].name: Duplicate value: "c"`},
		"unknown volume":     {podsPath, container(`"volumeMounts":[{"name":"v","mountPath":"/v"}]`), `spec.containers[0].volumeMounts[0].name: Not found: "v"`},
		"requests":           {podsPath, container(`"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}`), `spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		"requests of a Pod":  {podsPath, pod(`"resources":{"requests":{"cpu":"1"}},"initContainers":[{"name":"s","image":"i","restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}}],"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"600m"}}}]`), `spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 1100m`},
		"limits of a Pod":    {podsPath, pod(`"resources":{"limits":{"cpu":"1"}},"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}}]`), `spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1`},
		"storage of a Pod":   {podsPath, pod(`"resources":{"requests":{"ephemeral-storage":"1"}},"containers":[{"name":"c","image":"i"}]`), `spec.resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"`},
		"probe":              {podsPath, container(`"livenessProbe":{}`), `spec.containers[0].livenessProbe: Required value: must specify a handler type`},
		"selector":           {deploymentsPath, strings.Replace(fmt.Sprintf(deployment, "a"), `"labels":{"app":"web"}`, `"labels":{"app":"x"}`, 1), "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`"},
		"no selector":        {deploymentsPath, `{"metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`]"},
		"job restart policy": {jobsPath, `{"metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, `spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, text := send(t, newServer(t), "POST", c.path, "json", c.body)
			var status metav1.Status
			if err := json.Unmarshal([]byte(text), &status); err != nil {
				t.Fatal(err)
			}
			if code != http.StatusUnprocessableEntity || !strings.HasSuffix(status.Message, " is invalid: "+c.message) {
				t.Errorf("%d %s", code, status.Message)
			}
		})
	}
}

func TestPodUpdates(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	mustSend(t, s, "POST", podsPath, "json", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`)
	text := mustSend(t, s, "PATCH", podsPath+"/a", "strategic-merge-patch+json", `{"spec":{"containers":[{"name":"c","image":"i:2"}],"activeDeadlineSeconds":9}}`)
	if !strings.Contains(text, `"generation":2`) || !strings.Contains(text, `"qosClass":"BestEffort"`) {
		t.Error(text)
	}
	code, text := send(t, s, "PATCH", podsPath+"/a", "strategic-merge-patch+json", `{"spec":{"schedulerName":"x"}}`)
	if code != http.StatusUnprocessableEntity || !strings.Contains(text, `\n- \"SchedulerName\": \"default-scheduler\",\n+ \"SchedulerName\": \"x\"`) {
		t.Errorf("%d %s", code, text)
	}
	code, text = send(t, s, "PATCH", podsPath+"/a/status", "merge-patch+json", `{"status":{"podIPs":[{"ip":"10.0.0.1"},{"ip":"x"}]}}`)
	if code != http.StatusUnprocessableEntity || !strings.Contains(text, "status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: x, status.podIPs: Invalid value: ") {
		t.Errorf("%d %s", code, text)
	}
	// An empty map is stored as nil, and the diff of the message shows that.
	mustSend(t, s, "POST", podsPath, "json", `{"metadata":{"name":"b"},"spec":{"nodeSelector":{},"containers":[{"name":"c","image":"i"}]}}`)
	code, text = send(t, s, "PUT", podsPath+"/b", "json", `{"metadata":{"name":"b"},"spec":{"shareProcessNamespace":true,"containers":[{"name":"c","image":"i"}]}}`)
	if code != http.StatusUnprocessableEntity || strings.Contains(text, `\n- \"NodeSelector\"`) {
		t.Error(text)
	}
}

func TestPodsAreDeletedGracefully(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, name := range []string{"waiting", "bound"} {
		node := map[string]string{"bound": `"nodeName":"n",`}[name]
		mustSend(t, s, "POST", podsPath, "json", `{"metadata":{"name":"`+name+`"},"spec":{`+node+`"containers":[{"name":"c","image":"i"}]}}`)
		mustSend(t, s, "DELETE", podsPath+"/"+name, "json", "")
	}
	if code, text := send(t, s, "GET", podsPath+"/waiting", "json", ""); code != http.StatusNotFound {
		t.Errorf("a Pod without a node: %d %s", code, text)
	}
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(mustSend(t, s, "GET", podsPath+"/bound", "json", "")), &pod); err != nil {
		t.Fatal(err)
	}
	if grace := pod.DeletionGracePeriodSeconds; pod.DeletionTimestamp == nil || grace == nil || *grace != 30 {
		t.Errorf("a Pod with a node: %v %v", pod.DeletionTimestamp, grace)
	}
	mustSend(t, s, "DELETE", podsPath+"/bound?gracePeriodSeconds=0", "json", "")
	if code, text := send(t, s, "GET", podsPath+"/bound", "json", ""); code != http.StatusNotFound {
		t.Errorf("a Pod that is deleted again: %d %s", code, text)
	}
}

func TestPullPolicy(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for image, want := range map[string]corev1.PullPolicy{
		"i": corev1.PullAlways, "i:latest": corev1.PullAlways, "i:1": corev1.PullIfNotPresent, "i" + digest: corev1.PullIfNotPresent, "i:latest" + digest: corev1.PullAlways,
		"host:5000/a/b": corev1.PullAlways, "host:5000/a/b:1": corev1.PullIfNotPresent, "UPPER": corev1.PullIfNotPresent, "UPPER/a": corev1.PullAlways,
		"": corev1.PullIfNotPresent, "a__b/c--d.e": corev1.PullAlways, "a___b": corev1.PullIfNotPresent, "a._b": corev1.PullIfNotPresent, "-a": corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}

func BenchmarkDeployments(b *testing.B) {
	b.Run("create", func(b *testing.B) {
		s := newServer(b)
		b.ReportAllocs()
		for i := range b.N {
			mustSend(b, s, "POST", deploymentsPath, "json", fmt.Sprintf(deployment, fmt.Sprint("web-", i)))
		}
	})
	b.Run("strategic patch", func(b *testing.B) {
		s := newServer(b)
		mustSend(b, s, "POST", deploymentsPath, "json", fmt.Sprintf(deployment, "web"))
		b.ReportAllocs()
		for i := range b.N {
			mustSend(b, s, "PATCH", deploymentsPath+"/web", "strategic-merge-patch+json",
				fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:%d"}]}}}}`, i+2))
		}
	})
}

const (
	eventsPath    = "/api/v1/namespaces/shop/events"
	newEventsPath = "/apis/events.k8s.io/v1/namespaces/shop/events"
)

func TestEventIsOneObjectInBothGroups(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	mustSend(t, s, "POST", eventsPath, "json", `{"metadata":{"name":"a"},"involvedObject":{"kind":"Pod","name":"web","namespace":"shop"},"message":"m","count":2,`+
		`"source":{"component":"kubelet"}}`)
	for path, want := range map[string][]string{
		newEventsPath + "/a": {`"apiVersion":"events.k8s.io/v1"`, `"note":"m"`, `"regarding":{"kind":"Pod"`, `"deprecatedCount":2`, `"deprecatedSource":{"component":"kubelet"}`},
		newEventsPath + "?fieldSelector=regarding.name%3Dweb":                       {`"name":"a"`},
		eventsPath + "?fieldSelector=involvedObject.name%3Dweb,source%3Dkubelet":    {`"name":"a"`},
		eventsPath + "?fieldSelector=involvedObject.name%3Dother":                   {`"items":[]`},
		"/apis/events.k8s.io/v1/events?fieldSelector=reportingController%3Dkubelet": {`"items":[]`},
	} {
		text := mustSend(t, s, "GET", path, "json", "")
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %s in %s", path, part, text)
			}
		}
	}
	// The managed fields have the group of the last write.
	applied := mustSend(t, s, "PATCH", newEventsPath+"/a?fieldManager=m&force=true", "apply-patch+yaml",
		`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"labels":{"l":"x"}},"note":"m"}`)
	if !strings.Contains(applied, `"operation":"Apply","apiVersion":"events.k8s.io/v1"`) || strings.Contains(applied, `"operation":"Update","apiVersion":"v1"`) {
		t.Errorf("applied: %s", applied)
	}
	mustSend(t, s, "DELETE", newEventsPath+"/a?propagationPolicy=Foreground", "json", "")
	if code, text := send(t, s, "GET", eventsPath+"/a", "json", ""); code != http.StatusNotFound {
		t.Errorf("after the deletion: %d %s", code, text)
	}
}

// The real server has no cache of Events.
func TestReadsOfEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, name := range []string{"a", "b"} {
		mustSend(t, s, "POST", eventsPath, "json", `{"metadata":{"name":"`+name+`","finalizers":["orphan"]},"involvedObject":{"namespace":"shop"}}`)
	}
	text := mustSend(t, s, "GET", eventsPath+"?limit=1&resourceVersion=0", "json", "")
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if token, err := base64.RawURLEncoding.DecodeString(list.Continue); err != nil || len(list.Items) != 1 || !strings.Contains(string(token), `"start":"a\u0000"`) {
		t.Errorf("list with a limit: token %s, %v in %s", token, err, text)
	}
	version := list.Items[0].ResourceVersion
	s.Compact()
	for _, c := range []struct {
		method, path, body string
		code               int
		message            string
	}{
		{"GET", eventsPath + "/a?resourceVersion=x", "", http.StatusBadRequest, "invalid resource version: "},
		{"GET", eventsPath + "?watch=true&timeoutSeconds=1&resourceVersion=1", "", http.StatusOK, "The resourceVersion for the provided watch is too old."},
		{"GET", eventsPath + "/a?resourceVersion=999999", "", http.StatusGatewayTimeout, `"message":"Too large resource version"}]},"code"`},
		{"DELETE", eventsPath + "/a?dryRun=All", "", http.StatusOK, `"kind":"Event","apiVersion":"v1","metadata":{}`},
		{"DELETE", eventsPath + "/a", `{"preconditions":{"resourceVersion":"` + version + `"}}`, http.StatusConflict, "Precondition failed: ResourceVersion in precondition: ,"},
	} {
		if code, text := send(t, s, c.method, c.path, "json", c.body); code != c.code || !strings.Contains(text, c.message) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, text)
		}
	}
}

func TestEventOfNewGroupIsValidated(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const valid = `{"metadata":{"name":"a"},"regarding":{"namespace":"shop"},"eventTime":"2020-01-01T00:00:00.000000Z","reportingController":"example.com/c",` +
		`"reportingInstance":"c-0","action":"Start","reason":"R","type":"Normal"}`
	mustSend(t, s, "POST", newEventsPath, "json", valid)
	for name, test := range map[string]struct{ method, path, body, want string }{
		"no time":        {"POST", newEventsPath, strings.Replace(valid, `"eventTime":"2020-01-01T00:00:00.000000Z",`, "", 1), "eventTime: Required value"},
		"wrong type":     {"POST", newEventsPath, strings.Replace(valid, "Normal", "Other", 1), "type: Invalid value: \\\"\\\": has invalid value: Other"},
		"no action":      {"POST", newEventsPath, strings.Replace(valid, "Start", "", 1), "action: Required value"},
		"no controller":  {"POST", eventsPath, strings.Replace(strings.Replace(valid, "reportingController", "x", 1), "regarding", "involvedObject", 1), "reportingComponent: Required value"},
		"old field":      {"POST", newEventsPath, strings.Replace(valid, `"type"`, `"deprecatedCount":1,"type"`, 1), "count: Invalid value: \\\"\\\": needs to be unset"},
		"wrong series":   {"PATCH", newEventsPath + "/a", `{"series":{"count":1}}`, "series.count: Invalid value: \\\"\\\": should be at least 2"},
		"changed note":   {"PATCH", newEventsPath + "/a", `{"note":"other"}`, "message: Invalid value: \\\"other\\\": field is immutable"},
		"changed object": {"PATCH", newEventsPath + "/a", `{"regarding":{"name":"n"}}`, `involvedObject: Invalid value: {\"Kind\":\"\",\"Namespace\":\"shop\",\"Name\":\"n\"`},
		"namespace":      {"POST", eventsPath, `{"metadata":{"name":"b"},"involvedObject":{"namespace":"elsewhere"}}`, "does not match event.namespace"},
	} {
		media := "json"
		if test.method == "PATCH" {
			media = "merge-patch+json"
		}
		if code, text := send(t, s, test.method, test.path, media, test.body); code != http.StatusUnprocessableEntity || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d, no %s in %s", name, code, test.want, text)
		}
	}
	mustSend(t, s, "PATCH", eventsPath+"/a", "merge-patch+json", `{"message":"other"}`)
	mustSend(t, s, "PATCH", newEventsPath+"/a", "merge-patch+json", `{"series":{"count":2,"lastObservedTime":"2020-01-01T00:00:00.000000Z"}}`)
}
