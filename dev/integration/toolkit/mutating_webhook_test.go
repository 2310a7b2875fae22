package toolkit

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Children that a webhook changes converge, also after a restart.
func TestChildrenChangedByWebhookConverge(t *testing.T) {
	t.Parallel()
	var writes atomic.Int64
	for name, test := range map[string]struct {
		mutate func(d *appsv1.Deployment)
		costs  bool // after a restart, each child is applied once, without a change
	}{
		"values": {mutate: func(d *appsv1.Deployment) {
			for n := range d.Spec.Template.Spec.Containers {
				if c := &d.Spec.Template.Spec.Containers[n]; !strings.HasPrefix(c.Image, "registry/") {
					c.Image = "registry/" + c.Image
				}
			}
			d.Spec.Replicas = new(int32(7))
		}},
		"an added label and sidecar": {mutate: func(d *appsv1.Deployment) {
			d.Labels["added"] = "yes"
			if len(d.Spec.Template.Spec.Containers) == 2 {
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "mesh", Image: "mesh:1"})
			}
		}},
		"a sidecar in front": {mutate: func(d *appsv1.Deployment) {
			if d.Spec.Template.Spec.Containers[0].Name != "mesh" {
				d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "mesh", Image: "mesh:1"}}, d.Spec.Template.Spec.Containers...)
			}
		}},
		"a removed field": {mutate: func(d *appsv1.Deployment) {
			delete(d.Labels, "app")
			d.Spec.Template.Spec.Containers[0].Args = nil
		}},
		"an atomic list": {mutate: func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = []string{"--other"} }},
		"a stamp at each write": {mutate: func(d *appsv1.Deployment) {
			if d.Annotations == nil {
				d.Annotations = map[string]string{}
			}
			d.Annotations["stamp"] = fmt.Sprint(writes.Add(1))
		}},
		"the order": {mutate: func(d *appsv1.Deployment) {
			slices.SortFunc(d.Spec.Template.Spec.Containers[0].Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		}, costs: true},
		"the hash removed": {mutate: func(d *appsv1.Deployment) { delete(d.Annotations, "evenkeel.dev/configuration") }, costs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, simulated := newRestarts(t)
			mutating(t, r.plain, simulated, r.owner.Namespace, test.mutate)
			children := r.children()[:1]
			r.want(children, map[string]owned.ChildOutcome{"Deployment": owned.Created})
			if !test.costs {
				r.want(children, nil)
			}
			set, recording := r.start()
			for n := range 4 {
				report, err := set.Apply(t.Context(), r.owner, children...)
				if err != nil {
					t.Fatal(err)
				}
				now := report.Results[0].Object.GetResourceVersion()
				t.Logf("run %d: %s, %d requests, version %s", n, report.Results[0].Outcome, len(recording.Requests()), now)
				if requests := recording.Requests(); len(requests) > 0 && (n > 0 || !test.costs) {
					t.Errorf("run %d makes requests: %v", n, requests)
				}
				if report.Results[0].Outcome != owned.Unchanged {
					t.Errorf("run %d: %s %v", n, report.Results[0].Outcome, report.Results[0].Changed)
				}
				recording.Reset()
			}
		})
	}
}

// mutating installs a webhook that changes each written Deployment of a namespace. simulated is the cluster in memory, if
// it is one.
func mutating(t *testing.T, c *client.Client, simulated *simulation.Cluster, namespace string, mutate func(*appsv1.Deployment)) {
	t.Helper()
	var called atomic.Bool
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called.Store(true)
		review := &admissionv1.AdmissionReview{}
		obj := &appsv1.Deployment{}
		err := json.NewDecoder(r.Body).Decode(review)
		if err == nil {
			err = json.Unmarshal(review.Request.Object.Raw, obj)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mutate(obj)
		patch := []map[string]any{}
		for path, value := range map[string]any{"/spec": obj.Spec, "/metadata/labels": obj.Labels, "/metadata/annotations": obj.Annotations} {
			patch = append(patch, map[string]any{"op": "add", "path": path, "value": value})
		}
		encoded, err := json.Marshal(patch)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: encoded, PatchType: new(admissionv1.PatchTypeJSONPatch)}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // a lost connection fails the test elsewhere
	})
	if simulated != nil {
		simulated.HandleWebhooks(handler)
	}
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhook, err := client.Create(t.Context(), c, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:              "mutates.toolkit.example.com",
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: certificate},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), c, webhook); err != nil {
			t.Error(err)
		}
	})
	probe := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"app": "web"}}}
	probe.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	probe.Spec.Template.Labels = probe.Spec.Selector.MatchLabels
	probe.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a", Image: "a", Args: []string{"x"}}}
	clustertest.Eventually(t, func() string {
		if _, err := client.Create(t.Context(), c, probe, client.DryRun()); err != nil {
			return err.Error()
		}
		if !called.Load() {
			return "the API server does not know the webhook yet"
		}
		return ""
	})
}
