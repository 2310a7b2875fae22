package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServesMetricsAndReadiness(t *testing.T) {
	exampletest.InMemory(t)
	out, _ := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--listen", "127.0.0.1:0"}, out)
	})
	out.Wait(t, "/metrics\n")
	url := regexp.MustCompile(`http://\S+/`).FindString(out.String())

	exampletest.Eventually(t, "the program is ready", func(ctx context.Context) (bool, string) {
		status, body := get(ctx, t, url+"readyz")
		return status == http.StatusOK && body == "ok\n", body
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
