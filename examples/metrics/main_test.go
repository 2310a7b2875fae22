package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServesMetricsAndReadiness(t *testing.T) {
	exampletest.InMemory(t, simulation.Config{})
	out, _ := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--listen", "127.0.0.1:0"}, out)
	})
	address := regexp.MustCompile(`HTTP server started.* address=(\S+) `)
	out.Until(t, "the address is logged", address.MatchString)
	url := "http://" + address.FindStringSubmatch(out.String())[1] + "/"

	exampletest.Eventually(t, "the program is ready", func(ctx context.Context) (bool, string) {
		status, body := get(ctx, t, url+"readyz")
		return status == http.StatusOK, body
	})
	handled := regexp.MustCompile(`(?m)^evenkeel_controller_handle_seconds_count\{controller="namespaces",outcome="success"\} (\d+)$`)
	exampletest.Eventually(t, "each namespace was handled, and counted", func(ctx context.Context) (bool, string) {
		_, body := get(ctx, t, url+"metrics")
		match := handled.FindStringSubmatch(body)
		if match == nil {
			return false, body
		}
		n, err := strconv.Atoi(match[1])
		return err == nil && n >= 2, body // default and kube-system, at least
	})
	_, body := get(t.Context(), t, url+"metrics")
	for _, series := range []string{
		`workqueue_depth{controller="namespaces",name="namespaces",priority="0"} `,
		`controller_runtime_reconcile_total{controller="namespaces",result="success"} `,
		`rest_client_requests_total{code="200",`, "go_goroutines ", "go_build_info{", "process_cpu_seconds_total ",
	} {
		if !strings.Contains(body, "\n"+series) {
			t.Errorf("%s is missing in:\n%s", series, body)
		}
	}
}

func get(ctx context.Context, t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A kept-alive connection would be reported as a leak.
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("get %s: %v", url, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("read %s: %v", url, err)
	}
	return response.StatusCode, string(text)
}
