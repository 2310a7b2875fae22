package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// handlePod is a handler that reports why it was called.
func handlePod(ctx context.Context, pod *corev1.Pod) error {
	run, _ := controller.RunFrom(ctx)
	if run.Attempt > 0 {
		controller.LoggerFrom(ctx).Info("trying again", "causes", run.Causes.String(), "after", string(run.AttemptClass))
	}
	if pod.Name == "" {
		return errors.New("a Pod without a name")
	}
	return nil
}

func ExampleController_Explain() {
	done := make(chan struct{})
	config := controller.Config[*corev1.Pod]{
		Name: "pods", Retriever: fakePods("web"), Handler: handlePod,
		Logger: slog.New(slog.DiscardHandler),
	}
	ctrl, err := controller.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // waited for through done
		defer close(done)
		if err := ctrl.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	text := ""
	for !strings.Contains(text, "is idle; next run") {
		text = ctrl.Explain(kube.Key{Namespace: "shop", Name: "web"})
	}
	first, _, _ := strings.Cut(text, "\n")
	fmt.Println(first)
	stop()
	<-done
	// Output: shop/web is idle; next run when something changes
}
