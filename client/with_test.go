package client

import (
	"context"
	"errors"
	"testing"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// connected returns a Cluster for a server that does not exist.
func connected(t *testing.T) *kube.Cluster {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestClientsFromWithShareAppliedMemory: clients that With derives, for example for each run or object, share the
// stored states of applies.
func TestClientsFromWithShareAppliedMemory(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Cluster: connected(t)})
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.With(func(config *Config) { config.Namespace = "shop" })
	if err != nil {
		t.Fatal(err)
	}
	if other.applied != c.applied || other.warnings != c.warnings {
		t.Error("it remembers for itself")
	}
	elsewhere, err := other.With(func(config *Config) { config.Cluster = connected(t) })
	if err != nil {
		t.Fatal(err)
	}
	if elsewhere.applied == c.applied {
		t.Error("what was applied to one cluster is taken for applied to another one")
	}
}

// Each client wraps its requests once with an interceptor, also if With has derived the client from another one.
// Otherwise an interceptor with a state (a limit, a counter) would count twice.
func TestInterceptorsAreChainedOnce(t *testing.T) {
	t.Parallel()
	chained := 0
	intercept := func(next RoundTrip) RoundTrip { chained++; return next }
	c, err := New(Config{Cluster: connected(t), Interceptors: []Interceptor{intercept}})
	if err != nil || chained != 1 {
		t.Fatalf("chained %d times (%v), want once", chained, err)
	}
	if _, err := c.With(func(config *Config) { config.DryRun = true }); err != nil || chained != 2 {
		t.Errorf("chained %d times for two clients (%v)", chained, err)
	}
}

// The verb of the caller's request determines which stored states are dropped, whatever the interceptors change in the
// request.
func TestInterceptedWritesInvalidateAppliedMemory(t *testing.T) {
	t.Parallel()
	pod, key := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, kube.Key{Namespace: "shop", Name: "web"}
	id := appliedID{
		object: objectID(pod.GroupKind(), key), collection: unique.Make(collection{pod.GroupKind(), key.Namespace}), applier: unique.Make(applier{}),
	}
	for name, test := range map[string]struct {
		request   Request
		intercept func(r *Request)
		known     bool
	}{
		"a read":                         {Request{Verb: VerbGet, Key: key}, nil, true},
		"an update":                      {Request{Verb: VerbUpdate, Key: key}, nil, false},
		"an eviction":                    {Request{Verb: VerbCreate, Key: key, Subresource: "eviction"}, nil, false},
		"an update of another object":    {Request{Verb: VerbUpdate, Key: kube.Key{Namespace: "shop", Name: "db"}}, nil, true},
		"an update that becomes apply":   {Request{Verb: VerbUpdate, Key: key}, func(r *Request) { r.Verb = VerbApply }, false},
		"an update that becomes dry run": {Request{Verb: VerbUpdate, Key: key}, func(r *Request) { r.DryRun = true }, true},
		"a name that is to be generated": {Request{Verb: VerbCreate, Key: kube.Key{Namespace: "shop"}}, nil, true},
		"all of its namespace":           {Request{Verb: VerbDeleteCollection, Key: kube.Key{Namespace: "shop"}}, nil, false},
		"all of another namespace":       {Request{Verb: VerbDeleteCollection, Key: kube.Key{Namespace: "den"}}, nil, true},
		"an apply, which notes itself":   {Request{Verb: VerbApply, Key: key}, nil, true},
	} {
		c, err := New(Config{Cluster: connected(t), Interceptors: []Interceptor{func(RoundTrip) RoundTrip {
			return func(_ context.Context, r *Request) error {
				if test.intercept != nil {
					test.intercept(r)
				}
				return errors.New("the response is lost") // the write may have been done
			}
		}}})
		if err != nil {
			t.Fatal(err)
		}
		c.applied.store(id, appliedState{uid: "u"})
		test.request.Kind = pod
		if err := c.send(t.Context(), &test.request); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, known := c.applied.get(id); known != test.known {
			t.Errorf("%s: known is %t, want %t", name, known, test.known)
		}
	}
}
