package integration

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Two independent controllers set different numbers of replicas. Both report a hot loop with the other's field manager,
// write an Event about the Deployment, and are slowed.
func TestContract19_TwoControllersReportEachOther(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := &writing{env: e, name: "web", meta: metav1.ObjectMeta{Name: "web", Namespace: e.namespace}}
	must(e.clients.AppsV1().Deployments(e.namespace).Create(t.Context(), w.deployment(), metav1.CreateOptions{}))(t)
	// The times in managedFields have a resolution of a second: the fight starts in the next second.
	pause(t.Context(), time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	var recorders sync.WaitGroup
	t.Cleanup(recorders.Wait)
	t.Cleanup(cancel)
	fighters := map[string]*controller.Controller[*appsv1.Deployment]{}
	for i, name := range []string{"few", "many"} {
		cluster := connect(t, local.RESTConfig())
		own := must(kubernetes.NewForConfig(cluster.RESTConfig()))(t).AppsV1().Deployments(e.namespace)
		recorder := must(event.New(event.Config{Cluster: cluster, Controller: name}))(t)
		recorders.Go(func() { // waited for in a cleanup
			if err := recorder.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		wanted := int32(i*4 + 1)
		fighters[name], _ = run(t, controller.Config[*appsv1.Deployment]{
			Name: name, ResyncInterval: -1, Events: recorder,
			Retriever: informer.RetrieveSelected[*appsv1.Deployment](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
			Handler: func(ctx context.Context, d *appsv1.Deployment) error {
				if *d.Spec.Replicas == wanted {
					return nil
				}
				patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, wanted)
				_, err := own.Patch(ctx, d.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: name})
				return err
			},
		})
	}
	for name, ctrl := range fighters {
		other := map[string]string{"few": "many", "many": "few"}[name]
		values := map[string]string{"few": "5 <-> 1", "many": "1 <-> 5"}[name]
		var problem controller.Problem
		eventually(t, func() string {
			for _, problem = range ctrl.Problems() {
				if problem.Type == controller.ProblemHotLoop {
					return ""
				}
			}
			return name + " does not know that it fights"
		})
		want := []slog.Attr{
			slog.String("object", "Deployment "+e.key("web").String()), slog.String("managers", name+", "+other), slog.String("fields", "spec.replicas: "+values),
		}
		if !slices.EqualFunc(problem.Details, want, slog.Attr.Equal) || !strings.Contains(problem.Message, other) {
			t.Errorf("%s reports %v, want %v", name, problem, want)
		}
		eventually(t, func() string {
			for _, ev := range must(e.clients.EventsV1().Events(e.namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
				if ev.Reason == "HotLoop" && ev.Regarding.Kind == "Deployment" && ev.Regarding.Name == "web" && ev.ReportingController == name {
					return ""
				}
			}
			return "there is no Event by " + name
		})
	}
	versions := func() int64 {
		return must(e.clients.AppsV1().Deployments(e.namespace).Get(t.Context(), "web", metav1.GetOptions{}))(t).Generation
	}
	began := time.Now()
	before := versions()
	pause(t.Context(), 3*time.Second)
	n := versions() - before
	if took := time.Since(began); float64(n) > 8*took.Seconds()/3 { // more slowly on a busy machine
		t.Errorf("%d writes in %s: they are not slowed", n, took)
	}
}
