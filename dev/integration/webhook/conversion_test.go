package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// gadget is a kind with a spec of the type S.
type gadget[S any] = apitest.Object[S]

type (
	gadgetSpecV1 struct {
		Size string `json:"size,omitempty"` // LENGTHxWIDTH
	}
	gadgetSpecV2 struct {
		Length string            `json:"length,omitempty"`
		Width  string            `json:"width,omitempty"`
		Limit  *int64            `json:"limit,omitempty"`
		Parts  []string          `json:"parts,omitempty"`
		Colors map[string]string `json:"colors,omitempty"`
	}
	gadgetV1 = *gadget[gadgetSpecV1]
	gadgetV2 = *gadget[gadgetSpecV2]
)

// keptAnnotation has the fields that v1 lacks.
const keptAnnotation = "example.com/v2-fields"

func gadgetToV2(from gadgetV1, to gadgetV2) error {
	if strings.HasPrefix(from.Spec.Size, "panic") {
		panic("oops")
	}
	if kept, ok := from.Annotations[keptAnnotation]; ok {
		if err := json.Unmarshal([]byte(kept), &to.Spec); err != nil {
			return err
		}
		delete(to.Annotations, keptAnnotation)
	}
	to.Spec.Length, to.Spec.Width, _ = strings.Cut(from.Spec.Size, "x")
	return nil
}

func gadgetToV1(from gadgetV2, to gadgetV1) error {
	if from.Spec.Length == "panic" {
		panic("oops")
	}
	if from.Spec.Length != "" || from.Spec.Width != "" {
		to.Spec.Size = from.Spec.Length + "x" + from.Spec.Width
	}
	kept := from.Spec
	kept.Length, kept.Width = "", ""
	content, err := json.Marshal(kept)
	if string(content) != "{}" {
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, keptAnnotation, string(content))
	}
	return err
}

// gadgets is a kind with two versions of the namespace's own group. v2 is stored.
type gadgets struct {
	*env
	addTypes   func(*runtime.Scheme) error
	name       string // of the definition
	definition *apiextensionsv1.CustomResourceDefinition
	secret     kube.Key
	listener   net.Listener
	url        string
	dynamic    *dynamic.DynamicClient
}

func newGadgets(t *testing.T) *gadgets {
	t.Helper()
	e := newEnv(t)
	group := e.namespace + ".example.com"
	addTypes := func(s *runtime.Scheme) error {
		s.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gadget"}, &gadget[gadgetSpecV1]{})
		s.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v2", Kind: "Gadget"}, &gadget[gadgetSpecV2]{})
		return nil
	}
	e.cluster = clustertest.Connect(t, local.RESTConfig(), addTypes)
	e.client = clustertest.Client(t, e.cluster)
	definitions, err := crd.Parse([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.` + group + `}
spec:
  group: ` + group + `
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: string}}}}}}}
  - name: v2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      length: {type: string}, width: {type: string}, limit: {type: integer, format: int64}, parts: {type: array, items: {type: string}},
      colors: {type: object, additionalProperties: {type: string}}}}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(local.RESTConfig())
	config.QPS = -1
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	g := &gadgets{env: e, addTypes: addTypes, name: definitions[0].Name, definition: definitions[0], secret: kube.Key{Namespace: e.namespace, Name: "tls"}, listener: e.listen(), dynamic: dyn}
	g.url = "https://" + g.listener.Addr().String()
	return g
}

func (g *gadgets) hook() webhook.Hook {
	return webhook.Converting(g.name, webhook.Spoke(gadgetToV2, gadgetToV1))
}

// install installs the definition with the conversion of the server.
func (g *gadgets) install(server *webhook.Server) {
	g.Helper()
	if err := crd.SetConversions(conversions(g, server, g.url, nil), g.definition); err != nil {
		g.Fatal(err)
	}
	if _, err := crd.Ensure(g.Context(), g.client, []*apiextensionsv1.CustomResourceDefinition{g.definition}); err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() {
		// Without objects the deletion needs no conversion.
		if err := crd.RemoveWithObjects(context.WithoutCancel(g.Context()), g.client, g.name); err != nil {
			g.Error(err)
		}
	})
}

// start runs a replica that registers the conversion, until the test ends or until stop.
func (g *gadgets) start(listener net.Listener) (server *webhook.Server, stop func()) {
	g.Helper()
	server, err := webhook.New(webhook.Config{
		Cluster: g.cluster, Hooks: []webhook.Hook{g.hook()}, Listener: listener,
		Certificates: &webhook.Certificates{Client: g.client, Secret: g.secret, URL: g.url},
	})
	if err != nil {
		g.Fatal(err)
	}
	return server, g.runKeeping(rotating, server)
}

// runKeeping runs a server that keeps its certificates until the test ends or until stop.
func (e *env) runKeeping(policy certificates.Policy, server *webhook.Server) (stop func()) {
	e.Helper()
	return e.run(certificates.WithPolicy(context.WithoutCancel(e.Context()), policy), server)
}

// of returns the client of a version.
func (g *gadgets) of(version string) dynamic.ResourceInterface {
	return g.dynamic.Resource(schema.GroupVersionResource{Group: g.definition.Spec.Group, Version: version, Resource: "gadgets"}).Namespace(g.namespace)
}

func (g *gadgets) object(version, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": g.definition.Spec.Group + "/" + version, "kind": "Gadget", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// awaitConversions waits until the API server converts objects. It creates the object "first".
func (g *gadgets) awaitConversions() {
	g.Helper()
	clustertest.Eventually(g, func() string {
		_, err := g.of("v1").Create(g.Context(), g.object("v1", "first", map[string]any{"size": "1x2"}), metav1.CreateOptions{})
		return clustertest.Text(err)
	})
}

// Objects survive the way through another version with all fields, and metadata that the API server sets stays.
func TestSmokeConversionLosesNoField(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	twoSides := func(obj kube.Object) {
		if v1, ok := obj.(gadgetV1); ok && v1.Spec.Size != "" {
			v1.Spec.Size += "x2"
		}
	}
	if err := webhook.CheckRoundTrips(g.hook(), webhook.RoundTrips{Adjust: twoSides}); err != nil {
		t.Fatal(err)
	}
	server, stop := g.start(g.listener)
	g.install(server)
	g.awaitConversions()
	first, err := g.of("v2").Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil || fmt.Sprint(first.Object["spec"]) != "map[length:1 width:2]" {
		t.Fatal(first, err)
	}
	full := map[string]any{"length": "3", "width": "4", "limit": int64(1<<60 + 1), "parts": []any{"a", "b"}, "colors": map[string]any{"x": "red"}}
	full2 := g.object("v2", "full", full)
	full2.SetLabels(map[string]string{"a": "b"})
	full2.SetFinalizers([]string{"example.com/test"})
	created, err := g.of("v2").Create(t.Context(), full2, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v1, err := g.of("v1").Get(t.Context(), "full", metav1.GetOptions{})
	if err != nil || v1.Object["spec"].(map[string]any)["size"] != "3x4" || v1.GetUID() != created.GetUID() || !slices.Equal(v1.GetFinalizers(), created.GetFinalizers()) {
		t.Fatal(v1, err)
	}
	v1.SetLabels(map[string]string{"a": "c"})
	v1.SetFinalizers(nil)
	if _, err := g.of("v1").Update(t.Context(), v1, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	after, err := g.of("v2").Get(t.Context(), "full", metav1.GetOptions{})
	if err != nil || fmt.Sprint(after.Object["spec"]) != fmt.Sprint(created.Object["spec"]) || len(after.GetAnnotations()) > 0 || after.GetLabels()["a"] != "c" {
		t.Errorf("%v became %v (%v)", created, after, err)
	}
	// Lists and a server-side apply in the other version.
	list, err := g.of("v1").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Error(list, err)
	}
	if _, err := g.of("v1").Apply(t.Context(), "full", g.object("v1", "full", map[string]any{"size": "5x6"}), metav1.ApplyOptions{FieldManager: "applier", Force: true}); err != nil {
		t.Error(err)
	}
	full["length"], full["width"] = "5", "6"
	if after, err = g.of("v2").Get(t.Context(), "full", metav1.GetOptions{}); err != nil || fmt.Sprint(after.Object["spec"]) != fmt.Sprint(full) {
		t.Errorf("after the apply: %v (%v)", after, err)
	}

	// A panic is a failure of its object. Requests in the storage version need no conversion.
	if _, err = g.of("v2").Create(t.Context(), g.object("v2", "bad", map[string]any{"length": "panic"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("convert Gadget %s/bad from %s/v2 to %[2]s/v1: conversion of %s panicked: oops", g.namespace, g.definition.Spec.Group, g.name)
	if _, err = g.of("v1").Get(t.Context(), "bad", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	if _, err = g.of("v1").Create(t.Context(), g.object("v1", "worse", map[string]any{"size": "panic"}), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "panicked: oops") {
		t.Error(err)
	}
	if _, err = g.of("v1").Get(t.Context(), "full", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err = g.of("v2").Delete(t.Context(), "bad", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	// A server that has ended: the client gets the reason, and a restarted server works.
	stop()
	if _, err = g.of("v1").Get(t.Context(), "full", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	if _, err = g.of("v2").Get(t.Context(), "full", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", g.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g.start(listener)
	clustertest.Eventually(t, func() string {
		_, err := g.of("v1").Get(t.Context(), "full", metav1.GetOptions{})
		return clustertest.Text(err)
	})
}

// No conversion fails while certificate and authority are replaced. A replaced certificate ends no watch; a changed
// bundle of the definition ends those of its objects.
func TestRotationFailsNoConversion(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	server, _ := g.start(g.listener)
	g.start(g.listen()) // a second replica takes part in the rotations
	g.install(server)
	g.awaitConversions()
	clustertest.Eventually(t, func() string { return clustertest.Text(server.Ready()) })

	bundles, authorities, leaves := map[string]bool{}, map[string]bool{}, map[string]bool{}
	observe := func() error {
		current, err := client.Get[*corev1.Secret](t.Context(), g.client, g.secret)
		if err != nil {
			return err
		}
		definition, err := client.Get[*apiextensionsv1.CustomResourceDefinition](t.Context(), g.client, kube.Key{Name: g.name})
		if err != nil {
			return err
		}
		bundles[string(definition.Spec.Conversion.Webhook.ClientConfig.CABundle)] = true
		authorities[string(current.Data["signer.crt"])], leaves[string(current.Data["tls.crt"])] = true, true
		return nil
	}
	if err := observe(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var requests, failed, watches, events atomic.Int64
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() { // waited for below
			for {
				select {
				case <-stop:
					return
				default:
				}
				requests.Add(1)
				// Without a resourceVersion the object is read from etcd, and converted.
				if _, err := g.of("v1").Get(t.Context(), "first", metav1.GetOptions{}); err != nil && failed.Add(1) <= 5 {
					t.Error(err)
				}
			}
		})
	}
	work.Go(func() { // waited for below
		for {
			w, err := g.of("v1").Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				// The API server replaces the storage of the kind.
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
					continue
				}
			}
			watches.Add(1)
			if !drain(w, stop, &events) {
				return
			}
		}
	})
	wanted := testlength.Count(1, 3)
	clustertest.Eventually(t, func() string {
		if err := observe(); err != nil {
			return err.Error()
		}
		if len(authorities) > wanted {
			return ""
		}
		return fmt.Sprintf("%d authorities", len(authorities))
	})
	close(stop)
	work.Wait()
	t.Logf("%d conversions, %d failed; %d authorities, %d certificates, %d bundles, %d watches with %d events",
		requests.Load(), failed.Load(), len(authorities), len(leaves), len(bundles), watches.Load(), events.Load())
	if failed.Load() > 0 || requests.Load() == 0 || events.Load() == 0 {
		t.Errorf("%d of %d conversions failed", failed.Load(), requests.Load())
	}
	if ended := int(watches.Load()) - 1; ended > len(bundles)+1 {
		t.Errorf("%d watches ended, and the bundle changed %d times", ended, len(bundles)-1)
	}
}

// drain counts the events of a watch. It returns false after stop.
func drain(w watch.Interface, stop <-chan struct{}, events *atomic.Int64) bool {
	defer w.Stop()
	for {
		select {
		case <-stop:
			return false
		case event, ok := <-w.ResultChan():
			if !ok {
				return true
			}
			if event.Type != watch.Error {
				events.Add(1)
			}
		}
	}
}

// SetConversions rejects definitions that differ from the conversions, and changes nothing else.
func TestSetConversions(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	server, err := webhook.New(webhook.Config{Cluster: g.cluster, Hooks: []webhook.Hook{g.hook()}})
	if err != nil {
		t.Fatal(err)
	}
	other := g.definition.DeepCopy()
	other.Name = "others.example.com"
	before := other.DeepCopy()
	if err := crd.SetConversions(conversions(g, server, "https://a/", []byte("x")), other, g.definition); err != nil {
		t.Fatal(err)
	}
	c := g.definition.Spec.Conversion.Webhook.ClientConfig
	if *c.URL != "https://a/"+g.name || string(c.CABundle) != "x" || other.Spec.Conversion != nil || !maps.Equal(other.Labels, before.Labels) {
		t.Error(g.definition.Spec.Conversion)
	}
	wrong := g.definition.DeepCopy()
	wrong.Spec.Names.Kind, wrong.Spec.Versions[1].Name, wrong.Spec.Conversion = "Other", "v3", nil
	err = crd.SetConversions(conversions(g, server, "https://a", nil), wrong)
	if wrong.Spec.Conversion != nil {
		err = errors.New("changed")
	}
	for _, part := range []string{"its kind is Other, and the conversion is of Gadget", "lacks version v3", "version v2 of the conversion is not defined: it has v1, v3"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %v, want %q", err, part)
		}
	}
	if err := crd.SetConversions(conversions(g, server, "https://a", nil), other); err == nil || !strings.Contains(err.Error(), "no definition has the name "+g.name) {
		t.Error(err)
	}
}
