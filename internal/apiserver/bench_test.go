package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	for _, kind := range []struct {
		name                  string
		resource              schema.GroupResource
		path, object, applied string
	}{
		{
			"ConfigMap",
			schema.GroupResource{Resource: "configmaps"},
			configMapsPath, `{"metadata":{"name":"%s","labels":{"app":"web"}},"data":{"size":"%d"}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{"app":"web"}},"data":{"size":"%d"}}`,
		},
		{
			"Widget",
			schema.GroupResource{Group: "example.com", Resource: "widgets"},
			"/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%s","labels":{"app":"web"}},"spec":{"size":%d,"replicas":3,"image":"web:1"},"status":{"phase":"Ready"}}`,
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
				measure(b, func(i int) { operation(send, i) })
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
		// The part of an update, of any kind of patch, and of an apply that is apimachinery's: the least that they can cost.
		table := base.tables[kind.resource]
		manager := base.serving.managers[scope{table.kind, ""}]
		live := table.get("shop/o-0000").obj
		b.Run("field-manager-update/"+kind.name, func(b *testing.B) {
			measure(b, func(i int) {
				obj := live.DeepCopyObject().(Object)
				obj.SetLabels(map[string]string{"app": "web", "n": fmt.Sprint(i)})
				manager.UpdateNoErrors(live, obj, "bench")
			})
		})
		b.Run("field-manager-apply/"+kind.name, func(b *testing.B) {
			measure(b, func(i int) {
				content, _, err := decodeApplied(fmt.Appendf(nil, kind.applied, "o-0000", i), false)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := manager.Apply(live.DeepCopyObject(), &unstructured.Unstructured{Object: content}, "bench", true); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// measure runs an operation, and reports how many of them one core does in a second. That depends less on other processes
// than the time does.
func measure(b *testing.B, operation func(i int)) {
	b.Helper()
	cpu := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	b.ReportAllocs()
	began := cpu()
	for i := 0; b.Loop(); i++ {
		operation(i)
	}
	b.ReportMetric(float64(b.N)/(cpu()-began).Seconds(), "ops/core-s")
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

// An apply that changes the replicas of a Deployment: with the whole server, and only with the field manager of apimachinery,
// which is the least that it can cost.
func BenchmarkApplyDeployment(b *testing.B) {
	s := newServer(b, func(c *Config) { c.Kinds = append(c.Kinds, deployments()) })
	const path = deploymentsPath + "/web?fieldManager=bench"
	apply := func(i int) { exchange(b, s.Transport(), http.MethodPatch, path, fmt.Sprintf(deployment, "web", i)) }
	apply(0)
	b.Run("request", func(b *testing.B) {
		measure(b, func(i int) { apply(i + 1) })
	})
	b.Run("unchanged", func(b *testing.B) {
		measure(b, func(int) { apply(1) })
	})
	b.Run("field-manager", func(b *testing.B) {
		kind := s.config.Kinds[len(s.config.Kinds)-1]
		live := s.tables[kind.groupResource()].get("shop/web").obj
		measure(b, func(i int) {
			content, _, err := decodeApplied(fmt.Appendf(nil, deployment, "web", i+1), false)
			if err != nil {
				b.Fatal(err)
			}
			manager := s.serving.managers[scope{kind, ""}]
			if _, err := manager.Apply(live.DeepCopyObject(), &unstructured.Unstructured{Object: content}, "bench", false); err != nil {
				b.Fatal(err)
			}
		})
	})
}
