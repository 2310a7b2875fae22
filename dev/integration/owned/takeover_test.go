package owned

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

// podTemplate returns an object of a kind that no controller writes: requests can be counted, and no write comes between
// the read and the patch of a take-over.
func (e env) podTemplate(containers ...string) *corev1.PodTemplate {
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "web"}}
	for _, name := range containers {
		template.Template.Spec.Containers = append(template.Template.Spec.Containers, corev1.Container{Name: name, Image: name + ":1"})
	}
	return template
}

// byUpdate writes an object as an operator without server-side apply does.
func byUpdate[T kube.Object](e env, app kube.Object, obj T, manager string) T {
	e.Helper()
	if err := ownerref.SetController(e.Context(), e.c, app, obj); err != nil {
		e.Fatal(err)
	}
	return must(client.Create(e.Context(), e.c, obj, client.FieldOwner(manager)))(e)
}

func (e env) containers() []string {
	e.Helper()
	var names []string
	for _, container := range must(client.Get[*corev1.PodTemplate](e.Context(), e.c, e.key("web")))(e).Template.Spec.Containers {
		names = append(names, container.Name)
	}
	return names
}

// Undesired fields that an earlier version of the program wrote by Update are removed if the config names its manager,
// and Plan shows this before. Fields of other clients stay.
func TestFieldsOfFormerManagersAreTakenOver(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	old := e.podTemplate("web", "sidecar")
	old.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	byUpdate(e, app, old, "old-operator")
	_, _, err := client.EditMetadata(t.Context(), e.c, must(client.Get[*corev1.PodTemplate](t.Context(), e.c, e.key("web")))(t),
		func(labels, _ map[string]string) { labels["team"] = "shop" }, client.FieldOwner("kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	byUpdate(e, app, e.configMap("web-old", "colour", "blue"), "old-operator")
	byUpdate(e, app, e.configMap("web-of-a-user", "colour", "blue"), "kubectl")

	kinds := func(config *owned.Config) {
		config.Kinds = []schema.GroupVersionKind{configMapKind, podTemplateKind}
	}
	desired := owned.Of(e.podTemplate("web"))
	e.apply(e.set(kinds), app, desired...)
	if got := e.containers(); !slices.Equal(got, []string{"web", "sidecar"}) {
		t.Fatalf("without the name of the manager, the containers are %q", got)
	}

	recording := &requestlog.Recording{}
	c := must(e.c.With(func(c *client.Config) { c.Interceptors = []client.Interceptor{recording.Intercept} }))(t)
	set := e.set(kinds, func(config *owned.Config) {
		config.Client, config.Former.Managers, config.Former.Children = c, []string{"old-operator"}, "!"+owned.LabelSet
		config.Kinds = append(config.Kinds, schema.GroupVersionKind{Group: "not.served.example.com", Version: "v1", Kind: "Absent"})
	})
	plan := must(set.Plan(t.Context(), app, desired...))(t)
	for _, want := range []string{"template.spec.containers[sidecar]", "template.spec.nodeSelector", "- ConfigMap " + e.namespace + "/web-old"} {
		if !strings.Contains(plan.String(), want) {
			t.Errorf("the plan lacks %q:\n%s", want, plan)
		}
	}
	if strings.Contains(plan.String(), "terminationGracePeriodSeconds") || strings.Contains(plan.String(), "team") {
		t.Errorf("the plan has fields that stay:\n%s", plan)
	}
	if got := e.containers(); len(got) != 2 {
		t.Fatalf("a plan has changed the containers to %q", got)
	}
	report := e.apply(set, app, desired...)
	e.want(report.Results, "PodTemplate web: updated", "ConfigMap web-old: deleted")
	live := must(client.Get[*corev1.PodTemplate](t.Context(), e.c, e.key("web")))(t)
	if got := e.containers(); !slices.Equal(got, []string{"web"}) || live.Template.Spec.NodeSelector != nil || live.Labels["team"] != "shop" {
		t.Errorf("after the take-over: containers %q, node selector %v, labels %v", got, live.Template.Spec.NodeSelector, live.Labels)
	}
	if e.get(e.key("web-old")) != nil || e.get(e.key("web-of-a-user")) == nil {
		t.Error("of the former children, the wrong one is gone")
	}
	recording.Reset()
	e.want(e.apply(set, app, desired...).Results, "PodTemplate web: unchanged")
	for _, r := range recording.Requests() {
		if r.Verb == client.VerbPatch {
			t.Errorf("it is taken over twice: %v", r)
		}
	}
	// Former children are looked for until none is left.
	recording.Reset()
	e.want(e.apply(set, app, desired...).Results, "PodTemplate web: unchanged")
	after := len(recording.Requests())
	recording.Reset()
	e.apply(e.set(kinds, func(config *owned.Config) { config.Client = c }), app, desired...)
	if without := len(recording.Requests()); after != without {
		t.Errorf("%d requests after the former children are gone, %d without Former.Children", after, without)
	}
}

// Apply reports the fields that it leaves although the same program wrote them by Update.
func TestLeftFieldsOfProgramAreReported(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	byUpdate(e, app, e.podTemplate("web", "sidecar"), e.c.Config().FieldOwner)
	var log testlog.Buffer
	set := e.set(func(config *owned.Config) {
		config.Kinds = []schema.GroupVersionKind{podTemplateKind}
	})
	e.c.Cluster().SetLogger(slog.New(slog.NewTextHandler(&log, nil)))
	report := e.apply(set, app, owned.Of(e.podTemplate("web"))...)
	note := report.Results[0].Note
	if !strings.Contains(note, "tests wrote by Update stay") || !strings.Contains(note, "containers[sidecar]") || strings.Contains(note, "imagePullPolicy") {
		t.Errorf("the note is %q", note)
	}
	if !strings.Contains(log.String(), "child has fields of former managers") {
		t.Errorf("the log is %q", log.String())
	}
	clean := e.set(func(config *owned.Config) {
		config.Kinds = []schema.GroupVersionKind{podTemplateKind}
		config.Former.Managers = []string{e.c.Config().FieldOwner}
	})
	if report := e.apply(clean, app, owned.Of(e.podTemplate("web"))...); report.Results[0].Note != "" {
		t.Errorf("after the take-over the note is %q", report.Results[0].Note)
	}
	if got := e.containers(); !slices.Equal(got, []string{"web"}) {
		t.Errorf("the containers are %q", got)
	}
}
