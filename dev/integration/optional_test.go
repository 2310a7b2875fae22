package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// told records the changes that an informer announces.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (w *told) notify(c informer.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, string(c.Type)+" "+c.Key.Name)
}

// lacks returns "" if the recorded changes are the expected ones.
func (w *told) lacks(want ...string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Join(w.lines, ", ") == strings.Join(want, ", ") {
		return ""
	}
	return fmt.Sprintf("the informer told %q, want %q", w.lines, want)
}

// A controller that also watches an optional kind runs without it, uses it as soon as it is installed, and continues
// when it is removed.
func TestOptionalKindIsInstalledAndRemoved(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "1")
	cluster := connect(t, local.RESTConfig())
	objects := must(informer.New(informer.Config[*unstructured.Unstructured]{
		Name: "options", Optional: true,
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: widgets.GroupVersion().WithKind("Option")}),
	}))(t)
	var w told
	defer objects.Subscribe(w.notify)()
	var s seen
	ctrl, _ := run(t, controller.Config[*corev1.ConfigMap]{
		Name: "with options", ResyncInterval: -1,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
		Sources: []controller.Source{source.Mapped(objects, func(u *unstructured.Unstructured) []kube.Key {
			return []kube.Key{{Namespace: u.GetNamespace(), Name: "a"}}
		})},
		Handler: func(_ context.Context, m *corev1.ConfigMap) error {
			options := objects.Len()
			s.add(m.Name, fmt.Sprint(options))
			return nil
		},
	})
	eventually(t, func() string { return s.lacks(map[string]string{"a": "0"}) })
	if err := ctrl.Ready(); err != nil {
		t.Errorf("Ready without the kind: %v", err)
	}
	if h := objects.Health(); !h.Degraded || h.Synced || !errors.Is(h.Err, kube.ErrNotServed) {
		t.Errorf("health without the kind: %+v", h)
	}
	remove := e.createCRD("Option")
	e.putWidget("options", "Option", "o", "1")
	eventually(t, func() string { return s.lacks(map[string]string{"a": "1"}) })
	eventually(t, func() string {
		if h := objects.Health(); h.Degraded || !h.Synced || h.Err != nil || h.Ready() != nil {
			return fmt.Sprintf("health with the kind: %+v", h)
		}
		return ""
	})
	remove()
	eventually(t, func() string {
		if h := objects.Health(); !h.Degraded || !errors.Is(h.Err, kube.ErrNotServed) || h.Objects != 0 {
			return fmt.Sprintf("health after the kind has gone: %+v", h)
		}
		return s.lacks(map[string]string{"a": "0"})
	})
	if err := ctrl.Ready(); err != nil {
		t.Errorf("Ready after the kind has gone: %v", err)
	}
	// The object arrived with the first list, or immediately after it.
	if w.lacks("listed o", "deleted o") != "" && w.lacks("added o", "deleted o") != "" {
		t.Error(w.lacks("listed o", "deleted o"))
	}
}

func TestSmokeOptionalKindIsGrantedLater(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "1")
	group := "optional-" + e.namespace
	cluster := connect(t, must(local.User(t.Context(), group, group))(t))
	retriever := informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}})
	optional := newInformer(t, informer.Config[*corev1.ConfigMap]{Name: "optional", Optional: true, Retriever: retriever})
	needed := newInformer(t, informer.Config[*corev1.ConfigMap]{Name: "needed", Retriever: retriever})
	var w told
	defer optional.Subscribe(w.notify)()
	waitSynced(t, optional)
	if h := optional.Health(); !h.Degraded || h.Synced || !apierrors.IsForbidden(h.Err) || h.Ready() != nil {
		t.Errorf("health while it is forbidden: %+v", h)
	}
	readyNames(t, needed.Ready, group, "configmaps")
	if h := needed.Health(); h.Synced || h.Degraded {
		t.Errorf("health of an informer that is not optional: %+v", h)
	}
	e.allow(group)
	eventually(t, func() string { return w.lacks("listed a") })
	waitSynced(t, needed)
	eventually(t, func() string {
		if err := errors.Join(optional.Ready(), needed.Ready()); err != nil || optional.Health().Degraded {
			return fmt.Sprint("after it was granted: ", err)
		}
		return ""
	})
}
