// Package conformance compares internal/apiserver with a real kube-apiserver: random operations must have the same codes,
// reasons, messages, objects and watch events.
//
// An operation is generated from a seed, and is sent to both servers (generate_test.go). Values that each server chooses
// (uids, versions, times, generated names) are renamed in the order of their first appearance (normalize_test.go).
// Accepted differences are masks, with a reason each (masks_test.go). A sequence with a difference is shortened before it
// is reported (shrink_test.go).
//
// The generator leaves out what internal/apiserver does not have: schemas of custom resources (pruning,
// defaults, validation), Table output, and kinds besides ConfigMap, Secret, Namespace, Lease and one custom kind.
package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

// local is the real API server. It has no controllers that change objects.
var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}

const group = "conformance.example.com"

// definition defines the custom kind. Its schema preserves all fields.
const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"widgets.` + group + `"},
"spec":{"group":"` + group + `","scope":"Namespaced",
"names":{"kind":"Widget","listKind":"WidgetList","plural":"widgets","singular":"widget"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// realServer returns the real server, which serves the custom kind.
func realServer(t *testing.T) *server {
	t.Helper()
	config := local.RESTConfig()
	config.QPS = -1
	config.NextProtos = []string{"http/1.1"} // whose connections end with their watches
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	s := &server{name: "real", client: client, base: config.Host}
	if res := s.send(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, nil); res.code != http.StatusCreated && res.code != http.StatusConflict {
		t.Fatalf("create the custom resource definition: %d %s", res.code, res.body)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return s.send(ctx, http.MethodGet, "/apis/"+group+"/v1/widgets", "", nil).code == http.StatusOK, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// memoryServer returns the tested server.
func memoryServer(t *testing.T, seed uint64) *server {
	t.Helper()
	widgets := apiserver.Custom(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"}, "widgets")
	widgets.Status = true
	s, err := apiserver.New(apiserver.Config{Seed: seed, Kinds: []*apiserver.Kind{
		apiserver.ConfigMaps(), apiserver.Secrets(), apiserver.Namespaces(), apiserver.Leases(), widgets,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return &server{name: "memory", client: &http.Client{Transport: s.Transport()}, base: "http://apiserver.invalid"}
}

// setting returns the number in an environment variable.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}

// TestConformance runs CONFORMANCE_OPS operations from the seed CONFORMANCE_SEED.
func TestConformance(t *testing.T) {
	operations := setting(t, "CONFORMANCE_OPS", testlength.Count(400, 2000))
	seed := uint64(setting(t, "CONFORMANCE_SEED", 1))
	r := &runner{
		real: realServer(t), memory: memoryServer(t, seed), prefix: fmt.Sprintf("s%d", time.Now().Unix()),
		coverage: map[string]int{}, masked: map[string]int{},
	}
	const maxDifferences = 5
	differences := 0
	for sequence := uint64(0); r.operations < operations && differences < maxDifferences; sequence++ {
		ops := generate(seed, sequence, min(sequenceLength, operations-r.operations))
		if difference := r.run(t, ops); difference != "" {
			differences++
			executed := r.operations
			ops, difference = r.shrink(t, ops, difference)
			r.operations = executed // those of shrink do not count
			t.Errorf("seed %d, sequence %d, shortened to %d operations:\n%s\n%s", seed, sequence, len(ops), list(ops), difference)
		}
	}
	r.report(t)
	total := 0
	for _, n := range r.masked {
		total += n
	}
	fmt.Printf("CONFORMANCE ops=%d differences=%d masks=%d masked=%d\n", r.operations, differences, len(masks()), total)
}
