package controllers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

// BenchmarkDeployment measures a Deployment with 3 Pods, from its creation until all Pods are available: in real time,
// with Pods that are ready at once.
func BenchmarkDeployment(b *testing.B) {
	server, err := apiserver.New(apiserver.Config{Kinds: kinds(), Seed: 1, NamespacesExist: true})
	if err != nil {
		b.Fatal(err)
	}
	var manifest map[string]any
	if err := yaml.Unmarshal([]byte(web("a:1", "")), &manifest); err != nil {
		b.Fatal(err)
	}
	body, err := json.Marshal(manifest)
	if err != nil {
		b.Fatal(err)
	}
	requests := 0
	for b.Loop() {
		fork := server.Fork()
		manager := controllers.New(controllers.Config{Server: fork, Transport: counter{fork.Transport(), &requests}, Pods: alwaysReady})
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://simulation.invalid"+path(deployments, "one/"), bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := fork.Transport().RoundTrip(req)
		if err != nil || res.StatusCode != http.StatusCreated {
			b.Fatal(res, err)
		}
		_ = res.Body.Close()
		for worked := true; worked; {
			if _, worked, err = manager.Step(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
}

func alwaysReady(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{ReadyAfter: -1} }

// counter counts requests.
type counter struct {
	http.RoundTripper
	requests *int
}

func (c counter) RoundTrip(req *http.Request) (*http.Response, error) {
	*c.requests++
	return c.RoundTripper.RoundTrip(req)
}
