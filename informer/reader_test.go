package informer_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestAnInformerCoversWhatItHasListed(t *testing.T) {
	for name, test := range map[string]struct {
		selections []informer.Selection
		want       map[string]bool // by namespace, or by namespace and selector
	}{
		"everything":       {[]informer.Selection{{}}, map[string]bool{"": true, "ns": true, "other": true}},
		"one namespace":    {[]informer.Selection{{Namespaces: []string{"ns"}}}, map[string]bool{"": false, "ns": true, "other": false}},
		"two namespaces":   {[]informer.Selection{{Namespaces: []string{"ns", "b"}}}, map[string]bool{"": false, "ns": true, "b": true, "other": false}},
		"some by label":    {[]informer.Selection{{LabelSelector: "app=a"}}, map[string]bool{"": false, "ns": false, "ns app=a": true, " app=a,tier=b": true, " app in (a)": false, " app=b": false}},
		"some by field":    {[]informer.Selection{{FieldSelector: "metadata.name=kept"}}, map[string]bool{"": false, "ns": false}},
		"some and the all": {[]informer.Selection{{LabelSelector: "app=a"}, {Namespaces: []string{"ns"}}}, map[string]bool{"": false, "ns": true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, events := selected(t)
				var parts []informer.Retriever[*corev1.ConfigMap]
				for _, selection := range test.selections {
					parts = append(parts, informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection))
				}
				i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Join(parts...)})
				if err != nil {
					t.Fatal(err)
				}
				for asked := range test.want {
					if i.Covers(question(t, asked)) {
						t.Errorf("it covers %q before it runs", asked)
					}
				}
				leave := i.Join(t.Context())
				if err := i.WaitSynced(t.Context()); err != nil {
					t.Fatal(err)
				}
				for asked, want := range test.want {
					if got := i.Covers(question(t, asked)); got != want {
						t.Errorf("it covers %q: %t, want %t", asked, got, want)
					}
				}
				_ = events.Close()
				leave()
				for asked := range test.want {
					if i.Covers(question(t, asked)) {
						t.Errorf("it covers %q after it has run", asked)
					}
				}
			})
		})
	}
}

// question reads "namespace selector".
func question(t *testing.T, asked string) (namespace string, selector labels.Selector) {
	t.Helper()
	namespace, text, selects := strings.Cut(asked, " ")
	if !selects {
		return namespace, nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return namespace, selector
}

func TestObjectsWithoutTheirType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, events := selected(t)
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)})
		if err != nil {
			t.Fatal(err)
		}
		leave := i.Join(t.Context())
		defer leave()
		defer func() { _ = events.Close() }()
		if err := i.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		key := kube.Key{Namespace: "ns", Name: "kept"}
		if obj, found, err := i.Object(key); err != nil || !found || kube.KeyOf(obj) != key {
			t.Errorf("the object is %v, %t, %v", obj, found, err)
		}
		// Not an interface that holds a nil pointer.
		if obj, found, err := i.Object(kube.Key{Namespace: "ns", Name: "none"}); err != nil || found || obj != nil {
			t.Errorf("no object is %v, %t, %v", obj, found, err)
		}
		for query, want := range map[[2]string]int{{"", ""}: 1, {"ns", "app=a"}: 1, {"ns", "app=b"}: 0, {"other", ""}: 0} {
			selector, err := labels.Parse(query[1])
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for obj, err := range i.Objects(query[0], selector) {
				if err != nil || kube.KeyOf(obj) != key {
					t.Errorf("%q: %v, %v", query, obj, err)
				}
				got++
			}
			if got != want {
				t.Errorf("%q: %d objects, want %d", query, got, want)
			}
		}
	})
}

// What nobody feeds any longer would be shown for ever: a client that reads from it asks the API
// server instead.
func TestAnInformerThatHasEndedShowsNoObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, events := selected(t)
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)})
		if err != nil {
			t.Fatal(err)
		}
		leave := i.Join(t.Context())
		if err := i.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		key := kube.Key{Namespace: "ns", Name: "kept"}
		if _, found, err := i.Object(key); err != nil || !found {
			t.Fatalf("while it runs the object is found: %t, %v", found, err)
		}
		_ = events.Close()
		leave()
		if obj, found, err := i.Object(key); err != nil || found || obj != nil {
			t.Errorf("after it has run the object is %v, %t, %v", obj, found, err)
		}
		if _, found, err := i.Get(key); err != nil || !found {
			t.Errorf("Get, which says what was seen last, finds it: %t, %v", found, err)
		}
	})
}
