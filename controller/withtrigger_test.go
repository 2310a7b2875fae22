package controller_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// The own writes of a run do not run the key again, whatever the function of WithTrigger changes in the reason.
func TestWithTriggerKeepsOwnWrites(t *testing.T) {
	for name, change := range map[string]func(kube.Key, *controller.Trigger){
		"nothing":   func(kube.Key, *controller.Trigger) {},
		"priority":  func(_ kube.Key, why *controller.Trigger) { why.Priority = controller.PriorityHigh },
		"odd":       func(_ kube.Key, why *controller.Trigger) { why.Priority = 1000 },
		"delay":     func(_ kube.Key, why *controller.Trigger) { why.After = time.Second },
		"detail":    func(_ kube.Key, why *controller.Trigger) { why.Detail = "child" },
		"type":      func(_ kube.Key, why *controller.Trigger) { why.Type = controller.CauseTriggered },
		"list":      func(_ kube.Key, why *controller.Trigger) { why.FromList = true },
		"no change": func(_ kube.Key, why *controller.Trigger) { why.Change = informer.Change{} },
		"all":       func(_ kube.Key, why *controller.Trigger) { why.All = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t)
				var runs atomic.Int64
				handle := s.config.Handler
				s.config.Handler = func(ctx context.Context, site *unstructured.Unstructured) error {
					n := runs.Add(1)
					if n > 200 {
						<-ctx.Done()
					}
					if err := handle(ctx, site); err != nil {
						return err
					}
					return s.patch(ctx, deployments(), kube.KeyOf(site), `{"metadata":{"annotations":{"at":"`+time.Now().String()+`"}}}`)
				}
				s.config.Sources[0] = source.WithTrigger(s.config.Sources[0], change)
				s.open()
				s.site("a", 0)
				time.Sleep(10 * time.Second)
				if n := runs.Load(); n > 3 {
					t.Errorf("%d runs in 10s: the own writes run the key; problems: %s", n, s.problems())
				}
			})
		})
	}
}
