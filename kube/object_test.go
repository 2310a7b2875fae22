package kube_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseKey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]kube.Key{
		"default/web":    {Namespace: "default", Name: "web"},
		"node-1":         {Name: "node-1"},
		"a/b.c:d":        {Namespace: "a", Name: "b.c:d"},
		"system:masters": {Name: "system:masters"},
	} {
		got, err := kube.ParseKey(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ParseKey(%q): error %v (-want +got):\n%s", text, err, diff)
		}
		if got.String() != text {
			t.Errorf("String of %+v is %q, want %q", got, got.String(), text)
		}
	}
}

func TestParseKeyRejectsInvalidText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "/", "/name", "namespace/", "a/b/c", "a//b", "//"} {
		key, err := kube.ParseKey(text)
		if err == nil || key != (kube.Key{}) {
			t.Errorf("ParseKey(%q) returned %+v, %v; want an error alone", text, key, err)
			continue
		}
		if !strings.Contains(err.Error(), `"`+text+`"`) {
			t.Errorf("the error does not name %q: %v", text, err)
		}
	}
}

// String of a parsed key must return the parsed text, and the name must not be empty.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"default/web", "node-1", "", "/", "a/b/c", "/x", "x/", "\x00/\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := kube.ParseKey(text)
		if err != nil {
			if key != (kube.Key{}) {
				t.Errorf("ParseKey(%q) returned %+v with an error", text, key)
			}
			return
		}
		if key.Name == "" || strings.Contains(key.Name+key.Namespace, "/") {
			t.Errorf("ParseKey(%q) returned %+v", text, key)
		}
		if key.String() != text {
			t.Errorf("ParseKey(%q) is written %q", text, key)
		}
	})
}

func TestKeyOf(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	if got, want := kube.KeyOf(pod), (kube.Key{Namespace: "default", Name: "web"}); got != want {
		t.Errorf("KeyOf is %+v, want %+v", got, want)
	}
	node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	if got, want := kube.KeyOf(node), (kube.Key{Name: "node-1"}); got != want {
		t.Errorf("KeyOf is %+v, want %+v", got, want)
	}
}
