package informer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// benchPod returns a Pod of about 2.3 KB without managedFields, which add to its size.
func benchPod(i int) *corev1.Pod {
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "registry.example.com/team/" + name + ":v1.24.3", Command: []string{"/bin/" + name, "--config=/etc/" + name + "/config.yaml"},
			Env: []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "POD_INDEX", Value: fmt.Sprint(i)}},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "config", ReadOnly: true, MountPath: "/etc/" + name},
				{Name: "kube-api-access-x7k2p", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
			},
			TerminationMessagePath: "/dev/termination-log",
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("checkout-%05d", i), Namespace: "shop", UID: types.UID(fmt.Sprintf("0b7f3c1e-5a64-4c0e-9b57-%012d", i)),
			ResourceVersion: fmt.Sprint(1000 + i), Generation: 3,
			Labels:          map[string]string{"app": "checkout", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7d9c5b8f6d"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
			Finalizers:      []string{"example.com/protect"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout", UID: "4d0d5b44-8d9f-4a5a-8f0b-0a4ed3c9e101"}},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{container("checkout"), container("proxy")}, NodeName: "node-17", ServiceAccountName: "checkout"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.3.81"},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	for _, name := range []string{"checkout", "proxy"} {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, Image: "registry.example.com/team/" + name + ":v1.24.3",
			ImageID:     "registry.example.com/team/" + name + "@sha256:" + strings.Repeat("7c1e4f3b", 8),
			ContainerID: "containerd://" + strings.Repeat("9f8e7d6c", 8),
		})
	}
	return pod
}

// BenchmarkChanged measures one call of Changed per update, including the decompression of the state before.
func BenchmarkChanged(b *testing.B) {
	kept := store.New(store.Config{})
	for i := range 2000 { // sufficient for a dictionary
		o, err := wire.FromObject(benchPod(i), nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := kept.Put(o); err != nil {
			b.Fatal(err)
		}
	}
	updated := benchPod(7)
	updated.ResourceVersion, updated.Status.Conditions[1].Status = "5000", corev1.ConditionFalse
	after, err := wire.FromObject(updated, nil)
	if err != nil {
		b.Fatal(err)
	}
	before, found := kept.Get(after.Key)
	if !found {
		b.Fatal("not kept")
	}
	for name, parts := range map[string]kube.ChangedParts{
		"head": heads, "labels": kube.ChangedLabels, "status": kube.ChangedStatus, "anything": kube.ChangedAnything,
	} {
		b.Run(name, func(b *testing.B) {
			s := &states{comparer: wire.NewComparer(reflect.TypeFor[*corev1.Pod]())}
			b.ReportAllocs()
			for b.Loop() {
				s.arrived(before, store.Ref{}, after, unbroken)
				changed := Change{Type: Updated, Key: after.Key, changeStates: cache.Hold(s)}.Changed(parts)
				if parts == kube.ChangedAnything && changed != kube.ChangedResourceVersion|kube.ChangedStatus {
					b.Fatal(changed)
				}
				s.done()
			}
		})
	}
	b.Run("nobody asks", func(b *testing.B) {
		s := &states{}
		for b.Loop() {
			s.arrived(before, store.Ref{}, after, unbroken)
			s.done()
		}
	})
	b.Run("only the reading", func(b *testing.B) {
		s := &states{}
		b.ReportAllocs()
		for b.Loop() {
			s.arrived(before, store.Ref{}, after, unbroken)
			if _, err := s.readOld(); err != nil {
				b.Fatal(err)
			}
			s.done()
		}
	})
}
