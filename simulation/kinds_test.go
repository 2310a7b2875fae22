package simulation_test

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Kinds without rules for their spec have those for the status, the generation and versions; simulation/conformance compares
// all of them with kube-apiserver.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{WithoutControllers: true}, func(t *testing.T, c *simulation.Cluster) {
		hpa := &autoscalingv2.HorizontalPodAutoscaler{}
		hpa.Name, hpa.Namespace, hpa.Status.DesiredReplicas = "h", "default", 7
		if got := created(t, c, hpa); got.Status.DesiredReplicas != 0 {
			t.Errorf("a new HorizontalPodAutoscaler has the status %+v", got.Status)
		}
		quota := &corev1.ResourceQuota{}
		quota.Name, quota.Namespace, quota.Status.Hard = "q", "default", corev1.ResourceList{"pods": resource.MustParse("1")}
		if got := created(t, c, quota); len(got.Status.Hard) > 0 {
			t.Errorf("a new ResourceQuota has the status %+v", got.Status)
		}
		claim := &corev1.PersistentVolumeClaim{}
		claim.Name, claim.Namespace, claim.Status.Phase = "c", "default", corev1.ClaimBound
		if got := created(t, c, claim); got.Status.Phase != corev1.ClaimPending {
			t.Errorf("a new PersistentVolumeClaim has the phase %s", got.Status.Phase)
		}
		volume := &corev1.PersistentVolume{}
		volume.Name, volume.Status.Phase = "v", corev1.VolumeBound
		got := created(t, c, volume)
		if got.Status.Phase != corev1.VolumePending || got.Status.LastPhaseTransitionTime.IsZero() {
			t.Errorf("a new PersistentVolume has the status %+v", got.Status)
		}
		got.Status.Phase = corev1.VolumeBound
		c.Advance(time.Second)
		bound, err := client.Update(t.Context(), c.Client(), got.DeepCopy(), client.Subresource("status"))
		if err != nil || !bound.Status.LastPhaseTransitionTime.After(got.Status.LastPhaseTransitionTime.Time) {
			t.Errorf("a bound PersistentVolume has the status %+v, %v", bound, err)
		}
		node := &corev1.Node{}
		node.Name, node.Status.Phase = "n", corev1.NodeRunning
		if got := created(t, c, node); got.Status.Phase != corev1.NodeRunning {
			t.Errorf("a new Node has the status %+v", got.Status)
		}
		attachment := &storagev1.VolumeAttachment{}
		attachment.Name = "a"
		attachment = created(t, c, attachment).DeepCopy()
		attachment.Labels, attachment.Status.Attached = map[string]string{"a": "b"}, true
		if got, err := client.Update(t.Context(), c.Client(), attachment, client.Subresource("status")); err != nil || len(got.Labels) > 0 || !got.Status.Attached {
			t.Errorf("the status of a VolumeAttachment was updated to %+v, %v", got, err)
		}
		class := &schedulingv1.PriorityClass{}
		class.Name = "p"
		class = created(t, c, class).DeepCopy()
		class.Description = "changed"
		if got, err := client.Update(t.Context(), c.Client(), class); err != nil || got.Generation != 1 {
			t.Errorf("a changed PriorityClass: %+v, %v", got, err)
		}
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
		slice.Name, slice.Namespace = "e", "default"
		slice = created(t, c, slice).DeepCopy()
		slice.Labels = map[string]string{"a": "b"}
		if got, err := client.Update(t.Context(), c.Client(), slice); err != nil || got.Generation != 2 {
			t.Errorf("an EndpointSlice with another label: %+v, %v", got, err)
		}
		role := &rbacv1.ClusterRole{}
		role.Name = "r"
		if got, err := client.Update(t.Context(), c.Client(), role); err != nil || got.UID == "" {
			t.Errorf("the update of a missing ClusterRole: %+v, %v", got, err)
		}
	})
}

func created[T kube.Object](t *testing.T, c *simulation.Cluster, obj T) T {
	t.Helper()
	got, err := client.Create(t.Context(), c.Client(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
