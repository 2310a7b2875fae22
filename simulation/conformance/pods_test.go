package conformance

import (
	"slices"
	"strings"

	apibuiltin "github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

// podKinds returns the kind Pod.
func podKinds() []*kind {
	spec := func(g *generator) string { return g.podSpec("", containerFields(), podFields()) }
	return []*kind{{
		resource: "pods", name: "Pod", apiVersion: "v1", memory: builtin(apibuiltin.Pods), weight: 2,
		minimal:        `"spec":{"containers":[{"name":"c","image":"i"}]}`,
		fieldSelectors: []string{"status.phase=Pending", "spec.nodeName=", "spec.nodeName=n1", "spec.restartPolicy=Always", "status.podIP=10.0.0.1", "spec.unknown=x"},
		fields:         []field{{name: "spec", required: true, value: spec}, {name: "status", value: podStatus}},
		subresources: []subresource{{name: "status", operations: []string{"get", "update", "patch", "apply"}, percent: 30, body: func(g *generator, _ operation, m string) string {
			return `{"apiVersion":"v1","kind":"Pod","metadata":` + m + `,"spec":{"containers":[{"name":"c","image":"i"}]},"status":` + pick(g, podStatus(g), podStatus(g), podStatus(g), `{"qosClass":"Guaranteed"}`, `{"qosClass":"BestEffort"}`) + `}`
		}}},
		patch:    func(g *generator, media string) string { return g.podPatch(media, "/spec") },
		scenario: (*generator).disruption,
		posts:    []func(g *generator, o *operation){(*generator).evict, (*generator).bind},
	}}
}

func podStatus(g *generator) string {
	return pick(g, `{}`, `{"phase":"Running"}`, `{"phase":"Succeeded"}`, `{"phase":"Pending"}`, `{"conditions":[{"type":"Ready","status":"True"}]}`,
		`{"conditions":[{"type":"Ready","status":"False","observedGeneration":2},{"type":"example.com/x","status":"True"}]}`,
		`{"conditions":[{"type":"not valid","status":"True"}]}`, `{"conditions":[{"type":"x","status":"True","observedGeneration":-1}]}`,
		`{"podIP":"10.0.0.1"}`, `{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.2"}]}`, `{"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}`,
		`{"podIPs":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}`, `{"podIPs":[{"ip":"x"}]}`, `{"hostIP":"1.2.3.4","hostIPs":[{"ip":"1.2.3.5"}]}`,
		`{"hostIP":"1.2.3.4","hostIPs":[{"ip":"1.2.3.4"}]}`, `{"nominatedNodeName":"n1"}`, `{"nominatedNodeName":"Not Valid"}`,
		`{"observedGeneration":-2}`, `{"observedGeneration":3}`,
		`{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"state":{"running":{}}}]}`,
		`{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"state":{"terminated":{"exitCode":0}}}]}`,
		`{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"state":{"terminated":{"exitCode":1}}}]}`)
}

// option is a field and its possible values.
type option struct {
	name   string
	values []string
}

// some returns some of the options as fields of a JSON object, each with a leading comma.
func (g *generator) some(options []option) string {
	fields := ""
	used := []string{}
	for range pick(g, 0, 0, 1, 1, 1, 2, 3) {
		o := pick(g, options...)
		if !slices.Contains(used, o.name) {
			fields += `,"` + o.name + `":` + pick(g, o.values...)
			used = append(used, o.name)
		}
	}
	return fields
}

// podSpec returns a specification with some of the options, and with more fields.
func (g *generator) podSpec(more string, container, pod []option) string {
	if g.IntN(5) < 3 {
		return `{"containers":[{"name":"c","image":"` + pick(g, "i", "i:1", "i:2", "i:latest") + `"` + often(g, 30, g.some(container)) + `}]` + more + `}`
	}
	name := pick(g, `"c"`, `"c"`, `"c"`, `"c"`, `"c"`, `"c"`, `"c"`, `"c"`, `"c"`, `""`, `"Not_Valid"`, `"d"`)
	image := pick(g, `"i"`, `"i"`, `"i"`, `"i"`, `"i"`, `"i:1"`, `"i:latest"`, `"example.com:5000/a/b:v1"`, `"example.com/a@sha256:`+strings.Repeat("0a", 32)+`"`, `"UPPER"`, `""`, `" i"`, `"a/B:latest"`, `"a__b/c-d.e:latest"`, `"a___b:latest"`)
	containers := `{"name":` + name + `,"image":` + image + g.some(container) + `}`
	containers += often(g, 15, `,{"name":`+pick(g, `"e"`, `"e"`, `"c"`)+`,"image":"i"`+g.some(container)+`}`)
	spec := `{"containers":[` + containers + `]`
	if g.IntN(40) == 0 {
		spec = `{"containers":[]`
	}
	spec += often(g, 10, `,"initContainers":[{"name":`+pick(g, `"init"`, `"init"`, `"c"`, `""`)+`,"image":"i"`+g.some(container)+`}]`)
	volumes := pick(g, volumes()...)
	if g.IntN(4) == 0 {
		spec += `,"volumes":[` + volumes + often(g, 30, `,`+pick(g, volumes, `{"name":"w","emptyDir":{}}`)) + `]`
	}
	return spec + g.some(pod) + more + `}`
}

// volumes are volumes with the name v.
func volumes() []string {
	sources := []string{
		`"emptyDir":{}`, `"emptyDir":{}`, `"emptyDir":{"sizeLimit":"-1"}`, `"emptyDir":{"medium":"Memory","sizeLimit":"1Gi"}`, `"configMap":{"name":"m"}`,
		`"configMap":{"name":""}`, `"configMap":{"name":"m","defaultMode":511,"items":[{"key":"k","path":"p"}]}`,
		`"configMap":{"name":"m","defaultMode":512,"items":[{"key":"","path":"../p","mode":-1}]}`, `"configMap":{"name":"m","items":[{"key":"k","path":"..p"},{"key":"k","path":"/p"}]}`,
		`"secret":{"secretName":"s"}`, `"secret":{}`, `"secret":{"secretName":"s","items":[{"key":"k","path":""}]}`, `"hostPath":{"path":"/x"}`,
		`"hostPath":{"path":""}`, `"hostPath":{"path":"/x/../y","type":"Wrong"}`, `"hostPath":{"path":"/x","type":"Directory"}`,
		`"persistentVolumeClaim":{"claimName":"p"}`, `"persistentVolumeClaim":{}`, `"emptyDir":{},"configMap":{"name":"m"}`, `"secret":{"secretName":"s"},"downwardAPI":{}`,
		`"downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"metadata.labels"}}]}`, `"downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"spec.nodeName"}}]}`,
		`"downwardAPI":{"items":[{"path":"p"}]}`, `"downwardAPI":{"items":[{"path":"p","resourceFieldRef":{"resource":"limits.cpu"}}]}`,
		`"downwardAPI":{"items":[{"path":"","fieldRef":{"fieldPath":"metadata.name"},"resourceFieldRef":{"containerName":"c","resource":"limits.cpu"}}]}`,
		`"projected":{"sources":[{"configMap":{"name":"m"}},{"secret":{"name":"s"}}]}`, `"projected":{"sources":[{"configMap":{"name":""}}]}`,
		`"projected":{"defaultMode":1024,"sources":[{"configMap":{"name":"m","items":[{"key":"k","path":"p"}]}},{"secret":{"name":"s","items":[{"key":"k","path":"p"}]}}]}`,
		`"projected":{"sources":[{"configMap":{"name":"m"},"secret":{"name":"s"}}]}`, `"projected":{"sources":[{"downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"metadata.name"}}]}}]}`,
		`"projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}`, `"projected":{"sources":[{"serviceAccountToken":{"path":"","expirationSeconds":1}}]}`,
		`"csi":{"driver":"d.example.com"}`, `"csi":{"driver":""}`, `"csi":{"driver":"Not Valid","nodePublishSecretRef":{"name":""}}`,
		`"nfs":{"server":"s","path":"/p"}`, `"nfs":{"server":"","path":"p"}`, `"image":{"reference":"i"}`, `"image":{"reference":"i:1","pullPolicy":"Wrong"}`, `"image":{}`,
		`"ephemeral":{}`, `"ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}`,
		`"ephemeral":{"volumeClaimTemplate":{"metadata":{"name":"x"},"spec":{"accessModes":["Wrong"],"volumeMode":"Wrong"}}}`,
		`"gitRepo":{"repository":"","directory":"../x"}`, `"gitRepo":{"repository":"r"}`,
	}
	all := []string{`{"name":"v"}`, `{"name":"","emptyDir":{}}`, `{"name":"Not Valid","emptyDir":{}}`}
	for _, s := range sources {
		all = append(all, `{"name":"v",`+s+`}`)
	}
	return all
}

func probes() []string {
	return []string{
		`{"httpGet":{"port":80}}`, `{"httpGet":{"path":"/x","port":"http","scheme":"HTTPS","httpHeaders":[{"name":"X","value":"y"}]}}`, `{"tcpSocket":{"port":80}}`,
		`{"exec":{"command":["x"]}}`, `{"exec":{}}`, `{"grpc":{"port":80}}`, `{"grpc":{"port":0}}`, `{}`, `{"httpGet":{"port":80},"tcpSocket":{"port":80}}`,
		`{"httpGet":{"port":70000}}`, `{"httpGet":{"port":"not a port"}}`, `{"httpGet":{"port":80,"scheme":"FTP","httpHeaders":[{"name":"not valid","value":""}]}}`,
		`{"tcpSocket":{"port":80},"timeoutSeconds":-1,"periodSeconds":-1,"initialDelaySeconds":-1}`, `{"tcpSocket":{"port":80},"failureThreshold":-1,"successThreshold":-1}`,
		`{"tcpSocket":{"port":80},"successThreshold":2}`, `{"tcpSocket":{"port":80},"terminationGracePeriodSeconds":5}`, `{"tcpSocket":{"port":80},"terminationGracePeriodSeconds":0}`,
	}
}

// containerFields are fields of containers, valid ones and invalid ones. Maps have one invalid entry at most: the real server
// has a random order of them.
func containerFields() []option {
	return []option{
		{"ports", []string{
			`[{"containerPort":80}]`, `[{"containerPort":80,"name":"http"},{"containerPort":81,"name":"http"}]`, `[{"containerPort":0}]`, `[{"containerPort":70000,"hostPort":-1}]`,
			`[{"containerPort":80,"protocol":"UDP"},{"containerPort":80}]`, `[{"containerPort":80,"protocol":"ICMP"}]`, `[{"containerPort":80,"name":"Not Valid"}]`,
			`[{"containerPort":80,"hostPort":80},{"containerPort":81,"hostPort":80}]`, `[{"containerPort":80},{"containerPort":80,"name":"x"}]`,
			`[{"containerPort":80,"hostIP":"10.0.0.1"}]`, `[{"containerPort":80,"hostPort":81},{"containerPort":80,"hostPort":81,"hostIP":"10.0.0.1"}]`,
		}},
		{"env", []string{
			`[{"name":"A","value":"1"}]`, `[{"name":"A","value":"1"},{"name":"A","value":"2"}]`, `[{"name":"A","value":"1"},{"name":"A","value":"$(A)2"}]`, `[{"name":"","value":"1"}]`,
			`[{"name":"A=B"}]`, `[{"name":"1.a-b"}]`, `[{"name":"A","valueFrom":{}}]`, `[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]`,
			`[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['a']"}}}]`, `[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['Not Valid']"}}}]`,
			`[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels"}}}]`, `[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec.unknown"}}}]`,
			`[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec.host"}}}]`, `[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec['x']","apiVersion":"v2"}}}]`,
			`[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":""}}}]`, `[{"name":"A","value":"x","valueFrom":{"configMapKeyRef":{"name":"m","key":"k"}}}]`,
			`[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"m","key":"k"},"secretKeyRef":{"name":"s","key":"k"}}}]`,
			`[{"name":"A","valueFrom":{"secretKeyRef":{"name":"Not Valid","key":""}}}]`, `[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"m","key":"not/valid"}}}]`,
			`[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"1m"}}}]`, `[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"2m"}}}]`,
			`[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.gpu"}}}]`, `[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"requests.memory","divisor":"3"}}}]`,
			`[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"requests.ephemeral-storage","divisor":"3"}}}]`, `[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":""}}}]`,
			`[{"name":"A","valueFrom":{"fileKeyRef":{"key":"k","volumeName":"v","path":"p"}}}]`, `[{"name":"A","valueFrom":{"fileKeyRef":{"key":"","volumeName":"","path":"../p"}}}]`,
			`[{"name":"A","valueFrom":{"fileKeyRef":{"key":"k","volumeName":"Not","path":""}}}]`,
		}},
		{"envFrom", []string{
			`[{"configMapRef":{"name":"m"}}]`, `[{"prefix":"P_","secretRef":{"name":"s"}}]`, `[{"prefix":"=","secretRef":{"name":""}}]`, `[{}]`,
			`[{"configMapRef":{"name":"m"},"secretRef":{"name":"Not Valid"}}]`,
		}},
		{"volumeMounts", []string{
			`[{"name":"v","mountPath":"/m"}]`, `[{"name":"v","mountPath":"/m"}]`, `[{"name":"v","mountPath":"/m"},{"name":"w","mountPath":"/m"}]`, `[{"name":"","mountPath":""}]`,
			`[{"name":"unknown","mountPath":"/m"}]`, `[{"name":"v","mountPath":"/m","subPath":"../x","subPathExpr":"/x"}]`, `[{"name":"v","mountPath":"/m","mountPropagation":"Wrong"}]`,
			`[{"name":"v","mountPath":"/m","mountPropagation":"Bidirectional"}]`, `[{"name":"v","mountPath":"/m","recursiveReadOnly":"Enabled"}]`,
			`[{"name":"v","mountPath":"/m","readOnly":true,"recursiveReadOnly":"IfPossible","mountPropagation":"HostToContainer"}]`, `[{"name":"v","mountPath":"/m","recursiveReadOnly":"Wrong"}]`,
		}},
		{"volumeDevices", []string{`[{"name":"v","devicePath":"/d"}]`, `[{"name":"v","devicePath":"/../d"}]`, `[{"name":"","devicePath":""}]`, `[{"name":"v","devicePath":"/m"},{"name":"v","devicePath":"/m"}]`}},
		{"imagePullPolicy", []string{`"Always"`, `"Never"`, `"IfNotPresent"`, `"Wrong"`}},
		{"resources", []string{
			`{"limits":{"cpu":"1"}}`, `{"limits":{"cpu":"1","memory":"1Gi"}}`, `{"limits":{"cpu":"1000m","memory":"1Gi"},"requests":{"cpu":"1"}}`, `{"requests":{"cpu":"100m"}}`,
			`{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}`, `{"requests":{"cpu":"-1"}}`, `{"limits":{"memory":"1500m"}}`, `{"limits":{"gpu":"1"}}`, `{"limits":{"example.com/gpu":"1"}}`,
			`{"limits":{"example.com/gpu":"1500m"}}`, `{"requests":{"example.com/gpu":"1"}}`, `{"limits":{"example.com/gpu":"2"},"requests":{"example.com/gpu":"1"}}`,
			`{"limits":{"hugepages-2Mi":"4Mi"}}`, `{"limits":{"hugepages-2Mi":"3Mi","cpu":"1"}}`, `{"limits":{"Not Valid":"1"}}`, `{"limits":{"pods":"1"}}`, `{"limits":{"requests.cpu":"1"}}`,
			`{"limits":{"limits.hugepages-2Mi":"2Mi"}}`, `{"limits":{"requests.hugepages-2Mi":"2Mi"}}`, `{"limits":{"requests.example.com/x":"1"}}`, `{"limits":{"x.kubernetes.io/y":"1"}}`,
			`{"limits":{"cpu":"0.0001"}}`, `{"limits":{"cpu":"abc"}}`, `{"claims":[{"name":"x"}]}`, `{"claims":[{"name":""}]}`, `{}`,
		}},
		{"securityContext", []string{
			`{}`, `{"runAsUser":0,"runAsGroup":-1}`, `{"runAsUser":-1}`, `{"privileged":true}`, `{"privileged":true,"allowPrivilegeEscalation":false}`,
			`{"allowPrivilegeEscalation":false,"capabilities":{"add":["CAP_SYS_ADMIN"]}}`, `{"procMount":"Unmasked"}`, `{"procMount":"Wrong"}`, `{"seccompProfile":{}}`,
			`{"seccompProfile":{"type":"Localhost"}}`, `{"seccompProfile":{"type":"Localhost","localhostProfile":"../x"}}`, `{"seccompProfile":{"type":"RuntimeDefault","localhostProfile":"x"}}`,
			`{"seccompProfile":{"type":"Wrong"}}`, `{"appArmorProfile":{"type":"Localhost"}}`, `{"appArmorProfile":{"type":"Localhost","localhostProfile":" x"}}`,
			`{"appArmorProfile":{"type":"Unconfined","localhostProfile":"x"}}`, `{"appArmorProfile":{}}`, `{"appArmorProfile":{"type":"Wrong"}}`,
		}},
		{"livenessProbe", probes()},
		{"readinessProbe", probes()},
		{"startupProbe", probes()},
		{"lifecycle", []string{
			`{"preStop":{"exec":{"command":["x"]}}}`, `{"postStart":{"httpGet":{"port":80}}}`, `{"preStop":{}}`, `{"preStop":{"sleep":{"seconds":5}}}`, `{"preStop":{"sleep":{"seconds":50}}}`,
			`{"preStop":{"exec":{},"sleep":{"seconds":-1}}}`, `{"stopSignal":"SIGTERM"}`, `{"preStop":{"sleep":{"seconds":0}},"stopSignal":"SIGTERM"}`,
		}},
		{"terminationMessagePolicy", []string{`"File"`, `"FallbackToLogsOnError"`, `"Wrong"`}},
		{"restartPolicy", []string{`"Always"`, `"Never"`, `"OnFailure"`, `"Wrong"`}},
		{"restartPolicyRules", []string{`[{"action":"Restart","exitCodes":{"operator":"In","values":[1]}}]`, `[{"action":"Wrong"}]`, `[{"action":"Restart","exitCodes":{"operator":"Wrong"}}]`}},
		{"resizePolicy", []string{
			`[{"resourceName":"cpu","restartPolicy":"NotRequired"}]`, `[{"resourceName":"cpu","restartPolicy":"RestartContainer"},{"resourceName":"cpu","restartPolicy":"Wrong"}]`,
			`[{"resourceName":"disk","restartPolicy":""}]`, `[{"resourceName":"","restartPolicy":"RestartContainer"}]`,
		}},
		{"command", []string{`["x"]`, `[]`, `null`}},
		{"tty", []string{`true`}},
	}
}

// podFields are fields of Pods, except for the restart policy of templates.
func podFields() []option {
	return append(templateFields(), option{"restartPolicy", []string{`"Always"`, `"Never"`, `"OnFailure"`, `"Wrong"`}})
}

// templateFields are fields of Pods and templates.
func templateFields() []option {
	term := `"labelSelector":{"matchLabels":{"a":"b"}},"topologyKey":"kubernetes.io/hostname"`
	return []option{
		{"dnsPolicy", []string{`"Default"`, `"None"`, `"Wrong"`}},
		{"dnsConfig", []string{
			`{"nameservers":["10.0.0.1"]}`, `{"nameservers":["x"],"searches":["a.b.","_x","Not Valid","."]}`, `{"options":[{"name":""}]}`, `{"nameservers":["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"]}`,
			`{"nameservers":["010.0.0.1"]}`,
		}},
		{"terminationGracePeriodSeconds", []string{`0`, `5`, `-3`}},
		{"activeDeadlineSeconds", []string{`10`, `0`, `5`, `-1`}},
		{"nodeSelector", []string{`{"a":"b"}`, `{"not/a/key":"b"}`, `{"beta.kubernetes.io/os":"linux"}`, `{}`}},
		{"serviceAccountName", []string{`"default"`, `"Not Valid"`}},
		{"serviceAccount", []string{`"default"`}},
		{"nodeName", []string{`"n1"`, `"n1"`, `"Not Valid"`}},
		{"hostNetwork", []string{`true`, `false`}},
		{"hostPID", []string{`true`}},
		{"shareProcessNamespace", []string{`true`, `false`}},
		{"hostUsers", []string{`true`, `false`}},
		{"securityContext", []string{
			`{}`, `{"runAsUser":-1,"fsGroup":-1}`, `{"runAsNonRoot":true,"supplementalGroups":[1,-1]}`, `{"sysctls":[{"name":"a.b","value":"1"},{"name":"a.b","value":"1"}]}`,
			`{"fsGroupChangePolicy":"Wrong","supplementalGroupsPolicy":"Wrong"}`, `{"fsGroupChangePolicy":"Always"}`, `{"seLinuxChangePolicy":"MountOption"}`, `{"seLinuxChangePolicy":"Recursive"}`,
			`{"seccompProfile":{"type":"RuntimeDefault"}}`, `{"seccompProfile":{"type":""}}`, `{"appArmorProfile":{"type":"RuntimeDefault","localhostProfile":"x"}}`,
		}},
		{"imagePullSecrets", []string{`[{"name":"s"}]`, `[{"name":"s"},{"name":"s"}]`, `[{}]`}},
		{"hostname", []string{`"h"`, `"Not Valid"`}},
		{"subdomain", []string{`"s"`, `"a.b"`}},
		{"hostnameOverride", []string{`"a.b"`, `"Not Valid"`}},
		{"setHostnameAsFQDN", []string{`true`}},
		{"schedulerName", []string{`"s"`}},
		{"tolerations", []string{
			`[{"key":"a","operator":"Exists"}]`, `[{"key":"a","value":"b"}]`, `[{"operator":"Exists"}]`, `[{}]`, `[{"key":"a","operator":"Exists","value":"b"}]`, `[{"key":"Not Valid"}]`,
			`[{"key":"a","effect":"Wrong"}]`, `[{"key":"a","tolerationSeconds":5}]`, `[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]`, `[{"key":"a","operator":"Gt","value":"1"}]`,
			`[{"key":"a","operator":"Wrong"}]`, `[{"key":"a","value":"Not Valid"}]`, `[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]`,
		}},
		{"hostAliases", []string{`[{"ip":"1.2.3.4","hostnames":["a"]}]`, `[{"ip":"x","hostnames":["Not Valid"]}]`, `[{"ip":"1.2.3.4"},{"ip":"1.2.3.4"}]`}},
		{"priorityClassName", []string{`"system-cluster-critical"`}},
		{"runtimeClassName", []string{`null`}},
		{"preemptionPolicy", []string{`"PreemptLowerPriority"`}},
		{"readinessGates", []string{`[{"conditionType":"a/b"}]`, `[{"conditionType":"Not Valid"}]`}},
		{"schedulingGates", []string{`[{"name":"a"}]`, `[{"name":"a"},{"name":"a"}]`, `[{"name":"Not Valid"}]`}},
		{"enableServiceLinks", []string{`false`}},
		{"automountServiceAccountToken", []string{`false`}},
		{"os", []string{`{"name":"linux"}`, `{"name":""}`, `{"name":"plan9"}`}},
		{"topologySpreadConstraints", []string{
			`[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"a":"b"}}}]`, `[{"maxSkew":0,"topologyKey":"","whenUnsatisfiable":"Wrong"}]`,
			`[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway","minDomains":0},{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway"}]`,
			`[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule","matchLabelKeys":["app"],"labelSelector":{}}]`,
			`[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule","matchLabelKeys":["app"],"nodeTaintsPolicy":"Wrong","nodeAffinityPolicy":"Honor"}]`,
			`[{"maxSkew":1,"topologyKey":"beta.kubernetes.io/os","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"a":"not valid"}}}]`,
		}},
		{"affinity", []string{
			`{}`, `{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{` + term + `}]}}`, `{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":""}]}}`,
			`{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":0,"podAffinityTerm":{` + term + `,"namespaces":["Not Valid"]}}]}}`,
			`{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"podAffinityTerm":{"topologyKey":"z","matchLabelKeys":["app"]}}]}}`,
			`{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{` + term + `,"matchLabelKeys":["app"],"mismatchLabelKeys":["app","sequence"]}]}}`,
			`{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{` + term + `,"matchLabelKeys":["app"],"mismatchLabelKeys":["l"]}]}}`,
			`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}`,
			`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}]}}}`,
			`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"Not Valid","operator":"Wrong"},{"key":"a","operator":"In"},{"key":"a","operator":"Exists","values":["not valid"]},{"key":"a","operator":"Gt"}]}]}}}`,
			`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["Not Valid"]},{"key":"x","operator":"Gt","values":["a"]},{"key":"metadata.name","operator":"In"}]}]}}}`,
			`{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":101,"preference":{"matchExpressions":[{"key":"beta.kubernetes.io/arch","operator":"In","values":["not valid"]}]}}]}}`,
		}},
	}
}

// podPatch returns a patch of the specification of a Pod in a path.
func (g *generator) podPatch(media, path string) string {
	container := `{"name":"` + pick(g, "c", "c", "c", "d") + `"` + pick(g, `,"image":"i:2"`, `,"image":"i:3"`, `,"image":""`, `,"image":null`, g.some(containerFields()), `,"$patch":"delete"`,
		`,"env":[{"name":"A","value":"9"}]`, `,"env":[{"name":"A","$patch":"delete"}]`, `,"ports":[{"containerPort":80,"name":"web"}]`, `,"ports":null`, `,"resources":{"limits":{"cpu":"3"}}`) + `}`
	if media == "json-patch" {
		return `[` + pick(g,
			`{"op":"replace","path":"`+path+`/containers/0/image","value":"i:4"}`,
			`{"op":"add","path":"`+path+`/containers/-","value":`+container+`}`,
			`{"op":"remove","path":"`+path+`/containers/0"}`,
			`{"op":"add","path":"`+path+`/tolerations/-","value":{"key":"b","operator":"Exists"}}`,
			`{"op":"remove","path":"`+path+`/tolerations/0"}`,
			`{"op":"add","path":"`+path+`/activeDeadlineSeconds","value":`+pick(g, "10", "5", "0", "20")+`}`,
			`{"op":"remove","path":"`+path+`/schedulingGates"}`,
			`{"op":"add","path":"`+path+`/nodeSelector","value":{"a":"b","c":"d"}}`,
		) + `]`
	}
	content := `{` + pick(g, `"containers":[`+container+`]`, `"containers":[`+container+`]`, strings.TrimPrefix(g.some(templateFields()), ","), `"containers":null`,
		`"terminationGracePeriodSeconds":null`, `"schedulerName":"other"`, `"activeDeadlineSeconds":5`, `"containers":[`+container+`],"$setElementOrder/containers":[{"name":"d"},{"name":"c"}]`) + `}`
	for _, part := range slices.Backward(strings.Split(strings.Trim(path, "/"), "/")) {
		content = `{"` + part + `":` + content + `}`
	}
	return content
}
