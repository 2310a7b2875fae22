package webhook

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
)

// Clients that send their reviews slowly, or do not read the response, never keep the server from small reviews, and from
// large ones only for seconds.
func TestSlowClientsDoNotBlockReviews(t *testing.T) {
	t.Parallel()
	post := func(path string, length int, body string) string {
		return fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, length, body)
	}
	small, err := json.Marshal(mapReview(mapObject))
	if err != nil {
		t.Fatal(err)
	}
	large, err := json.Marshal(mapReview(strings.Replace(mapObject, `"1"`, `"`+strings.Repeat("x", 1<<20)+`"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	reflected := func(n int) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"example.com/v2","objects":[%s]}}`,
			robotJSON("v2", `{"length":"`+strings.Repeat("x", n)+`"}`))
	}
	for name, slow := range map[string]string{
		"no body":           post(hookName, 1000, ""),
		"begin of a body":   post(hookName, 1<<20, "{"),
		"half a large body": post(hookName, 1<<20, strings.Repeat(" ", 300<<10)),
		"conversion":        post(robotsCRD, maxBodyBytes+1000, strings.Repeat(" ", 300<<10)),
		"unread response":   post(robotsCRD, len(reflected(530<<10)), reflected(530<<10)),
		"small and unread":  post(robotsCRD, len(reflected(100<<10)), reflected(100<<10)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serveRobots(t, nil, robotHook(), Validating(mapsOptions(), allowMaps))
				listener := apitest.NewListener()
				server := &http.Server{Handler: s, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute}
				var running sync.WaitGroup
				running.Go(func() { _ = server.Serve(listener) }) // waited for below
				var conns []net.Conn
				defer func() {
					_ = server.Close()
					for _, conn := range conns {
						_ = conn.Close()
					}
					running.Wait()
					time.Sleep(time.Minute) // the connections of net/http end
				}()
				dial := func() net.Conn {
					client, conn := net.Pipe()
					conns = append(conns, client)
					listener.Deliver(conn)
					return client
				}
				for range maxReviews + 6 {
					conn := dial()
					running.Go(func() { _, _ = io.WriteString(conn, slow) })
				}
				synctest.Wait()
				for _, review := range []struct {
					body  []byte
					limit time.Duration
				}{{small, 0}, {large, 7 * time.Second}} {
					began := time.Now()
					conn := dial()
					running.Go(func() { _, _ = io.WriteString(conn, post(hookName, len(review.body), string(review.body))) })
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatal(err)
					}
					text, err := io.ReadAll(response.Body)
					_ = response.Body.Close()
					if err != nil || !bytes.Contains(text, []byte(`"allowed":true`)) || time.Since(began) > review.limit {
						t.Errorf("a review of %d bytes got status %d after %s: %.100s (%v)", len(review.body), response.StatusCode, time.Since(began), text, err)
					}
				}
				time.Sleep(time.Minute)
				if len(s.slots) > 0 || len(s.big) > 0 || len(s.large) > 0 {
					t.Error("slow clients keep places of the server")
				}
			})
		})
	}
}

// The time for a large review limits its client, and not the function.
func TestSlowFunctionsOfLargeReviews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const took = 8 * time.Second
		s := serve(t, Validating(mapsOptions(), func(ctx context.Context, _ *Request[*corev1.ConfigMap]) error {
			select {
			case <-time.After(took):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
		listener := apitest.NewListener()
		server := &http.Server{Handler: s, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute}
		var running sync.WaitGroup
		running.Go(func() { _ = server.Serve(listener) }) // waited for below
		client, conn := net.Pipe()
		listener.Deliver(conn)
		defer func() {
			_ = server.Close()
			_ = client.Close()
			running.Wait()
		}()
		body, err := json.Marshal(mapReview(strings.Replace(mapObject, `"1"`, `"`+strings.Repeat("x", 300<<10)+`"`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(client)
		for range 2 { // on one connection
			running.Go(func() {
				_, _ = fmt.Fprintf(client, "POST /%s?timeout=10s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", hookName, len(body), body)
			})
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || !bytes.Contains(text, []byte(`"allowed":true`)) {
				t.Errorf("the response is %d %s (%v)", response.StatusCode, text, err)
			}
		}
	})
}
