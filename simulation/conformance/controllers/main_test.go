// Package controllers compares the models of simulation/internal/controllers with the real controllers: the same
// scenarios must have the same end states.
package controllers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
	models "github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
	"github.com/evenkeel-go/evenkeel/simulation/internal/kinds"
)

// local is the real cluster, with controllers and simulated nodes.
var local *localcluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // a scenario waits for the real controllers most of the time
		panic(err)
	}
	clustertest.Main(m, localcluster.Config{Nodes: 2}, func(c *localcluster.Cluster) { local = c })
}

// side is one of the two clusters, in a scenario.
type side struct {
	t         *testing.T
	transport http.RoundTripper
	base      string
	namespace string
	// settle waits until a condition holds, and until the controllers have nothing to do. otherState is the state
	// that the other side then had; "": not known.
	settle func(condition func() bool, otherState string) bool
	// expected are the snapshots of the other side, if it was first.
	expected []string
	// snapshots are the states that are compared.
	snapshots []string
}

// compare runs a scenario on both sides.
func compare(t *testing.T, name string, scenario func(s *side)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		namespace := strings.ReplaceAll(strings.ToLower(name), " ", "-")
		var got []string
		synctest.Test(t, func(t *testing.T) { got = runModels(t, namespace, scenario) })
		want := runReal(t, namespace, got, scenario)
		if len(want) != len(got) {
			t.Fatalf("%d states of the real cluster, %d of the models", len(want), len(got))
		}
		for i := range want {
			if diff := differences(want[i], got[i]); diff != "" {
				t.Errorf("%s (-real +models)\n%s", want[i][:strings.IndexByte(want[i], '\n')], diff)
			}
		}
	})
}

// differences returns the lines of two texts that differ. The order of lines does not matter.
func differences(want, got string) string {
	var texts []string
	remaining := strings.Split(got, "\n")
	for line := range strings.SplitSeq(want, "\n") {
		if i := slices.Index(remaining, line); i >= 0 {
			remaining = slices.Delete(remaining, i, i+1)
		} else {
			texts = append(texts, "- "+line)
		}
	}
	for _, line := range remaining {
		texts = append(texts, "+ "+line)
	}
	return strings.Join(texts, "\n")
}

// runReal runs a scenario on the real cluster. Its controllers are idle when nothing changes for some time. expected
// are the states of the models: as long as the real state differs, that time is longer, because on a busy machine a
// controller may pause for seconds.
func runReal(t *testing.T, namespace string, expected []string, scenario func(s *side)) []string {
	t.Helper()
	config := local.RESTConfig()
	config.QPS = -1
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(transport)
	s := &side{t: t, transport: transport, base: config.Host, namespace: namespace, expected: expected}
	s.settle = func(condition func() bool, otherState string) bool {
		const interval, timeout = 300 * time.Millisecond, 3 * time.Minute
		last, since, deadline := "", time.Now(), time.Now().Add(timeout)
		for time.Now().Before(deadline) {
			time.Sleep(interval)
			if !condition() {
				last = "" // without a request for each resource
				continue
			}
			quiet := 2 * time.Second
			if otherState != "" && differences(last, otherState) != "" {
				quiet = 30 * time.Second
			}
			if state := s.state(); state != last {
				last, since = state, time.Now()
			} else if time.Since(since) > quiet {
				return true
			}
		}
		return false
	}
	s.create("/api/v1/namespaces", "{metadata: {name: "+namespace+"}}")
	account := "/api/v1/namespaces/" + namespace + "/serviceaccounts/default" // without it no Pod can be created
	if !s.settle(func() bool { return s.get(account) != nil }, "") {
		t.Fatal("the namespace has no service account")
	}
	scenario(s)
	return s.snapshots
}

func runModels(t *testing.T, namespace string, scenario func(s *side)) []string {
	t.Helper()
	all, err := kinds.All()
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Config{Kinds: all, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	manager := models.New(models.Config{Server: server, Pods: func(pod *corev1.Pod) models.PodBehavior {
		return models.PodBehavior{Unschedulable: pod.Spec.NodeSelector != nil, NeverReady: pod.Labels["ready"] == "never"}
	}})
	s := &side{t: t, transport: server.Transport(), base: "http://simulation.invalid", namespace: namespace}
	s.settle = func(condition func() bool, _ string) bool {
		const maxSteps = 100_000
		steps, end := 0, time.Now().Add(time.Minute)
		for {
			next, worked, err := manager.Step(t.Context())
			switch {
			case err != nil:
				t.Fatal(err)
			case worked:
			case next.IsZero() || next.After(end):
				time.Sleep(time.Until(end))
				return condition()
			default:
				time.Sleep(time.Until(next))
			}
			if steps++; steps > maxSteps {
				t.Fatalf("the models are never idle: %v; state:\n%s", manager.Pending(), s.state())
			}
		}
	}
	s.create("/api/v1/namespaces", "{metadata: {name: "+namespace+"}}")
	scenario(s)
	return s.snapshots
}

// path returns the path of an object in the scenario's namespace. resource is deployments, for example.
func (s *side) path(resource string, name ...string) string {
	groups := map[string]string{
		"controllerrevisions": "/apis/apps/v1", "deployments": "/apis/apps/v1", "replicasets": "/apis/apps/v1", "statefulsets": "/apis/apps/v1",
		"jobs": "/apis/batch/v1", "endpointslices": "/apis/discovery.k8s.io/v1", "poddisruptionbudgets": "/apis/policy/v1",
	}
	prefix := groups[resource]
	if prefix == "" {
		prefix = "/api/v1"
	}
	return strings.Join(append([]string{prefix + "/namespaces/" + s.namespace, resource}, name...), "/")
}

// send sends a request, and returns the status code and the response.
func (s *side) send(method, path, contentType, manifest string) (int, map[string]any) {
	s.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		s.t.Fatal(err)
	}
	if manifest == "" {
		body = nil
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "test")
	res, err := s.transport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		s.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	return res.StatusCode, decoded
}

func (s *side) create(path, manifest string) (uid string) {
	s.t.Helper()
	code, obj := s.send(http.MethodPost, path, "application/json", manifest)
	if code != http.StatusCreated {
		s.t.Fatalf("create %s: %d %v", path, code, obj["message"])
	}
	return obj["metadata"].(map[string]any)["uid"].(string)
}

func (s *side) patch(path, manifest string) {
	s.t.Helper()
	if code, obj := s.send(http.MethodPatch, path, "application/merge-patch+json", manifest); code != http.StatusOK {
		s.t.Fatalf("patch %s: %d %v", path, code, obj["message"])
	}
}

// run makes a Pod that waits for a node look like one that a kubelet reports: with a phase, an address, and the exit code
// of its container if it has ended. No kubelet acts on such a Pod.
func (s *side) run(pod, phase string, ready bool, exitCode int) {
	s.t.Helper()
	readyStatus, state := "False", "running: {}"
	if ready {
		readyStatus = "True"
	}
	if phase == "Succeeded" || phase == "Failed" {
		state = fmt.Sprintf(`terminated: {exitCode: %d, finishedAt: "1999-01-01T00:00:00Z"}`, exitCode)
	}
	s.patch(s.path("pods", pod, "status"), fmt.Sprintf(`{status: {phase: %s, podIP: 10.9.9.9, podIPs: [{ip: 10.9.9.9}],
		conditions: [{type: Ready, status: %q}, {type: PodScheduled, status: "False", reason: Unschedulable}],
		containerStatuses: [{name: c, image: a, imageID: "", ready: %t, restartCount: 0, state: {%s}}]}}`, phase, readyStatus, ready, state))
}

// podOf returns the name of the Pod that has a completion index and has not ended, or "".
func (s *side) podOf(index string) string {
	s.t.Helper()
	for _, pod := range s.list("pods") {
		metadata := pod["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		phase := pod["status"].(map[string]any)["phase"]
		if annotations[batchv1.JobCompletionIndexAnnotation] == index && metadata["deletionTimestamp"] == nil && phase != "Failed" && phase != "Succeeded" {
			return metadata["name"].(string)
		}
	}
	return ""
}

// names returns the names of the objects of a resource.
func (s *side) names(resource string) []string {
	s.t.Helper()
	var names []string
	for _, obj := range s.list(resource) {
		names = append(names, obj["metadata"].(map[string]any)["name"].(string))
	}
	return names
}

func (s *side) delete(path, policy string) {
	s.t.Helper()
	options := "{apiVersion: v1, kind: DeleteOptions, propagationPolicy: " + policy + "}"
	if code, obj := s.send(http.MethodDelete, path, "application/json", options); code >= http.StatusMultipleChoices {
		s.t.Fatalf("delete %s: %d %v", path, code, obj["message"])
	}
}

// get returns an object, or nil.
func (s *side) get(path string) map[string]any {
	s.t.Helper()
	code, obj := s.send(http.MethodGet, path, "", "")
	if code == http.StatusNotFound {
		return nil
	}
	return obj
}

// list returns the objects of a resource in the namespace.
func (s *side) list(resource string) []map[string]any {
	s.t.Helper()
	var objects []map[string]any
	items, _ := s.get(s.path(resource))["items"].([]any)
	for _, item := range items {
		obj := item.(map[string]any)
		obj["kind"] = resource // items of lists have no kind
		if name := obj["metadata"].(map[string]any)["name"]; name != "kube-root-ca.crt" {
			objects = append(objects, obj)
		}
	}
	return objects
}

// await waits until a condition holds and the controllers have nothing to do, and remembers the state.
func (s *side) await(what string, condition func() bool) {
	s.t.Helper()
	expected := ""
	if n := len(s.snapshots); n < len(s.expected) {
		_, expected, _ = strings.Cut(s.expected[n], "\n")
	}
	if !s.settle(condition, expected) {
		s.t.Fatalf("%s: it never became true: %s; state:\n%s", s.base, what, s.state())
	}
	s.snapshots = append(s.snapshots, what+"\n"+s.state())
}

// uids matches uids.
var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// state returns the state of all objects in the namespace, without what differs between clusters.
func (s *side) state() string {
	s.t.Helper()
	var texts []string
	names := map[string]string{} // by uid
	var generated []string       // names, and what replaces them
	objects := map[string][]map[string]any{}
	resources := []string{
		"configmaps", "controllerrevisions", "deployments", "endpoints", "endpointslices", "jobs", "persistentvolumeclaims", "poddisruptionbudgets", "pods", "replicasets",
		"services", "statefulsets",
	}
	for _, resource := range resources {
		objects[resource] = s.list(resource)
		for _, obj := range objects[resource] {
			metadata := obj["metadata"].(map[string]any)
			name := metadata["name"].(string)
			labels, _ := metadata["labels"].(map[string]any)
			if prefix, ok := metadata["generateName"].(string); ok && labels[appsv1.StatefulSetPodNameLabel] == nil {
				generated = append(generated, name, prefix+"*")
				name = prefix + "*"
			}
			names[metadata["uid"].(string)] = resource + " " + name
			metadata["name"] = name
		}
	}
	if namespace := s.get("/api/v1/namespaces/" + s.namespace); namespace != nil {
		objects["namespaces"] = []map[string]any{namespace}
	}
	delete(objects, "services") // only the addresses are compared
	for _, resource := range append([]string{"namespaces"}, resources...) {
		for _, obj := range objects[resource] {
			texts = append(texts, describe(obj, names)...)
		}
	}
	slices.Sort(texts) // the names of Pods are random
	return uids.ReplaceAllStringFunc(strings.NewReplacer(generated...).Replace(strings.Join(texts, "\n")), func(uid string) string {
		return cmp.Or(names[uid], "uid")
	})
}

// describe returns the compared fields of an object, one a line.
func describe(obj map[string]any, names map[string]string) []string {
	kind := obj["kind"].(string)
	metadata := obj["metadata"].(map[string]any)
	if annotations, _ := metadata["annotations"].(map[string]any); annotations != nil {
		delete(annotations, corev1.EndpointsLastChangeTriggerTime)
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	var lines []string
	add := func(name string, value any) {
		text, err := yaml.Marshal(value)
		if err != nil {
			panic(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", kind, metadata["name"], name, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; ")))
	}
	for _, name := range []string{"labels", "annotations", "finalizers", "generation"} {
		// The models have no PersistentVolumes, and do not protect claims that Pods use.
		if kind == "persistentvolumeclaims" && name != "labels" {
			continue
		}
		counts := kind == "deployments" || kind == "jobs" || kind == "statefulsets" // how often others are scaled depends on the time that Pods take
		if value := metadata[name]; value != nil && kind != "Namespace" && (counts || name != "generation") {
			add(name, value)
		}
	}
	if metadata["deletionTimestamp"] != nil {
		add("deleting", true)
	}
	references, _ := metadata["ownerReferences"].([]any)
	for _, ref := range references {
		reference := maps.Clone(ref.(map[string]any))
		if name, known := names[reference["uid"].(string)]; known {
			reference["uid"] = "that of " + name
		}
		add("owner", reference)
	}
	spec, _ := obj["spec"].(map[string]any)
	if kind == "endpointslices" {
		add("ports", sorted(obj["ports"]))
		endpoints, _ := obj["endpoints"].([]any) // null if there are none
		for _, e := range endpoints {
			add("endpoint", address(e, names))
		}
	}
	subsets, _ := obj["subsets"].([]any)
	for _, s := range subsets {
		subset := s.(map[string]any)
		for _, field := range []string{"addresses", "notReadyAddresses"} {
			all, _ := subset[field].([]any)
			for _, a := range all {
				add(field, []any{sorted(subset["ports"]), address(a, names)})
			}
		}
	}
	if kind == "controllerrevisions" {
		add("data", obj["data"])
		add("revision", obj["revision"])
	}
	for _, name := range []string{"replicas", "selector", "suspend", "hostname", "subdomain"} {
		if value := spec[name]; value != nil && kind != "jobs" {
			add(name, value)
		}
	}
	status, _ := obj["status"].(map[string]any)
	if kind == "pods" {
		bound := spec["nodeName"] != nil
		add("bound", bound)
		status = podStatus(status, bound)
	}
	for _, name := range slices.Sorted(maps.Keys(status)) {
		if name != "conditions" && (kind != "replicasets" || name != "observedGeneration") {
			add("status."+name, mask(status[name]))
		}
	}
	strategy, _ := spec["strategy"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		condition := mask(c).(map[string]any)
		// The real controller writes this message when it has created the ReplicaSet. If that write has a conflict, the
		// message of the previous ReplicaSet stays: with Recreate, status.replicas and status.updatedReplicas are equal at
		// all times, which means a complete Deployment to the later updates.
		if condition["type"] == "Progressing" && strategy["type"] == "Recreate" {
			delete(condition, "message")
		}
		// Which of these reasons stays while no Pod makes progress depends on whether the pass that creates the ReplicaSet
		// writes the status before the new Pods are counted.
		if reason := condition["reason"]; reason == "NewReplicaSetCreated" || reason == "ReplicaSetUpdated" {
			condition["reason"], condition["message"] = "in progress", "masked"
		}
		add("condition", condition)
	}
	return lines
}

// sorted returns ports in the order of their texts.
func sorted(ports any) []any {
	all, _ := ports.([]any)
	slices.SortFunc(all, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

// address returns an address of a Service without IPs and names of nodes.
func address(obj any, names map[string]string) map[string]any {
	result := maps.Clone(obj.(map[string]any))
	for _, field := range []string{"addresses", "ip", "nodeName"} {
		if result[field] != nil {
			result[field] = "masked"
		}
	}
	if target, ok := result["targetRef"].(map[string]any); ok {
		result["targetRef"] = fmt.Sprint(target["kind"], " ", target["namespace"], " ", names[target["uid"].(string)])
	}
	return result
}

// podStatus returns the part of a Pod's status that does not depend on the kubelet. PodScheduled of a bound Pod is left
// out: the real scheduler writes the condition of a failed attempt by the Pod's name, which a new Pod may have by then
// (handleSchedulingFailure in kube-scheduler's schedule_one.go).
func podStatus(status map[string]any, bound bool) map[string]any {
	result := map[string]any{"phase": status["phase"]}
	var conditions []any
	all, _ := status["conditions"].([]any)
	for _, c := range all {
		condition := c.(map[string]any)
		if kind := condition["type"]; kind == "Ready" || kind == "PodScheduled" && !bound {
			conditions = append(conditions, map[string]any{"type": condition["type"], "status": condition["status"]})
		}
	}
	slices.SortFunc(conditions, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	result["conditions"] = conditions
	return result
}

// mask replaces times.
func mask(value any) any {
	switch value := value.(type) {
	case map[string]any:
		masked := map[string]any{}
		for key, v := range value {
			masked[key] = mask(v)
		}
		return masked
	case string:
		if _, err := time.Parse(time.RFC3339, value); err == nil {
			return "time"
		}
	}
	return value
}

// number returns a number in an object, or 0.
func number(obj map[string]any, fields ...string) int {
	var value any = obj
	for _, field := range fields {
		m, _ := value.(map[string]any)
		value = m[field]
	}
	n, _ := value.(float64)
	return int(n)
}
