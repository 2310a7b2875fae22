package crd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/crd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewSetsDefaults(t *testing.T) {
	t.Parallel()
	got, err := crd.New(crd.Definition{Group: "shop.example.com", Kind: "Policy", Versions: []crd.Version{{Name: "v1"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "policies.shop.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "shop.example.com",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Policy", ListKind: "PolicyList", Plural: "policies", Singular: "policy"},
			Scope: "Namespaced",
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)},
				},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the definition (-want +got):\n%s", diff)
	}
}

func TestNewCopiesEveryField(t *testing.T) {
	t.Parallel()
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	conversion := &apiextensionsv1.CustomResourceConversion{Strategy: "None"}
	labels := map[string]string{"app": "shop"}
	got, err := crd.New(crd.Definition{
		Group: "shop.example.com", Kind: "Mouse", Plural: "mice", Singular: "mousy", ListKind: "Mice",
		ShortNames: []string{"mo"}, Categories: []string{"all"}, Scope: "Cluster", Conversion: conversion,
		Labels: labels, Annotations: map[string]string{"a": "b"},
		Versions: []crd.Version{
			{Name: "v1", NotServed: true, Schema: schema, Deprecated: true, DeprecationWarning: "use v2"},
			{
				Name: "v2", Storage: true, Status: true, Scale: &apiextensionsv1.CustomResourceSubresourceScale{LabelSelectorPath: new(".status.selector")},
				PrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
					{Name: "Host", JSONPath: ".spec.host"}, {Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
				},
				SelectableFields: []string{".spec.host"},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}
	want := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "mice.shop.example.com", Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"a": "b"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "shop.example.com",
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: "Mouse", ListKind: "Mice", Plural: "mice", Singular: "mousy", ShortNames: []string{"mo"}, Categories: []string{"all"},
			},
			Scope:      "Cluster",
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: "None"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{
					Name: "v1", Deprecated: true, DeprecationWarning: new("use v2"),
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				},
				{
					Name: "v2", Served: true, Storage: true, Schema: anything,
					Subresources: &apiextensionsv1.CustomResourceSubresources{
						Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
						Scale: &apiextensionsv1.CustomResourceSubresourceScale{
							SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: new(".status.selector"),
						},
					},
					AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
						{Name: "Host", Type: "string", JSONPath: ".spec.host"}, {Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
					},
					SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.host"}},
				},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the definition (-want +got):\n%s", diff)
	}
	// New must not share memory with its argument.
	schema.Type, conversion.Strategy, labels["app"] = "changed", "Changed", "changed"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the definition changed with the argument (-want +got):\n%s", diff)
	}
}

func TestNewDerivesThePlural(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"Website": "websites", "Policy": "policies", "Gateway": "gateways", "Redis": "redises", "Proxy": "proxies", "Index": "indexes",
		"Ingress": "ingresses", "Switch": "switches", "Mesh": "meshes", "Waltz": "waltzes", "Y": "ys", "Buy": "buys",
	} {
		got, err := crd.New(crd.Definition{Group: "shop.example.com", Kind: kind, Versions: []crd.Version{{Name: "v1"}}})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if got.Spec.Names.Plural != want {
			t.Errorf("the plural of %s is %q, want %q", kind, got.Spec.Names.Plural, want)
		}
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		definition crd.Definition
		want       []string
	}{
		"empty": {crd.Definition{}, []string{"Group is required", "Kind is required", "Versions: at least one"}},
		"names invalid in a path": {
			crd.Definition{
				Group: "shop", Kind: "Web_Site", Plural: "Web", Singular: "1", ListKind: "Web_Site", ShortNames: []string{"w.s"}, Categories: []string{"All"},
				Versions: []crd.Version{{Name: "1"}},
			},
			[]string{`Group "shop"`, `Kind "web_site"`, `Plural "Web"`, `Singular "1"`, "ListKind is equal to Kind", `ShortNames: "w.s"`, `Categories: "All"`, `Name "1"`},
		},
		"versions": {
			crd.Definition{Group: "shop.example.com", Kind: "Web", Versions: []crd.Version{{Name: "v1"}, {Name: "v1"}}},
			[]string{"v1 twice", "no version has storage"},
		},
		"two storage versions": {
			crd.Definition{Group: "shop.example.com", Kind: "Web", Versions: []crd.Version{{Name: "v1", Storage: true}, {Name: "v2", Storage: true}}},
			[]string{`2 versions have storage: true (["v1" "v2"])`},
		},
		"scope": {
			crd.Definition{Group: "shop.example.com", Kind: "Web", Scope: "Namespace", Versions: []crd.Version{{Name: "v1"}}},
			[]string{`spec.scope is "Namespace"`},
		},
		"version fields": {
			crd.Definition{Group: "shop.example.com", Kind: "Web", Versions: []crd.Version{{
				Name: "v1", DeprecationWarning: "old", PrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Host"}},
			}}},
			[]string{"not Deprecated", `PrinterColumns: "Host"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			created, err := crd.New(test.definition)
			if err == nil || created != nil {
				t.Fatalf("a definition was returned, with error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func ExampleNew() {
	website, err := crd.New(crd.Definition{
		Group: "shop.example.com", Kind: "Website", ShortNames: []string{"web"}, Categories: []string{"all"},
		Versions: []crd.Version{{
			Name: "v1", Status: true,
			Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec":   {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"host": {Type: "string"}}},
				"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"url": {Type: "string"}}},
			}},
			PrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Host", JSONPath: ".spec.host"}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(website.Name)
	// Output: websites.shop.example.com
}
