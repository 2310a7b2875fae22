package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster creates typical objects: many workloads, each with its own shape.
type cluster struct {
	tb        testing.TB
	random    *rand.Rand
	workloads []workload
	version   uint64
}

type workload struct {
	namespace, name, hash, image, digest string
	owner                                types.UID
	port                                 int32
	env, volumes                         int
	sidecar                              bool
}

func newCluster(tb testing.TB, seed uint64, workloads int) *cluster {
	tb.Helper()
	c := &cluster{tb: tb, random: rand.New(rand.NewPCG(seed, 1)), version: 81_000_000}
	for i := range workloads {
		name := fmt.Sprintf("%s-%s", c.pick("checkout", "billing", "search", "frontend", "ledger", "mail", "audit", "ingest"),
			c.pick("api", "worker", "cache", "gateway", "cron", "proxy"))
		c.workloads = append(c.workloads, workload{
			namespace: fmt.Sprintf("team-%02d", i%12), name: name, hash: c.hex(10), digest: c.hex(64),
			image: "registry.example.com/" + name, owner: c.uid(), port: 1000 + c.random.Int32N(9000),
			env: 2 + c.random.IntN(8), volumes: 1 + c.random.IntN(3), sidecar: i%2 == 0,
		})
	}
	return c
}

func (c *cluster) pick(values ...string) string { return values[c.random.IntN(len(values))] }

func (c *cluster) hex(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[c.random.IntN(16)]
	}
	return string(b)
}

func (c *cluster) uid() types.UID {
	return types.UID(c.hex(8) + "-" + c.hex(4) + "-4" + c.hex(3) + "-a" + c.hex(3) + "-" + c.hex(12))
}

func (c *cluster) nextVersion() string {
	c.version += 1 + c.random.Uint64N(50)
	return fmt.Sprint(c.version)
}

// pod returns a Pod of about 2.2 KB, without managedFields.
func (c *cluster) pod() *corev1.Pod {
	w := &c.workloads[c.random.IntN(len(c.workloads))]
	started := metav1.NewTime(time.Unix(1_790_000_000+c.random.Int64N(4_000_000), 0))
	ip := fmt.Sprintf("10.%d.%d.%d", c.random.IntN(4), c.random.IntN(256), c.random.IntN(256))
	node := fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", c.random.IntN(4), c.random.IntN(256))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name + "-" + w.hash + "-" + c.hex(5), GenerateName: w.name + "-" + w.hash + "-", Namespace: w.namespace,
			UID: c.uid(), ResourceVersion: c.nextVersion(), CreationTimestamp: started,
			Labels: map[string]string{
				"app.kubernetes.io/name": w.name, "app.kubernetes.io/part-of": "shop", "pod-template-hash": w.hash, "tier": c.pick("a", "b", "c"),
			},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": fmt.Sprint(w.port)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: w.name + "-" + w.hash, UID: w.owner, Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, NodeName: node, ServiceAccountName: w.name, DeprecatedServiceAccount: w.name,
			TerminationGracePeriodSeconds: new(int64(30)), SchedulerName: "default-scheduler", Priority: new(int32(0)), EnableServiceLinks: new(true),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true)}, PreemptionPolicy: new(corev1.PreemptLowerPriority),
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
			Volumes: []corev1.Volume{{Name: "kube-api-access-" + c.hex(5), VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultMode: new(int32(420)),
				Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				},
			}}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: "10.0.1.7", StartTime: &started, QOSClass: corev1.PodQOSBurstable,
		},
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: started})
	}
	for i := range w.volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("config-", i), VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint(w.name, "-config-", i)}},
		}})
	}
	c.addContainer(pod, w, w.name, w.image, started)
	if w.sidecar {
		c.addContainer(pod, w, "proxy", "registry.example.com/mesh/proxy", started)
	}
	return pod
}

func (c *cluster) addContainer(pod *corev1.Pod, w *workload, name, image string, started metav1.Time) {
	container := corev1.Container{
		Name: name, Image: image + ":v1.4.2", ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: w.port, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts:   []corev1.VolumeMount{{Name: pod.Spec.Volumes[0].Name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}}, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3},
	}
	for i := range w.env {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", i), Value: fmt.Sprintf("http://%s-%d.%s.svc:%d", w.name, i, w.namespace, w.port)})
	}
	pod.Spec.Containers = append(pod.Spec.Containers, container)
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: name, Ready: true, Started: new(true), Image: container.Image, ImageID: image + "@sha256:" + w.digest,
		ContainerID: "containerd://" + c.hex(64), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
	})
}

// widget returns a custom resource, in JSON.
func (c *cluster) widget() *unstructured.Unstructured {
	w := &c.workloads[c.random.IntN(len(c.workloads))]
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": w.name + "-" + c.hex(5), "namespace": w.namespace, "uid": string(c.uid()), "resourceVersion": c.nextVersion(),
			"generation": int64(3), "creationTimestamp": "2026-11-20T10:00:00Z", "labels": map[string]any{"app.kubernetes.io/name": w.name},
		},
		"spec":   map[string]any{"replicas": c.random.Int64N(10), "template": map[string]any{"image": w.image, "digest": w.digest, "env": []any{"A", "B", w.name}}},
		"status": map[string]any{"phase": "Ready", "observedGeneration": int64(3), "message": "all replicas of the widget are available"},
	}}
}

// object encodes obj.
func object(tb testing.TB, obj kube.Object) *wire.Object {
	tb.Helper()
	o, err := wire.FromObject(obj, nil)
	if err != nil {
		tb.Fatalf("encode %s: %v", kube.KeyOf(obj), err)
	}
	return o
}

func (c *cluster) pods(n int) []*wire.Object {
	c.tb.Helper()
	all := make([]*wire.Object, n)
	for i := range all {
		all[i] = object(c.tb, c.pod())
	}
	return all
}

func (c *cluster) widgets(n int) []*wire.Object {
	c.tb.Helper()
	all := make([]*wire.Object, n)
	for i := range all {
		all[i] = object(c.tb, c.widget())
	}
	return all
}

// put puts objects, and fails the test on an error.
func put(tb testing.TB, s *Store, all ...*wire.Object) {
	tb.Helper()
	for _, o := range all {
		if _, _, err := s.Put(o); err != nil {
			tb.Fatalf("Put of %s: %v", o.Key, err)
		}
	}
}
