package kube_test

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// wrapper is a RoundTripper of the user.
type wrapper struct{ next http.RoundTripper }

func (w *wrapper) RoundTrip(req *http.Request) (*http.Response, error) { return w.next.RoundTrip(req) }

// Clients for a few writes, for example one per run of a handler, must not be kept until the end of the term.
func TestLeadershipReleasesClients(t *testing.T) {
	t.Parallel()
	server := newBodies(t, true)
	close(server.response)
	var created, freed atomic.Int64
	config := server.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w := &wrapper{next}
		created.Add(1)
		runtime.AddCleanup(w, func(int) { freed.Add(1) }, 0)
		return w
	})
	cluster := clusterOf(t, config)
	_, leading := lead(t)
	const clients = 20
	for range clients {
		client, err := rest.HTTPClientFor(cluster.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := send(client, server.request(leading, t, http.MethodDelete, "", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if created.Load() < 2*clients {
		t.Fatalf("%d wrappers were made for %d clients, want one for leased writes of each as well", created.Load(), clients)
	}
	const least = 2*clients - 4 // the last one may still be on a stack
	for deadline := time.Now().Add(20 * time.Second); freed.Load() < least; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d wrappers were freed, want %d at least", freed.Load(), created.Load(), least)
		}
	}
}

// A program may have several elections and one Cluster. A wrapper with a state, for example a rate limiter, must be
// created once per term.
func TestWrappersAreCreatedOncePerTerm(t *testing.T) {
	t.Parallel()
	server := newBodies(t, true)
	close(server.response)
	var created atomic.Int64
	config := server.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		created.Add(1)
		return &wrapper{next}
	})
	cluster := clusterOf(t, config)
	before := created.Load()
	_, one := lead(t)
	_, two := lead(t)
	for range 5 {
		for _, leading := range []*http.Request{server.request(one, t, http.MethodDelete, "", nil), server.request(two, t, http.MethodDelete, "", nil)} {
			if _, err := send(cluster.HTTPClient(), leading); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := created.Load() - before; got != 2 {
		t.Errorf("%d wrappers were made for two terms, want 2", got)
	}
}
