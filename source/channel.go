package source

import (
	"context"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Channel is a source that enqueues each key it receives, until the channel is closed
// or the controller ends. name is the detail of the cause.
//
// A key that is sent while the controller is not working (standby, draining) is received
// when it works again, or never: the channel's buffer and its sender decide.
func Channel(name string, keys <-chan kube.Key) controller.Source {
	return controller.SourceFunc(func(ctx context.Context, enqueue func(kube.Key, string)) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case key, open := <-keys:
				if !open {
					return nil
				}
				enqueue(key, name)
			}
		}
	})
}
