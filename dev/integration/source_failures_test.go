package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func nothing[T kube.Object]() controller.Handler[T] {
	return func(context.Context, T) error { return nil }
}

// readyNames waits until Ready says all of the parts. That it takes seconds only is tested in virtual
// time, in package informer.
func readyNames(t *testing.T, ready func() error, parts ...string) {
	t.Helper()
	eventually(t, func() string {
		err := ready()
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				return "Ready does not name " + part + ": " + fmt.Sprint(err)
			}
		}
		return ""
	})
}

func TestContract09_ForbiddenIsReportedUntilAllowed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "1")
	user := "jane-" + e.namespace
	config := must(local.User(t.Context(), user, "testers"))(t)
	cluster := connect(t, config)
	selection := kube.Selection{Namespaces: []string{e.namespace}}
	registry := prometheus.NewPedanticRegistry()
	var s seen
	refused, _ := run(t, controller.Config[*corev1.ConfigMap]{
		Metrics: must(metrics.New(metrics.Config{Registerer: registry}))(t),
		Name:    "refused", Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection),
		Handler: func(_ context.Context, m *corev1.ConfigMap) error {
			s.add(m.Name, m.Data["value"])
			return nil
		},
	})
	other, _ := run(t, controller.Config[*corev1.Secret]{
		Name: "other", Retriever: informer.RetrieveSelected[*corev1.Secret](connect(t, local.RESTConfig()), selection), Handler: nothing[*corev1.Secret](),
	})
	readyNames(t, func() error {
		if err := refused.Ready(); err != nil {
			return err
		}
		return errors.New("ready")
	}, user, "cannot list", "configmaps", "ConfigMap")
	eventually(t, func() string {
		if got := failing(t, registry); got["Forbidden"] != 1 {
			return fmt.Sprintf("evenkeel_informer_failing is %v, want Forbidden", got)
		}
		return ""
	})
	eventually(t, func() string {
		if err := other.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})

	must(e.clients.RbacV1().Roles(e.namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}},
	}, metav1.CreateOptions{}))(t)
	must(e.clients.RbacV1().RoleBindings(e.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "testers"}},
	}, metav1.CreateOptions{}))(t)
	eventually(t, func() string { return s.lacks(map[string]string{"a": "1"}) })
	eventually(t, func() string {
		if err := refused.Ready(); err != nil {
			return fmt.Sprintf("after the permission was granted: %v", err)
		}
		if got := failing(t, registry); got["Forbidden"] != 0 {
			return fmt.Sprintf("after the permission was granted evenkeel_informer_failing is %v", got)
		}
		return ""
	})
}

// failing returns the values of evenkeel_informer_failing by reason.
func failing(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, family := range must(registry.Gather())(t) {
		if family.GetName() != "evenkeel_informer_failing" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "reason" {
					values[label.GetValue()] = metric.GetGauge().GetValue()
				}
			}
		}
	}
	if len(values) == 0 {
		t.Error("there is no metric evenkeel_informer_failing")
	}
	return values
}

func TestContract09_MissingKindIsReportedUntilInstalled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := widgets.GroupVersion().WithKind("Latecomer")
	var s seen
	ctrl, _ := run(t, controller.Config[*unstructured.Unstructured]{
		Name: "late", Retriever: informer.RetrieveSelected[*unstructured.Unstructured](connect(t, local.RESTConfig()), kube.Selection{Kind: kind}),
		Handler: func(_ context.Context, u *unstructured.Unstructured) error {
			s.add(u.GetName(), "seen")
			return nil
		},
	})
	readyNames(t, ctrl.Ready, "Latecomer", widgets.Group, "CustomResourceDefinition")
	if err := ctrl.Ready(); !errors.Is(err, kube.ErrNotServed) {
		t.Errorf("Ready does not wrap ErrNotServed: %v", err)
	}
	remove := e.createCRD("Latecomer")
	e.putWidget("latecomers", "Latecomer", "l", "1")
	eventually(t, func() string { return s.lacks(map[string]string{"l": "seen"}) })

	remove()
	eventually(t, func() string {
		if err := ctrl.Ready(); !errors.Is(err, kube.ErrNotServed) {
			return "after the kind has gone, Ready is " + fmt.Sprint(err)
		}
		return ""
	})
}

// The API server is killed again and again while objects change: nothing is lost, and
// nothing that did not change is handled again.
func TestContract02_NoLostWakeUpOverServerCrashes(t *testing.T) {
	own := startCluster(t)
	shared := local
	local = own // newEnv and connect use it; this test is not parallel
	defer func() { local = shared }()
	e := newEnv(t)
	e.putConfigMap("still", "1")
	e.putConfigMap("moving", "0")
	var still, moving seen
	ctrl, _ := run(t, controller.Config[*corev1.ConfigMap]{
		Name: "crash", ResyncInterval: -1,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](connect(t, own.RESTConfig()), kube.Selection{Namespaces: []string{e.namespace}}),
		Handler: func(_ context.Context, m *corev1.ConfigMap) error {
			if m.Name == "still" {
				still.add(m.Name, m.Data["value"])
				return nil
			}
			moving.add(m.Name, m.Data["value"])
			return nil
		},
	})
	for round := range 3 {
		value := strconv.Itoa(round + 1)
		if err := own.Kill(); err != nil {
			t.Fatal(err)
		}
		readyNames(t, func() error {
			if err := ctrl.Ready(); err != nil {
				return err
			}
			return errors.New("ready")
		}, "connection refused")
		if err := own.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.putConfigMap("moving", value)
		eventually(t, func() string { return moving.lacks(map[string]string{"moving": value}) })
	}
	if n := still.count(); n != 1 {
		t.Errorf("the object that did not change was handled %d times over three crashes", n)
	}
}
