package apiserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

func TestNamespaceMustExist(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c *Config) { c.NamespacesExist = false })
	if code, text := send(t, s, "POST", configMapsPath, `{"metadata":{"name":"a"}}`); code != 404 || !strings.Contains(text, `namespaces \"shop\" not found`) {
		t.Errorf("create in a missing namespace: %d %s", code, text)
	}
	mustSend(t, s, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"a"}}`)
	if text := mustSend(t, s, "DELETE", "/api/v1/namespaces/shop", ""); !strings.Contains(text, `"phase":"Terminating"`) {
		t.Errorf("a deleted namespace: %s", text)
	}
	if code, text := send(t, s, "POST", configMapsPath, `{"metadata":{"name":"b"}}`); code != 403 || !strings.Contains(text, "because it is being terminated") {
		t.Errorf("create in a terminating namespace: %d %s", code, text)
	}
	// What the namespace controller does.
	text := mustSend(t, s, "GET", "/api/v1/namespaces/shop", "")
	mustSend(t, s, "PUT", "/api/v1/namespaces/shop/finalize", strings.Replace(text, `"spec":{"finalizers":["kubernetes"]}`, `"spec":{}`, 1))
	if code, _ := send(t, s, "GET", "/api/v1/namespaces/shop", ""); code != 404 {
		t.Errorf("the finalized namespace: %d, want 404", code)
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	text := mustSend(t, s, "POST", configMapsPath, "metadata:\n  name: a\ndata:\n  k: v\n", "Content-Type", "application/yaml", "Accept", "application/yaml")
	if !strings.Contains(text, "kind: ConfigMap\n") || !strings.Contains(text, "  k: v\n") {
		t.Errorf("response %s, want YAML", text)
	}
}

// A client that prefers protobuf gets objects, lists and watches in protobuf, and of custom resources their metadata.
func TestProtobuf(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 2)
	mustSend(t, s, "POST", "/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	config := s.RESTConfig("tests")
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType
	config.GroupVersion, config.NegotiatedSerializer = &corev1.SchemeGroupVersion, serializer.NewCodecFactory(s.serving.codecs.scheme).WithoutConversion()
	config.APIPath = "/api"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	var list corev1.ConfigMapList
	if err := client.Get().Namespace("shop").Resource("configmaps").Do(t.Context()).Into(&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Items[0].Data["k"] != "v" || list.ResourceVersion != s.Version() {
		t.Errorf("list %v", list)
	}
	watch, err := client.Get().Namespace("shop").Resource("configmaps").VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if e := <-watch.ResultChan(); e.Type != "ADDED" || e.Object.(*corev1.ConfigMap).Name != "cm-0000" {
		t.Errorf("event %v", e)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}, BinaryData: map[string][]byte{"k": {0}}}
	if err := client.Post().Namespace("shop").Resource("configmaps").Body(cm).Do(t.Context()).Into(cm); err != nil || cm.UID == "" {
		t.Errorf("create: %v %v", cm, err)
	}
	names, err := metadata.NewForConfig(s.RESTConfig("tests"))
	if err != nil {
		t.Fatal(err)
	}
	partial, err := names.Resource(widgets().GroupVersion().WithResource("widgets")).Namespace("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(partial.Items) != 1 || partial.Items[0].Name != "w" {
		t.Errorf("metadata of custom resources: %v %v", partial, err)
	}
}

// Both forms of discovery name all resources. simulation/conformance compares them with the real server's.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, legacy := range []bool{false, true} {
		client := discovery.NewDiscoveryClientForConfigOrDie(s.RESTConfig("tests"))
		client.UseLegacyDiscovery = legacy
		_, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, list := range lists {
			for _, r := range list.APIResources {
				names = append(names, list.GroupVersion+"/"+r.Name)
			}
		}
		slices.Sort(names)
		want := []string{
			"coordination.k8s.io/v1/leases", "example.com/v1/widgets", "example.com/v1/widgets/status",
			"v1/configmaps", "v1/namespaces", "v1/namespaces/finalize", "v1/namespaces/status", "v1/secrets",
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("legacy %t: resources (-want +got)\n%s", legacy, diff)
		}
	}
}

func TestTwoKindsWithOneName(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{Kinds: []*Kind{ConfigMaps(), ConfigMaps()}}); err == nil {
		t.Error("two kinds with one name were accepted")
	}
}
