package apiserver

import (
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// The subresource scale of a custom resource and of a built-in kind.
func TestScale(t *testing.T) {
	t.Parallel()
	scalable := widgets()
	scalable.Scale = &Scale{Replicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".status.selector"}
	deployments := Builtin[appsv1.Deployment](appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments", appsv1.AddToScheme)
	deployments.Status, deployments.Generation = true, true
	deployments.Scale = &Scale{Replicas: ".spec.replicas", StatusReplicas: ".status.replicas", Selector: ".spec.selector"}
	s, err := New(Config{Kinds: []*Kind{scalable, deployments}, NamespacesExist: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]struct{ path, body, selector string }{
		"custom": {
			"/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"replicas":1}}`, ``,
		},
		"built-in": {
			"/apis/apps/v1/namespaces/shop/deployments", `{"metadata":{"name":"a"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}}}}`, `app=web`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustSend(t, s, "POST", kind.path, kind.body)
			path := kind.path + "/a/scale"
			text := mustSend(t, s, "GET", path, "")
			if !strings.Contains(text, `"kind":"Scale","apiVersion":"autoscaling/v1"`) || !strings.Contains(text, `"spec":{"replicas":1}`) || !strings.Contains(text, kind.selector) {
				t.Errorf("get: %s", text)
			}
			version := decodeMetadata(t, text).ResourceVersion
			text = mustSend(t, s, "PUT", path, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","resourceVersion":"`+version+`"},"spec":{"replicas":2}}`)
			if !strings.Contains(text, `"spec":{"replicas":2}`) || decodeMetadata(t, text).ResourceVersion == version {
				t.Errorf("update: %s", text)
			}
			if code, text := send(t, s, "PUT", path, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","resourceVersion":"`+version+`"},"spec":{"replicas":3}}`); code != http.StatusConflict {
				t.Errorf("an update of an old version: %d %s", code, text)
			}
			if code, text := send(t, s, "PATCH", path, `{"metadata":{"uid":"other"}}`, "Content-Type", "application/merge-patch+json"); name == "built-in" &&
				(code != http.StatusConflict || !strings.Contains(text, `deployments/scale.apps \"a\": Precondition failed: UID in precondition: other`)) {
				t.Errorf("a patch with another uid: %d %s", code, text)
			}
			mustSend(t, s, "PATCH", path, `{"spec":{"replicas":4}}`, "Content-Type", "application/merge-patch+json")
			code, text := send(t, s, "PATCH", path+"?fieldManager=hpa&force=true", `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":5}}`,
				"Content-Type", "application/apply-patch+yaml")
			if name == "custom" { // which the real server cannot apply
				if code != http.StatusInternalServerError || !strings.Contains(text, "request to convert CR to an invalid group/version: autoscaling/v1") {
					t.Errorf("apply: %d %s", code, text)
				}
				mustSend(t, s, "PATCH", path+"?fieldManager=hpa", `{"spec":{"replicas":5}}`, "Content-Type", "application/merge-patch+json")
			}
			text = mustSend(t, s, "GET", kind.path+"/a", "")
			if !strings.Contains(text, `"replicas":5`) || decodeMetadata(t, text).Generation != 4 {
				t.Errorf("the object: %s", text)
			}
			owned := false
			for _, entry := range decodeMetadata(t, text).ManagedFields {
				owned = owned || entry.Manager == "hpa" && entry.Subresource == "scale" && strings.Contains(entry.FieldsV1.GetRawString(), "f:replicas") &&
					!strings.HasPrefix(entry.APIVersion, "autoscaling")
			}
			if !owned {
				t.Errorf("hpa does not own the replicas: %s", text)
			}
			if code, text := send(t, s, "PATCH", strings.Replace(path, "/a/", "/missing/", 1), `{}`, "Content-Type", "application/merge-patch+json"); code != http.StatusNotFound {
				t.Errorf("the scale of a missing object: %d %s", code, text)
			}
			if code, text := send(t, s, "PATCH", path, `{"spec":{"replicas":-1}}`, "Content-Type", "application/merge-patch+json"); (code == http.StatusUnprocessableEntity) == (name == "custom") {
				t.Errorf("negative replicas: %d %s", code, text) // in a custom resource, its schema decides
			}
			if code, text := send(t, s, "DELETE", path, ""); code != http.StatusMethodNotAllowed {
				t.Errorf("deletion of the subresource: %d %s", code, text)
			}
		})
	}
}

// The kind Scale has namespaces, also if the scaled object has none.
func TestScaleOfClusterScopedObject(t *testing.T) {
	t.Parallel()
	scalable := widgets()
	scalable.ClusterScoped, scalable.Scale = true, &Scale{Replicas: ".spec.replicas", StatusReplicas: ".status.replicas"}
	s, err := New(Config{Kinds: []*Kind{scalable, Namespaces()}})
	if err != nil {
		t.Fatal(err)
	}
	s.SetAdmission(reviewer{noReview, noReview})
	const path = "/apis/example.com/v1/widgets"
	mustSend(t, s, "POST", path, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"replicas":1}}`)
	mustSend(t, s, "PATCH", path+"/a/scale", `{"spec":{"replicas":2}}`, "Content-Type", "application/merge-patch+json")
	text := mustSend(t, s, "PUT", path+"/a/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":3}}`)
	if !strings.Contains(text, `"replicas":3`) {
		t.Errorf("updated scale: %s", text)
	}
}
