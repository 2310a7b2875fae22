package prometheus_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

type object = *unstructured.Unstructured

// world is an API server with Widgets (with status) and Parts, and a controller of Widgets that reads Parts. A Recorder
// measures both.
type world struct {
	*apitest.Server
	cluster *kube.Cluster
	client  dynamic.Interface
	handle  func(ctx context.Context, widget object) error
	enqueue controller.Enqueue // of the source "clock"
}

func newWorld() *world {
	w := &world{Server: apitest.New(apitest.Widgets(), apitest.Parts())}
	w.cluster, w.client = apitest.Connect(w.Config("operator"))
	return w
}

func widget(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

// Prepare implements controller.Source.
func (w *world) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Name: "clock", Run: w.runSource}, nil
}

func (w *world) runSource(ctx context.Context, enqueue controller.Enqueue) error {
	w.enqueue = enqueue
	<-ctx.Done()
	return nil
}

// objects returns the controller's client of a resource.
func (w *world) objects(resource string) dynamic.ResourceInterface {
	return w.client.Resource(apitest.Version().WithResource(resource)).Namespace("ns")
}

// put sets a field of a Widget as another client.
func (w *world) put(name, field string, value int) {
	w.Edit("widgets", widget(name), "somebody", func(obj map[string]any) bool {
		obj[field] = map[string]any{"value": int64(value)}
		return true
	})
}

// start runs the controller until the test ends.
func (w *world) start(t *testing.T, recorder *metrics.Recorder) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	parts, err := informer.New(informer.Config[object]{
		Name:      "parts",
		Retriever: informer.RetrieveSelected[object](w.cluster, kube.Selection{Kind: apitest.KindNamed("Part")}),
		Metrics:   recorder, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctrl, err := controller.New(controller.Config[object]{
		Name:      "widgets",
		Retriever: informer.RetrieveSelected[object](w.cluster, kube.Selection{Kind: apitest.KindNamed("Widget")}),
		Reads:     []informer.Any{parts},
		Sources:   []controller.Source{w},
		Predicate: func(c informer.Change) bool { return c.Key.Name != "ignored" },
		Handler: func(ctx context.Context, widget object) error {
			return w.handle(ctx, widget)
		},
		ResyncInterval: -1,
		Metrics:        recorder, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, ctrl.Run)
	synctest.Wait()
}

func (w *world) createPart(ctx context.Context) error {
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(apitest.KindNamed("Part"))
	part.SetName("p")
	_, err := w.objects("parts").Create(ctx, part, metav1.CreateOptions{})
	return err
}

// The metrics must show how stale the cache is and why a key is held back.
func TestControllerWritesAreMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, registry := newRecorder(t)
		w := newWorld()
		w.put("a", "spec", 1)
		w.HoldWatches("parts")
		w.handle = func(ctx context.Context, _ object) error {
			observers.RunningFrom(ctx).SetTraceID("4bf92f35")
			return w.createPart(ctx)
		}
		w.start(t, recorder)
		w.handle = func(ctx context.Context, widget object) error {
			_, err := w.objects("widgets").Patch(ctx, widget.GetName(), types.MergePatchType, []byte(`{"status":{"ready":true}}`), metav1.PatchOptions{}, "status")
			return err
		}
		w.put("a", "spec", 2)
		w.put("ignored", "spec", 1)
		time.Sleep(5 * time.Second)
		expectValues(t, registry, map[string]float64{
			"evenkeel_controller_writes_total{controller=widgets}":                            1,
			"evenkeel_controller_queue_held{controller=widgets}":                              1,
			"evenkeel_controller_queue_ready{controller=widgets}":                             0,
			"evenkeel_informer_lag_seconds{informer=parts}":                                   0,
			"evenkeel_controller_triggers_total{controller=widgets,source=self,type=updated}": 1,
			"evenkeel_controller_skipped_total{controller=widgets,reason=predicate}":          1,
			"evenkeel_controller_skipped_total{controller=widgets,reason=own-write}":          0,
			"evenkeel_controller_problems_total{controller=widgets,type=unseen-write}":        0,
			"evenkeel_controller_problems_active{controller=widgets,type=unseen-write}":       0,
			"evenkeel_controller_queue_oldest_wait_seconds{controller=widgets}":               0,
			"evenkeel_controller_triggers_total{controller=widgets,source=self,type=listed}":  1,
			"evenkeel_controller_triggers_total{controller=widgets,source=loop,type=requeue}": 0,
		})
		staleness := gather(t, registry)["evenkeel_informer_staleness_seconds{informer=parts}"]
		if math.Round(staleness) != 5 {
			t.Errorf("the informer of parts is %v s behind, want 5", staleness)
		}
		w.ReleaseWatches("parts")
		synctest.Wait()
		expectValues(t, registry, map[string]float64{
			"evenkeel_controller_writes_total{controller=widgets}":                   2,
			"evenkeel_controller_queue_held{controller=widgets}":                     0,
			"evenkeel_informer_lag_seconds{informer=parts}":                          5,
			"evenkeel_informer_staleness_seconds{informer=parts}":                    0,
			"evenkeel_controller_skipped_total{controller=widgets,reason=own-write}": 1,
		})
		if diff := cmp.Diff(map[string]uint64{"{controller=widgets}": 1}, histogramCounts(t, registry, "evenkeel_controller_hold_seconds")); diff != "" {
			t.Errorf("held-back runs (-want +got):\n%s", diff)
		}
		want := map[string]string{"handle_seconds 0.1": "trace_id=4bf92f35", "queue_wait_seconds 1": "trace_id=4bf92f35"}
		if diff := cmp.Diff(want, exemplars(t, registry)); diff != "" {
			t.Errorf("exemplars (-want +got):\n%s", diff)
		}
	})
}

// The metrics must show current and past problems.
func TestControllerProblemIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, registry := newRecorder(t)
		w := newWorld()
		w.put("a", "spec", 1)
		w.put("slow", "spec", 1)
		release := make(chan struct{})
		w.handle = func(_ context.Context, widget object) error {
			if widget.GetName() == "slow" {
				<-release
				return nil
			}
			return controller.Terminal(errors.New("invalid spec"))
		}
		w.start(t, recorder)
		w.put("a", "status", 1) // a change of the status does not end a terminal error
		w.enqueue(widget("a"), controller.Trigger{})
		time.Sleep(6 * time.Minute)
		expectValues(t, registry, map[string]float64{
			"evenkeel_controller_failures_total{class=terminal,controller=widgets}":              2,
			"evenkeel_controller_failures_total{class=error,controller=widgets}":                 0,
			"evenkeel_controller_failing_keys{controller=widgets}":                               1,
			"evenkeel_controller_skipped_total{controller=widgets,reason=terminal}":              1,
			"evenkeel_controller_triggers_total{controller=widgets,source=clock,type=triggered}": 1,
			"evenkeel_controller_problems_active{controller=widgets,type=stuck}":                 1,
			"evenkeel_controller_problems_active{controller=widgets,type=stalled}":               0,
			"evenkeel_controller_problems_total{controller=widgets,type=stuck}":                  1,
		})
		close(release)
		synctest.Wait()
		expectValues(t, registry, map[string]float64{
			"evenkeel_controller_problems_active{controller=widgets,type=stuck}": 0,
			"evenkeel_controller_problems_total{controller=widgets,type=stuck}":  1,
		})
	})
}
