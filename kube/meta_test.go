package kube_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	a, b := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "a"}, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "b", UID: "b"}
	replaced := a
	replaced.Controller = new(true)
	for name, test := range map[string]struct {
		built kube.Metadata
		want  metav1.ObjectMeta
	}{
		"a name":         {kube.Meta("shop", "web"), metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		"a key":          {kube.MetaOf(kube.Key{Namespace: "shop", Name: "web"}), metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		"another name":   {kube.Meta("shop", "web").Generated("x-").Named("db"), metav1.ObjectMeta{Namespace: "shop", Name: "db"}},
		"a prefix":       {kube.Meta("shop", "web").Generated("web-"), metav1.ObjectMeta{Namespace: "shop", GenerateName: "web-"}},
		"no labels":      {kube.Meta("", "web").Labels(nil).Annotations(nil), metav1.ObjectMeta{Name: "web"}},
		"labels":         {kube.Meta("", "web").Label("a", "1").Label("b", "1").Labels(map[string]string{"b": "2", "c": "2"}), metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a": "1", "b": "2", "c": "2"}}},
		"annotations":    {kube.Meta("", "web").Annotation("a", "1").Annotations(map[string]string{"a": "2", "c": "2"}), metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"a": "2", "c": "2"}}},
		"finalizers":     {kube.Meta("", "web").Finalizer("a", "b").Finalizer("b", "c"), metav1.ObjectMeta{Name: "web", Finalizers: []string{"a", "b", "c"}}},
		"owners":         {kube.Meta("", "web").Owner(a).Owner(b, replaced), metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{replaced, b}}},
		"an application": {kube.Meta("", "web").App(kube.App{Name: "web", Version: "1.0+build"}), metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/version": kube.LabelValue("1.0+build")}}},
		"all of an application": {
			kube.Meta("", "web").App(kube.App{Name: "n", Instance: "i", Version: "v", Component: "c", PartOf: "p", ManagedBy: "m"}),
			metav1.ObjectMeta{Name: "web", Labels: map[string]string{
				"app.kubernetes.io/name": "n", "app.kubernetes.io/instance": "i", "app.kubernetes.io/version": "v",
				"app.kubernetes.io/component": "c", "app.kubernetes.io/part-of": "p", "app.kubernetes.io/managed-by": "m",
			}},
		},
	} {
		if diff := cmp.Diff(test.want, test.built.Build()); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

func TestMetadataIsAValue(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"a": "1"}
	base := kube.Meta("shop", "web").Labels(labels).Annotation("a", "1").Finalizer("a").Owner(metav1.OwnerReference{UID: "a"})
	want := base.Build()
	labels["a"] = "changed"
	base.Label("a", "2").Annotation("a", "2").Finalizer("b").Owner(metav1.OwnerReference{UID: "a", Name: "b"}).Named("x").App(kube.App{Name: "x"})
	built := base.Build()
	built.Labels["a"], built.Annotations["a"], built.Finalizers[0], built.OwnerReferences[0].Name = "3", "3", "3", "3"
	if diff := cmp.Diff(want, base.Build()); diff != "" {
		t.Errorf("it has changed (-want +got):\n%s", diff)
	}
}

func named(name string) metav1.Object { return &metav1.ObjectMeta{Name: name} }

func TestChildName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	for name, test := range map[string]struct {
		owner, suffix string
		want          string // must never change, because children would be orphaned
	}{
		"short":               {"web", "config", "web-config"},
		"no suffix":           {"web", "", "web"},
		"as long as allowed":  {strings.Repeat("x", 59), "tls", strings.Repeat("x", 59) + "-tls"},
		"too long":            {long, "tls", strings.Repeat("x", 48) + "-tls-60jfn1dt2g"},
		"dots":                {"shop.example.com", "tls", "shop-example-com-tls-f6i3raiaca"},
		"what no label has":   {"system:Node_", "a b", "system-node-a-b-8nrqg3d5c7"},
		"no letter":           {":", "", "ep4en0e4t7"},
		"an owner of nothing": {"", "config", ""},
	} {
		got := kube.ChildName(named(test.owner), test.suffix)
		if got != test.want {
			t.Errorf("%s: it is %q, want %q", name, got, test.want)
		}
	}
}

func TestChildNamesAreValidAndDiffer(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", 300)
	owners := []string{"a", "A", "a.b", "a-b", "a:b", "-a", "a-", x[:51], x[:52], x[:61], x[:62], x[:63], x[:64], x[:251], x[:253], x[:252] + "y", x[:51] + "-.z" + x[:40]}
	suffixes := []string{"", "tls", "TLS", x[:20], x[:62], x[:63], x[:62] + "y", x[:253]}
	for _, most := range []int{0, 20, kube.MaxControllerName, kube.MaxLabelName, kube.MaxName} {
		seen := map[string]string{}
		for _, owner := range owners {
			for _, suffix := range suffixes {
				from := fmt.Sprintf("%q %q", owner, suffix)
				name := kube.ChildNameWithin(named(owner), suffix, most)
				if len(name) > max(most, 20) || validation.IsDNS1123Subdomain(name) != nil {
					t.Errorf("within %d: of %s it is %q, of %d bytes", most, from, name, len(name))
				}
				if most <= kube.MaxLabelName && validation.IsDNS1123Label(name) != nil {
					t.Errorf("within %d: of %s it is %q, no label", most, from, name)
				}
				if other, ok := seen[name]; ok {
					t.Errorf("within %d: %s and %s have the same name %q", most, from, other, name)
				}
				seen[name] = from
			}
		}
	}
	if got := kube.ChildNameWithin(named("shop.example.com"), "tls", kube.MaxName); got != "shop.example.com-tls" {
		t.Errorf("with dots it is %q", got)
	}
}

func TestLabelValue(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", 70)
	seen := map[string]string{}
	for value, want := range map[string]string{"": "", "web": "web", "A_b.c-1": "A_b.c-1", x[:63]: x[:63], x[:64]: x[:52] + "-fjgg15ovcj"} {
		if got := kube.LabelValue(value); got != want {
			t.Errorf("of %q it is %q, want %q", value, got, want)
		}
	}
	for _, value := range []string{"", "a", "a b", "a/b", "-a", "a-", "_", "ä", ":", x[:63], x[:64], x[:65], x[:51] + "--------------"} {
		got := kube.LabelValue(value)
		if problems := validation.IsValidLabelValue(got); problems != nil {
			t.Errorf("of %q it is %q: %q", value, got, problems)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q become the same %q", value, other, got)
		}
		seen[got] = value
	}
}

func ExampleMeta() {
	base := kube.Meta("shop", "web").App(kube.App{Name: "web", ManagedBy: "shop-operator"})
	service, config := base.Build(), base.Named("web-config").Annotation("example.com/checksum", "7").Build()
	fmt.Println(service.Name, service.Labels)
	fmt.Println(config.Name, config.Labels, config.Annotations)
	// Output:
	// web map[app.kubernetes.io/managed-by:shop-operator app.kubernetes.io/name:web]
	// web-config map[app.kubernetes.io/managed-by:shop-operator app.kubernetes.io/name:web] map[example.com/checksum:7]
}

func ExampleChildName() {
	fmt.Println(kube.ChildName(&metav1.ObjectMeta{Name: "web"}, "config"))
	fmt.Println(kube.ChildName(&metav1.ObjectMeta{Name: "customer-12345.production.eu-central-1.shops.example.com"}, "config"))
	// Output:
	// web-config
	// customer-12345-production-eu-central-1-shops-config-hd8cj2oaan
}
