package apply

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
)

// byUpdate changes a Deployment as the manager of an earlier version of the program.
func (w world) byUpdate(t *testing.T, manager, subresource, patch string) {
	t.Helper()
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}}
	options := []client.WriteOption{client.FieldOwner(manager)}
	if subresource != "" {
		options = append(options, client.Subresource(subresource))
	}
	if _, err := client.Patch(t.Context(), w.c, web, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), options...); err != nil {
		t.Fatal(err)
	}
}

// TestLeftFieldsReturnsFieldsRemovedAfterTakeOver checks that LeftFields returns the fields that two former managers,
// and no other clients, have written: the fields that the next apply removes after TakeOver. The result has neither
// defaults, the status, another client's fields, nor fields that both have written.
func TestLeftFieldsReturnsFieldsRemovedAfterTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.deployment("web", "shop:1")
	old.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	old.Annotations = map[string]string{"shop.example.com/a": "1"}
	if _, err := client.Create(t.Context(), w.c, old, client.FieldOwner("old-operator")); err != nil {
		t.Fatal(err)
	}
	w.byUpdate(t, "older-operator", "", `{"spec":{"template":{"spec":{"containers":[
		{"name":"web","env":[{"name":"A","value":"1"}]},{"name":"sidecar","image":"proxy:1"}]}}}}`)
	w.byUpdate(t, "older-operator", "status", `{"status":{"observedGeneration":1}}`)
	w.byUpdate(t, "kubectl", "", `{"metadata":{"labels":{"team":"shop"}},"spec":{"template":{"spec":{"containers":[
		{"name":"web","env":[{"name":"B","value":"2"}]}]}}}}`)
	w.byUpdate(t, "kubectl", "", `{"metadata":{"annotations":{"shop.example.com/a":"1","shop.example.com/b":"2"}}}`)

	managers := []string{"old-operator", "older-operator"}
	desired := w.deployment("web", "shop:2")
	dry, err := client.Apply(t.Context(), w.c, desired, client.Force(), client.DryRun())
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.GetLive(t.Context(), w.c, dry.Object)
	if err != nil {
		t.Fatal(err)
	}
	planned, err := client.LeftFields(t.Context(), w.c, before, dry.Object, managers)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := client.Apply(t.Context(), w.c, desired, client.Force())
	if err != nil {
		t.Fatal(err)
	}
	left, err := client.LeftFields(t.Context(), w.c, applied.Object, applied.Object, managers)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"metadata.annotations[shop.example.com/a]",
		"spec.template.spec.containers[sidecar]",
		"spec.template.spec.containers[web].env[A]",
		"spec.template.spec.nodeSelector.disk",
	}
	for what, changes := range map[string][]client.FieldChange{"after a dry run": planned, "after the apply": left} {
		if got := paths(changes); !slices.Equal(got, want) {
			t.Errorf("%s, the left fields are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if after, err := client.GetLive(t.Context(), w.c, applied.Object); err != nil || after.ResourceVersion != applied.Object.ResourceVersion {
		t.Errorf("looking for left fields has written: %v", err)
	}

	if took, err := client.TakeOver(t.Context(), w.c, applied.Object, managers); err != nil || !took {
		t.Fatalf("taken over: %v, %v", took, err)
	}
	last, err := client.Apply(t.Context(), w.c, desired, client.Force())
	if err != nil {
		t.Fatal(err)
	}
	if got := paths(last.Changed); !slices.Equal(got, want) {
		t.Errorf("after TakeOver the apply has removed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if left, err := client.LeftFields(t.Context(), w.c, last.Object, last.Object, managers); err != nil || len(left) > 0 {
		t.Errorf("fields are left: %v, %v", left, err)
	}
}

// TestLeftFieldsOfRemainingListElement has a list element that stays. The former manager has written the default of one
// of its keys, which the configuration does not contain. Keys are not left fields.
func TestLeftFieldsOfRemainingListElement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	service := func(nodes int32) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: nodes}, {Name: "old", Port: 81}}[:max(1, 2*min(1, nodes))]},
		}
	}
	if _, err := client.Create(t.Context(), w.c, service(31234), client.FieldOwner("old-operator")); err != nil {
		t.Fatal(err)
	}
	applied, err := client.Apply(t.Context(), w.c, service(0), client.Force())
	if err != nil {
		t.Fatal(err)
	}
	left, err := client.LeftFields(t.Context(), w.c, applied.Object, applied.Object, []string{"old-operator"})
	if err != nil || !slices.Contains(paths(left), "spec.ports[old]") {
		t.Errorf("left are %v, %v", paths(left), err)
	}
}

// LeftFields returns the fields of a Secret without their values.
func TestLeftFieldsHidesSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := func(data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "keys"}, Data: data}
	}
	if _, err := client.Create(t.Context(), w.c, secret(map[string][]byte{"old": []byte("open sesame"), "kept": []byte("1")}), client.FieldOwner("old-operator")); err != nil {
		t.Fatal(err)
	}
	applied, err := client.Apply(t.Context(), w.c, secret(map[string][]byte{"kept": []byte("1")}), client.Force())
	if err != nil {
		t.Fatal(err)
	}
	left, err := client.LeftFields(t.Context(), w.c, applied.Object, applied.Object, []string{"old-operator"})
	if err != nil || !slices.Equal(paths(left), []string{"data.old"}) {
		t.Fatalf("left are %v, %v", left, err)
	}
	if encoded, err := json.Marshal(left); err != nil || strings.Contains(string(encoded), "b3BlbiBzZXNhbWU") {
		t.Errorf("a Secret's value is shown: %s, %v", encoded, err)
	}
}

func paths(changes []client.FieldChange) []string {
	var all []string
	for _, change := range changes {
		all = append(all, change.Path)
	}
	return all
}

// TestLeftFieldsWithoutMetadata has an object with metadata that no other manager owns. Its name and other identifying
// fields are not left fields.
func TestLeftFieldsWithoutMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.configMap("web", map[string]string{"mode": "fast", "old": "yes"})
	old.Labels, old.Annotations = map[string]string{"team": "shop"}, map[string]string{"shop.example.com/a": "1"}
	if _, err := client.Create(t.Context(), w.c, old, client.FieldOwner("old-operator")); err != nil {
		t.Fatal(err)
	}
	desired, managers := w.configMap("web", map[string]string{"mode": "fast"}), []string{"old-operator"}
	applied := must(client.Apply(t.Context(), w.c, desired, client.Force()))(t)
	left, err := client.LeftFields(t.Context(), w.c, applied.Object, applied.Object, managers)
	want := []string{"data.old", "metadata.annotations[shop.example.com/a]", "metadata.labels.team"}
	if got := paths(left); err != nil || !slices.Equal(got, want) {
		t.Errorf("left are %q, %v, want %q", got, err, want)
	}
	if took, err := client.TakeOver(t.Context(), w.c, applied.Object, managers); err != nil || !took {
		t.Fatalf("taken over: %v, %v", took, err)
	}
	if got := paths(must(client.Apply(t.Context(), w.c, desired, client.Force()))(t).Changed); !slices.Equal(got, want) {
		t.Errorf("the next apply has removed %q", got)
	}
}
