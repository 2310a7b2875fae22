package apiserver

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A built-in kind without own rules counts generations, keeps the status apart, and is served as protobuf.
func TestBuiltinKind(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, deployments()) })
	expect := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s, want %s", text, want)
			}
		}
	}
	expect(mustSend(t, s, "POST", deploymentsPath, `{"metadata":{"name":"web"},"spec":{"replicas":1},"status":{"replicas":9}}`),
		`"generation":1`, `"status":{}`)
	expect(mustSend(t, s, "PUT", deploymentsPath+"/web", `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":1}}`),
		`"generation":1`, `"app":"web"`)
	expect(mustSend(t, s, "PUT", deploymentsPath+"/web/status", `{"metadata":{"name":"web"},"spec":{"replicas":5},"status":{"replicas":1}}`),
		`"generation":1`, `"spec":{"replicas":1`, `"status":{"replicas":1}`)
	expect(mustSend(t, s, "PUT", deploymentsPath+"/web", `{"metadata":{"name":"web"},"spec":{"replicas":2}}`),
		`"generation":2`, `"status":{"replicas":1}`)
	list := mustSend(t, s, "GET", deploymentsPath, "", "Accept", "application/vnd.kubernetes.protobuf")
	decoded, _, err := s.serving.codecs.protobuf.Decode([]byte(list), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if items := decoded.(*appsv1.DeploymentList).Items; len(items) != 1 || *items[0].Spec.Replicas != 2 {
		t.Errorf("list %v", items)
	}
}

// An update of an object keeps its status, also if the kind does not count generations.
func TestUpdateKeepsStatusWithoutGeneration(t *testing.T) {
	t.Parallel()
	nodes := Builtin[corev1.Node](corev1.SchemeGroupVersion.WithKind("Node"), "nodes", corev1.AddToScheme)
	nodes.ClusterScoped, nodes.Status, nodes.StatusOnCreate = true, true, true
	s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, nodes) })
	mustSend(t, s, "POST", "/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"phase":"Pending"}}`)
	body := `{"metadata":{"name":"n","labels":{"a":"b"}},"spec":{"podCIDR":"10.0.0.0/24"},"status":{"phase":"Running"}}`
	for _, media := range []string{"", "application/merge-patch+json"} {
		method := "PUT"
		if media != "" {
			method = "PATCH"
		}
		text := mustSend(t, s, method, "/api/v1/nodes/n", body, "Content-Type", media)
		if !strings.Contains(text, `"phase":"Pending"`) || !strings.Contains(text, `"podCIDR":"10.0.0.0/24"`) || strings.Contains(text, `"generation"`) {
			t.Errorf("%s: %s", method, text)
		}
	}
	if text := mustSend(t, s, "PUT", "/api/v1/nodes/n/status", body); !strings.Contains(text, `"phase":"Running"`) {
		t.Errorf("update of the status: %s", text)
	}
}

// A create ignores the status, unless the kind has StatusOnCreate.
func TestCreateIgnoresStatusWithoutGeneration(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		nodes := Builtin[corev1.Node](corev1.SchemeGroupVersion.WithKind("Node"), "nodes", corev1.AddToScheme)
		nodes.ClusterScoped, nodes.Status, nodes.StatusOnCreate = true, true, kept
		s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, nodes) })
		body := func(name string) string {
			return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `"},"status":{"phase":"Pending"}}`
		}
		for _, text := range []string{
			mustSend(t, s, "POST", "/api/v1/nodes", body("a")),
			mustSend(t, s, "PATCH", "/api/v1/nodes/b?fieldManager=m", body("b"), "Content-Type", "application/apply-patch+yaml"),
		} {
			if strings.Contains(text, `"phase":"Pending"`) != kept {
				t.Errorf("kept %t: %s", kept, text)
			}
		}
	}
}

// An update of the status changes no metadata of a kind with StatusIgnoresMetadata, and makes no metadata managed.
func TestStatusIgnoresMetadata(t *testing.T) {
	t.Parallel()
	for _, ignored := range []bool{false, true} {
		nodes := Builtin[corev1.Node](corev1.SchemeGroupVersion.WithKind("Node"), "nodes", corev1.AddToScheme)
		nodes.ClusterScoped, nodes.Status, nodes.Rules.StatusIgnoresMetadata = true, true, ignored
		s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, nodes) })
		mustSend(t, s, "POST", "/api/v1/nodes", `{"metadata":{"name":"n","labels":{"a":"b"}}}`)
		for media, body := range map[string]string{
			"application/merge-patch+json": `{"metadata":{"labels":{"a":null,"x":"y"},"annotations":{"x":"y"},"finalizers":["example.com/f"]},"status":{"phase":"Running"}}`,
			"application/apply-patch+yaml": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","labels":{"x":"y"}},"status":{"phase":"Running"}}`,
		} {
			text := mustSend(t, s, "PATCH", "/api/v1/nodes/n/status?fieldManager=m", body, "Content-Type", media)
			if strings.Contains(text, `"x":"y"`) == ignored || strings.Contains(text, `"f:x"`) == ignored || !strings.Contains(text, `"phase":"Running"`) {
				t.Errorf("ignored %t: %s", ignored, text)
			}
			if ignored && (!strings.Contains(text, `"a":"b"`) || strings.Contains(text, "example.com/f")) {
				t.Errorf("metadata changed: %s", text)
			}
		}
	}
}

// An apply of a Node, also of its status, is validated: a field that the schema does not have is an error.
func TestApplyOfNodeRejectsUnknownFields(t *testing.T) {
	t.Parallel()
	nodes := Builtin[corev1.Node](corev1.SchemeGroupVersion.WithKind("Node"), "nodes", corev1.AddToScheme)
	nodes.ClusterScoped, nodes.Status = true, true
	s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, nodes) })
	mustSend(t, s, "POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`)
	for path, field := range map[string]string{"": "spec", "/status": "status"} {
		body := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"` + field + `":{"unknown":"x"}}`
		code, text := send(t, s, "PATCH", "/api/v1/nodes/n"+path+"?fieldManager=m", body, "Content-Type", "application/apply-patch+yaml")
		if want := "." + field + ".unknown: field not declared in schema"; code < 400 || !strings.Contains(text, want) {
			t.Errorf("apply of nodes%s: %d %s, want an error with %q", path, code, text, want)
		}
	}
}

// As in kube-apiserver, the preferred version of a group is the latest stable one.
func TestPreferredVersionIsLatestStable(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c *Config) {
		for _, version := range []string{"v1", "v1beta1", "v2", "v3alpha1", "v10beta1"} {
			c.Kinds = append(c.Kinds, Custom(schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "K" + version}, "k"+version))
		}
	})
	text := mustSend(t, s, "GET", "/apis/example.com", "")
	last := -1
	for _, version := range []string{"v2", "v1", "v10beta1", "v1beta1", "v3alpha1"} {
		at := strings.Index(text, `"version":"`+version+`"`)
		if at <= last {
			t.Fatalf("version %s is not in its place: %s", version, text)
		}
		last = at
	}
	if !strings.Contains(text, `"preferredVersion":{"groupVersion":"example.com/v2"`) {
		t.Errorf("preferred version: %s", text)
	}
}

func TestUnregisteredType(t *testing.T) {
	t.Parallel()
	kind := Builtin[corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), "pods", func(*runtime.Scheme) error { return nil })
	if _, err := New(Config{Kinds: []*Kind{kind}}); err == nil {
		t.Error("a kind whose type is not registered was accepted")
	}
}
