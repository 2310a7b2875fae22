package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// recordServer is the system of records outside the cluster that both operators write to. An operator ensures the
// record of a WebApp's host in each run, so the server also shows which WebApps were handled since the last reset.
type recordServer struct {
	url    string
	server *http.Server
	served chan struct{}

	mu      sync.Mutex
	records map[string]record   // guarded by mu; by host
	ensured map[string]struct{} // guarded by mu; hosts with a PUT since the last reset
	calls   int                 // guarded by mu; PUTs since the last reset
	last    time.Time           // guarded by mu; of the last PUT
}

// record is what a PUT has sent.
type record struct {
	body, contentType string
}

func newRecordServer(ctx context.Context) (*recordServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the records: %w", err)
	}
	r := &recordServer{
		url: "http://" + listener.Addr().String(), served: make(chan struct{}),
		records: make(map[string]record), ensured: make(map[string]struct{}),
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { // close waits for it, through served
		defer close(r.served)
		_ = r.server.Serve(listener) // ends with close
	}()
	return r, nil
}

func (r *recordServer) close() error {
	err := r.server.Close()
	<-r.served
	return err
}

// ServeHTTP implements http.Handler.
func (r *recordServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	host := strings.TrimPrefix(request.URL.Path, "/")
	r.mu.Lock()
	defer r.mu.Unlock()
	stored, found := r.records[host]
	switch request.Method {
	case http.MethodPut:
		r.records[host] = record{body: string(body), contentType: request.Header.Get("Content-Type")}
		r.ensured[host] = struct{}{}
		r.calls++
		r.last = time.Now()
	case http.MethodDelete:
		if !found {
			http.NotFound(w, request)
			return
		}
		delete(r.records, host)
	case http.MethodGet:
		if !found {
			http.NotFound(w, request)
			return
		}
		if stored.contentType != "" {
			w.Header().Set("Content-Type", stored.contentType)
		}
		_, _ = io.WriteString(w, stored.body) // the client sees a short body
	default:
		http.Error(w, request.Method, http.StatusMethodNotAllowed)
	}
}

// reset forgets which hosts were ensured. The records stay.
func (r *recordServer) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ensured)
	r.calls = 0
}

// progress returns how many hosts were ensured since the last reset, by how many calls, and when the last call came.
func (r *recordServer) progress() (hosts, calls int, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ensured), r.calls, r.last
}

func (r *recordServer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records)
}
