package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestAdmissionWebhooks runs scenarios on the real server, which calls admission webhooks over TLS, and on a simulated
// cluster, which calls the same handler. All reviews that the handler receives, and all responses, must be equal.
func TestAdmissionWebhooks(t *testing.T) {
	handler := &admissionHandler{}
	servers := newWebhookServers(t, handler)
	for _, s := range []*server{servers.real, servers.memory} {
		for _, k := range admissionKinds() {
			s.define(t, k)
		}
	}
	for name, scenario := range admissionScenarios() {
		t.Run(name, func(t *testing.T) {
			var results [2][][]string // of each step
			for i, s := range []*server{servers.real, servers.memory} {
				r := &admissionRun{server: s, servers: servers, handler: handler, name: name, names: newNames(), uids: map[string]bool{}}
				results[i] = r.run(t, scenario)
			}
			compared := 0
			for step, want := range results[0] {
				if diff := difference(want, results[1][step]); diff != "" {
					t.Errorf("step %d (-real +memory)\n%s", step, diff)
				}
				compared += len(want)
			}
			t.Logf("%d reviews and responses are compared", compared)
		})
	}
}

// difference returns the difference between the results of a step. Each begins with a line that identifies it.
func difference(want, got []string) string {
	title := func(results []string) []string {
		var lines []string
		for _, result := range results {
			line, _, _ := strings.Cut(result, "\n")
			lines = append(lines, line)
		}
		return lines
	}
	if diff := cmp.Diff(title(want), title(got)); diff != "" {
		return diff + "\nresponses:\n" + want[len(want)-1] + "\n" + got[len(got)-1]
	}
	diff := ""
	for i := range want {
		if want[i] != got[i] {
			diff += title(want)[i] + "\n" + cmp.Diff(strings.Split(want[i], "\n"), strings.Split(got[i], "\n"))
		}
	}
	return diff
}

// admissionScenario is a sequence of requests to a server with webhooks.
type admissionScenario struct {
	hooks []admissionHook
	steps []admissionStep
}

// admissionHook is a webhook in a configuration of its own.
type admissionHook struct {
	name   string // begins with m (mutating) or v (validating)
	fields string // JSON; default: rules for all operations on all resources of admissionPaths
	answer admissionAnswer
}

// admissionAnswer responds to a review. The response allows the request.
type admissionAnswer func(w http.ResponseWriter, review admissionRequest, response map[string]any)

// admissionStep is a request, or a change of the answers of all webhooks.
type admissionStep struct {
	answer       admissionAnswer // nil: a request
	method, path string
	body, media  string
}

type admissionRequest struct {
	UID, Operation, Name, SubResource string
	Object, OldObject                 map[string]any
	validating                        bool // the webhook is a validating one
	ended                             <-chan struct{}
}

// probeName is the name of an object whose reviews are not recorded: it shows which configurations are effective.
const probeName = "admission-probe"

// admissionHandler records reviews. The path of a review is the name of its webhook.
type admissionHandler struct {
	mu      sync.Mutex
	answers map[string]admissionAnswer
	reviews []recordedReview
	probed  map[string]bool // paths that reviewed the probe
}

type recordedReview struct {
	path    string
	content map[string]any
}

func (h *admissionHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var content struct {
		APIVersion string
		Request    json.RawMessage
	}
	var review admissionRequest
	err := json.NewDecoder(req.Body).Decode(&content)
	if err == nil {
		err = json.Unmarshal(content.Request, &review)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path := strings.TrimPrefix(req.URL.Path, "/")
	review.validating, review.ended = strings.HasPrefix(path, "v"), req.Context().Done()
	h.mu.Lock()
	answer := h.answers[path]
	if isProbe := review.Name == probeName; isProbe {
		h.probed[path], answer = true, nil
	} else {
		request, _ := decode(string(content.Request)).(map[string]any)
		h.reviews = append(h.reviews, recordedReview{path, map[string]any{"url": req.URL.String(), "version": content.APIVersion, "request": request}})
	}
	h.mu.Unlock()
	if answer == nil {
		answer = respondReview
	}
	w.Header().Set("Content-Type", "application/json")
	answer(w, review, map[string]any{"uid": review.UID, "allowed": true})
}

func respondReview(w http.ResponseWriter, _ admissionRequest, response map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

// setAnswers sets the answers by path, and forgets which webhooks have reviewed the probe.
func (h *admissionHandler) setAnswers(answers map[string]admissionAnswer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers, h.probed = answers, map[string]bool{}
}

// take returns the reviews since the last call: those of mutating webhooks in the order of their calls, and those of
// validating webhooks, which the real server calls at the same time, in the order of their names.
func (h *admissionHandler) take() []recordedReview {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.reviews
	h.reviews = nil
	for start := 0; start < len(taken); start++ {
		end := start
		for end < len(taken) && strings.HasPrefix(taken[end].path, "v") {
			end++
		}
		slices.SortStableFunc(taken[start:end], func(a, b recordedReview) int { return strings.Compare(a.path, b.path) })
		start = end
	}
	return taken
}

// admissionRun is a scenario on one server.
type admissionRun struct {
	server  *server
	servers webhookServers
	handler *admissionHandler
	name    string
	names   *names
	uids    map[string]bool // of the reviews
}

func (r *admissionRun) run(t *testing.T, scenario admissionScenario) [][]string {
	t.Helper()
	r.handler.setAnswers(nil)
	namespace := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + r.name + `","labels":{"of":"` + r.name + `"}}}`
	r.must(t, http.MethodPost, "/api/v1/namespaces", namespace)
	r.configure(t, scenario.hooks)
	var results [][]string
	for _, s := range scenario.steps {
		if s.answer != nil {
			r.setAnswers(scenario.hooks, s.answer)
			continue
		}
		header := map[string]string{}
		if s.media != "" {
			header["Content-Type"] = s.media
		}
		path, body := r.address(s)
		res := r.server.send(t.Context(), s.method, path, body, header)
		var step []string
		what := fmt.Sprintf("%s %s %s: ", s.method, s.path, s.body)
		for _, review := range r.handler.take() {
			text := what + "review by " + review.path + "\n" + r.review(review.content)
			if s.method == http.MethodDelete && slices.Contains(step, text) {
				continue // the real server repeats the review if its cache had an older state than etcd
			}
			step = append(step, text)
		}
		r.names.notStored = strings.Contains(s.path, "dryRun=")
		r.waitForCache(t, s, res)
		slices.Sort(res.warnings) // validating webhooks return them at the same time
		results = append(results, append(step, what+r.names.text(res)))
	}
	r.unconfigure(t, scenario.hooks)
	return results
}

// waitForCache waits until the caches of the real server have the object of a response: it tries the next write on the
// object in its cache, and repeats the reviews if that object was stale. Each version of a custom resource has its own cache.
func (r *admissionRun) waitForCache(t *testing.T, s admissionStep, res result) {
	t.Helper()
	content, _ := decode(res.body).(map[string]any)
	metadata, _ := content["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)
	if r.server != r.servers.real || version == "" || strings.HasPrefix(s.path, "/") {
		return
	}
	resource, _, _ := strings.Cut(strings.ReplaceAll(s.path, "?", "/"), "/")
	for name := range admissionPaths() {
		if strings.TrimSuffix(name, "2") != strings.TrimSuffix(resource, "2") {
			continue
		}
		path, _ := r.address(admissionStep{path: name + "?resourceVersionMatch=NotOlderThan&resourceVersion=" + version})
		if listed := r.server.send(t.Context(), http.MethodGet, path, "", nil); listed.code != http.StatusOK {
			t.Fatalf("list %s: %d %s", path, listed.code, listed.body)
		}
	}
}

func (r *admissionRun) setAnswers(hooks []admissionHook, response admissionAnswer) {
	answers := map[string]admissionAnswer{}
	for _, h := range hooks {
		answers[h.name] = h.answer
		if response != nil {
			answers[h.name] = response
		}
	}
	r.handler.setAnswers(answers)
}

// review returns the normalized form of a review.
func (r *admissionRun) review(content map[string]any) string {
	request := content["request"].(map[string]any)
	if uid := fmt.Sprint(request["uid"]); r.uids[uid] {
		request["uid"] = "<uid of another review>"
	} else {
		r.uids[uid], request["uid"] = true, "<uid>"
	}
	for _, field := range []string{"name", "namespace"} {
		if text, ok := request[field].(string); ok {
			request[field] = r.names.message(text)
		}
	}
	request["options"] = r.names.inside(request["options"])
	if user, ok := request["userInfo"].(map[string]any); ok && user["username"] != "" {
		request["userInfo"] = "<user>"
	}
	r.names.notStored = true
	for _, part := range []string{"object", "oldObject"} {
		request[part] = r.names.normalize(request[part])
	}
	r.names.notStored = false
	text, err := json.MarshalIndent(content, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

const configurationsPath = "/apis/admissionregistration.k8s.io/v1/"

// configurations returns the hooks with those that only review the probe. Informers of the real server receive them last.
func configurations(hooks []admissionHook) []admissionHook {
	probe := `"rules":[{"apiGroups":["coordination.k8s.io"],"apiVersions":["v1"],"resources":["leases"],"operations":["CREATE"]}]`
	return append(slices.Clone(hooks), admissionHook{name: "m-probe", fields: probe}, admissionHook{name: "v-probe", fields: probe})
}

func (h *admissionHook) configurationPath() string {
	if strings.HasPrefix(h.name, "m") {
		return configurationsPath + "mutatingwebhookconfigurations"
	}
	return configurationsPath + "validatingwebhookconfigurations"
}

// configure creates the configurations, and waits until the server calls the webhooks.
func (r *admissionRun) configure(t *testing.T, hooks []admissionHook) {
	t.Helper()
	for _, h := range configurations(hooks) {
		kind, fields := "ValidatingWebhookConfiguration", h.fields
		if strings.HasPrefix(h.name, "m") {
			kind = "MutatingWebhookConfiguration"
		}
		if !strings.Contains(fields, `"rules"`) {
			fields = admissionRules("*") + "," + fields
		}
		for field, value := range map[string]string{"clientConfig": r.servers.client(h.name), "sideEffects": `"None"`, "admissionReviewVersions": `["v1"]`} {
			if !strings.Contains(fields, `"`+field+`"`) {
				fields += `,"` + field + `":` + value
			}
		}
		fields = strings.ReplaceAll(strings.Trim(fields, ","), ",,", ",")
		r.must(t, http.MethodPost, h.configurationPath(), fmt.Sprintf(
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"webhooks":[{"name":"%[2]s.example.com",%s}]}`, kind, h.name, fields))
	}
	r.waitForProbes(t, true)
	r.setAnswers(hooks, nil)
}

// unconfigure deletes the configurations and waits until the server does not call their webhooks.
func (r *admissionRun) unconfigure(t *testing.T, hooks []admissionHook) {
	t.Helper()
	for _, h := range configurations(hooks) {
		r.must(t, http.MethodDelete, h.configurationPath()+"/"+h.name, "")
	}
	r.waitForProbes(t, false)
	r.must(t, http.MethodDelete, "/apis/admission.example.com/v1/planets", "")
}

func (r *admissionRun) waitForProbes(t *testing.T, want bool) {
	t.Helper()
	probe := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"` + probeName + `"}}`
	path := "/apis/coordination.k8s.io/v1/namespaces/" + r.name + "/leases?dryRun=All"
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		r.handler.setAnswers(nil)
		if res := r.server.send(ctx, http.MethodPost, path, probe, nil); res.code != http.StatusCreated {
			return false, nil
		}
		r.handler.mu.Lock()
		defer r.handler.mu.Unlock()
		return r.handler.probed["m-probe"] == want && r.handler.probed["v-probe"] == want, nil
	})
	if err != nil {
		t.Fatalf("%s: the configurations are not effective (%t): %v", r.server.name, want, err)
	}
}

func (r *admissionRun) must(t *testing.T, method, path, body string) {
	t.Helper()
	if res := r.server.send(t.Context(), method, path, body, nil); res.code >= http.StatusBadRequest {
		t.Fatalf("%s: %s %s %s: %d %s", r.server.name, method, path, body, res.code, res.body)
	}
}

// admissionPath is the path of a resource, with %s for the namespace of a scenario, and its kind.
type admissionPath struct{ path, apiVersion, kind string }

func admissionPaths() map[string]admissionPath {
	return map[string]admissionPath{
		"configmaps":                 {"/api/v1/namespaces/%s/configmaps", "v1", "ConfigMap"},
		"pods":                       {"/api/v1/namespaces/%s/pods", "v1", "Pod"},
		"namespaces":                 {"/api/v1/namespaces", "v1", "Namespace"},
		"deployments":                {"/apis/apps/v1/namespaces/%s/deployments", "apps/v1", "Deployment"},
		"leases":                     {"/apis/coordination.k8s.io/v1/namespaces/%s/leases", "coordination.k8s.io/v1", "Lease"},
		"gizmos":                     {"/apis/admission.example.com/v1/namespaces/%s/gizmos", "admission.example.com/v1", "Gizmo"},
		"gizmos2":                    {"/apis/admission.example.com/v2/namespaces/%s/gizmos", "admission.example.com/v2", "Gizmo"},
		"serviceaccounts":            {"/api/v1/namespaces/%s/serviceaccounts", "v1", "ServiceAccount"},
		"certificatesigningrequests": {"/apis/certificates.k8s.io/v1/certificatesigningrequests", "certificates.k8s.io/v1", "CertificateSigningRequest"},
		"planets":                    {"/apis/admission.example.com/v1/planets", "admission.example.com/v1", "Planet"},
	}
}

// address returns the path and the body of a request. The path of a step begins with a name of admissionPaths. A body of an
// object has its apiVersion and kind added.
func (r *admissionRun) address(s admissionStep) (path, body string) {
	end := strings.IndexAny(s.path+"/", "/?")
	resource, rest := s.path[:end], s.path[end:]
	if resource == "" {
		return s.path, s.body
	}
	p := admissionPaths()[resource]
	path = p.path + rest
	if strings.Contains(p.path, "%s") {
		path = strings.Replace(path, "%s", r.name, 1)
	}
	body = strings.ReplaceAll(s.body, "NAMESPACE", r.name)
	isObject := s.method != http.MethodPatch || s.media == "application/apply-patch+yaml"
	if isObject && s.method != http.MethodDelete && !strings.Contains(body, `"kind"`) {
		body = strings.Replace(body, "{", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, p.apiVersion, p.kind), 1)
	}
	return path, body
}

// admissionRules returns rules for some operations on the resources of admissionPaths and their subresources.
func admissionRules(operations string) string {
	return `"rules":[{"apiGroups":["","apps","admission.example.com"],"apiVersions":["*"],"resources":["configmaps","pods","pods/*","namespaces","namespaces/*","deployments","deployments/*","gizmos","gizmos/*","planets"],"operations":["` + operations + `"]}]`
}

// admissionKinds returns custom kinds: one with two versions, defaults, subresources and validation, and a cluster-scoped one.
func admissionKinds() []*kind {
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size"}},
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","default":{},"properties":{"size":{"type":"integer","maximum":9},"note":{"type":"string"},
"color":{"type":"string","default":"default of %[1]s"}}},"status":{"type":"object","properties":{"phase":{"type":"string","default":"new"},"size":{"type":"integer"}}}}}}}`, name, storage)
	}
	definition := func(scope, name, plural, versions string) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[3]s.admission.example.com"},"spec":{"group":"admission.example.com","scope":%[1]q,
"names":{"kind":%[2]q,"listKind":"%[2]sList","plural":%[3]q,"singular":%[4]q},"versions":[%[5]s]}}`, scope, name, plural, strings.ToLower(name), versions)
	}
	return []*kind{
		{resource: "gizmos", apiVersion: "admission.example.com/v1", definition: definition("Namespaced", "Gizmo", "gizmos", version("v1", true)+","+version("v2", false))},
		{resource: "planets", apiVersion: "admission.example.com/v1", definition: definition("Cluster", "Planet", "planets", version("v1", true))},
	}
}
