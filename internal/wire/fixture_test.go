package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

//nolint:gochecknoglobals // names of kinds
var (
	podKind        = corev1.SchemeGroupVersion.WithKind("Pod")
	secretKind     = corev1.SchemeGroupVersion.WithKind("Secret")
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	crKind         = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}
)

//nolint:gochecknoglobals // a constant
var fixtureTime = metav1.Date(2026, 11, 20, 8, 30, 15, 0, time.UTC)

// realPod returns a typical Pod: about 4.9 KB of protobuf, more than half of it managedFields.
func realPod() *corev1.Pod {
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name:    name,
			Image:   "registry.example.com/team/" + name + ":v1.24.3",
			Command: []string{"/bin/" + name, "--config=/etc/" + name + "/config.yaml"},
			Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Env: []corev1.EnvVar{
				{Name: "LOG_LEVEL", Value: "info"},
				{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "config", ReadOnly: true, MountPath: "/etc/" + name},
				{Name: "kube-api-access-x7k2p", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
			},
			LivenessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
				PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
			},
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			ImagePullPolicy:          corev1.PullIfNotPresent,
		}
	}
	status := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: name, Ready: true, Started: new(true), Image: "registry.example.com/team/" + name + ":v1.24.3",
			ImageID:     "registry.example.com/team/" + name + "@sha256:7c1e4f3b2a9d8e6f5c4b3a2918d7e6f5c4b3a2918d7e6f5c4b3a2918d7e6f5c4",
			ContainerID: "containerd://9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: fixtureTime}},
		}
	}
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: fixtureTime}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "checkout-7d9c5b8f6d-x2k4q", GenerateName: "checkout-7d9c5b8f6d-", Namespace: "shop",
			UID: "0b7f3c1e-5a64-4c0e-9b57-2f6f6f9f1c11", ResourceVersion: "184467", Generation: 3,
			CreationTimestamp: fixtureTime,
			Labels:            map[string]string{"app": "checkout", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7d9c5b8f6d"},
			Annotations:       map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-7d9c5b8f6d", UID: "4d0d5b44-8d9f-4a5a-8f0b-0a4ed3c9e101",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			Finalizers:    []string{"example.com/protect"},
			ManagedFields: managedFields(),
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container("checkout"), container("proxy")},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "checkout"}, DefaultMode: new(int32(420))}}},
				{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(420)), Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				}}}},
			},
			NodeSelector: map[string]string{"kubernetes.io/os": "linux"}, NodeName: "node-17", ServiceAccountName: "checkout",
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true)}, Priority: new(int32(0)),
			TerminationGracePeriodSeconds: new(int64(30)),
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "10.0.3.17", PodIP: "10.244.3.81", PodIPs: []corev1.PodIP{{IP: "10.244.3.81"}},
			StartTime: new(fixtureTime), QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{
				condition(corev1.PodInitialized), condition(corev1.PodReady), condition(corev1.ContainersReady), condition(corev1.PodScheduled),
			},
			ContainerStatuses: []corev1.ContainerStatus{status("checkout"), status("proxy")},
		},
	}
}

func managedFields() []metav1.ManagedFieldsEntry {
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(fixtureTime),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource,
		}
	}
	var spec strings.Builder
	for _, name := range []string{"checkout", "proxy"} {
		fmt.Fprintf(&spec, `,"k:{\"name\":\"%s\"}":{".":{},"f:command":{},"f:env":{".":{},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"POD_NAME\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/%s\"}":{".":{},"f:mountPath":{},"f:name":{},"f:readOnly":{}}}}`, name, name)
	}
	return []metav1.ManagedFieldsEntry{
		entry("kube-controller-manager", "", `{"f:metadata":{"f:annotations":{".":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:app.kubernetes.io/part-of":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"4d0d5b44-8d9f-4a5a-8f0b-0a4ed3c9e101\"}":{}}},"f:spec":{"f:containers":{".":{}`+spec.String()+`},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:nodeSelector":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{".":{},"f:runAsNonRoot":{}},"f:serviceAccount":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{},"f:volumes":{".":{},"k:{\"name\":\"config\"}":{".":{},"f:configMap":{".":{},"f:defaultMode":{},"f:name":{}},"f:name":{}}}}}`),
		entry("kubelet", "status", `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.244.3.81\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`),
	}
}

func realSecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db-password", Namespace: "shop", UID: "6d0ad8d1-3c6b-4b3f-8f54-0a97cf5b2d10", ResourceVersion: "77",
			Annotations:   map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"v1","data":{"password":"aHVudGVyMg=="}}`, "team": "shop"},
			ManagedFields: managedFields()[1:],
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"password": []byte("hunter2"), "user": []byte("shop\x00\xff")},
	}
}

func realDeployment() *appsv1.Deployment {
	pod := realPod()
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "checkout", Namespace: "shop", UID: "1f2e3d4c-0000-4b3f-8f54-0a97cf5b2d11", ResourceVersion: "99", Generation: 7,
			DeletionTimestamp: new(fixtureTime), DeletionGracePeriodSeconds: new(int64(30)),
			Labels: map[string]string{"app": "checkout"}, ManagedFields: managedFields(),
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "checkout"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
		Status: appsv1.DeploymentStatus{Replicas: 3, ReadyReplicas: 2},
	}
}

// realCR returns a custom resource of about 6 KB of JSON.
func realCR(tb testing.TB) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(realCRJSON(), &u.Object); err != nil {
		tb.Fatal(err)
	}
	// Kubernetes' decoders decode whole numbers as int64.
	u.Object = runtime.DeepCopyJSON(toInts(u.Object).(map[string]any))
	return u
}

func toInts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = toInts(v[k])
		}
	case []any:
		for i := range v {
			v[i] = toInts(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

func realCRJSON() []byte {
	fields, err := json.Marshal(managedFields())
	if err != nil {
		panic(err)
	}
	var replicas strings.Builder
	for i := range 18 {
		fmt.Fprintf(&replicas, `,{"name":"orders-%d","zone":"eu-central-1%c","lag":%d,"ready":true,"address":"10.244.%d.17:5432"}`, i, 'a'+i%3, i*13, i)
	}
	return fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Database","metadata":{"annotations":{"team":"storage","kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{}}"},"creationTimestamp":"2026-11-20T08:30:15Z","finalizers":["example.com/backup"],"generation":12,"labels":{"app":"db","tier":"gold"},"managedFields":%s,"name":"orders","namespace":"shop","ownerReferences":[{"apiVersion":"example.com/v1","blockOwnerDeletion":true,"controller":true,"kind":"Tenant","name":"acme","uid":"4d0d5b44-8d9f-4a5a-8f0b-0a4ed3c9e102"}],"resourceVersion":"5512","uid":"7b7f3c1e-5a64-4c0e-9b57-2f6f6f9f1c12"},"spec":{"engine":"postgres","replicas":3,"ratio":0.75,"volumes":[{"name":"data","size":"20Gi","secret":"x"},{"name":"wal","size":"5Gi","secret":"y"}],"parameters":{"max_connections":"200","shared_buffers":"1GB","note":"caf\u00e9 & <br>"},"schedule":{"backup":"0 3 * * *","window":null,"enabled":true}},"status":{"observedGeneration":12,"conditions":[{"lastTransitionTime":"2026-11-20T08:31:00Z","message":"all replicas are up","reason":"Up","status":"True","type":"Ready"},{"lastTransitionTime":"2026-11-20T08:31:00Z","message":"","reason":"Done","status":"False","type":"Progressing"}],"replicas":[{}%s],"endpoints":["orders-0.shop.svc","orders-1.shop.svc","orders-2.shop.svc"]}}`, fields, replicas.String())
}

func serializer() *protobuf.Serializer {
	return protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme)
}

// asProto encodes obj as protobuf as an API server does.
func asProto(tb testing.TB, obj runtime.Object, kind schema.GroupVersionKind) []byte {
	tb.Helper()
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	var b bytes.Buffer
	if err := serializer().Encode(obj, &b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// asJSON encodes obj as JSON as an API server does.
func asJSON(tb testing.TB, obj runtime.Object, kind schema.GroupVersionKind) []byte {
	tb.Helper()
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	data, err := json.Marshal(obj)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// frame returns one event of a protobuf watch.
func frame(tb testing.TB, kind watch.EventType, object []byte) []byte {
	tb.Helper()
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}}
	data, err := event.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// document returns one event of a JSON watch.
func document(kind watch.EventType, object []byte) []byte {
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, object)
}

// numbered returns pod number i of many.
func numbered(i int) *corev1.Pod {
	pod := realPod()
	pod.Name = fmt.Sprintf("pod-%06d", i)
	pod.UID = types.UID(fmt.Sprintf("0b7f3c1e-5a64-4c0e-9b57-%012d", i))
	pod.ResourceVersion = fmt.Sprint(1000 + i)
	return pod
}
