package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// shownSet is an informer that shows one StatefulSet.
type shownSet struct {
	cache.Informer
	set     *appsv1.StatefulSet
	applied *metav1.ManagedFieldsEntry
}

func (shownSet) ReadsFrom(string) bool { return true }

func (shownSet) Name() string { return "shown" }
func (shownSet) Kind() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("StatefulSet")
}
func (shownSet) NewObject() (kube.Object, bool) { return &appsv1.StatefulSet{}, true }

func (shownSet) Covers(string, labels.Selector) bool { return true }

func (s shownSet) Metadata() cache.Reader { return s }

func (s shownSet) Object(kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	return s.set.DeepCopy(), s.applied, true, nil
}

// BenchmarkApply measures an apply if an informer shows that nothing has changed, which a handler makes for each child
// in each run, and an apply that changes the image. It does not include decoding the object from a real informer, and
// the request.
func BenchmarkApply(b *testing.B) {
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "u1", Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(3)), ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "db", Image: "db:1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
					Ports: []corev1.ContainerPort{{Name: "sql", ContainerPort: 5432}},
				}}},
			},
		},
	}
	for _, bench := range []struct {
		name    string
		options []client.WriteOption
		changes bool
	}{
		{name: "at rest by memory"},
		{name: "at rest by managedFields", options: []client.WriteOption{client.ConfigurationHash("shop.example.com/hash")}},
		{name: "changes", options: []client.WriteOption{client.ConfigurationHash("shop.example.com/hash")}, changes: true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			_, c, stop := startServer()
			defer stop()
			shown := &shownSet{set: set.DeepCopy()}
			shown.set.ResourceVersion, shown.set.Status.Replicas = "7", 3
			shown.set.Spec.Template.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolTCP
			requests, server := 0, shown.set.DeepCopy()
			c, err := c.With(func(config *client.Config) {
				config.FieldOwner, config.Informers = "shop", shows(shown)
				config.Interceptors = []client.Interceptor{func(client.RoundTrip) client.RoundTrip {
					return func(_ context.Context, r *client.Request) error {
						requests++
						r.Status = http.StatusOK
						var applied struct {
							Metadata struct {
								Annotations map[string]string `json:"annotations"`
							} `json:"metadata"`
						}
						if err := json.Unmarshal(r.Body, &applied); err != nil {
							return err
						}
						server.Annotations = applied.Metadata.Annotations
						*r.Response.(*appsv1.StatefulSet) = *server.DeepCopy()
						return nil
					}
				}}
			})
			if err != nil {
				b.Fatal(err)
			}
			apply := func(set *appsv1.StatefulSet) {
				b.Helper()
				if _, err := client.Apply(b.Context(), c, set, bench.options...); err != nil {
					b.Fatal(err)
				}
			}
			apply(set)
			if len(bench.options) > 0 { // a later version: the client has no stored state for it
				shown.set.Annotations, shown.set.ResourceVersion = server.Annotations, "8"
				shown.applied = entryOfSet()
			}
			requests = 0
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if bench.changes {
					n++
					set = set.DeepCopy()
					set.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("db:", n+1)
					server.ResourceVersion = fmt.Sprint(n + 8)
					server.Spec.Template.Spec.Containers[0].Image = set.Spec.Template.Spec.Containers[0].Image
				}
				apply(set)
			}
			if requests != n {
				b.Errorf("%d requests were made for %d changes", requests, n)
			}
		})
	}
}

// entryOfSet returns the entry of the manager that has applied the StatefulSet of BenchmarkApply.
func entryOfSet() *metav1.ManagedFieldsEntry {
	return &metav1.ManagedFieldsEntry{
		Manager: "shop", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:shop.example.com/hash":{}},"f:labels":{"f:app":{}}},
			"f:spec":{"f:replicas":{},"f:selector":{},"f:serviceName":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},
			"f:spec":{"f:containers":{"k:{\"name\":\"db\"}":{".":{},"f:name":{},"f:image":{},
			"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"B\"}":{".":{},"f:name":{},"f:value":{}}},
			"f:ports":{"k:{\"containerPort\":5432,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{}}}}}}}}}`),
	}
}
