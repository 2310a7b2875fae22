package owned

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Tests that need an API server are in dev/integration/owned.

func newClient(t *testing.T, fieldOwner string) *client.Client {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://nowhere.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: fieldOwner})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewReportsAllMistakes(t *testing.T) {
	t.Parallel()
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	_, err := New(Config{
		Client: newClient(t, "webapp"), Name: "not a label",
		Kinds: []schema.GroupVersionKind{kind, kind, {Kind: "Service"}},
		Prune: PruneNever + 1, Propagation: "sideways",
		Former:                Former{Managers: []string{""}, OwnerGrace: -1},
		ForceRemoveFinalizers: map[string]time.Duration{"": 0, "example.com/volume": -1},
	})
	for _, part := range []string{
		"Name is", "Kinds[1]", "Kinds[2]", "Prune is 3", "Propagation", "Former.Managers", "Former.OwnerGrace",
		"ForceRemoveFinalizers has an empty name", `ForceRemoveFinalizers["example.com/volume"] is -1ns`,
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not tell %q: %v", part, err)
		}
	}
	_, err = New(Config{})
	for _, part := range []string{"Client is required", "Name is required", "Kinds is required"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not tell %q: %v", part, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	set, err := New(Config{Client: newClient(t, "tests"), Name: "webapp", Kinds: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	if err != nil {
		t.Fatal(err)
	}
	c := set.config
	if c.ReportConflicts || c.Prune != PruneLast || c.Propagation != metav1.DeletePropagationBackground ||
		c.Former.OwnerGrace != time.Minute || c.AdoptOrphans || c.Events != nil {
		t.Errorf("%+v", c)
	}
	if !set.dry.Config().DryRun {
		t.Error("plans would write")
	}

	c.Events = (*event.Recorder)(nil)
	if set, err = New(c); err != nil {
		t.Fatal(err)
	}
	p := &pass{set: set, client: c.Client, owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}
	p.record("Normal", "Before", "Test", "the Cluster has no recorder yet")
	var written eventsOf
	apiobject.ObserversOf(c.Client.Cluster()).SetEvents(&written)
	p.record("Normal", "After", "Test", "the Cluster has a recorder")
	if want := (eventsOf{"shop/web After"}); !slices.Equal(written, want) {
		t.Errorf("the Events are %q, want %q", written, want)
	}
}

// eventsOf are the objects and the reasons of Events.
type eventsOf []string

func (e *eventsOf) Event(regarding corev1.ObjectReference, _, reason, _, _ string) {
	*e = append(*e, regarding.Namespace+"/"+regarding.Name+" "+reason)
}

func TestNamespacesOf(t *testing.T) {
	t.Parallel()
	near, far := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, &corev1.Node{}
	for name, test := range map[string]struct {
		owner metav1.Object
		given []string
		want  []string
	}{
		"the owner's":               {near, nil, []string{"shop"}},
		"the owner's and others":    {near, []string{"b", "shop", "b"}, []string{"b", "shop"}},
		"all, when it says so":      {near, []string{"b", metav1.NamespaceAll}, nil},
		"all, of an owner in none":  {far, nil, nil},
		"some, of an owner in none": {far, []string{"b"}, []string{"b"}},
	} {
		if got := (Config{Namespaces: test.given}).namespacesOf(test.owner, nil); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
