package client_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDiff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string
		want          []string
	}{
		"nothing": {`{"spec":{"a":1}}`, `{"spec":{"a":1}}`, nil},
		"what every write changes": {
			`{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[]},"status":{"ready":false}}`,
			`{"metadata":{"resourceVersion":"2","generation":2},"status":{"ready":true}}`, nil,
		},
		"a value": {`{"spec":{"replicas":1}}`, `{"spec":{"replicas":3}}`, []string{"spec.replicas: 1 -> 3"}},
		"a field comes and one goes": {
			`{"spec":{"a":true}}`, `{"spec":{"b":"x"}}`, []string{"spec.a: true -> none", `spec.b: none -> "x"`},
		},
		"null and missing are the same": {`{"spec":{"a":null}}`, `{"spec":{}}`, nil},
		"a map that was not there, by its fields": {
			`{"spec":{}}`, `{"spec":{"x":{"a":1,"b":2}}}`, []string{"spec.x.a: none -> 1", "spec.x.b: none -> 2"},
		},
		"an empty map is something": {`{"spec":{}}`, `{"spec":{"emptyDir":{}}}`, []string{"spec.emptyDir: none -> {}"}},
		"labels with keys that are no words": {
			`{"metadata":{"labels":{"app.kubernetes.io/name":"a","tier":"x"}}}`,
			`{"metadata":{"labels":{"app.kubernetes.io/name":"b"}}}`,
			[]string{`metadata.labels.tier: "x" -> none`, `metadata.labels[app.kubernetes.io/name]: "a" -> "b"`},
		},
		"owner references and finalizers": {
			`{"metadata":{"finalizers":["a"]}}`,
			`{"metadata":{"finalizers":["a","b"],"ownerReferences":[{"name":"o","uid":"1"}]}}`,
			[]string{`metadata.finalizers: ["a"] -> ["a","b"]`, `metadata.ownerReferences: none -> [{"name":"o","uid":"1"}]`},
		},
		"elements by name, in any order": {
			`{"spec":{"c":[{"name":"a","v":1},{"name":"b","v":1}]}}`, `{"spec":{"c":[{"name":"b","v":2},{"name":"a","v":1}]}}`,
			[]string{"spec.c[b].v: 1 -> 2"},
		},
		"elements come and go": {
			`{"spec":{"c":[{"name":"a"}]}}`, `{"spec":{"c":[{"name":"b"}]}}`,
			[]string{`spec.c[a]: {"name":"a"} -> none`, `spec.c[b]: none -> {"name":"b"}`},
		},
		"nothing but the order": {
			`{"spec":{"c":[{"name":"a"},{"name":"b"}]}}`, `{"spec":{"c":[{"name":"b"},{"name":"a"}]}}`,
			[]string{`spec.c: [{"name":"a"},{"name":"b"}] -> [{"name":"b"},{"name":"a"}]`},
		},
		"elements of the same name, by index": {
			`{"spec":{"c":[{"name":"a","v":1},{"name":"a","v":1}]}}`, `{"spec":{"c":[{"name":"a","v":1},{"name":"a","v":2},{"v":3}]}}`,
			[]string{"spec.c[1].v: 1 -> 2", `spec.c[2]: none -> {"v":3}`},
		},
		"another type of value":   {`{"spec":{"a":1}}`, `{"spec":{"a":{"b":1}}}`, []string{`spec.a: 1 -> {"b":1}`}},
		"content outside of spec": {`{"data":{"a.b":"1"}}`, `{"data":{"a.b":"2"}}`, []string{`data[a.b]: "1" -> "2"`}},
		"labels with keys of all plain characters": {
			`{}`, `{"metadata":{"labels":{"azAZ09-_":"x","a:b":"x"}}}`,
			[]string{`metadata.labels.azAZ09-_: none -> "x"`, `metadata.labels[a:b]: none -> "x"`},
		},
		"a value of the maximum length": {
			`{"spec":{"a":"` + strings.Repeat("x", 118) + `"}}`, `{"spec":{}}`,
			[]string{`spec.a: "` + strings.Repeat("x", 118) + `" -> none`},
		},
		"a long value is cut at a letter": {
			`{"spec":{"a":"` + strings.Repeat("ü", 100) + `"}}`, `{"spec":{}}`,
			[]string{`spec.a: "` + strings.Repeat("ü", 59) + `... -> none`},
		},
		"a Secret's values are hidden": {
			`{"kind":"Secret","immutable":false,"data":{"a":"aHVzaA==","b":"aHVzaA=="},"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hush"}}}`,
			`{"kind":"Secret","immutable":true,"data":{"a":"b3RoZXI="},"stringData":{"c":"hush"},"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"other"}}}`,
			[]string{
				"data.a: (hidden) -> another value (hidden)", "data.b: (hidden) -> none", "immutable: false -> true",
				"metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: (hidden) -> another value (hidden)",
				"stringData.c: none -> (hidden)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := client.Diff(nil, object(t, test.before), object(t, test.after))
			var got []string
			for _, change := range changes {
				got = append(got, change.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			encoded, err := json.Marshal(changes)
			if err != nil || strings.Contains(string(encoded), "aHVzaA==") {
				t.Errorf("as data: %s, %v", encoded, err)
			}
		})
	}
}

// Objects of different Go types are compared by their fields.
func TestDiffOfTypes(t *testing.T) {
	t.Parallel()
	typed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
	asMap := object(t, `{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":2,"template":{},"selector":null}}`)
	if diff := cmp.Diff([]client.FieldChange{{Path: "spec.replicas", Before: int64(1), After: int64(2)}}, client.Diff(nil, typed, asMap)); diff != "" {
		// The template of a Deployment is not a pointer, so it is always encoded: as {"spec":{}}, or as {} if empty
		// structs are omitted.
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, changes := range map[string][]client.FieldChange{
		"of nothing": client.Diff(nil, nil, typed), "of a nil pointer": client.Diff(nil, (*appsv1.Deployment)(nil), typed),
	} {
		if len(changes) != 3 || changes[0].Path != "metadata.labels.a" || changes[0].Before != nil {
			t.Errorf("%s: %v", name, changes)
		}
	}
	secret := &corev1.Secret{Data: map[string][]byte{"a": []byte("hush")}}
	if changes := client.Diff(nil, nil, secret); len(changes) != 1 || changes[0].After != client.Hidden {
		t.Errorf("a typed Secret: %v", changes)
	}
	if changes := client.Diff(nil, nil, nil); changes != nil {
		t.Errorf("of nothing and nothing: %v", changes)
	}
}

func ExampleDiff() {
	before := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
	after := before.DeepCopy()
	after.Spec.Replicas = new(int32(3))
	after.Labels = map[string]string{"app.kubernetes.io/name": "web"}
	for _, change := range client.Diff(nil, before, after) {
		fmt.Println(change)
	}
	// Output:
	// metadata.labels[app.kubernetes.io/name]: none -> "web"
	// spec.replicas: 1 -> 3
}

func TestHiddenFieldsInOutcomes(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	if err := c.Cluster().HideFields(appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind(), "spec.serviceName", "metadata.labels"); err != nil {
		t.Fatal(err)
	}
	before, after := database(), database()
	before.TypeMeta, after.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{} // the Cluster knows the kind of the Go type
	before.Spec.ServiceName = "db"
	after.Spec.ServiceName, after.Labels = "other", map[string]string{"a": "b"}
	after.Spec.RevisionHistoryLimit = new(int32(1))
	want := []client.FieldChange{
		{Path: "metadata.labels", After: client.Hidden},
		{Path: "spec.revisionHistoryLimit", After: int64(1)},
		{Path: "spec.serviceName", Before: client.Hidden, After: client.Hidden},
	}
	if diff := cmp.Diff(want, client.Diff(c, before, after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An element of a list that contains a hidden key is hidden, also if its own name looks like a key.
func TestNewElementWithHiddenKeyIsHidden(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	kind := schema.GroupKind{Group: "example.com", Kind: "Site"}
	if err := c.Cluster().HideFields(kind, `spec.stores["tls.key"]`); err != nil {
		t.Fatal(err)
	}
	before := object(t, `{"apiVersion":"example.com/v1","kind":"Site","spec":{"stores":[]}}`)
	after := object(t, `{"apiVersion":"example.com/v1","kind":"Site",
		"spec":{"stores":[{"name":"my.store","tls.key":"hush"}]}}`)
	want := []client.FieldChange{{Path: "spec.stores[my.store]", After: client.Hidden}}
	if diff := cmp.Diff(want, client.Diff(c, before, after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKeysBelowHiddenFieldsAreNotShown checks that keys of maps below a hidden field are hidden, as one change.
func TestKeysBelowHiddenFieldsAreNotShown(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://api.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.HideFields(schema.GroupKind{Group: "example.com", Kind: "Account"}, "spec.tokens", "spec.users.name"); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	account := func(name, value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Account", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{
				"tokens": map[string]any{"hunter2": value, "hunter3": value},
				"users":  []any{map[string]any{"name": name, "role": value}},
			},
		}}
	}
	want := []client.FieldChange{
		{Path: "spec.tokens", Before: client.Hidden, After: client.Hidden},
		{Path: "spec.users[(hidden)].role", Before: "a", After: "b"},
	}
	for _, name := range []string{"hunter4", "c2VjcmV0dG9rZW4=", "48213377"} { // the others look like field=value, or an index
		if diff := cmp.Diff(want, client.Diff(c, account(name, "a"), account(name, "b"))); diff != "" {
			t.Errorf("%s: changes (-want +got):\n%s", name, diff)
		}
	}
}

// Names of elements that look like the end of an index do not let keys of a hidden map, or hidden names, be shown.
func TestHiddenKeysBelowUnusualNamesAreNotShown(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://nowhere.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.HideFields(schema.GroupKind{Group: "example.com", Kind: "Team"}, "spec.groups.tokens", "spec.groups.users.name")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"web", "0", "a]", "a[", "a].x", "a].tokens", "][", "a.b", "a=b", "x].y[z", `"`, `a\]`, "[["} {
		for _, user := range []string{"topsecret", "12345678", "topsecret]", "[topsecret", "topsecret].x", "a=topsecret"} {
			team := func(port int64, token string) *unstructured.Unstructured {
				users := []any{map[string]any{"name": user, "port": port}}
				tokens := map[string]any{"hiddenkey": token, "hiddenkey2": map[string]any{"x.y": token}}
				return &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "example.com/v1", "kind": "Team", "metadata": map[string]any{"name": "x"},
					"spec": map[string]any{"groups": []any{map[string]any{"name": group, "tokens": tokens, "users": users}}},
				}}
			}
			text := fmt.Sprint(client.Diff(c, team(1, "a"), team(2, "b")))
			for _, hidden := range []string{"topsecret", "12345678", "hiddenkey"} {
				if strings.Contains(text, hidden) {
					t.Errorf("group %q, user %q: %s", group, user, text)
				}
			}
		}
	}
}
