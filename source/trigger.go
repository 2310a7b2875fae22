package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// WithTrigger is another source with a function that is called for each key that the source enqueues, and that may
// change the priority, the delay and the detail of the reason; other changes have no effect. why.Change, if the source
// reacts to changes, has the object before and after the change: informer.Decode returns both.
//
// change is called under the rules of Mapped. If it panics, the key is enqueued for the original reason. It cannot drop
// a key, because the keys of a resync do not pass it: predicates drop changes.
func WithTrigger(source controller.Source, change func(key kube.Key, why *controller.Trigger)) controller.Source {
	return triggered{source, change}
}

type triggered struct {
	source controller.Source
	change func(kube.Key, *controller.Trigger)
}

// Prepare implements controller.Source.
func (s triggered) Prepare(target controller.Target) (controller.PreparedSource, error) {
	if usercode.IsNil(s.source) || s.change == nil {
		return controller.PreparedSource{}, errors.New("source with trigger: the source and the function are required")
	}
	prepared, err := s.source.Prepare(target)
	if err != nil {
		return prepared, err
	}
	prepared.Name = cmp.Or(prepared.Name, strings.TrimLeft(fmt.Sprintf("%T", s.source), "*"))
	guard := usercode.NewGuard(target.Logger.With("source", prepared.Name))
	changing := func(enqueue controller.Enqueue) controller.Enqueue {
		return func(key kube.Key, why controller.Trigger) {
			changed := why
			if why.All || guard.Call("the function of WithTrigger", func() { s.change(key, &changed) }, nil) != nil {
				changed = why
			}
			// Without these, own writes would run the key again.
			changed.Change, changed.Type, changed.FromList, changed.All = why.Change, why.Type, why.FromList, why.All
			enqueue(key, changed)
		}
	}
	if run := prepared.Run; run != nil {
		prepared.Run = func(ctx context.Context, enqueue controller.Enqueue) error {
			return run(ctx, changing(enqueue))
		}
	}
	if start := prepared.Start; start != nil {
		prepared.Start = func(ctx context.Context, enqueue controller.Enqueue) (run func() error, err error) {
			return start(ctx, changing(enqueue))
		}
	}
	return prepared, nil
}
