package apiserver

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// podsPerReplicaSet is how many Pods an owner has on average.
const podsPerReplicaSet = 8

// podMaker makes the Pods of a cluster of n Pods. The same seed and number give the same
// Pod. It is safe for concurrent use.
type podMaker struct {
	seed   uint64
	n      int
	shapes []shape
}

func newPodMaker(seed uint64, n int) *podMaker {
	return &podMaker{seed: seed, n: n, shapes: newShapes(seed)}
}

// namespaceOf returns the namespace of the object or owner i, of n: every few belong to
// probe.ListNamespace so that it has 1,000 objects, or as many as there are, the others
// to some of as many namespaces as a cluster of that size has.
func namespaceOf(r *rand.Rand, i, n, perItem int) string {
	if stride := max(n/1000, 1); i%stride == 0 && i/stride*perItem < 1000 {
		return probe.ListNamespace
	}
	all := teams()
	number := r.IntN(max(n*perItem/150, 6))
	return all[number%len(all)] + "-" + []string{"prod", "staging", "dev"}[number%3] + "-" + strconv.Itoa(number)
}

// clusterStart is when the oldest object was created.
func clusterStart() time.Time { return time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC) }

func (m *podMaker) pod(i int) *corev1.Pod {
	// What the Pods of one ReplicaSet share comes from its own random numbers.
	owners := max(m.n/podsPerReplicaSet, 1)
	owner := i % owners
	o := rand.New(rand.NewPCG(m.seed+1, uint64(owner)))
	s := &m.shapes[int(float64(shapes)*o.Float64()*o.Float64())] // some workloads are more common
	namespace := namespaceOf(o, owner, owners, podsPerReplicaSet)
	hash := letters(o, 10)
	ownerName, ownerUID := s.app+"-"+hash, uid(o, owner)
	created := clusterStart().Add(time.Duration(o.IntN(200*24*3600)) * time.Second)

	r := rand.New(rand.NewPCG(m.seed+2, uint64(i)))
	created = created.Add(time.Duration(r.IntN(7200)) * time.Second)
	addr := fmt.Sprintf("10.%d.%d.%d", r.IntN(200), r.IntN(256), 1+r.IntN(254))
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: ownerName + "-" + letters(r, 3) + letterPair(i/owners), GenerateName: ownerName + "-",
			Namespace: namespace,
			UID:       types.UID(uid(r, i)), Generation: 1, CreationTimestamp: metav1.NewTime(created),
			Labels: map[string]string{
				"app": s.app, "app.kubernetes.io/name": s.app, "app.kubernetes.io/instance": s.app + "-" + namespace,
				"pod-template-hash": hash, "team": s.team,
			},
			Annotations: s.annotated,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: ownerName, UID: types.UID(ownerUID), Controller: &yes,
				BlockOwnerDeletion: &yes,
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				managed("kube-controller-manager", "", created,
					strings.Replace(s.managerFields, ownerPlaceholder, ownerUID, 1)),
				managed("kubelet", "status", created.Add(time.Duration(5+r.IntN(50))*time.Second),
					strings.Replace(s.kubeletFields, addrPlaceholder, addr, 1)),
			},
		},
		Spec: m.spec(s, r),
	}
	status(pod, s, r, created, addr)
	return pod
}

func managed(manager, subresource string, at time.Time, fields string) metav1.ManagedFieldsEntry {
	t := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &t,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource,
	}
}

func (m *podMaker) spec(s *shape, r *rand.Rand) corev1.PodSpec {
	token := "kube-api-access-" + letters(r, 5)
	grace, seconds, priority, links := int64(30), int64(300), int32(0), true
	preemption := corev1.PreemptLowerPriority
	containers := make([]corev1.Container, len(s.containers))
	for i, c := range s.containers {
		mounts := c.VolumeMounts
		c.VolumeMounts = append(slices.Clip(mounts), corev1.VolumeMount{
			Name: token, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
		})
		containers[i] = c
	}
	return corev1.PodSpec{
		Volumes:                       append(slices.Clip(s.volumes), tokenVolume(token)),
		Containers:                    containers,
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: &grace,
		DNSPolicy:                     corev1.DNSClusterFirst,
		ServiceAccountName:            s.account,
		DeprecatedServiceAccount:      s.account,
		NodeName: fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", r.IntN(4), r.IntN(8),
			r.IntN(max(m.n/30, 4))%250),
		SecurityContext:    &corev1.PodSecurityContext{},
		SchedulerName:      "default-scheduler",
		Priority:           &priority,
		EnableServiceLinks: &links,
		PreemptionPolicy:   &preemption,
		Tolerations: []corev1.Toleration{
			{
				Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			},
			{
				Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			},
		},
	}
}

// status sets what the kubelet reports: nine of ten Pods run.
func status(pod *corev1.Pod, s *shape, r *rand.Rand, created time.Time, addr string) {
	ready, phase := corev1.ConditionTrue, corev1.PodRunning
	if r.IntN(10) == 0 {
		ready, phase = corev1.ConditionFalse, corev1.PodPending
	}
	started := metav1.NewTime(created.Add(time.Duration(1+r.IntN(3)) * time.Second))
	host := fmt.Sprintf("10.%d.%d.%d", 200+r.IntN(4), r.IntN(8), 1+r.IntN(250))
	pod.Status = corev1.PodStatus{
		Phase: phase, HostIP: host, HostIPs: []corev1.HostIP{{IP: host}}, PodIP: addr,
		PodIPs:    []corev1.PodIP{{IP: addr}},
		StartTime: &started, QOSClass: corev1.PodQOSBurstable,
	}
	for i, name := range conditionTypes() {
		value := corev1.ConditionTrue
		if name == corev1.PodReady || name == corev1.ContainersReady {
			value = ready
		}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: name, Status: value,
			LastTransitionTime: metav1.NewTime(started.Add(time.Duration(i*r.IntN(9)) * time.Second)),
		})
	}
	for i := range s.containers {
		isStarted := true
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: s.containers[i].Name, Ready: ready == corev1.ConditionTrue, Started: &isStarted,
			RestartCount: int32(r.IntN(4) * r.IntN(3)),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
				StartedAt: metav1.NewTime(started.Add(time.Duration(2+r.IntN(9)) * time.Second)),
			}},
			Image: s.containers[i].Image, ImageID: s.imageIDs[i], ContainerID: "containerd://" + hexDigits(r, 64),
		})
	}
}

// changed is Pod i as event seq of a burst shows it: its container restarted.
func (m *podMaker) changed(i, burst, seq int) *corev1.Pod {
	pod := m.pod(i)
	annotations := maps.Clone(pod.Annotations)
	annotations[probe.EventAnnotation] = probe.Mark(burst, seq)
	pod.Annotations = annotations
	pod.Status.ContainerStatuses[0].RestartCount = int32(seq)
	at := metav1.NewTime(clusterStart().Add(time.Duration(burst*1000000+seq) * time.Second))
	pod.Status.Conditions[2].LastTransitionTime = at
	pod.Status.Conditions[3].LastTransitionTime = at
	return pod
}

func podWith(meta metav1.ObjectMeta) *corev1.Pod { return &corev1.Pod{ObjectMeta: meta} }
