package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// WebAppV1 and WebAppV2 are versions of a kind. Usually they are generated, in packages v1 and v2.
type WebAppV1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		// Hosts are host names with commas.
		Hosts string `json:"hosts,omitempty"`
	} `json:"spec"`
}

// WebAppV2 is the hub version.
type WebAppV2 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Hosts []string `json:"hosts,omitempty"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (w *WebAppV1) DeepCopyObject() runtime.Object {
	c := *w
	c.Labels, c.Annotations = maps.Clone(w.Labels), maps.Clone(w.Annotations)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (w *WebAppV2) DeepCopyObject() runtime.Object {
	c := *w
	c.Labels, c.Annotations = maps.Clone(w.Labels), maps.Clone(w.Annotations)
	c.Spec.Hosts = append([]string(nil), w.Spec.Hosts...)
	return &c
}

// webapps converts WebApps between v1 and v2, which is the hub.
func webapps() webhook.Hook {
	return webhook.Converting("webapps.example.com", webhook.Spoke(toV2, toV1))
}

func toV2(from *WebAppV1, to *WebAppV2) error {
	if from.Spec.Hosts != "" {
		to.Spec.Hosts = strings.Split(from.Spec.Hosts, ",")
	}
	return nil
}

func toV1(from *WebAppV2, to *WebAppV1) error {
	to.Spec.Hosts = strings.Join(from.Spec.Hosts, ",")
	return nil
}

// A conversion that keeps only the first host.
func ExampleCheckRoundTrips() {
	toFirstHost := func(from *WebAppV2, to *WebAppV1) error {
		if len(from.Spec.Hosts) > 0 {
			to.Spec.Hosts = from.Spec.Hosts[0]
		}
		return nil
	}
	lossy := webhook.Converting("webapps.example.com", webhook.Spoke(toV2, toFirstHost))
	fmt.Println(webhook.CheckRoundTrips(lossy, webhook.RoundTrips{}))
	// Output:
	// round trips of webapps.example.com:
	// *webhook_test.WebAppV2 by way of *webhook_test.WebAppV1: spec.hosts is changed from ["t578","t560"] to ["t578"]
}

// region roundtrips
func TestConversionsKeepFields(t *testing.T) {
	t.Parallel()
	if err := webhook.CheckRoundTrips(webapps(), webhook.RoundTrips{}); err != nil {
		t.Error(err)
	}
}

// endregion

// The operator installs its definitions, and then serves their conversions.
func ExampleServer_Conversions() {
	install := func(ctx context.Context, c *client.Client, server *webhook.Server, definitions []*apiextensionsv1.CustomResourceDefinition) error {
		// region install
		conversions, err := server.Conversions("https://operator.shop.svc", nil)
		if err := errors.Join(err, crd.SetConversions(conversions, definitions...)); err != nil {
			return err
		}
		_, err = crd.Ensure(ctx, c, definitions)
		// endregion
		return err
	}
	_ = install
}

// The manifests of a program whose certificates cert-manager creates.
func ExampleServer_Configurations_certManager() {
	definition, server, err := connectWebApps()
	if err != nil {
		panic(err)
	}
	// region manifests
	const service = "https://operator.shop.svc"
	configurations, err := server.Configurations("shop-operator", service, nil)
	conversions, errConversions := server.Conversions(service, nil)
	if err := errors.Join(err, errConversions, crd.SetConversions(conversions, definition)); err != nil {
		panic(err)
	}
	for _, obj := range append(configurations, definition) {
		obj.SetAnnotations(map[string]string{"cert-manager.io/inject-ca-from": "shop/operator-tls"})
		text, err := yaml.Marshal(obj)
		if err != nil {
			panic(err)
		}
		fmt.Printf("---\n%s", text)
	}
	// endregion
	// Output:
	// ---
	// apiVersion: apiextensions.k8s.io/v1
	// kind: CustomResourceDefinition
	// metadata:
	//   annotations:
	//     cert-manager.io/inject-ca-from: shop/operator-tls
	//   name: webapps.example.com
	// spec:
	//   conversion:
	//     strategy: Webhook
	//     webhook:
	//       clientConfig:
	//         service:
	//           name: operator
	//           namespace: shop
	//           path: /webapps.example.com
	//           port: 443
	//       conversionReviewVersions:
	//       - v1
	//   group: example.com
	//   names:
	//     kind: WebApp
	//     plural: webapps
	//   scope: Namespaced
	//   versions:
	//   - name: v1
	//     served: true
	//     storage: false
	//   - name: v2
	//     served: true
	//     storage: true
	// status:
	//   acceptedNames:
	//     kind: ""
	//     plural: ""
	//   conditions: null
	//   storedVersions: null
}

func connectWebApps() (*apiextensionsv1.CustomResourceDefinition, *webhook.Server, error) {
	addTypes := func(s *runtime.Scheme) error {
		s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WebApp"}, &WebAppV1{})
		s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "WebApp"}, &WebAppV2{})
		return nil
	}
	cluster, err := kube.Connect(&rest.Config{Host: "https://127.0.0.1:6443"}, addTypes)
	if err != nil {
		return nil, nil, err
	}
	server, err := webhook.New(webhook.Config{Cluster: cluster, Hooks: []webhook.Hook{webapps()}})
	if err != nil {
		return nil, nil, err
	}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "webapps.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "WebApp", Plural: "webapps"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}, {Name: "v2", Served: true, Storage: true}},
		},
	}, server, nil
}
