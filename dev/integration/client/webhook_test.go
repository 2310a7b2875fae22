package client

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// A webhook that rejects a write because it cannot find something returns the same status as a missing object. A client
// that trusts this status treats an existing object as deleted.
func TestWebhookNotFoundIsNotMissingObject(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]metav1.Status{
		"another object": apierrors.NewNotFound(corev1.Resource("secrets"), "key").ErrStatus,
		"a code":         {Code: http.StatusNotFound, Message: "no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testRefusals(t, answer)
		})
	}
}

func testRefusals(t *testing.T, answer metav1.Status) {
	t.Helper()
	config, simulated := anyCluster.Start(t, simulation.Config{WithoutControllers: true})
	c := clustertest.Client(t, clustertest.Connect(t, config))
	namespace := clustertest.Namespace(t, c)
	cm := must(client.Create(t.Context(), c, configMap(namespace, "a", map[string]string{"a": "b"})))(t)
	lost := must(client.Create(t.Context(), c, configMap(namespace, "lost", nil)))(t)
	if err := client.Delete(t.Context(), c, lost); err != nil {
		t.Fatal(err)
	}
	refuseAll(t, c, simulated, namespace, answer)
	clustertest.Eventually(t, func() string {
		if err := client.Delete(t.Context(), c, cm, client.DryRun()); err != nil {
			return ""
		}
		return "the API server does not know the webhook yet"
	})
	changed := cm.DeepCopy()
	changed.Data["a"] = "c"
	for name, err := range map[string]error{
		"create": first(client.Create(t.Context(), c, configMap(namespace, "b", nil))),
		"update": first(client.Update(t.Context(), c, changed)),
		"patch":  first(client.Patch(t.Context(), c, cm, client.MergeFrom(cm, changed))),
		"apply":  first(client.Apply(t.Context(), c, configMap(namespace, "a", map[string]string{"a": "d"}), client.Force())),
		"delete": client.Delete(t.Context(), c, cm),
	} {
		if errors.Is(err, client.ErrGone) || client.IgnoreNotFound(err) == nil || !apierrors.IsNotFound(err) ||
			!strings.Contains(err.Error(), "denied the request") {
			t.Errorf("%s: the error is %v (%s)", name, err, retry.Classify(err))
		}
	}
	if found := must(client.Exists[*corev1.ConfigMap](t.Context(), c, kube.KeyOf(cm)))(t); !found {
		t.Error("the object is gone")
	}
	for name, err := range map[string]error{
		"update": first(client.Update(t.Context(), c, lost)),
		"patch":  first(client.Patch(t.Context(), c, lost, client.MergeFrom(lost, withLabel(lost)))),
		"delete": client.Delete(t.Context(), c, lost),
	} {
		if !errors.Is(err, client.ErrGone) || client.IgnoreNotFound(err) != nil {
			t.Errorf("%s of what is gone: %v", name, err)
		}
	}
}

// For every verb the API server names the missing object in its error.
func TestEveryVerbReportsMissingObject(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	kind := define(t, c, "Ferry", "ferries", true,
		"{status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}")
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "none", ResourceVersion: "1", UID: "u"}
	ferry := object(kind, namespace, "none", 1)
	ferry.SetResourceVersion("1")
	web, lone := deployment(namespace, "none"), pod(namespace, "none")
	web.ResourceVersion, lone.ResourceVersion = "1", "1"
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-none", ResourceVersion: "1"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
	status := client.Subresource("status")
	ctx := t.Context()
	for name, err := range map[string]error{
		"update":             first(client.Update(ctx, c, web)),
		"update, custom":     first(client.Update(ctx, c, ferry)),
		"update the status":  first(client.Update(ctx, c, web, status)),
		"the status, custom": first(client.Update(ctx, c, ferry, status)),
		"a node's status":    first(client.Update(ctx, c, node, status)),
		"patch":              first(client.Patch(ctx, c, web, patch)),
		"patch, custom":      first(client.Patch(ctx, c, ferry, patch)),
		"patch the status":   first(client.Patch(ctx, c, ferry, patch, status)),
		"delete":             client.Delete(ctx, c, web),
		"delete, custom":     client.Delete(ctx, c, ferry),
		"delete a namespace": client.Delete(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "none"}}),
		"read the scale":     first(client.Get[*autoscalingv1.Scale](ctx, c, kube.KeyOf(web), client.SubresourceOf(web, "scale"))),
		"scale":              first(client.Update(ctx, c, scale, client.SubresourceOf(web, "scale"))),
		"scale, custom":      first(client.Update(ctx, c, scale, client.SubresourceOf(ferry, "scale"))),
		"scale by a patch":   first(client.Patch[*autoscalingv1.Scale](ctx, c, nil, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)), client.SubresourceOf(web, "scale"))),
		"evict":              first(client.Create(ctx, c, &policyv1.Eviction{}, client.SubresourceOf(lone, "eviction"))),
		"bind":               first(client.Create(ctx, c, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, client.SubresourceOf(lone, "binding"))),
		"labels": func() error {
			_, _, err := client.EditMetadata(ctx, c, web, func(labels, _ map[string]string) { labels["a"] = "b" })
			return err
		}(),
		"delete the owned first": client.Delete(ctx, c, account, client.Propagation(metav1.DeletePropagationForeground)),
	} {
		if !errors.Is(err, client.ErrGone) || client.IgnoreNotFound(err) != nil {
			t.Errorf("%s: the error is %v (%s)", name, err, retry.Classify(err))
		}
	}
}

func withLabel(cm *corev1.ConfigMap) *corev1.ConfigMap {
	labelled := cm.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	return labelled
}

// refuseAll installs a webhook that rejects every write of ConfigMaps in a namespace with this response. simulated is the
// cluster in memory, if it is one.
func refuseAll(t *testing.T, c *client.Client, simulated *simulation.Cluster, namespace string, status metav1.Status) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &status}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // an API server that went away shows in the test
	})
	if simulated != nil {
		simulated.HandleWebhooks(handler)
	}
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhook := must(client.Create(t.Context(), c, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:              "refuses.client.example.com",
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: certificate},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}))(t)
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), c, webhook); err != nil {
			t.Error(err)
		}
	})
}
