package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// region debug

// debug answers questions about a controller. Serve it where only you can reach it: errors and
// the fields of hot loops are in the answers.
func debug(mux *http.ServeMux, ctrl *controller.Controller[*corev1.Pod]) {
	mux.HandleFunc("GET /debug/explain/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, ctrl.Explain(kube.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}))
	})
	mux.HandleFunc("GET /debug/runs", func(w http.ResponseWriter, _ *http.Request) {
		for _, run := range ctrl.RecentRuns() {
			fmt.Fprintln(w, run)
		}
	})
	mux.HandleFunc("GET /debug/problems", func(w http.ResponseWriter, _ *http.Request) {
		for _, problem := range ctrl.Problems() {
			fmt.Fprintln(w, problem)
		}
	})
}

// endregion

// handlePod is a handler that reports why it was called.
func handlePod(ctx context.Context, pod *corev1.Pod) error {
	// region runfrom
	run, _ := controller.RunFrom(ctx)
	if run.Attempt > 0 {
		controller.LoggerFrom(ctx).Info("trying again", "causes", run.Causes.String(), "after", string(run.AttemptClass))
	}
	// endregion
	if pod.Name == "" {
		return errors.New("a Pod without a name")
	}
	return nil
}

// A controller's state is available over HTTP, for example with curl.
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
	mux := http.NewServeMux()
	debug(mux, ctrl)
	answer := ""
	for began := time.Now(); !strings.Contains(answer, "is idle; next run") && time.Since(began) < 10*time.Second; {
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/explain/shop/web", nil))
		answer = response.Body.String()
	}
	first, _, _ := strings.Cut(answer, "\n")
	fmt.Println(first)
	stop()
	<-done
	// Output: shop/web is idle; next run when something changes
}

// TestDebugAnswers requests the other two endpoints of the example.
func TestDebugAnswers(t *testing.T) {
	ctrl, err := controller.New(controller.Config[*corev1.Pod]{
		Name: "pods", Retriever: fakePods("web"), Workers: 1, ResyncInterval: -1,
		Handler: handlePod,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	debug(mux, ctrl)
	for _, path := range []string{"/debug/runs", "/debug/problems"} {
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if response.Code != http.StatusOK || response.Body.Len() != 0 {
			t.Errorf("%s of a controller that has not run: %d %q", path, response.Code, response.Body)
		}
	}
}
