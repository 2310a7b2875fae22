package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// exchange makes a request without checks, as cheap as possible.
func exchange(tb testing.TB, transport http.RoundTripper, method, path, body string) string {
	tb.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://apiserver.invalid"+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
		if strings.Contains(path, "fieldManager") {
			req.Header.Set("Content-Type", "application/apply-patch+yaml")
		}
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		tb.Fatalf("%s %s: %s", method, path, text)
	}
	return string(text)
}

// Operations by kind, in a namespace with 1,000 objects.
func BenchmarkRequests(b *testing.B) {
	const objects = 1000
	for _, kind := range []struct{ name, path, object, applied string }{
		{
			"ConfigMap", configMapsPath, `{"metadata":{"name":"%s","labels":{"app":"web"}},"data":{"size":"%d"}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{"app":"web"}},"data":{"size":"%d"}}`,
		},
		{
			"Widget", "/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%s","labels":{"app":"web"}},"spec":{"size":%d,"replicas":3,"image":"web:1"},"status":{"phase":"Ready"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%s","labels":{"app":"web"}},"spec":{"size":%d,"replicas":3,"image":"web:1"}}`,
		},
	} {
		base := newServer(b)
		for i := range objects {
			exchange(b, base.Transport(), http.MethodPost, kind.path, fmt.Sprintf(kind.object, fmt.Sprintf("o-%04d", i), i))
		}
		run := func(name string, operation func(send func(method, path, body string) string, i int)) {
			b.Run(name+"/"+kind.name, func(b *testing.B) {
				transport := base.Fork().Transport()
				send := func(method, path, body string) string { return exchange(b, transport, method, path, body) }
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					operation(send, i)
				}
			})
		}
		run("get", func(send func(method, path, body string) string, i int) {
			send(http.MethodGet, fmt.Sprintf("%s/o-%04d", kind.path, i%objects), "")
		})
		run("create", func(send func(method, path, body string) string, i int) {
			send(http.MethodPost, kind.path, fmt.Sprintf(kind.object, fmt.Sprintf("p-%d", i), i))
		})
		run("update", func(send func(method, path, body string) string, i int) { // a read, and an update with its version
			path := fmt.Sprintf("%s/o-%04d", kind.path, i%objects)
			text := send(http.MethodGet, path, "")
			send(http.MethodPut, path, strings.Replace(text, `"app":"web"`, fmt.Sprintf(`"app":"web","n":"%d"`, i/objects), 1))
		})
		run("patch", func(send func(method, path, body string) string, i int) {
			send(http.MethodPatch, fmt.Sprintf("%s/o-%04d", kind.path, i%objects), fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
		})
		run("apply", func(send func(method, path, body string) string, i int) {
			name := fmt.Sprintf("o-%04d", i%objects)
			body := fmt.Sprintf(kind.applied, name, i)
			send(http.MethodPatch, kind.path+"/"+name+"?fieldManager=bench&force=true", body)
		})
		run("apply-unchanged", func(send func(method, path, body string) string, i int) {
			name := fmt.Sprintf("o-%04d", i%10)
			send(http.MethodPatch, kind.path+"/"+name+"?fieldManager=bench&force=true", fmt.Sprintf(kind.applied, name, 1))
		})
		run("list", func(send func(method, path, body string) string, _ int) { send(http.MethodGet, kind.path, "") })
		run("list-100", func(send func(method, path, body string) string, _ int) {
			send(http.MethodGet, kind.path+"?limit=100", "")
		})
	}
}

// A fork of a server with 1,000 objects, and the first write to it.
func BenchmarkFork(b *testing.B) {
	s := newServer(b)
	putObjects(b, s, 1000)
	b.Run("fork", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Fork()
		}
	})
	b.Run("fork-and-create", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			exchange(b, s.Fork().Transport(), http.MethodPost, configMapsPath, `{"metadata":{"name":"new"}}`)
		}
	})
}
