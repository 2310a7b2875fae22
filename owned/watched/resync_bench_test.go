package watched_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/fakeserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// applyServer is a fakeserver that supports server-side apply of ConfigMaps by one manager: an apply that creates an
// object, and the same apply again. It rejects other applies.
type applyServer struct {
	*fakeserver.Server
	requests atomic.Int64 // number of applies
}

const applier = "tests"

// RoundTrip implements http.RoundTripper.
func (s *applyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch {
		return s.Server.RoundTrip(r)
	}
	s.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var configuration map[string]any
	if err := json.Unmarshal(body, &configuration); err != nil || r.URL.Query().Get("fieldManager") != applier {
		return nil, fmt.Errorf("not an apply of %s: %w", applier, err)
	}
	parts := strings.Split(r.URL.Path, "/")
	key := kube.Key{Namespace: parts[len(parts)-3], Name: path.Base(r.URL.Path)}
	status := http.StatusOK
	live := s.Object("configmaps", key)
	if live == nil {
		status = http.StatusCreated
		s.Edit("configmaps", key, "server", func(obj map[string]any) bool {
			metadata := configuration["metadata"].(map[string]any)
			delete(metadata, "resourceVersion")
			maps.Copy(obj, configuration)
			metadata["managedFields"] = []any{map[string]any{
				"manager": applier, "operation": "Apply", "apiVersion": "v1", "time": "2026-11-22T09:00:00Z", "fieldsType": "FieldsV1",
				"fieldsV1": map[string]any{"f:data": leaves(configuration["data"]), "f:metadata": map[string]any{
					"f:labels": leaves(metadata["labels"]), "f:annotations": leaves(metadata["annotations"]),
					"f:ownerReferences": map[string]any{`k:{"uid":"` + metadata["ownerReferences"].([]any)[0].(map[string]any)["uid"].(string) + `"}`: map[string]any{}},
				}},
			}}
			return true
		})
		live = s.Object("configmaps", key)
	} else if !reflect.DeepEqual(live.Object["data"], configuration["data"]) {
		return nil, fmt.Errorf("an apply of other data to %s", key)
	}
	encoded, err := live.MarshalJSON()
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(encoded))}, err
}

// leaves returns the managedFields of a map of strings.
func leaves(value any) map[string]any {
	fields := map[string]any{}
	entries, _ := value.(map[string]any)
	for name := range entries {
		fields["f:"+name] = map[string]any{}
	}
	return fields
}

// BenchmarkResync measures a resync with EVENKEEL_CHILDREN children (default 1000) of as many owners: the applies, and
// the CPU time of the process, which includes the server. With "memory" the informer keeps no managedFields. Run it
// with -benchtime 1x.
func BenchmarkResync(b *testing.B) {
	n := 1000
	if text := os.Getenv("EVENKEEL_CHILDREN"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	kinds := []fakeserver.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps"},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets"},
	}
	empty, full := &applyServer{Server: fakeserver.New(kinds...)}, &applyServer{Server: fakeserver.New(kinds...)}
	owners := make([]*corev1.Secret, n)
	for i := range owners {
		owners[i] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i%100), Name: fmt.Sprint("owner-", i), UID: types.UID(fmt.Sprintf("4d0d5b44-8d9f-4a5a-8f0b-%012x", i)), ResourceVersion: "1",
		}}
	}
	start := func(shown *applyServer, keep string) (*owned.Set, *informer.Informer[*corev1.ConfigMap]) {
		objects, err := informer.New(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.Retrieve[*corev1.ConfigMap](connectTo(b, shown)), KeepAppliedBy: keep,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(objects.Join(b.Context()))
		if err := objects.WaitSynced(b.Context()); err != nil {
			b.Fatal(err)
		}
		c, err := client.New(client.Config{Cluster: connectTo(b, full), FieldOwner: applier, Informers: []client.Informer{objects}})
		if err != nil {
			b.Fatal(err)
		}
		set, err := owned.New(owned.Config{Client: c, Name: "bench", Kinds: []schema.GroupVersionKind{objects.Kind()}})
		if err != nil {
			b.Fatal(err)
		}
		return set, objects
	}
	resync := func(b *testing.B, set *owned.Set) {
		b.Helper()
		full.requests.Store(0)
		began := usedCPU(b)
		for _, owner := range owners {
			_, err := set.Apply(b.Context(), owner, owned.Of(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: owner.Name, Labels: map[string]string{"app": "web"}},
				Data:       map[string]string{"greeting": "hello", "colour": "blue"},
			})...)
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(full.requests.Load()), "applies")
		b.ReportMetric((usedCPU(b) - began).Seconds(), "cpu-s")
	}
	creating, _ := start(empty, "")
	resync(b, creating)
	for _, how := range []struct{ name, keep string }{{"memory", ""}, {"managedFields", applier}} {
		set, objects := start(full, how.keep)
		for _, when := range []string{"after a restart", "at rest"} {
			b.Run(how.name+" "+when, func(b *testing.B) {
				for b.Loop() {
					resync(b, set)
				}
				b.ReportMetric(float64(objects.Sizes().Kept)/float64(n), "B/child")
			})
		}
	}
}

func connectTo(b *testing.B, server *applyServer) *kube.Cluster {
	b.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://fakeserver", Transport: server})
	if err != nil {
		b.Fatal(err)
	}
	return cluster
}

func usedCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
