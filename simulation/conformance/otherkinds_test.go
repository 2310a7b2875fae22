package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	clusterkinds "github.com/evenkeel-go/evenkeel/simulation/internal/kinds"
)

// otherKind is a kind of which the server in memory has the rules for metadata, status, generation and versions only.
type otherKind struct {
	kind
	content, changed string // fields of a valid object, and a merge patch of them
	status           []string
	created          string // more fields of a new object
}

func otherKinds() []otherKind {
	const (
		template  = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"%s"}]}}`
		match     = `"matchConstraints":{"resourceRules":[{"apiGroups":["other.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["%s"]}]}`
		hook      = `"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://%s.invalid"},"sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Ignore","rules":[{"apiGroups":["other.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["others"]}]}]`
		mutation  = `"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"remove\", path: \"/a\"}]"}}],"failurePolicy":"Ignore","reinvocationPolicy":"Never",`
		condition = `{"conditions":[{"type":"Ready","status":"%s","reason":"x","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`
		job       = `"schedule":"%s","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`
	)
	spec := func(format string, values ...any) string { return `"spec":{` + fmt.Sprintf(format, values...) + `}` }
	kind := func(resource, name, apiVersion, content, changed string, status ...string) otherKind {
		k := otherKind{content: content, changed: changed, status: status}
		k.resource, k.name, k.apiVersion = resource, name, apiVersion
		return k
	}
	cluster := func(k otherKind) otherKind { k.clusterScoped = true; return k }
	with := func(k otherKind, created string) otherKind { k.created = created; return k }
	const admission, networking, rbac, storage = "admissionregistration.k8s.io/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1", "storage.k8s.io/v1"
	const role = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"x"}`
	return []otherKind{
		kind("endpoints", "Endpoints", "v1", `"subsets":null`, `"subsets":[{"addresses":[{"ip":"192.0.2.1"}]}]`),
		kind("limitranges", "LimitRange", "v1", spec(`"limits":[]`), spec(`"limits":[{"type":"Pod","max":{"cpu":"99"}}]`)),
		cluster(kind("nodes", "Node", "v1", `"spec":{}`, spec(`"unschedulable":true`), `{"phase":"Pending"}`, `{"phase":"Running"}`)),
		cluster(kind("persistentvolumes", "PersistentVolume", "v1", spec(`"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}`),
			spec(`"persistentVolumeReclaimPolicy":"Delete"`), `{"phase":"Bound"}`, `{"phase":"Released","lastPhaseTransitionTime":"2020-01-01T00:00:00Z"}`, `{"phase":"Released"}`, `{"phase":""}`)),
		kind("persistentvolumeclaims", "PersistentVolumeClaim", "v1", spec(`"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}`), `"metadata":{"annotations":{"a":"b"}}`,
			`{"phase":"Bound"}`, `{"phase":"Lost"}`, `{"phase":""}`),
		kind("podtemplates", "PodTemplate", "v1", fmt.Sprintf(template, "i"), fmt.Sprintf(template, "j")),
		kind("replicationcontrollers", "ReplicationController", "v1", spec(`"replicas":1,"selector":{"a":"b"},`+template, "i"), spec(`"replicas":3`), `{"replicas":1}`, `{"replicas":2}`),
		kind("resourcequotas", "ResourceQuota", "v1", spec(`"hard":{"pods":"99"}`), spec(`"hard":{"pods":"98"}`), `{"hard":{"pods":"1"}}`, `{"hard":{"pods":"2"}}`),
		with(kind("serviceaccounts", "ServiceAccount", "v1", `"secrets":[{"name":"a"}]`, `"secrets":[{"name":"b","namespace":"other"}]`), `"imagePullSecrets":[{"name":"a"}]`),
		cluster(kind("mutatingadmissionpolicies", "MutatingAdmissionPolicy", admission, spec(mutation+match, "others"), spec(mutation+match, "changed"))),
		cluster(kind("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", admission, spec(`"policyName":"none"`), spec(`"policyName":"changed"`))),
		cluster(kind("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", admission, fmt.Sprintf(hook, "a"), fmt.Sprintf(hook, "b"))),
		cluster(kind("validatingadmissionpolicies", "ValidatingAdmissionPolicy", admission, spec(`"validations":[{"expression":"true"}],`+match, "others"), spec(match, "changed"),
			`{"observedGeneration":1}`, `{"observedGeneration":2}`)),
		cluster(kind("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", admission, spec(`"policyName":"none","validationActions":["Deny"]`), spec(`"policyName":"changed"`))),
		cluster(kind("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", admission, fmt.Sprintf(hook, "a"), fmt.Sprintf(hook, "b"))),
		kind("controllerrevisions", "ControllerRevision", "apps/v1", `"revision":1,"data":{"a":1}`, `"revision":2`),
		kind("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling/v2", spec(`"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}`), spec(`"maxReplicas":4`),
			`{"currentReplicas":1,"desiredReplicas":1}`, `{"desiredReplicas":2}`),
		kind("cronjobs", "CronJob", "batch/v1", spec(job, "* * * * *"), spec(`"schedule":"1 * * * *"`), `{"lastScheduleTime":"2020-01-01T00:00:00Z"}`, `{"lastScheduleTime":"2021-01-01T00:00:00Z"}`),
		kind("endpointslices", "EndpointSlice", "discovery.k8s.io/v1", `"addressType":"IPv4","endpoints":[]`, `"endpoints":[{"addresses":["192.0.2.1"]}]`),
		kind("ingresses", "Ingress", networking, spec(`"defaultBackend":{"service":{"name":"x","port":{"number":1}}}`), spec(`"ingressClassName":"x"`),
			`{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}`, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.2"}]}}`),
		cluster(kind("ingressclasses", "IngressClass", networking, spec(`"controller":"example.com/a"`), spec(`"parameters":{"kind":"A","name":"a","scope":"Cluster"}`))),
		kind("networkpolicies", "NetworkPolicy", networking, spec(`"podSelector":{}`), spec(`"podSelector":{"matchLabels":{"a":"b"}}`)),
		cluster(kind("servicecidrs", "ServiceCIDR", networking, spec(`"cidrs":["10.9.0.0/24"]`), `"metadata":{"annotations":{"a":"b"}}`, fmt.Sprintf(condition, "False"), fmt.Sprintf(condition, "Unknown"))),
		cluster(kind("runtimeclasses", "RuntimeClass", "node.k8s.io/v1", `"handler":"a"`, `"scheduling":{"nodeSelector":{"a":"b"}}`)),
		cluster(kind("clusterroles", "ClusterRole", rbac, `"rules":[]`, `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`)),
		cluster(kind("clusterrolebindings", "ClusterRoleBinding", rbac, role, `"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}]`)),
		kind("roles", "Role", rbac, `"rules":[]`, `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`),
		kind("rolebindings", "RoleBinding", rbac, role, `"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}]`),
		cluster(kind("priorityclasses", "PriorityClass", "scheduling.k8s.io/v1", `"value":7`, `"description":"changed"`)),
		cluster(kind("csidrivers", "CSIDriver", storage, spec(`"attachRequired":false`), spec(`"requiresRepublish":true`))),
		cluster(kind("csinodes", "CSINode", storage, spec(`"drivers":[]`), spec(`"drivers":[{"name":"a.com","nodeID":"a","topologyKeys":null}]`))),
		kind("csistoragecapacities", "CSIStorageCapacity", storage, `"storageClassName":"a","nodeTopology":{}`, `"capacity":"1Gi"`),
		cluster(kind("storageclasses", "StorageClass", storage, `"provisioner":"a.com/b"`, `"allowVolumeExpansion":true`)),
		cluster(kind("volumeattachments", "VolumeAttachment", storage, spec(`"attacher":"a.com","nodeName":"n","source":{"persistentVolumeName":"x"}`), `"metadata":{"annotations":{"a":"b"}}`, `{"attached":true}`, `{"attached":false}`)),
		cluster(kind("volumeattributesclasses", "VolumeAttributesClass", storage, `"driverName":"a.com","parameters":{"a":"b"}`, `"metadata":{"annotations":{"a":"b"}}`)),
	}
}

// TestOtherKinds compares what a write of these kinds keeps and clears, the generation, and whether it needs a version.
func TestOtherKinds(t *testing.T) {
	r := newRunner(t, simulated(t, nil))
	g := newGenerator(kinds(), 1, firstDirected)
	for _, k := range otherKinds() {
		t.Run(k.resource, func(t *testing.T) {
			d, sides := newDirector(g, &k.kind), r.begin(t)
			var last [2]string
			ops := k.operations(d)
			for i, o := range ops {
				var results [2]string
				for j, s := range sides {
					header := o.header
					res := s.send(t.Context(), o.method, s.resolve(o, o.path()), s.resolve(o, o.body), header)
					results[j] = essentials(res, &last[j])
				}
				if diff := cmp.Diff(strings.Split(results[0], "\n"), strings.Split(results[1], "\n")); diff != "" {
					t.Errorf("step %d: %s %s %s (-real +memory)\n%s", i, o.method, o.path(), o.body, diff)
				}
			}
			for _, s := range sides {
				o := ops[len(ops)-1]
				s.send(t.Context(), http.MethodDelete, s.resolve(o, o.path()), "", nil)
			}
		})
	}
	t.Run("all", everyOtherKind)
}

// everyOtherKind checks that the list of kinds is complete.
func everyOtherKind(t *testing.T) {
	all, err := clusterkinds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		isOther := slices.ContainsFunc(otherKinds(), func(other otherKind) bool { return other.resource == k.Resource })
		if kindOf(k.Resource) == nil && !isOther && !slices.Contains([]string{"certificatesigningrequests", "events", "ipaddresses"}, k.Resource) {
			t.Errorf("%s is not compared", k.Resource)
		}
	}
}

func (k otherKind) operations(d *director) []operation {
	object := func(metadata, fields string) string {
		return `{` + k.typeMeta(k.apiVersion) + `"metadata":{"name":"` + d.name + `"` + metadata + `},` + fields + `}`
	}
	status := func(i int) string {
		if len(k.status) == 0 {
			return ""
		}
		return `,"status":` + k.status[i]
	}
	more := ""
	if k.created != "" {
		more = "," + k.created
	}
	ops := []operation{
		d.operation(http.MethodPost, "", object(`,"labels":{"a":"b"}`, k.content+more+status(0))),
		d.patch(mergeMedia, `{}`),
		d.patch(mergeMedia, `{`+k.changed+`}`), d.patch(mergeMedia, `{`+k.changed+`}`),
		d.patch(mergeMedia, `{"metadata":{"labels":{"a":"c"}}}`), d.patch(mergeMedia, `{"metadata":{"generation":9,"annotations":{"a":"b"}}}`),
		d.operation(http.MethodPut, d.name, object(`,"labels":{"a":"b"}`, k.content)), // without a version
	}
	missing := d.operation(http.MethodPut, d.name+"-2", strings.Replace(object(`,"labels":{"a":"b"}`, k.content+status(0)), d.name, d.name+"-2", 1))
	missing.body = strings.Replace(missing.body, "10.9.0.", "10.8.0.", 1)
	applied := d.apply("m", strings.Replace(object(`,"labels":{"a":"b"}`, k.content+status(0)), d.name, d.name+"-3", 1))
	applied.name = d.name + "-3"
	applied.body = strings.Replace(applied.body, "10.9.0.", "10.7.0.", 1)
	removed := []operation{
		d.operation(http.MethodDelete, d.name+"-2", ""), d.operation(http.MethodDelete, d.name+"-3", ""), d.operation(http.MethodDelete, d.name, ""), d.operation(http.MethodGet, d.name, ""),
	}
	if k.resource == "persistentvolumes" || k.resource == "persistentvolumeclaims" { // the real server adds finalizers
		removed = removed[3:]
	}
	metadata := `"metadata":{"labels":{"viastatus":"x"},"annotations":{"viastatus":"x"},"finalizers":["example.com/f"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b"}]}`
	for i := range k.status {
		write := d.patch(mergeMedia, `{`+metadata+status(i)+`}`)
		write.subresource = "status"
		apply := d.apply("m", object(`,"labels":{"applied":"x"}`, status(i)[1:]))
		apply.subresource = "status"
		ops = append(ops, write, write, d.patch(mergeMedia, `{"metadata":{"labels":{"app":"web`+fmt.Sprint(i)+`"},"finalizers":null}`+status(0)+`}`), apply,
			d.apply("m", object(``, status(0)[1:])))
	}
	return slices.Concat(ops, []operation{missing, applied}, removed)
}

// essentials returns what is compared of a response, and whether the object has another version than the one in last.
func essentials(res result, last *string) string {
	content, _ := decode(res.body).(map[string]any)
	metadata, _ := content["metadata"].(map[string]any)
	parts := []string{fmt.Sprint(res.code)}
	if content["kind"] == "Status" {
		return strings.Join(append(parts, fmt.Sprint(content["reason"])), "\n")
	}
	now := version(content)
	parts = append(parts, fmt.Sprintf("changed %t", now != *last))
	*last = now
	for _, key := range []string{"generation", "labels", "annotations", "ownerReferences", "finalizers"} {
		value := metadata[key]
		if list, ok := value.([]any); ok && key == "finalizers" {
			value = slices.DeleteFunc(list, func(f any) bool { return strings.HasSuffix(fmt.Sprint(f), "-protection") })
		}
		if value != nil && fmt.Sprint(value) != "[]" {
			parts = append(parts, key+" "+mustJSON(value))
		}
	}
	var managers []string
	entries, _ := metadata["managedFields"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if fields["f:metadata"] != nil { // the rest has no schema in memory
			managers = append(managers, fmt.Sprint(entry["manager"], " ", entry["operation"], " ", entry["subresource"], " ", mustJSON(fields["f:metadata"])))
		}
	}
	slices.Sort(managers)
	parts = append(parts, managers...)
	status, _ := content["status"].(map[string]any)
	if at := fmt.Sprint(status["lastPhaseTransitionTime"]); strings.HasPrefix(at, "20") && !strings.HasPrefix(at, "2020") {
		status["lastPhaseTransitionTime"] = "<now>"
	}
	if len(status) > 0 { // the library has newer kinds with a status, whose empty form is shown
		parts = append(parts, "status "+mustJSON(status))
	}
	parts = append(parts, "secrets "+mustJSON(content["secrets"]))
	return strings.Join(parts, "\n")
}
