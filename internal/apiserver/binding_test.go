package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A binding sets the node of a Pod, which no update can change.
func TestBinding(t *testing.T) {
	t.Parallel()
	pods := Builtin[corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), "pods", corev1.AddToScheme)
	pods.Status = true
	pods.Rules.Validate = func(_, old Object) field.ErrorList {
		if old != nil {
			return field.ErrorList{field.Forbidden(field.NewPath("spec"), "immutable")}
		}
		return nil
	}
	s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, pods) })
	const path = "/api/v1/namespaces/shop/pods"
	mustSend(t, s, "POST", path, `{"metadata":{"name":"a","finalizers":["example.com/x"]}}`)
	const binding = `{"metadata":{"name":"a","annotations":{"k":"v"}},"target":{"kind":"Node","name":"node-0"}}`
	mustSend(t, s, "POST", path+"/a/binding", binding)
	pod := mustSend(t, s, "GET", path+"/a", "")
	for _, want := range []string{`"nodeName":"node-0"`, `"type":"PodScheduled","status":"True"`, `"annotations":{"k":"v"}`} {
		if !strings.Contains(pod, want) {
			t.Errorf("the Pod does not contain %s: %s", want, pod)
		}
	}
	if code, text := send(t, s, "POST", path+"/a/binding", binding); code != 409 || !strings.Contains(text, `pod a is already assigned to node \"node-0\"`) {
		t.Errorf("a second binding: %d %s", code, text)
	}
	mustSend(t, s, "POST", path, `{"metadata":{"name":"b","finalizers":["example.com/x"]}}`)
	mustSend(t, s, "DELETE", path+"/b", "")
	if code, text := send(t, s, "POST", path+"/b/binding", strings.Replace(binding, `"a"`, `"b"`, 1)); code != 409 || !strings.Contains(text, "pod b is being deleted") {
		t.Errorf("binding of a deleted Pod: %d %s", code, text)
	}
	mustSend(t, s, "POST", path, `{"metadata":{"name":"c"}}`)
	mustSend(t, s, "POST", path+"/c/binding", "metadata: {name: c}\ntarget: {kind: Node, name: node-1}", "Content-Type", "application/yaml")
	if pod := mustSend(t, s, "GET", path+"/c", ""); !strings.Contains(pod, `"nodeName":"node-1"`) {
		t.Errorf("the Pod of a binding in YAML: %s", pod)
	}
	if code, _ := send(t, s, "POST", configMapsPath+"/a/binding", binding); code != 404 {
		t.Errorf("binding of a ConfigMap: %d, want 404", code)
	}
}
