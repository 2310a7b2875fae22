package owned_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/owned"
)

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
		got := owned.ChildName(named(test.owner), test.suffix)
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
	for _, most := range []int{0, 20, 52, 63, 253} {
		seen := map[string]string{}
		for _, owner := range owners {
			for _, suffix := range suffixes {
				from := fmt.Sprintf("%q %q", owner, suffix)
				name := owned.ChildNameWithin(named(owner), suffix, most)
				if len(name) > max(most, 20) || validation.IsDNS1123Subdomain(name) != nil {
					t.Errorf("within %d: of %s it is %q, of %d bytes", most, from, name, len(name))
				}
				if most <= 63 && validation.IsDNS1123Label(name) != nil {
					t.Errorf("within %d: of %s it is %q, no label", most, from, name)
				}
				if other, ok := seen[name]; ok {
					t.Errorf("within %d: %s and %s have the same name %q", most, from, other, name)
				}
				seen[name] = from
			}
		}
	}
	if got := owned.ChildNameWithin(named("shop.example.com"), "tls", 253); got != "shop.example.com-tls" {
		t.Errorf("with dots it is %q", got)
	}
}

func ExampleChildName() {
	fmt.Println(owned.ChildName(&metav1.ObjectMeta{Name: "web"}, "config"))
	fmt.Println(owned.ChildName(&metav1.ObjectMeta{Name: "customer-12345.production.eu-central-1.shops.example.com"}, "config"))
	// Output:
	// web-config
	// customer-12345-production-eu-central-1-shops-config-hd8cj2oaan
}
