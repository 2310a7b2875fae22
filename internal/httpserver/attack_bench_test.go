package httpserver

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkRequestsUnderAttack measures the requests of a client with one connection while others attack the server: p50
// and p99, and the memory of the process, which contains the attackers.
func BenchmarkRequestsUnderAttack(b *testing.B) {
	slowly := func(begin string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.WriteString(conn, begin)
			_, _ = conn.Read(make([]byte, 1)) // until the server closes the connection
		}
	}
	huge := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2*maxHeaderBytes)
	for _, attack := range []struct {
		name   string
		number int // of attackers, which connect again when the server has closed their connections
		act    func(net.Conn)
	}{
		{"none", 0, nil},
		{"1000 idle connections", 1000, slowly("")},
		{"1000 unfinished headers", 1000, slowly("GET / HTTP/1.1\r\nHost: a\r\n")},
		{"1000 unfinished bodies", 1000, slowly("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")},
		{"4 clients with huge headers", 4, slowly(huge)},
	} {
		b.Run(attack.name, func(b *testing.B) {
			listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server, err := New(Config{
				Listener: listener, ShutdownTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
				Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(w, "hello")
				}),
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			running.Go(func() { // waited for above
				if err := server.Run(ctx); err != nil {
					b.Error(err)
				}
			})
			for range attack.number {
				running.Go(func() { // waited for above
					for ctx.Err() == nil {
						conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
						if err != nil {
							continue
						}
						attack.act(conn)
						_ = conn.Close()
						select {
						case <-ctx.Done():
						case <-time.After(100 * time.Millisecond):
						}
					}
				})
			}
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			var took []time.Duration
			failed := 0
			for b.Loop() {
				begun := time.Now()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String(), nil)
				if err != nil {
					b.Fatal(err)
				}
				res, err := client.Do(req)
				if err != nil {
					failed++ // its connection was closed: clients of probes and metrics try again
					continue
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(failed), "failed")
			b.ReportMetric(float64(memory.Sys>>20), "MiB")
		})
	}
}
