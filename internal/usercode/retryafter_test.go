package usercode_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/retry"
)

// panics is an error whose methods panic, like those of a nil pointer.
type panics struct{}

func (panics) Error() string         { panic("Error") }
func (panics) Status() metav1.Status { panic("Status") }

type busy time.Duration

func (busy) Error() string               { return "busy" }
func (b busy) RetryAfter() time.Duration { return time.Duration(b) }

func TestRetryAfterReturnsLongest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"nil":               {nil, 0},
		"no Retry-After":    {errors.Join(errtest.Conflict(), errors.New("x")), 0},
		"wrapped":           {fmt.Errorf("get: %w", errtest.Response(429, 3)), 3 * time.Second},
		"joined":            {errors.Join(errtest.Response(429, 3), errtest.Response(503, 8), errtest.Response(429, 5)), 8 * time.Second},
		"method RetryAfter": {errors.Join(busy(time.Minute), errtest.Response(429, 3)), time.Minute},
		"WithClass":         {retry.WithClass(errtest.Response(429, 3), retry.Default), 3 * time.Second},
		"panics":            {errors.Join(errtest.Response(429, 3), panics{}), 3 * time.Second},
	} {
		got, ok := usercode.RetryAfter(test.err)
		if got != test.want || ok != (test.want > 0) {
			t.Errorf("%s: %s, %t, want %s", name, got, ok, test.want)
		}
	}
}
