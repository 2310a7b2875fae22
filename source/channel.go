package source

import (
	"context"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Channel is a source that enqueues each key it receives, until the channel is closed or the controller stops. name
// names the source in causes and metrics: keep its cardinality low.
//
// A key that is sent while the controller does not run handlers (standby, draining) is received when it runs them
// again, or never: this depends on the channel's buffer and on the sender.
//
// For a channel of objects, a filter, a priority or a detail of the cause, use controller.SourceFunc; its example shows
// all four.
func Channel(name string, keys <-chan kube.Key) controller.Source {
	return channel{name, keys}
}

type channel struct {
	name string
	keys <-chan kube.Key
}

// Prepare implements controller.Source.
func (c channel) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Name: c.name, Run: c.run}, nil
}

func (c channel) run(ctx context.Context, enqueue controller.Enqueue) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case key, open := <-c.keys:
			if !open {
				return nil
			}
			enqueue(key, controller.Trigger{})
		}
	}
}
