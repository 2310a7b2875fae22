package status_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Shop is a custom kind. Its status has conditions, other fields and another list.
type Shop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ShopSpec   `json:"spec"`
	Status            ShopStatus `json:"status"`
}

type ShopSpec struct {
	Replicas int `json:"replicas"`
}

type ShopStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Replicas           int                `json:"replicas"`
	Hosts              []string           `json:"hosts,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Summary            struct {
		First  string `json:"first,omitempty"`
		Second string `json:"second,omitempty"`
	} `json:"summary"`
}

// DeepCopyObject implements runtime.Object.
func (s *Shop) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Hosts = append([]string(nil), s.Status.Hosts...)
	out.Status.Conditions = append([]metav1.Condition(nil), s.Status.Conditions...)
	return &out
}

func (s *Shop) copy() *Shop { return s.DeepCopyObject().(*Shop) }

func shopVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "shop.example.com", Version: "v1"}
}

func shopKey() kube.Key { return kube.Key{Namespace: "town", Name: "books"} }

// world is a server with one Shop, and a client.
type world struct {
	*apitest.Server
	client *client.Client
	sent   []string // the bodies of writes
	// disturb is called before each write, to change the object as another client. Optional.
	disturb func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w, err := makeWorld()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// startServer is like newWorld, for examples.
func startServer() (c *client.Client, stop func()) {
	w, err := makeWorld()
	if err != nil {
		panic(err)
	}
	return w.client, func() {}
}

func makeWorld() (*world, error) {
	w := &world{Server: apitest.New(apitest.WithStatus(apiserver.Custom(shopVersion().WithKind("Shop"), "shops")))}
	cluster, err := kube.Connect(w.Config("test"), func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(shopVersion().WithKind("Shop"), &Shop{})
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.client, err = client.New(client.Config{Cluster: cluster, Interceptors: []client.Interceptor{
		func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if r.Verb.IsWrite() {
					w.sent = append(w.sent, string(r.Body))
					if w.disturb != nil {
						w.disturb()
					}
				}
				return next(ctx, r)
			}
		},
	}})
	if err != nil {
		return nil, err
	}
	w.edit(func(status map[string]any) {
		status["replicas"] = int64(0)
		status["hosts"] = []any{"a"}
		status["conditions"] = []any{condition("Theirs", "True"), condition("Ready", "False")}
	})
	return w, nil
}

func condition(conditionType, status string) map[string]any {
	return map[string]any{"type": conditionType, "status": status, "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "Why", "message": ""}
}

// edit changes the Shop's status as another client.
func (w *world) edit(change func(status map[string]any)) {
	w.Edit("shops", shopKey(), "others", func(obj map[string]any) bool {
		status, ok := obj["status"].(map[string]any)
		if !ok {
			status = map[string]any{}
		}
		change(status)
		obj["status"] = status
		return true
	})
}

// say sets the status of one condition as another client.
func (w *world) say(conditionType, value string) {
	w.edit(func(status map[string]any) {
		for i, entry := range status["conditions"].([]any) {
			if entry.(map[string]any)["type"] == conditionType {
				maps.Copy(status["conditions"].([]any)[i].(map[string]any), condition(conditionType, value))
				return
			}
		}
		status["conditions"] = append(status["conditions"].([]any), condition(conditionType, value))
	})
}

// shop reads the Shop.
// shops returns the Shop twice: as a handler has read it, and for its changes.
func (w *world) shops(t *testing.T) (before, after *Shop) {
	t.Helper()
	before = w.shop(t)
	return before, before.copy()
}

func (w *world) shop(t *testing.T) *Shop {
	t.Helper()
	shop, err := client.Get[*Shop](t.Context(), w.client, shopKey())
	if err != nil {
		t.Fatal(err)
	}
	w.Requests()
	return shop
}

func (w *world) unstructured(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	shop, err := client.Get[*unstructured.Unstructured](t.Context(), w.client, shopKey(), client.OfKind(shopVersion().WithKind("Shop")))
	if err != nil {
		t.Fatal(err)
	}
	w.Requests()
	return shop
}

// brief formats a status in one line.
func brief(s ShopStatus) string {
	text := fmt.Sprint(s.Replicas, s.Hosts)
	for _, c := range s.Conditions {
		text += fmt.Sprintf(" %s=%s", c.Type, c.Status)
	}
	return text
}

func (w *world) expect(t *testing.T, wantStatus string, wantRequests ...string) {
	t.Helper()
	if got := fmt.Sprint(w.Requests()); got != fmt.Sprint(wantRequests) {
		t.Errorf("requests:\n%s\nwant\n%s", got, wantRequests)
	}
	if got := brief(w.shop(t).Status); got != wantStatus {
		t.Errorf("the status is %s, want %s", got, wantStatus)
	}
}

// lastSent returns the body of the last write.
func (w *world) lastSent(t *testing.T) any {
	t.Helper()
	var body any
	if err := json.Unmarshal([]byte(w.sent[len(w.sent)-1]), &body); err != nil {
		t.Fatal(err)
	}
	return body
}

// label sets a label of the Shop as another client.
func (w *world) label(name, value string) {
	w.Edit("shops", shopKey(), "others", func(obj map[string]any) bool {
		obj["metadata"].(map[string]any)["labels"] = map[string]any{name: value}
		return true
	})
}
