// Package conformance compares internal/apiserver with a real kube-apiserver: random operations must have the same codes,
// reasons, messages, objects and watch events.
//
// An operation is generated from a seed, and is sent to both servers (generate_test.go). Values that each server chooses
// (uids, versions, times, generated names) are renamed in the order of their first appearance (normalize_test.go).
// Accepted differences are masks, with a reason each (masks_test.go). A sequence with a difference is shortened before it
// is reported (shrink_test.go).
//
// Not compared is what two API servers on one etcd do: a read with resourceVersion=0 from one of them may be older than a
// write to the other that has ended before. internal/apiserver is one server, whose reads always contain all earlier
// writes. TestStaleness shows both. A test that needs stale reads holds the watches of its informers.
//
// A kind is a description of its fields and subresources; kinds_test.go explains how to add one. The generator leaves out
// Table output and CBOR.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation/internal/crds"
	"github.com/evenkeel-go/evenkeel/simulation/internal/webhooks"
)

// local is the real API server. It has no controllers that change objects.
var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}

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
	s := &server{name: "real", client: client, base: config.Host, delayed: true}
	define := func() {
		for _, k := range kinds() {
			if k.definition != "" {
				s.define(t, k)
			}
		}
	}
	define()
	if !local.Existing() {
		s.expire = func() error {
			if err := errors.Join(local.Compact(t.Context()), local.Restart(t.Context())); err != nil {
				return err
			}
			utilnet.CloseIdleConnectionsFor(client.Transport)
			define() // waits until they are served again
			return nil
		}
	}
	return s
}

// define creates the definition of a kind, and waits until the kind is served.
func (s *server) define(t *testing.T, k *kind) {
	t.Helper()
	res := s.send(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", k.definition, nil)
	if res.code != http.StatusCreated && res.code != http.StatusConflict {
		t.Fatalf("%s: create the definition of %s: %d %s", s.name, k.resource, res.code, res.body)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return s.send(ctx, http.MethodGet, "/apis/"+k.apiVersion+"/"+k.resource, "", nil).code == http.StatusOK, nil
	})
	if err != nil {
		t.Fatalf("%s: wait for %s: %v", s.name, k.resource, err)
	}
}

// memoryServer returns the tested server.
func memoryServer(t *testing.T, seed uint64) *server {
	t.Helper()
	served := []*apiserver.Kind{new(crds.Compiler).Definitions(nil)}
	for _, k := range kinds() {
		if k.memory != nil {
			served = append(served, k.memory()...)
		}
	}
	handler, err := apiserver.New(apiserver.Config{Seed: seed, Kinds: served})
	if err != nil {
		t.Fatal(err)
	}
	handler.SetAdmission(webhooks.New(handler)) // as in the clusters of tests
	s := &server{name: "memory", client: &http.Client{Transport: handler.Transport()}, base: "http://apiserver.invalid"}
	s.expire = func() error { handler.Compact(); return nil }
	for _, k := range kinds() {
		if k.memory == nil && k.alone == nil {
			s.define(t, k)
		}
	}
	return s
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

// TestSmokeConformance runs CONFORMANCE_OPS operations from the seed CONFORMANCE_SEED.
func TestSmokeConformance(t *testing.T) {
	operations := setting(t, "CONFORMANCE_OPS", testlength.Count(400, 2000))
	chosen := chosenKinds(t)
	seed := uint64(setting(t, "CONFORMANCE_SEED", 1))
	r := newRunner(t, memoryServer(t, seed))
	const maxDifferences = 5
	differences := 0
	run := func(sequence uint64, ops []operation) {
		if difference := r.run(t, ops); difference != "" {
			differences++
			ops, difference = r.shrink(t, ops, difference)
			t.Errorf("seed %d, sequence %d, shortened to %d operations:\n%s\n%s", seed, sequence, len(ops), list(ops), difference)
		}
	}
	sequence := uint64(0)
	random := func(until int) {
		for ; r.operations < until && differences < maxDifferences; sequence++ {
			run(sequence, generate(chosen, seed, sequence, min(sequenceLength, until-r.operations)))
		}
	}
	random(operations * 3 / 4)
	expire := r.real.expire != nil && operations >= 1000 // a restart takes seconds
	if expire {
		for _, difference := range r.runExpired(t, chosen, seed, operations) {
			differences++
			t.Errorf("seed %d:\n%s", seed, difference)
		}
	}
	for range 2 { // in the first round, an operation can have another code than it should
		shortfalls := r.missing(chosen, operations, expire)
		for i := 0; i < len(shortfalls) && differences < maxDifferences; i += 10 {
			g := newGenerator(chosen, seed, firstDirected+uint64(i))
			run(firstDirected+uint64(i), directed(g, shortfalls[i:min(len(shortfalls), i+10)]))
		}
	}
	if ops := r.directedForms(newGenerator(chosen, seed, firstDirectedForm), chosen, operations); len(ops) > 0 && differences < maxDifferences {
		run(firstDirectedForm, ops)
	}
	random(operations)
	r.report(t)
	for _, s := range r.missing(chosen, operations, expire) {
		t.Errorf("too few operations: %s", s)
	}
	for _, problem := range r.missingForms(operations) {
		t.Errorf("too few operations: %s", problem)
	}
	if path := os.Getenv("CONFORMANCE_PAGE"); path != "" && !t.Failed() {
		page := r.page(t, chosen, seed, r.real.kubernetesVersion(t))
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil { //nolint:gosec // a page of the docs
			t.Fatal(err)
		}
	}
	total := 0
	for _, n := range r.masked {
		total += n
	}
	fmt.Printf("CONFORMANCE ops=%d differences=%d masks=%d masked=%d\n", r.operations, differences, len(masks()), total)
}
