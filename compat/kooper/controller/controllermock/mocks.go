// Package controllermock has the API of Kooper v2's package controller/controllermock, on testify.
package controllermock

import (
	"context"

	"github.com/stretchr/testify/mock"
	"k8s.io/apimachinery/pkg/runtime"
)

// Handler is a mock of controller.Handler.
type Handler struct{ mock.Mock }

// NewHandler returns a Handler whose expectations are checked when the test t ends.
func NewHandler(t interface {
	mock.TestingT
	Cleanup(cleanup func())
},
) *Handler {
	h := &Handler{}
	h.Test(t)
	t.Cleanup(func() { h.AssertExpectations(t) })
	return h
}

// Handle implements controller.Handler.
func (h *Handler) Handle(ctx context.Context, obj runtime.Object) error {
	results := h.Called(ctx, obj)
	if handle, ok := results.Get(0).(func(context.Context, runtime.Object) error); ok {
		return handle(ctx, obj)
	}
	return results.Error(0)
}

// EXPECT returns what sets expectations.
func (h *Handler) EXPECT() *Handler_Expecter { return &Handler_Expecter{&h.Mock} }

// Handler_Expecter sets expectations of a Handler.
type Handler_Expecter struct{ mock *mock.Mock } //nolint:revive // Kooper's name

// Handle expects a call with these arguments.
func (e *Handler_Expecter) Handle(ctx, obj any) *Handler_Handle_Call {
	return &Handler_Handle_Call{e.mock.On("Handle", ctx, obj)}
}

// Handler_Handle_Call is an expected call of Handle.
type Handler_Handle_Call struct{ *mock.Call } //nolint:revive // Kooper's name

// Run calls run during the call.
func (c *Handler_Handle_Call) Run(run func(ctx context.Context, obj runtime.Object)) *Handler_Handle_Call {
	c.Call.Run(func(args mock.Arguments) { run(args[0].(context.Context), args[1].(runtime.Object)) })
	return c
}

// Return sets the result of the call.
func (c *Handler_Handle_Call) Return(err error) *Handler_Handle_Call {
	c.Call.Return(err)
	return c
}

// RunAndReturn calls run, and returns its result.
func (c *Handler_Handle_Call) RunAndReturn(run func(context.Context, runtime.Object) error) *Handler_Handle_Call {
	c.Call.Return(run)
	return c
}
