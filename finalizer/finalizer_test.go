package finalizer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	own   = "shop.example.com/cleanup"
	other = "bank.example.com/audit"
)

func config(finalizers ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "u", ResourceVersion: "5", Finalizers: finalizers}}
}

func done(context.Context, *corev1.ConfigMap) error { return nil }

func TestNewReportsAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := New(Config[*corev1.ConfigMap]{Name: "cleanup"})
	for _, want := range []string{"Client is required", "Name: ", "no domain", "shop.example.com/cleanup", "at least one of Steps is required"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	_, err = New(Config[*corev1.ConfigMap]{Client: new(client.Client), Name: own, Steps: []Step[*corev1.ConfigMap]{
		{Name: "a", Run: done}, {Name: "a", Run: done}, {Name: "b"}, {Name: "c,d", Run: done}, {Name: "x/y", Run: done}, {Run: done},
	}})
	for _, want := range []string{"Steps[1].Name", "names must be unique", "Steps[2].Run is required", "Steps[3].Name", "Steps[4].Name", "Steps[5].Name"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	long := "shop.example.com/" + strings.Repeat("a", 59)
	if _, err = New(Config[*corev1.ConfigMap]{Client: new(client.Client), Name: long, Steps: []Step[*corev1.ConfigMap]{{"a", done}}}); err == nil || !strings.Contains(err.Error(), "no more than 63") {
		t.Errorf("the error of a long name is %v", err)
	}
	if _, err = New(Config[*corev1.ConfigMap]{Client: new(client.Client), Name: long[:len(long)-1], Steps: []Step[*corev1.ConfigMap]{{"a", done}}}); err != nil {
		t.Error(err)
	}
}

// remaining depends only on the names of the steps: the program may change while objects are being deleted.
func TestRemainingSteps(t *testing.T) {
	t.Parallel()
	f, err := New(Config[*corev1.ConfigMap]{Client: new(client.Client), Name: own, Steps: []Step[*corev1.ConfigMap]{{"new", done}, {"a", done}, {"b", done}}})
	if err != nil {
		t.Fatal(err)
	}
	for noted, want := range map[string]string{
		"": "new a b", "u:a": "new b", "u:a,b": "new", "u:removed,a, b,new": "", "u:,,": "new a b",
		// The annotation is of another object, or has no uid.
		"other:a,b": "new a b", "a,b": "new a b", ":a,b": "new a b",
	} {
		obj := config(own)
		obj.Annotations = map[string]string{own + "-done": noted}
		var left []string
		for _, step := range f.remaining(f.done(obj)) {
			left = append(left, step.Name)
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("after %q, %q are left, want %q", noted, got, want)
		}
	}
}

// takeOver copies the resourceVersion only if the rest of the object has not changed, because the resourceVersion
// stands for the whole content.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	const note = own + "-done"
	change := func(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
		later := config(own, other)
		later.ResourceVersion = "9"
		change(later)
		return later
	}
	for name, test := range map[string]struct {
		edit    func(obj *corev1.ConfigMap) // a change of the handler after before was read
		later   *corev1.ConfigMap
		version string
	}{
		"finalizers":      {later: change(func(*corev1.ConfigMap) {}), version: "9"},
		"annotation":      {later: change(func(c *corev1.ConfigMap) { c.Annotations = map[string]string{note: "a"} }), version: "9"},
		"managed fields":  {later: change(func(c *corev1.ConfigMap) { c.ManagedFields = []metav1.ManagedFieldsEntry{{}} }), version: "9"},
		"kind":            {later: change(func(c *corev1.ConfigMap) { c.Kind = "ConfigMap" }), version: "9"},
		"labels":          {later: change(func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }), version: "5"},
		"data":            {later: change(func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "b"} }), version: "5"},
		"deletion":        {later: change(func(c *corev1.ConfigMap) { c.DeletionTimestamp = new(metav1.Now()) }), version: "5"},
		"other notes":     {later: change(func(c *corev1.ConfigMap) { c.Annotations = map[string]string{"a": "b"} }), version: "5"},
		"handler's data":  {later: change(func(*corev1.ConfigMap) {}), edit: func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "b"} }, version: "9"},
		"handler's state": {later: change(func(*corev1.ConfigMap) {}), edit: func(c *corev1.ConfigMap) { c.ResourceVersion = "7" }, version: "7"},
	} {
		before := config(other)
		obj := before.DeepCopy()
		if test.edit != nil {
			test.edit(obj)
		}
		takeOver(obj, before, test.later, note)
		if obj.ResourceVersion != test.version {
			t.Errorf("%s: the resourceVersion is %s, want %s", name, obj.ResourceVersion, test.version)
		}
		if diff := cmp.Diff(test.later.Finalizers, obj.Finalizers); diff != "" {
			t.Errorf("%s: finalizers (-want +got):\n%s", name, diff)
		}
		if obj.Annotations[note] != test.later.Annotations[note] {
			t.Errorf("%s: the annotation is %q", name, obj.Annotations[note])
		}
		if test.later.Annotations[note] == "" && obj.Annotations != nil {
			t.Errorf("%s: the object, which had no annotations, got %v", name, obj.Annotations)
		}
	}
	obj := config(own)
	obj.Annotations = map[string]string{note: "a", "b": "c"}
	shared := obj.Annotations
	replaced := config()
	replaced.Annotations = map[string]string{note: "a,b"}
	takeOver(obj, obj, replaced, note)
	if obj.Annotations[note] != "a,b" || shared[note] != "a" {
		t.Errorf("the annotations are %v; those of before are %v", obj.Annotations, shared)
	}
	takeOver(obj, obj, config(), note)
	if len(obj.Annotations) != 1 || len(shared) != 2 {
		t.Errorf("the annotations are %v; those of before are %v", obj.Annotations, shared)
	}
}

func TestBlocking(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f, err := New(Config[*corev1.ConfigMap]{Client: new(client.Client), Name: own, Steps: []Step[*corev1.ConfigMap]{{"a", done}, {"b", done}}})
	if err != nil {
		t.Fatal(err)
	}
	deleted := func(annotation string, finalizers ...string) *corev1.ConfigMap {
		obj := config(finalizers...)
		obj.DeletionTimestamp = new(metav1.NewTime(now.Add(-time.Hour)))
		obj.Annotations = map[string]string{own + "-done": annotation}
		return obj
	}
	since := now.Add(-time.Hour)
	for name, test := range map[string]struct {
		obj  *corev1.ConfigMap
		want Report
		text string
	}{
		"live":   {config(own), Report{}, "it is not being deleted"},
		"nobody": {deleted(""), Report{Since: since}, "it is being deleted since 2026-03-04T04:06:07Z, and has no finalizers"},
		"others": {
			deleted("", other),
			Report{Since: since, Finalizers: []string{other}},
			"it is being deleted since 2026-03-04T04:06:07Z, and waits for the finalizer bank.example.com/audit",
		},
		"own": {
			deleted("", own, other),
			Report{Since: since, Finalizers: []string{own, other}, Step: "a"},
			`it is being deleted since 2026-03-04T04:06:07Z, and waits for the finalizers shop.example.com/cleanup, bank.example.com/audit; the teardown is at step "a"`,
		},
		"own, under way": {
			deleted("u:a", own),
			Report{Since: since, Finalizers: []string{own}, Step: "b", Done: []string{"a"}},
			`it is being deleted since 2026-03-04T04:06:07Z, and waits for the finalizer shop.example.com/cleanup; the teardown is at step "b" (done: a)`,
		},
		"own, all steps done": { // the process ended before it removed the finalizer
			deleted("u:a,b", own),
			Report{Since: since, Finalizers: []string{own}, Done: []string{"a", "b"}},
			"it is being deleted since 2026-03-04T04:06:07Z, and waits for the finalizer shop.example.com/cleanup",
		},
	} {
		got := f.Blocking(test.obj)
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: the report (-want +got):\n%s", name, diff)
		}
		if got.String() != test.text {
			t.Errorf("%s: the text\n%s\nwant\n%s", name, got, test.text)
		}
	}
}
