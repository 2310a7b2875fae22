package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkReview measures reviews without a connection. dev/bench/webhooks compares servers with those of controller-runtime.
func BenchmarkReview(b *testing.B) {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for i := range 2 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: "web:v1"}
		for j := range 15 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: fmt.Sprintf("value of the setting %d", j)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		b.Fatal(err)
	}
	admit := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}},
	}
	for _, test := range []struct {
		name string
		hook Hook
	}{
		{"validate", Validating(mapsOptions(), func(context.Context, *Request[*corev1.Pod]) error { return nil })},
		{"mutate", Mutating(mapsOptions(), func(_ context.Context, r *Request[*corev1.Pod]) error {
			r.Object.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
			metav1.SetMetaDataAnnotation(&r.Object.ObjectMeta, "example.com/checked", "true")
			return nil
		})},
	} {
		b.Run(test.name, func(b *testing.B) {
			s := serveRobots(b, nil, test.hook)
			body, err := json.Marshal(admit)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/"+hookName+"?timeout=10s", bytes.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				s.ServeHTTP(w, req)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
