package controller

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/leaderelection"
	"github.com/evenkeel-go/evenkeel/kube"
)

// elector runs the controller under a Kooper Runner.
type elector struct{ runner leaderelection.Runner }

// Ready implements the engine's LeaderElector.
func (e elector) Ready() error { return nil }

// Run calls work once, when the Runner leads. A Runner of package leaderelection has RunContext, which ends with ctx.
// Another Runner, such as one that wraps it, gets no context: leadership is lost when its Run returns, and if ctx ends
// while it waits for leadership, its goroutine waits on.
func (e elector) Run(ctx context.Context, work func(context.Context) error) error {
	if own, ok := e.runner.(interface {
		RunContext(ctx context.Context, work func(context.Context) error) error
	}); ok {
		return own.RunContext(ctx, work)
	}
	leading, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	var called atomic.Bool       // work is called, or must not be called anymore
	ended := make(chan struct{}) // closed when work has returned
	returned := make(chan error, 1)
	go func() { // waited for below, unless it waits for leadership when ctx ends
		returned <- e.runner.Run(func() error {
			if !called.CompareAndSwap(false, true) {
				return errors.New("the controller was stopped, or it has led before")
			}
			defer close(ended)
			return work(leading)
		})
	}()
	select {
	case err := <-returned:
		lose(kube.ErrLeadershipLost)
		if !called.CompareAndSwap(false, true) {
			<-ended
		}
		return err
	case <-ctx.Done():
		if called.CompareAndSwap(false, true) {
			return nil // it has not led
		}
		<-ended
		return <-returned
	}
}
