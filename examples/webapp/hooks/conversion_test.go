package hooks_test

import (
	"testing"

	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

func TestConversionLosesNoField(t *testing.T) {
	t.Parallel()
	// The API server sets an empty mode to Running, and rejects other values.
	valid := func(obj kube.Object) {
		if app, ok := obj.(*v2.WebApp); ok {
			app.Spec.Mode = []v2.Mode{v2.Running, v2.Suspended}[len(app.Spec.App.Image)%2]
		}
	}
	if err := webhook.CheckRoundTrips(hooks.Conversion(), webhook.RoundTrips{Adjust: valid}); err != nil {
		t.Error(err)
	}
}
