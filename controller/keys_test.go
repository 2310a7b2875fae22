package controller_test

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

type (
	tenant    string
	clustered struct {
		Cluster string
		Key     kube.Key
	}
	kinded struct {
		Kind            schema.GroupVersionKind
		Namespace, Name string
	}
	mixedKey struct {
		Shard int8
		Hash  [2]byte
		On    bool
		_     int
		Ports [2]uint16
		Addr  netip.Addr
	}
	blank struct{}
)

// equal is a key whose text is that of every other one.
type equal struct{ Name string }

func (equal) MarshalText() ([]byte, error) { return []byte("the same"), nil }

func (e *equal) UnmarshalText(text []byte) error { e.Name = string(text); return nil }

func TestKeysAreReadableAndReversible(t *testing.T) {
	t.Parallel()
	checkKey(t, "acme", "acme")
	checkKey(t, "", `""`)
	checkKey(t, `""`, "%22%22")
	checkKey(t, "org/repo", "org/repo")
	checkKey(t, "/", "/")
	checkKey(t, "a/", "a/")
	checkKey(t, "//a", "//a")
	checkKey(t, "100%\n\x00\xffñ \u202e", "100%25%0A%00%FFñ %E2%80%AE")
	checkKey(t, tenant("blue"), "blue")
	checkKey(t, int64(math.MinInt64), "-9223372036854775808")
	checkKey(t, uint8(7), "7")
	checkKey(t, true, "true")
	checkKey(t, kube.Key{Name: "node"}, "node")
	checkKey(t, kube.Key{Namespace: "shop", Name: "web"}, "shop/web")
	checkKey(t, types.NamespacedName{Namespace: "shop", Name: "web"}, "shop/web")
	checkKey(t, types.NamespacedName{Name: "web"}, "/web")
	checkKey(t, types.NamespacedName{}, "/")
	checkKey(t, clustered{"eu-1", kube.Key{Namespace: "shop", Name: "web"}}, "eu-1/shop/web")
	checkKey(t, clustered{"eu/1", kube.Key{Name: `"web"`}}, "eu%2F1//%22web%22")
	checkKey(t, kinded{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "shop", "web"}, "apps/v1/Deployment/shop/web")
	checkKey(t, mixedKey{Shard: -3, Hash: [2]byte{0xab, 1}, On: true, Ports: [2]uint16{80, 443}, Addr: netip.MustParseAddr("::1")}, "-3/ab01/true/80/443/::1")
	checkKey(t, mixedKey{}, "0/0000/false/0/0/")
	checkKey(t, netip.MustParsePrefix("10.0.0.0/8"), "10.0.0.0/8")
	checkKey(t, [16]byte{15: 1}, "00000000000000000000000000000001")
	checkKey(t, time.Unix(5, 0).UTC(), "1970-01-01T00:00:05Z")
	checkKey(t, blank{}, `""`)
	checkKey(t, struct{ Name string }{}, `""`)
}

func checkKey[K comparable](t *testing.T, key K, text string) {
	t.Helper()
	encoded := controller.EncodeKey(key)
	if encoded.String() != text || encoded == (kube.Key{}) {
		t.Errorf("the text of %#v is %q, want %q", key, encoded, text)
	}
	if decoded, err := controller.KeyOf[K](encoded); err != nil || decoded != key {
		t.Errorf("%q is decoded as %#v (%v), want %#v", encoded, decoded, err, key)
	}
}

// TestDifferentKeysNeverMerge checks that keys with special characters in different places have different texts.
func TestDifferentKeysNeverMerge(t *testing.T) {
	t.Parallel()
	type pair struct{ A, B string }
	pieces := []string{"", "/", "a", `"`, `""`, "%", "%2F", "a/", "/a", "\x00", "\xff", "%FF"}
	texts, strs := map[kube.Key]pair{}, map[kube.Key]string{}
	for _, a := range pieces {
		for _, b := range pieces {
			key := pair{a, b}
			encoded := controller.EncodeKey(key)
			if other, taken := texts[encoded]; taken {
				t.Errorf("%q and %q have the same text: %q", other, key, encoded)
			}
			texts[encoded] = key
			whole := controller.EncodeKey(a + b)
			if other, taken := strs[whole]; taken && other != a+b {
				t.Errorf("%q and %q have the same text: %q", other, a+b, whole)
			}
			strs[whole] = a + b
			if decoded, err := controller.KeyOf[pair](encoded); err != nil || decoded != key {
				t.Errorf("%q is decoded as %q: %v", encoded, decoded, err)
			}
		}
	}
}

func FuzzDecodeKey(f *testing.F) {
	f.Add("shop", "web")
	f.Add("", "/a%2F")
	f.Fuzz(func(t *testing.T, namespace, name string) {
		encoded := kube.Key{Namespace: namespace, Name: name}
		checkDecoded[string](t, encoded)
		checkDecoded[clustered](t, encoded)
		checkDecoded[mixedKey](t, encoded)
		if key := (struct{ A, B string }{namespace, name}); controller.EncodeKey(key).String() == "" {
			t.Errorf("%q has no text", key)
		}
	})
}

// checkDecoded checks that a key has one text only.
func checkDecoded[K comparable](t *testing.T, encoded kube.Key) {
	t.Helper()
	if key, err := controller.KeyOf[K](encoded); err == nil && controller.EncodeKey(key) != encoded {
		t.Errorf("%q is decoded as %#v, whose text is %q", encoded, key, controller.EncodeKey(key))
	}
}

func TestDecodeKeyRejectsOtherKeys(t *testing.T) {
	t.Parallel()
	for _, encoded := range []kube.Key{{}, {Name: "a"}, {Namespace: "a", Name: "b"}, {Namespace: "a", Name: "b/c/d"}, {Name: "a/b/c"}, {Namespace: "a", Name: "b/%2"}, {Namespace: "a", Name: "b/%zz"}, {Namespace: "a", Name: "b/%41"}} {
		if key, err := controller.KeyOf[clustered](encoded); err == nil {
			t.Errorf("%q is decoded as %v", encoded, key)
		}
	}
	_, err := controller.KeyOf[int8](kube.Key{Name: "300"})
	if err == nil || !strings.Contains(err.Error(), `"300" is not a key of type int8`) {
		t.Errorf("error: %v", err)
	}
	for _, text := range []string{"", "x", "01", "+1", "true"} {
		if _, err := controller.KeyOf[int](kube.Key{Name: text}); err == nil {
			t.Errorf("%q is decoded as an int", text)
		}
	}
	if _, err := controller.KeyOf[[2]byte](kube.Key{Name: "ab"}); err == nil {
		t.Error("one byte is decoded as two")
	}
}

func TestKeyHandlerRejectsOtherTypes(t *testing.T) {
	t.Parallel()
	checkNoKey[float64](t, "a key cannot contain a float64")
	checkNoKey[*int](t, "a key cannot contain a *int")
	checkNoKey[any](t, "a key cannot contain a interface {}")
	checkNoKey[chan int](t, "a key cannot contain a chan int")
	checkNoKey[struct{ F [2]complex64 }](t, "complex64")
	checkNoKey[struct{ name string }](t, "field name of key type")
	checkNoKey[struct{ At *time.Time }](t, "*time.Time")
}

func checkNoKey[K comparable](t *testing.T, want string) {
	t.Helper()
	var zero K
	for name, f := range map[string]func(){
		"KeyHandler": func() { controller.KeyHandler(func(context.Context, K) error { return nil }) },
		"EncodeKey":  func() { controller.EncodeKey(zero) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) || !strings.Contains(text, "controller."+name) {
					t.Errorf("%s with %s: %s", name, reflect.TypeFor[K](), text)
				}
			}()
			f()
		}()
	}
	if _, err := controller.KeyOf[K](kube.Key{Name: "a"}); err == nil {
		t.Errorf("a key is decoded as %s", reflect.TypeFor[K]())
	}
}

func TestEncodeKeyPanicsForAmbiguousTexts(t *testing.T) {
	t.Parallel()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "is that of another key") {
			t.Errorf("panic: %s", text)
		}
	}()
	t.Errorf("the text is %q", controller.EncodeKey(equal{"a"}))
}
