package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
)

// Handler brings one object to its desired state.
type Handler interface {
	Handle(ctx context.Context, obj runtime.Object) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, obj runtime.Object) error

// Handle calls h. A nil h is an error.
func (h HandlerFunc) Handle(ctx context.Context, obj runtime.Object) error {
	if h == nil {
		return errors.New("handle func is required")
	}
	return h(ctx, obj)
}
