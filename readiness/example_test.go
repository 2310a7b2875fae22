package readiness_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/readiness"
)

// A Deployment is ready when it is rolled out and its condition Warm is True.
func Example() {
	ready := readiness.All(readiness.Of, readiness.Condition("shop.example.com/Warm", metav1.ConditionTrue))

	web := &appsv1.Deployment{
		Spec:   appsv1.DeploymentSpec{Replicas: new(int32(1))},
		Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	}
	fmt.Println(ready(web))
	web.Status.Conditions = []appsv1.DeploymentCondition{{Type: "shop.example.com/Warm", Status: corev1.ConditionTrue}}
	fmt.Println(ready(web))
	// Output:
	// InProgress: condition shop.example.com/Warm is not reported yet
	// Current
}
