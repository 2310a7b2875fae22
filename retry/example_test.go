package retry_test

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/retry"
)

// A custom class: the quota of a cloud provider stays exceeded for hours.
func Example() {
	errQuota := errors.New("quota exceeded")

	_ = controller.Config[*corev1.ConfigMap]{
		// Name, Cluster, Handler, ...
		Retry: retry.Config{
			Classify: func(err error) retry.Class {
				if errors.Is(err, errQuota) {
					return "quota"
				}
				return "" // the package's Classify decides
			},
			Policies: map[retry.Class]retry.Policy{
				"quota":        {Base: time.Minute, Max: time.Hour, MaxRetries: 20},
				retry.Conflict: {Max: 100 * time.Millisecond},
			},
		},
	}
}
