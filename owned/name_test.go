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
	long := strings.Repeat("x", 49)
	for name, test := range map[string]struct {
		owner, suffix string
		want          string // must never change, because children would be orphaned
	}{
		"short":               {"web", "config", "web-config"},
		"no suffix":           {"web", "", "web"},
		"parts, no suffix":    {"web-db", "", "web-db-ea13guolc6"},
		"suffix of parts":     {"web", "db-config", "web-db-config-2tlq8350p8"},
		"digits":              {"web-0123456789", "az", "web-0123456789-az"},
		"as long as allowed":  {strings.Repeat("x", 48), "tls", strings.Repeat("x", 48) + "-tls"},
		"too long":            {long, "tls", strings.Repeat("x", 37) + "-tls-a2a91u3n95"},
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
	owners := []string{"web", "web-db", "web-db-config", "a", "A", "a.b", "a-b", "a:b", "-a", "a-", x[:41], x[:42], x[:48], x[:49], x[:51], x[:52], x[:53], x[:61], x[:62], x[:63], x[:64], x[:251], x[:253], x[:252] + "y", x[:51] + "-.z" + x[:40]}
	suffixes := []string{"", "db", "config", "db-config", "tls", "TLS", x[:15], x[:16], x[:20], x[:62], x[:63], x[:62] + "y", x[:253]}
	seen := map[string]string{}
	for _, owner := range owners {
		for _, suffix := range suffixes {
			from := fmt.Sprintf("%q %q", owner, suffix)
			name := owned.ChildName(named(owner), suffix)
			if len(name) > 52 || validation.IsDNS1123Label(name) != nil {
				t.Errorf("of %s it is %q, of %d bytes: want a label of at most 52 bytes", from, name, len(name))
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s have the same name %q", from, other, name)
			}
			seen[name] = from
		}
	}
}

func ExampleChildName() {
	fmt.Println(owned.ChildName(&metav1.ObjectMeta{Name: "web"}, "config"))
	fmt.Println(owned.ChildName(&metav1.ObjectMeta{Name: "customer-12345.production.eu-central-1.shops.example.com"}, "config"))
	// Output:
	// web-config
	// customer-12345-production-eu-centr-config-hd8cj2oaan
}
