package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestInvalidArgumentsMakeNoRequest(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	only := with(t, c, func(config *client.Config) { config.Namespace = "shop" })
	pod := func(namespace, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	first := func(_ any, err error) error { return err }
	for want, err := range map[string]error{
		"get: Pod p has no namespace, and its kind lives in namespaces":                     first(client.Get[*corev1.Pod](t.Context(), c, kube.Key{Name: "p"})),
		"get: Node shop/n1 names a namespace, and its kind lives in none":                   first(client.Get[*corev1.Node](t.Context(), c, kube.Key{Namespace: "shop", Name: "n1"})),
		"list: Node in shop names a namespace, and its kind lives in none":                  first(client.All[*corev1.Node](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}})),
		"create: Pod p has no namespace, and its kind lives in namespaces":                  first(client.Create(t.Context(), c, pod("", "p"))),
		"create: the Pod has no name":                                                       first(client.Create(t.Context(), c, pod("shop", ""))),
		"create: Pod p-* has no namespace":                                                  first(client.Create(t.Context(), c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}})),
		"create: the object is nil":                                                         first(client.Create[*corev1.Pod](t.Context(), c, nil)),
		"update: Node shop/n1 names a namespace":                                            first(client.Update(t.Context(), c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "n1"}})),
		"delete: Pod p has no namespace":                                                    client.Delete(t.Context(), c, pod("", "p")),
		"delete all Pod: a Pod lives in a namespace: the selection needs Namespaces":        client.DeleteAllOf[*corev1.Pod](t.Context(), c, kube.Selection{}),
		"Pod other/p is not in namespace shop, the only one that this client is for":        first(client.Get[*corev1.Pod](t.Context(), only, kube.Key{Namespace: "other", Name: "p"})),
		"list: Pod in other is not in namespace shop":                                       first(client.All[*corev1.Pod](t.Context(), only, kube.Selection{Namespaces: []string{"other"}})),
		"list: Node lives in no namespace, and this client is for namespace shop only":      first(client.All[*corev1.Node](t.Context(), only, kube.Selection{})),
		"delete: Node n1 lives in no namespace, and this client is for namespace shop only": client.Delete(t.Context(), only, node()),
		"update Pod shop/p: it is metadata only, and would lose everything else":            first(client.Update(t.Context(), c, metadata)),
		"create Pod shop/p: it is metadata only":                                            first(client.Create(t.Context(), c, metadata)),
		"option PageSize: it is -1":                                                         first(client.All[*corev1.Pod](t.Context(), c, kube.Selection{}, client.PageSize(-1))),
		`list: LabelSelector "==": `:                                                        first(client.Keys[*corev1.Pod](t.Context(), c, kube.Selection{LabelSelector: "=="})),
		`list: LabelSelector "a=no value!": `:                                               first(client.All[*corev1.Pod](t.Context(), c, kube.Selection{LabelSelector: labels.Set{"a": "no value!"}.String()})),
		`list: FieldSelector "a": `:                                                         first(client.All[*corev1.Pod](t.Context(), c, kube.Selection{FieldSelector: "a"})),
		"option FieldOwner: FieldOwner has 129 bytes":                                       first(client.Create(t.Context(), c, pod("shop", "p"), client.FieldOwner(strings.Repeat("x", 129)))),
		`option FieldValidation: FieldValidation is "strict"`:                               first(client.Create(t.Context(), c, pod("shop", "p"), client.FieldValidation("strict"))),
		"an option is nil": first(client.Create(t.Context(), c, pod("shop", "p"), nil)),
		`option ConfigurationHash: "no annotation" is not the name of an annotation`:                               first(client.Apply(t.Context(), c, pod("shop", "p"), client.ConfigurationHash("no annotation"))),
		`option Subresource: "" is not a valid name of a subresource`:                                              first(client.Update(t.Context(), c, pod("shop", "p"), client.Subresource(""))),
		`list: the Kind of the selection: it names the kind "" in "v1"`:                                            first(client.All[*unstructured.Unstructured](t.Context(), c, kube.Selection{Kind: schema.GroupVersionKind{Version: "v1"}})),
		"list: the given kind is shop.example.com/v1, Kind=Widget, and a *v1.Pod is a":                             first(client.All[*corev1.Pod](t.Context(), c, kube.Selection{Kind: widgetKind()})),
		"it carries none: set its apiVersion and kind, or name it by option OfKind, or by the Kind of a Selection": first(client.All[*unstructured.Unstructured](t.Context(), c, kube.Selection{})),
		"look for shop/p: kube.Object is an interface: name the type that is to be made":                           first(client.Exists[kube.Object](t.Context(), c, kube.Key{Namespace: "shop", Name: "p"})),
		"list: kube.Object is an interface: name the type":                                                         first(client.All[kube.Object](t.Context(), c, kube.Selection{Kind: widgetKind()})),
		"get: shop/p: kube.Object is an interface: name the type":                                                  first(client.Get[kube.Object](t.Context(), c, kube.Key{Namespace: "shop", Name: "p"})),
		"watch: Node in shop names a namespace":                                                                    first(client.Watch[*corev1.Node](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}})),
		"subresource scale has the kind Scale: use option SubresourceOf":                                           first(client.Update(t.Context(), c, database(), client.Subresource("scale"))),
		"patch StatefulSet shop/db/scale: subresource scale has the kind Scale":                                    first(client.Patch(t.Context(), c, database(), client.RawPatch(types.MergePatchType, []byte("{}")), client.Subresource("scale"))),
		"patches of type application/apply-patch+yaml are made by Apply":                                           first(client.Patch(t.Context(), c, database(), client.RawPatch(types.ApplyYAMLPatchType, []byte("{}")))),
		`there are no patches of type "x"`:                                                                         first(client.Patch(t.Context(), c, database(), client.RawPatch("x", []byte("{}")))),
		"there is no patch":                                                                                        first(client.Patch(t.Context(), c, database(), client.PatchBody{})),
		"patch StatefulSet shop/db/scale: the patch is empty":                                                      first(client.Patch[*autoscalingv1.Scale](t.Context(), c, nil, client.JSONPatch(), client.SubresourceOf(database(), "scale"))),
		"the body names another object: other":                                                                     first(client.Create(t.Context(), c, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, client.SubresourceOf(pod("shop", "p"), "binding"))),
		"create Pod shop/p/binding: the body is nil":                                                               first(client.Create[*corev1.Binding](t.Context(), c, nil, client.SubresourceOf(pod("shop", "p"), "binding"))),
		`create: option SubresourceOf: "a/b" is not a valid name of a subresource`:                                 first(client.Create(t.Context(), c, &corev1.Binding{}, client.SubresourceOf(pod("shop", "p"), "a/b"))),
		"get shop/other: the parent of the subresource is shop/db":                                                 first(client.Get[*autoscalingv1.Scale](t.Context(), c, kube.Key{Namespace: "shop", Name: "other"}, client.SubresourceOf(database(), "scale"))),
		"get shop/db: option SubresourceOf: the parent is nil":                                                     first(client.Get[*autoscalingv1.Scale](t.Context(), c, kube.Key{Namespace: "shop", Name: "db"}, client.SubresourceOf(nil, "scale"))),
		"options OfKind and SubresourceOf exclude each other":                                                      first(client.Get[*autoscalingv1.Scale](t.Context(), c, kube.KeyOf(database()), client.SubresourceOf(database(), "scale"), client.OfKind(widgetKind()))),
		"the client is nil":                  first(client.Get[*corev1.Pod](t.Context(), nil, kube.Key{Namespace: "shop", Name: "p"})),
		"look for shop/p: the client is nil": first(client.Exists[*corev1.Pod](t.Context(), nil, kube.Key{Namespace: "shop", Name: "p"})),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	malformed := client.OfKind(schema.GroupVersionKind{Version: "v1"})
	if found, err := client.Exists[*corev1.Pod](t.Context(), c, kube.Key{Namespace: "shop", Name: "p"}, malformed); found || err == nil {
		t.Errorf("with a malformed option, Exists returns %t, %v", found, err)
	}
	server.expectNoRequests(t)
}

// TestNamesInvalidInPaths: client-go rejects these names before the request.
func TestNamesInvalidInPaths(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	for _, name := range []string{"..", "a/b", "a%2fb"} {
		_, err := client.Get[*corev1.Node](t.Context(), c, kube.Key{Name: name})
		if err == nil || retry.Classify(err) != retry.Default {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	server.expectNoRequests(t)
}

// TestSubresourceRequiresConcreteType: the response must be decoded into a concrete type.
func TestSubresourceRequiresConcreteType(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))
	_, read := client.Get[kube.Object](t.Context(), c, kube.KeyOf(database()), client.SubresourceOf(database(), "scale"))
	_, patched := client.Patch[kube.Object](t.Context(), c, nil, patch, client.SubresourceOf(database(), "scale"))
	for _, err := range []error{read, patched} {
		if err == nil || !strings.Contains(err.Error(), "kube.Object is an interface: name the type that is to be made") {
			t.Errorf("the error is %v", err)
		}
	}
	// The type of the request's body also determines the type of the response.
	var body kube.Object = &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "u1", ResourceVersion: "7"}}
	if response, err := client.Update(t.Context(), c, body, client.SubresourceOf(database(), "scale")); err != nil || response.GetName() != "db" {
		t.Errorf("the response is %v, %v", response, err)
	}
	if got := server.verbs(); !cmp.Equal(got, []string{http.MethodPut}) {
		t.Errorf("the requests are %q", got)
	}
}
