package simulation_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// The model of the kubelet starts an ephemeral container and reports the resources of a resized one; simulation/conformance
// compares the requests with kube-apiserver.
func TestKubeletFollowsSubresourcesOfPods(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}")
		c.Settle()
		simulation.Edit(c, "default/a", "ephemeralcontainers", func(p *corev1.Pod) {
			debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, debug)
		})
		c.Advance(time.Minute)
		simulation.Edit(c, "default/a", "resize", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
			p.Spec.Containers[0].Image = "not a resize"
		})
		c.Settle()
		pod := simulation.Get[*corev1.Pod](c, "default/a")
		if pod.Generation != 3 || pod.Spec.Containers[0].Image != "i" {
			t.Errorf("generation %d, image %s", pod.Generation, pod.Spec.Containers[0].Image)
		}
		if got := pod.Status.ContainerStatuses[0].Resources; got == nil || got.Requests.Cpu().String() != "2" {
			t.Errorf("the status has the resources %v", got)
		}
		if got := pod.Status.EphemeralContainerStatuses; len(got) != 1 || got[0].Name != "debug" || got[0].State.Running == nil {
			t.Errorf("ephemeral containers: %+v", got)
		}
		for _, entry := range pod.ManagedFields {
			if entry.Subresource == "resize" && !strings.Contains(entry.FieldsV1.GetRawString(), "f:cpu") {
				t.Errorf("managed fields of the resize: %s", entry.FieldsV1.GetRawString())
			}
		}
		if !slices.ContainsFunc(pod.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "resize" }) {
			t.Error("no managed fields of the resize")
		}
	})
}

// The model of the kubelet reports the generation that it has seen, in the status and in its conditions.
func TestKubeletReportsObservedGeneration(t *testing.T) {
	t.Parallel()
	pods := func(*corev1.Pod) simulation.PodBehavior { return simulation.PodBehavior{StopAfter: 10 * time.Second} }
	simulation.Test(t, simulation.Config{Pods: pods}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}")
		c.Advance(2 * time.Second)
		check := func(generation int64) {
			t.Helper()
			pod := simulation.Get[*corev1.Pod](c, "default/a")
			if pod.Generation != generation || pod.Status.ObservedGeneration != generation || len(pod.Status.Conditions) != 5 {
				t.Errorf("generation %d, want %d: %+v", pod.Generation, generation, pod.Status)
			}
			for _, condition := range pod.Status.Conditions {
				if condition.ObservedGeneration != generation {
					t.Errorf("generation %d: %+v", generation, condition)
				}
			}
		}
		check(1)
		simulation.Edit(c, "default/a", "resize", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
		})
		c.Advance(2 * time.Second)
		check(2)
		simulation.Delete[*corev1.Pod](c, "default/a")
		c.Advance(2 * time.Second)
		check(3)
	})
}

// A token has the claims of its service account and of the object to which it is bound, and is valid in virtual time.
func TestTokensOfServiceAccounts(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {serviceAccountName: default, containers: [{name: c, image: i}]}}")
		c.Settle()
		account, pod := simulation.Get[*corev1.ServiceAccount](c, "default/default"), simulation.Get[*corev1.Pod](c, "default/a")
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{"vault"}, ExpirationSeconds: new(int64(600)),
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "a"},
		}}
		token, err := client.Create(t.Context(), c.Client(), request, client.SubresourceOf(account, "token"))
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(token.Status.ExpirationTimestamp.Time); left > 10*time.Minute || left < 10*time.Minute-time.Second {
			t.Errorf("the token expires in %s", left)
		}
		text, err := base64.RawURLEncoding.DecodeString(strings.Split(token.Status.Token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		issued := token.Status.ExpirationTimestamp.Add(-10 * time.Minute).Unix()
		want := map[string]any{
			"aud": []any{"vault"}, "iss": "https://kubernetes.default.svc.cluster.local", "sub": "system:serviceaccount:default:default",
			"iat": float64(issued), "nbf": float64(issued), "exp": float64(issued + 600), "jti": got["jti"],
			"kubernetes.io": map[string]any{
				"namespace": "default", "serviceaccount": map[string]any{"name": "default", "uid": string(account.UID)},
				"pod": map[string]any{"name": "a", "uid": string(pod.UID)}, "node": map[string]any{"name": pod.Spec.NodeName},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" || got["jti"] == "" {
			t.Errorf("claims: -want +got:\n%s", diff)
		}
		request.Spec.ExpirationSeconds = new(int64(1))
		if _, err := client.Create(t.Context(), c.Client(), request, client.SubresourceOf(account, "token")); !apierrors.IsInvalid(err) {
			t.Errorf("a token for a second: %v", err)
		}
	})
}

// Only the subresource approval adds the conditions of a decision, and changes nothing else.
func TestApprovalOfCertificateSigningRequests(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply("{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: web}, spec: {request: eA==, signerName: example.com/s, usages: [client auth]}}")
		approve := func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName, r.Status.Certificate = "example.com/other", []byte("x")
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
			})
		}
		pending := simulation.Get[*certificatesv1.CertificateSigningRequest](c, "web")
		approve(pending)
		if _, err := client.Update(t.Context(), c.Client(), pending.DeepCopy(), client.Subresource("status")); !apierrors.IsInvalid(err) {
			t.Errorf("approval with the status: %v", err)
		}
		if same, err := client.Update(t.Context(), c.Client(), pending.DeepCopy()); err != nil || len(same.Status.Conditions) > 0 {
			t.Errorf("approval with the object: %v, %v", same, err)
		}
		got := simulation.Edit(c, "web", "approval", approve)
		if got.Spec.SignerName != "example.com/s" || got.Status.Certificate != nil {
			t.Errorf("the approval changed %+v", got)
		}
		if conditions := got.Status.Conditions; len(conditions) != 1 || conditions[0].LastUpdateTime.IsZero() || conditions[0].LastTransitionTime.IsZero() {
			t.Errorf("conditions %+v", conditions)
		}
	})
}

// A token of a ServiceAccount is no state of it: a controller of ServiceAccounts that requests tokens is not held back.
func TestTokenIsNoStateOfServiceAccount(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		cluster := c.Connect("tokens")
		writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "tokens"})
		if err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int64
		ctrl, err := controller.New(controller.Config[*corev1.ServiceAccount]{
			Name: "tokens", Retriever: informer.Retrieve[*corev1.ServiceAccount](cluster), Workers: 1,
			Handler: func(ctx context.Context, a *corev1.ServiceAccount) error {
				if a.Name != "robot" {
					return nil
				}
				runs.Add(1)
				_, err := client.Create(ctx, writer, &authenticationv1.TokenRequest{}, client.SubresourceOf(a, "token"))
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Run(ctrl)()
		c.Apply(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
		c.Advance(time.Second)
		c.Apply(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, labels: {a: b}}}`)
		c.Advance(time.Second)
		if p := ctrl.Problems(); runs.Load() != 2 || len(p) > 0 {
			t.Errorf("%d runs a second after the change, problems %v", runs.Load(), p)
		}
	})
}

// A resize needs a Linux Pod, and a node with as much as the Pod requests. A node without a Node object has enough.
func TestResizeNeedsRoomOnNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config simulation.Config
		pod    string
		want   string
	}{
		"enough":                {simulation.Config{}, "nodeName: big", ""},
		"too small":             {simulation.Config{}, "nodeName: small", "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1500"},
		"other system":          {simulation.Config{}, "nodeName: windows", `pod resize is only supported on linux nodes, node "windows" is "windows"`},
		"Windows Pod":           {simulation.Config{}, "nodeName: big, os: {name: windows}", "windows pods cannot be resized"},
		"without object":        {simulation.Config{}, "nodeName: unknown", ""},
		"missing":               {simulation.Config{WithoutControllers: true}, "nodeName: unknown", `node "unknown" not found`},
		"not bound":             {simulation.Config{WithoutControllers: true}, "schedulerName: own", ""},
		"with sidecar":          {simulation.Config{}, "nodeName: small, initContainers: [{name: s, image: i, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}]", "cpu, requested: 2000, allocatable: 1500; memory, requested: 2147483648, allocatable: 1073741824"},
		"with more for the Pod": {simulation.Config{}, "nodeName: big, resources: {requests: {cpu: 9}}", "cpu, requested: 9000, allocatable: 4000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, test.config, func(t *testing.T, c *simulation.Cluster) {
				for name, size := range map[string][2]string{"big": {"4", "4Gi"}, "small": {"1500m", "1Gi"}, "windows": {"4", "4Gi"}} {
					c.Apply("{apiVersion: v1, kind: Node, metadata: {name: " + name + "}}")
					simulation.Edit(c, name, "status", func(n *corev1.Node) {
						n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(size[0]), corev1.ResourceMemory: resource.MustParse(size[1])}
					})
				}
				simulation.Edit(c, "windows", "", func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelOSStable: "windows"} })
				c.Apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {" + test.pod + ", containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}")
				c.Settle()
				pod := simulation.Get[*corev1.Pod](c, "default/a").DeepCopy()
				pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
				_, err := client.Update(t.Context(), c.Client(), pod, client.Subresource("resize"))
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
			})
		})
	}
}
