package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const widgetsPath = "/apis/example.com/v1/namespaces/shop/widgets"

// applied is a kind with an applied configuration whose field size has the value %s.
type applied struct{ path, configuration, field string }

func appliedKinds() map[string]applied {
	return map[string]applied{
		"ConfigMap": {configMapsPath, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"size":"%s"}}`, ".data.size"},
		"Widget":    {widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":"%s"}}`, ".spec.size"},
	}
}

// apply applies a configuration of the object a.
func (a applied) apply(tb testing.TB, s *Server, query, size string) (int, string) {
	tb.Helper()
	return send(tb, s, "PATCH", a.path+"/a?"+query, fmt.Sprintf(a.configuration, size), "Content-Type", "application/apply-patch+yaml")
}

func decodeMetadata(tb testing.TB, text string) metav1.ObjectMeta {
	tb.Helper()
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(text), &obj); err != nil {
		tb.Fatal(err)
	}
	return obj.ObjectMeta
}

func managersOf(m metav1.ObjectMeta) []string {
	managers := make([]string, 0, len(m.ManagedFields))
	for _, entry := range m.ManagedFields {
		managers = append(managers, string(entry.Operation)+" "+entry.Manager)
	}
	return managers
}

func TestApplyReportsConflicts(t *testing.T) {
	t.Parallel()
	for name, kind := range appliedKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			if code, text := kind.apply(t, s, "fieldManager=m1", "1"); code != 201 {
				t.Fatalf("create by apply: %d %s", code, text)
			}
			code, text := kind.apply(t, s, "fieldManager=m2", "2")
			cause := `"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"m1\"`
			if code != 409 || !strings.Contains(text, cause) || !strings.Contains(text, `"field":"`+kind.field+`"`) {
				t.Errorf("apply of another manager's field: %d %s", code, text)
			}
			code, text = kind.apply(t, s, "fieldManager=m2&force=true", "2")
			if code != 200 || !slices.Contains(managersOf(decodeMetadata(t, text)), "Apply m2") {
				t.Errorf("apply with force: %d %s", code, text)
			}
			if code, text = kind.apply(t, s, "fieldManager=m1", "1"); code != 409 || !strings.Contains(text, `conflict with \"m2\"`) {
				t.Errorf("apply of a field that was taken: %d %s", code, text)
			}
		})
	}
}

func TestRepeatedApplyIsNotAChange(t *testing.T) {
	t.Parallel()
	for name, kind := range appliedKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				kind.apply(t, s, "fieldManager=m1", "1")
				time.Sleep(2 * time.Second)
				before := s.Version()
				if code, text := kind.apply(t, s, "fieldManager=m1", "1"); code != 200 || s.Version() != before {
					t.Errorf("%d %s, version %s, want %s", code, text, s.Version(), before)
				}
			})
		})
	}
}

func TestApplyWithoutCommitKeepsStoredObject(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	mustSend(t, s, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"app":"web"}},"spec":{"n":{"size":1}}}`)
	stored := s.tables[schema.GroupResource{Group: "example.com", Resource: "widgets"}].get("shop/a").obj.(*unstructured.Unstructured)
	before := stored.DeepCopy()
	mustSend(t, s, "PATCH", widgetsPath+"/a?fieldManager=m1&dryRun=All",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"n":"v"},"annotations":{"n":"v"}},"spec":{"n":{"image":1.0}}}`,
		"Content-Type", "application/apply-patch+yaml")
	if diff := cmp.Diff(before.Object, stored.Object); diff != "" {
		t.Errorf("the stored object was changed: %s", diff)
	}
}

// An applied configuration has floating-point numbers. A later change of labels must not look like a change of the spec.
func TestAppliedIntegersKeepGeneration(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	mustSend(t, s, "PATCH", widgetsPath+"/a?fieldManager=m1", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {list: [1, 2.5]}\n",
		"Content-Type", "application/apply-patch+yaml")
	text := mustSend(t, s, "PATCH", widgetsPath+"/a", `{"metadata":{"labels":{"app":"web"}}}`, "Content-Type", "application/merge-patch+json")
	if m := decodeMetadata(t, text); m.Generation != 1 {
		t.Errorf("generation %d, want 1: %s", m.Generation, text)
	}
}

func TestUpdateManagersAreLimited(t *testing.T) {
	t.Parallel()
	const limit = 10
	for name, kind := range appliedKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				mustSend(t, s, "POST", kind.path, fmt.Sprintf(kind.configuration, "1"))
				text := ""
				for i := range limit + 2 {
					time.Sleep(time.Second)
					text = mustSend(t, s, "PATCH", fmt.Sprintf("%s/a?fieldManager=m%d", kind.path, i),
						fmt.Sprintf(`{"metadata":{"labels":{"l%d":"x"}}}`, i), "Content-Type", "application/merge-patch+json")
				}
				managers := managersOf(decodeMetadata(t, text))
				if len(managers) != limit || managers[0] != "Update ancient-changes" || managers[limit-1] != "Update m11" {
					t.Errorf("managers: %q", managers)
				}
			})
		})
	}
}

func TestApplyToObjectWithoutManagers(t *testing.T) {
	t.Parallel()
	for name, kind := range appliedKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			mustSend(t, s, "POST", kind.path, fmt.Sprintf(kind.configuration, "1"))
			text := mustSend(t, s, "PATCH", kind.path+"/a", `{"metadata":{"managedFields":[{}]}}`, "Content-Type", "application/merge-patch+json")
			if m := decodeMetadata(t, text); len(m.ManagedFields) > 0 {
				t.Fatalf("managed fields after their reset: %v", m.ManagedFields)
			}
			if code, text := kind.apply(t, s, "fieldManager=m1", "2"); code != 409 || !strings.Contains(text, "before-first-apply") {
				t.Errorf("apply: %d %s", code, text)
			}
			_, text = kind.apply(t, s, "fieldManager=m1", "1")
			if diff := cmp.Diff([]string{"Apply m1", "Update before-first-apply"}, managersOf(decodeMetadata(t, text))); diff != "" {
				t.Errorf("managers: %s", diff)
			}
		})
	}
}
