package apply

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/compat"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func set(key, value string) func(*corev1.ConfigMap) error {
	return func(config *corev1.ConfigMap) error {
		if config.Data == nil {
			config.Data = map[string]string{}
		}
		config.Data[key] = value
		return nil
	}
}

func TestCreateOrUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.ConfigMap](t, w)
	ctx, requests := watched(t)
	obj := w.configMap("settings", map[string]string{"first": "1"})

	created := must(compat.CreateOrUpdate(ctx, c, obj, set("mode", "fast")))(t)
	if diff := cmp.Diff(map[string]string{"first": "1", "mode": "fast"}, created.Object.Data); diff != "" || created.Outcome != client.Created {
		t.Errorf("%s (-want +got):\n%s", created.Outcome, diff)
	}
	if len(obj.Data) != 1 {
		t.Error("the argument was changed")
	}
	requests.want(t, "create")
	shows(created.Object)
	same := must(compat.CreateOrUpdate(ctx, c, obj, set("mode", "fast")))(t)
	if same.Outcome != client.Unchanged || same.Changed != nil {
		t.Errorf("outcome %s, changed %v", same.Outcome, same.Changed)
	}
	requests.want(t)
	updated := must(compat.CreateOrUpdate(ctx, c, obj, set("mode", "slow")))(t)
	if diff := cmp.Diff([]string{`data.mode: "fast" -> "slow"`}, texts(updated.Changed)); diff != "" || updated.Outcome != client.Updated {
		t.Errorf("%s (-want +got):\n%s", updated.Outcome, diff)
	}
	requests.want(t, "update")
	dry := must(compat.CreateOrUpdate(ctx, w.c, obj, set("mode", "none"), client.DryRun()))(t)
	requests.want(t, "get", "update (dry run)")
	if dry.Outcome != client.Updated || len(dry.Changed) != 1 {
		t.Errorf("dry run: outcome %s, changed %v", dry.Outcome, dry.Changed)
	}
}

// A stale informer costs a read and another try, and no write of another client is lost.
func TestCreateOrUpdateWithStaleCache(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*testing.T, *client.Client, *corev1.ConfigMap) (compat.WriteResult[*corev1.ConfigMap], *calls){
		"update": func(t *testing.T, c *client.Client, obj *corev1.ConfigMap) (compat.WriteResult[*corev1.ConfigMap], *calls) {
			t.Helper()
			ctx, requests := watched(t)
			return must(compat.CreateOrUpdate(ctx, c, obj, set("mode", "fast")))(t), requests
		},
		"patch": func(t *testing.T, c *client.Client, obj *corev1.ConfigMap) (compat.WriteResult[*corev1.ConfigMap], *calls) {
			t.Helper()
			ctx, requests := watched(t)
			return must(compat.CreateOrPatch(ctx, c, obj, set("mode", "fast")))(t), requests
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			still := &frozen{}
			c := must(client.New(client.Config{Cluster: w.cluster, FieldOwner: "tests", Informers: []client.Informer{cache.Hold[cache.Informer](still)}}))(t)
			obj := w.configMap("settings", nil)

			// The object was created, but the informer does not show it.
			theirs := must(client.Create(t.Context(), w.c, w.configMap("settings", map[string]string{"theirs": "1"})))(t)
			result, requests := write(t, c, obj)
			requests.want(t, "create", "get", name)
			if result.Outcome != client.Updated || result.Object.Data["theirs"] != "1" || result.Object.Data["mode"] != "fast" {
				t.Errorf("outcome %s, data %v", result.Outcome, result.Object.Data)
			}

			// The object was changed, but the informer does not show it; the live object is already as desired.
			still.object = theirs
			result, requests = write(t, c, obj)
			requests.want(t, name, "get")
			if result.Outcome != client.Unchanged {
				t.Errorf("outcome %s, changed %v", result.Outcome, result.Changed)
			}

			// The object was deleted, but the informer does not show it.
			if err := client.Delete(t.Context(), w.c, result.Object); err != nil {
				t.Fatal(err)
			}
			result, requests = write(t, c, obj)
			requests.want(t, name, "get", "create")
			if result.Outcome != client.Created || result.Object.Data["mode"] != "fast" {
				t.Errorf("outcome %s, data %v", result.Outcome, result.Object.Data)
			}
		})
	}
}

// CreateOrUpdate returns an error after three conflicts.
func TestCreateOrUpdateReturnsErrorAfterThreeConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created := must(client.Create(t.Context(), w.c, w.configMap("settings", nil)))(t)
	ctx, requests := watched(t)
	tries := 0
	_, err := compat.CreateOrUpdate(ctx, w.c, created, func(config *corev1.ConfigMap) error {
		tries++
		must(client.Patch(t.Context(), w.as(t, "somebody"), created, client.RawPatch("application/merge-patch+json",
			[]byte(`{"data":{"tries":"`+strings.Repeat("x", tries)+`"}}`))))(t)
		return set("mode", "fast")(config)
	})
	if !errors.Is(err, client.ErrChanged) || tries != 3 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	requests.want(t, "get", "update", "get", "update", "get", "update")
}

func TestCreateOrUpdateRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	obj := must(client.Create(t.Context(), w.c, w.configMap("settings", nil)))(t)
	ctx, requests := watched(t)
	for name, mutate := range map[string]func(*corev1.ConfigMap) error{
		"name":      func(config *corev1.ConfigMap) error { config.Name = "other"; return nil },
		"namespace": func(config *corev1.ConfigMap) error { config.Namespace = "other"; return nil },
		"uid":       func(config *corev1.ConfigMap) error { *config = *w.configMap("settings", nil); return nil },
		"an error":  func(*corev1.ConfigMap) error { return errors.New("must only change on workdays") },
	} {
		if _, err := compat.CreateOrUpdate(ctx, w.c, obj, mutate); err == nil || !strings.Contains(err.Error(), "must only change") {
			t.Errorf("%s: the error is %v", name, err)
		}
		requests.want(t, "get")
	}
	metadata := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "settings"},
	}
	if _, err := compat.CreateOrUpdate(ctx, w.c, metadata, nil); err == nil {
		t.Error("an update of metadata was not refused, which would have removed the rest")
	}
	requests.want(t)
	labelled := must(compat.CreateOrPatch(ctx, w.c, metadata, func(m *metav1.PartialObjectMetadata) error {
		m.Labels = map[string]string{"a": "b"}
		return nil
	}))(t)
	if labelled.Outcome != client.Updated || labelled.Object.Labels["a"] != "b" {
		t.Errorf("outcome %s, labels %v", labelled.Outcome, labelled.Object.Labels)
	}
}

// The spec and the status are patched by separate requests, and only if they differ.
func TestCreateOrPatchStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := installKind(t, w, "Engine", true)
	mutate := func(size int64, phase string) func(*unstructured.Unstructured) error {
		return func(u *unstructured.Unstructured) error {
			if err := unstructured.SetNestedField(u.Object, size, "spec", "size"); err != nil {
				return err
			}
			return unstructured.SetNestedField(u.Object, phase, "status", "phase")
		}
	}
	obj := custom(w, kind, "e", map[string]any{"size": int64(1)})
	ctx, requests := watched(t)
	for _, step := range []struct {
		size    int64
		phase   string
		outcome client.ObjectOutcome
		status  bool
		calls   []string
		changed []string
	}{
		{1, "New", client.Created, true, []string{"get", "create", "patch/status"}, nil},
		{1, "New", client.Unchanged, false, []string{"get"}, nil},
		{2, "New", client.Updated, false, []string{"get", "patch"}, []string{"spec.size: 1 -> 2"}},
		{2, "Ready", client.Updated, true, []string{"get", "patch/status"}, []string{`status.phase: "New" -> "Ready"`}},
		{3, "Old", client.Updated, true, []string{"get", "patch", "patch/status"}, []string{"spec.size: 2 -> 3", `status.phase: "Ready" -> "Old"`}},
	} {
		result := must(compat.CreateOrPatch(ctx, w.c, obj, mutate(step.size, step.phase)))(t)
		requests.want(t, step.calls...)
		if result.Outcome != step.outcome || result.StatusUpdated != step.status {
			t.Errorf("%d %s: outcome %s, status updated: %v", step.size, step.phase, result.Outcome, result.StatusUpdated)
		}
		if diff := cmp.Diff(step.changed, texts(result.Changed)); diff != "" {
			t.Errorf("%d %s: changed (-want +got):\n%s", step.size, step.phase, diff)
		}
	}

	// A kind without a status subresource.
	plain := installKind(t, w, "Plain", false)
	obj = custom(w, plain, "p", map[string]any{"size": int64(1)})
	must(compat.CreateOrPatch(ctx, w.c, obj, mutate(1, "New")))(t)
	requests.want(t, "get", "create")
	result := must(compat.CreateOrPatch(ctx, w.c, obj, mutate(1, "Ready")))(t)
	requests.want(t, "get", "patch")
	if phase, _, _ := unstructured.NestedString(result.Object.Object, "status", "phase"); phase != "Ready" || result.Outcome != client.Updated {
		t.Errorf("outcome %s, phase %q", result.Outcome, phase)
	}
}

// If another client writes the status in between, the outcome is still Created.
func TestCreateOrPatchStatusWithConcurrentWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kind := installKind(t, w, "Motor", true)
	first := true
	c := must(w.c.With(func(config *client.Config) {
		config.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if first && r.Subresource == "status" {
					first = false
					obj := custom(w, kind, "m", nil)
					must(client.Patch(t.Context(), w.as(t, "somebody"), obj, client.RawPatch("application/merge-patch+json", //nolint:contextcheck // not counted
						[]byte(`{"status":{"theirs":1}}`)), client.Subresource("status")))(t)
				}
				return next(ctx, r)
			}
		}, client.VerbPatch)}
	}))(t)
	ctx, requests := watched(t)
	result := must(compat.CreateOrPatch(ctx, c, custom(w, kind, "m", map[string]any{"size": 1}), func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, "New", "status", "phase")
	}))(t)
	requests.want(t, "get", "create", "patch/status", "get", "patch/status")
	status, _, _ := unstructured.NestedMap(result.Object.Object, "status")
	if diff := cmp.Diff(map[string]any{"phase": "New", "theirs": int64(1)}, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if result.Outcome != client.Created || !result.StatusUpdated || result.Changed != nil {
		t.Errorf("outcome %s, status updated: %v, changed %v", result.Outcome, result.StatusUpdated, result.Changed)
	}
}

func TestEnsureNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, requests := watched(t)
	name := w.namespace + "-more"
	labels := map[string]string{"team": "shop"}
	for _, step := range []struct {
		labels map[string]string
		want   client.ObjectOutcome
		calls  []string
	}{
		{labels, client.Created, []string{"get", "create"}},
		{labels, client.Unchanged, []string{"get"}},
		{nil, client.Unchanged, []string{"get"}},
		{map[string]string{"tier": "front"}, client.Updated, []string{"get", "patch"}},
		{map[string]string{"tier": "front", "team": "shop"}, client.Unchanged, []string{"get"}},
	} {
		if outcome := must(client.EnsureNamespace(ctx, w.c, name, step.labels))(t); outcome != step.want {
			t.Errorf("%v: %s, want %s", step.labels, outcome, step.want)
		}
		requests.want(t, step.calls...)
	}

	// With an informer, an unchanged namespace needs no requests.
	i := clustertest.Informer[*corev1.Namespace](t, w.cluster, kube.Selection{})
	c := clustertest.Client(t, w.cluster, i)
	if outcome := must(client.EnsureNamespace(ctx, c, name, labels))(t); outcome != client.Unchanged {
		t.Errorf("by an informer: %s", outcome)
	}
	requests.want(t)

	if _, err := client.EnsureNamespace(ctx, w.c, name, map[string]string{"not a label": ""}); err == nil {
		t.Error("a label that cannot be was not refused")
	}
	requests.want(t)
	namespace := must(client.Get[*corev1.Namespace](t.Context(), w.c, kube.Key{Name: name}))(t)
	if err := client.Delete(t.Context(), w.c, namespace); err != nil { // no controller completes the deletion
		t.Fatal(err)
	}
	if _, err := client.EnsureNamespace(ctx, w.c, name, labels); !errors.Is(err, client.ErrTerminating) {
		t.Errorf("of a namespace that is being deleted: %v", err)
	}
}

func TestSetAndRemoveMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, requests := watched(t)
	obj := must(client.Create(t.Context(), w.c, w.configMap("settings", map[string]string{"mode": "fast"})))(t)

	type step func(*corev1.ConfigMap) (*corev1.ConfigMap, bool, error)
	for _, test := range []struct {
		name    string
		step    step
		changed bool
		want    map[string]string
	}{
		{"set", func(o *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			return client.EditMetadata(ctx, w.c, o, func(labels, _ map[string]string) { labels["a"] = "1"; labels["example.com/b"] = "" })
		}, true, map[string]string{"a": "1", "example.com/b": ""}},
		{"set again", func(o *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			return client.EditMetadata(ctx, w.c, o, func(labels, _ map[string]string) { labels["a"] = "1"; labels["example.com/b"] = "" })
		}, false, map[string]string{"a": "1", "example.com/b": ""}},
		{"set nothing", func(o *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			return client.EditMetadata(ctx, w.c, o, func(_, _ map[string]string) {})
		}, false, map[string]string{"a": "1", "example.com/b": ""}},
		{"remove", func(o *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			return client.EditMetadata(ctx, w.c, o, func(labels, _ map[string]string) {
				delete(labels, "example.com/b")
				delete(labels, "c")
			})
		}, true, map[string]string{"a": "1"}},
		{"remove what is not there", func(o *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			return client.EditMetadata(ctx, w.c, o, func(labels, _ map[string]string) { delete(labels, "example.com/b") })
		}, false, map[string]string{"a": "1"}},
	} {
		next, changed, err := test.step(obj)
		if err != nil || changed != test.changed {
			t.Fatalf("%s: changed: %v, error %v", test.name, changed, err)
		}
		if diff := cmp.Diff(test.want, next.Labels); diff != "" || next.Data["mode"] != "fast" {
			t.Errorf("%s: labels (-want +got):\n%s", test.name, diff)
		}
		if changed {
			requests.want(t, "patch")
		} else {
			requests.want(t)
		}
		obj = next
	}
	annotated, changed, err := client.EditMetadata(ctx, w.c, obj, func(_, annotations map[string]string) { annotations["note"] = "anything at all" })
	if err != nil || !changed || annotated.Annotations["note"] != "anything at all" || annotated.Labels["a"] != "1" {
		t.Errorf("changed: %v, error %v, annotations %v", changed, err, annotated.Annotations)
	}
	cleared, changed, err := client.EditMetadata(ctx, w.c, annotated, func(_, annotations map[string]string) { clear(annotations) })
	if err != nil || !changed || len(cleared.Annotations) > 0 {
		t.Errorf("changed: %v, error %v, annotations %v", changed, err, cleared.Annotations)
	}
	requests.want(t, "patch", "patch")

	if _, _, err := client.EditMetadata(ctx, w.c, obj, func(labels, _ map[string]string) { labels["a"] = "not a label" }); err == nil {
		t.Error("a value that cannot be was not refused")
	}
	requests.want(t)

	// Another object of the same name is not changed.
	if err := client.Delete(t.Context(), w.c, obj); err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.EditMetadata(t.Context(), w.c, obj, func(labels, _ map[string]string) { labels["b"] = "2" }); !errors.Is(err, client.ErrGone) {
		t.Errorf("of an object that is gone: %v", err)
	}
	must(client.Create(t.Context(), w.c, w.configMap("settings", nil)))(t)
	if _, _, err := client.EditMetadata(t.Context(), w.c, obj, func(labels, _ map[string]string) { labels["b"] = "2" }); !errors.Is(err, client.ErrReplaced) {
		t.Errorf("of another object of that name: %v", err)
	}
}

// The stringData of a Secret is compared with its data, and is not written again.
func TestCreateOrUpdateSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, shows := withInformer[*corev1.Secret](t, w)
	ctx, requests := watched(t)
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "login"}}
	password := func(text string) func(*corev1.Secret) error {
		return func(secret *corev1.Secret) error {
			secret.StringData = map[string]string{"password": text}
			return nil
		}
	}
	created := must(compat.CreateOrUpdate(ctx, c, obj, password("hush")))(t)
	requests.want(t, "create")
	shows(created.Object)
	for name, do := range map[string]func(context.Context, *client.Client, *corev1.Secret, func(*corev1.Secret) error, ...client.WriteOption) (compat.WriteResult[*corev1.Secret], error){
		"update": compat.CreateOrUpdate[*corev1.Secret], "patch": compat.CreateOrPatch[*corev1.Secret],
	} {
		same := must(do(ctx, c, obj, password("hush")))(t)
		requests.want(t)
		if same.Outcome != client.Unchanged {
			t.Errorf("%s: outcome %s, changed %v", name, same.Outcome, same.Changed)
		}
		changed := must(do(ctx, c, obj, password("by "+name)))(t)
		requests.want(t, name)
		if diff := cmp.Diff([]string{"data.password: (hidden) -> another value (hidden)"}, texts(changed.Changed)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		back := must(compat.CreateOrUpdate(t.Context(), w.c, obj, password("hush")))(t)
		shows(back.Object)
	}
}
