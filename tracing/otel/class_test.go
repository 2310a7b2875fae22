package otel_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/tracing/otel"
)

// The class in a trace must be equal to the class in logs and metrics.
func TestClassifyDeterminesErrorType(t *testing.T) {
	t.Parallel()
	quota := errors.New("quota exceeded")
	tracer, exporter := newTracer(t, otel.Config{Classify: func(err error) retry.Class {
		if errors.Is(err, quota) {
			return "quota"
		}
		return ""
	}})
	ctx, span := tracer.Start(t.Context(), runOf(), nil)
	span.End(ctx, fmt.Errorf("create the volume: %w", quota))
	for _, name := range []string{"run widgets", "handle widgets"} {
		got := ""
		for _, a := range find(t, exporter, name).Attributes {
			if a.Key == "error.type" {
				got = a.Value.AsString()
			}
		}
		if got != "quota" {
			t.Errorf("%s: error.type is %q, want the class of Classify", name, got)
		}
	}
}
