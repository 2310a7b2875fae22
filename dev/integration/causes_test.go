package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// foreignChange is a change that another client makes to an object.
type foreignChange struct {
	manager     string
	patch       string // a merge patch; empty: it is deleted
	subresource string
	finalizer   bool   // which it has from the beginning
	want        string // why the handler runs
}

// foreignChanges returns the changes that are made to objects of each kind. spec and status are patches.
func foreignChanges(spec, status string) map[string]foreignChange {
	return map[string]foreignChange{
		"spec":        {manager: "kubectl-edit", patch: spec, want: "updated (spec) by kubectl-edit"},
		"status":      {manager: "kubelet", patch: status, subresource: "status", want: "updated (status) by kubelet"},
		"labels":      {manager: "kubectl-label", patch: `{"metadata":{"labels":{"a":"b"}}}`, want: "updated (labels) by kubectl-label"},
		"annotations": {manager: "kubectl-annotate", patch: `{"metadata":{"annotations":{"a":"b"}}}`, want: "updated (annotations) by kubectl-annotate"},
		"finalizers":  {manager: "backup", patch: `{"metadata":{"finalizers":["evenkeel.dev/test"]}}`, want: "updated (finalizers) by backup"},
		"two":         {manager: "helm", patch: `{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`, want: "updated (labels,annotations) by helm"},
		"deleting":    {finalizer: true, want: "updated (deletion)"},
		"gone":        {want: "deleted"},
	}
}

// Each change by another client is a cause with the changed parts and the field manager, for kinds in protobuf and in
// JSON.
func TestContract11_ChangesByOtherClientsAreCauses(t *testing.T) {
	t.Parallel()
	t.Run("Pod", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		checkCauses[*corev1.Pod](e, corev1.SchemeGroupVersion.WithKind("Pod"), "pods",
			foreignChanges(`{"spec":{"activeDeadlineSeconds":100}}`, `{"status":{"phase":"Running"}}`),
			func(w *writing) runtime.Object { return w.pod() })
	})
	t.Run("Deployment", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		checkCauses[*appsv1.Deployment](e, appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments",
			foreignChanges(`{"spec":{"replicas":3}}`, `{"status":{"observedGeneration":1}}`),
			func(w *writing) runtime.Object { return w.deployment() })
	})
	t.Run("a custom kind", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		kind := e.createGadgets("named.evenkeel.dev").GroupVersion().WithKind("Gadget")
		checkCauses[*unstructured.Unstructured](e, kind, "gadgets",
			foreignChanges(`{"spec":{"value":"2"}}`, `{"status":{"seen":"2"}}`),
			func(w *writing) runtime.Object {
				g := w.gadget("1")
				g.SetGroupVersionKind(kind)
				return g
			})
	})
}

// checkCauses makes each of the changes to a separate object, while a controller handles the objects.
func checkCauses[T kube.Object](e env, kind schema.GroupVersionKind, resource string, changes map[string]foreignChange, newObject func(w *writing) runtime.Object) {
	e.Helper()
	c := e.dynamic.Resource(kind.GroupVersion().WithResource(resource)).Namespace(e.namespace)
	for name, change := range changes {
		content := must(runtime.DefaultUnstructuredConverter.ToUnstructured(newObject(&writing{env: e, name: name, meta: metav1.ObjectMeta{Name: name}})))(e.T)
		obj := &unstructured.Unstructured{Object: content}
		obj.SetGroupVersionKind(kind)
		if change.finalizer {
			obj.SetFinalizers([]string{"evenkeel.dev/test"})
		}
		must(c.Create(e.Context(), obj, metav1.CreateOptions{FieldManager: "z-creator"}))(e.T)
	}
	ctrl, _ := run(e.T, controller.Config[T]{
		Name: "causes", ResyncInterval: -1, Handler: nothing[T](),
		Retriever: informer.RetrieveSelected[T](connect(e.T, local.RESTConfig()), kube.Selection{Namespaces: []string{e.namespace}, Kind: kind}),
	})
	eventually(e.T, func() string {
		for name := range changes {
			if len(runsOf(ctrl, e.key(name))) == 0 {
				return name + " has not been handled"
			}
		}
		return ""
	})
	// The times in managedFields have a resolution of a second.
	pause(e.Context(), time.Second)
	for name, change := range changes {
		if err := change.do(e.Context(), c, name); err != nil {
			e.Errorf("%s: %v", name, err)
		}
	}
	defer func() { // or their kind could not be removed
		for name := range changes {
			_, err := c.Patch(e.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				e.Errorf("%s: take its finalizers away: %v", name, err)
			}
		}
	}()
	for name, change := range changes {
		eventually(e.T, func() string {
			var causes []string
			for _, r := range runsOf(ctrl, e.key(name)) {
				causes = append(causes, r.Causes.String())
			}
			// The deletion of a Pod is two changes, and may be two runs.
			if !slices.ContainsFunc(causes, func(c string) bool { return strings.HasSuffix(c, change.want) }) {
				return fmt.Sprintf("%s was handled because of %q, want %q", name, causes, change.want)
			}
			return ""
		})
	}
}

func (f foreignChange) do(ctx context.Context, c dynamic.ResourceInterface, name string) error {
	if f.patch == "" {
		return c.Delete(ctx, name, metav1.DeleteOptions{})
	}
	var subresources []string
	if f.subresource != "" {
		subresources = []string{f.subresource}
	}
	_, err := c.Patch(ctx, name, types.MergePatchType, []byte(f.patch), metav1.PatchOptions{FieldManager: f.manager}, subresources...)
	return err
}

// runsOf returns the runs of a key, latest first.
func runsOf[T kube.Object](ctrl *controller.Controller[T], key kube.Key) []controller.RunRecord {
	return slices.DeleteFunc(ctrl.RecentRuns(), func(r controller.RunRecord) bool { return r.Key != key })
}
