package informer_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// After any faults of the API server and the network, and any calls of the informer's users, the informer finally shows
// the server's objects, has announced them, and has called seen for each awaited write.
func TestCacheConverges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newTruth(t, seed).check() })
		})
	}
}

// truth is an informer with its API server.
type truth struct {
	*testing.T
	random    *rand.Rand
	server    *apitest.Server
	cluster   *kube.Cluster
	informer  *informer.Informer[*corev1.ConfigMap]
	selection kube.Selection
	logs      *logBuffer
	awaited   int

	mu     sync.Mutex
	fault  string              // guarded by mu; the present fault of requests
	cuts   int                 // guarded by mu; number of truncated responses
	copied map[kube.Key]string // guarded by mu; announced resource versions
	seen   map[int]int         // guarded by mu; number of calls of seen for each awaited write
}

func newTruth(t *testing.T, seed uint64) *truth {
	t.Helper()
	f := &truth{
		T: t, random: rand.New(rand.NewPCG(seed, seed)), logs: &logBuffer{}, copied: map[kube.Key]string{}, seen: map[int]int{},
		server: apitest.New(apiserver.ConfigMaps()),
	}
	f.server.Hook(f.request)
	var err error
	if f.cluster, err = kube.Connect(f.server.Config("test")); err != nil {
		t.Fatal(err)
	}
	f.selection = f.anySelection()
	f.informer, err = informer.New(informer.Config[*corev1.ConfigMap]{
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](f.cluster, f.selection), Optional: f.random.IntN(2) == 0, Logger: f.logs.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.informer.Subscribe(f.note)
	return f
}

func (f *truth) anySelection() (s kube.Selection) {
	s.Namespaces = [][]string{nil, {"a"}, {"a", "b"}, {"b", "c"}, {"c"}}[f.random.IntN(5)]
	if f.random.IntN(3) == 0 {
		s.LabelSelector = "color=red"
	}
	return s
}

// request applies the present fault to a request.
func (f *truth) request(r *http.Request, do func() *http.Response) (*http.Response, error) {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	isWatch := r.URL.Query().Has("watch")
	switch {
	case fault == "refused", fault == "no watches" && isWatch:
		return nil, syscall.ECONNREFUSED
	case fault == "no lists" && !isWatch, fault == "no answers":
		return apitest.Failure(apierrors.NewInternalError(fmt.Errorf("a fault"))), nil
	case fault == "forbidden":
		return apitest.Failure(apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil)), nil
	case fault == "too many":
		return apitest.Failure(apierrors.NewTooManyRequests("later", 1)), nil
	case fault == "no streamed lists" && r.URL.Query().Has("sendInitialEvents"):
		return apitest.Failure(apierrors.NewBadRequest("unknown")), nil
	case fault == "gone" && isWatch:
		return apitest.Failure(apierrors.NewResourceExpired("too old")), nil
	}
	response := do()
	if fault == "cut" {
		f.mu.Lock()
		f.cuts++
		response.Body = &cutBody{ReadCloser: response.Body, left: f.cuts * 377 % 2000}
		f.mu.Unlock()
	}
	return response, nil
}

// cutBody is a response body that ends early.
type cutBody struct {
	io.ReadCloser
	left int
}

func (c *cutBody) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// note records what is announced.
func (f *truth) note(c informer.Change) {
	obj, err := cache.Of(c).New()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		f.Error(err)
	case c.Type == informer.Deleted:
		if _, known := f.copied[c.Key]; !known {
			f.Errorf("%s is deleted, but was never announced", c.Key)
		}
		delete(f.copied, c.Key)
	default:
		if _, known := f.copied[c.Key]; c.Type != informer.Listed && known != (c.Type == informer.Updated) {
			f.Errorf("%s is %s, but it was announced before: %t", c.Key, c.Type, known)
		}
		f.copied[c.Key] = string(obj.UID) + "/" + obj.ResourceVersion
	}
}

func (f *truth) setFault(fault string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// write changes an object of the server, and sometimes awaits the write.
func (f *truth) write() {
	key := kube.Key{Namespace: string(rune('a' + f.random.IntN(3))), Name: fmt.Sprint("n", f.random.IntN(6))}
	deletes := f.random.IntN(4) == 0
	if deletes && f.server.Object("configmaps", key) == nil {
		return
	}
	color, value := [...]string{"red", "blue"}[f.random.IntN(2)], f.random.Int()
	old := f.server.Object("configmaps", key)
	version := f.server.Edit("configmaps", key, "user", func(obj map[string]any) bool {
		obj["data"] = map[string]any{"value": fmt.Sprint(value)}
		obj["metadata"].(map[string]any)["labels"] = map[string]any{"color": color}
		return !deletes
	})
	if f.random.IntN(2) == 0 {
		w := cache.Write{Key: key, ResourceVersion: version, Deleted: deletes}
		if obj := f.server.Object("configmaps", key); obj != nil {
			w.UID = obj.GetUID()
		} else {
			w.UID = old.GetUID()
		}
		n := f.awaited
		f.awaited++
		cache.Of(f.informer).Await(w, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen[n]++
		})
	}
}

func (f *truth) check() {
	leave := f.informer.Join(f.Context())
	defer func() { leave() }()
	var restore func()
	for range 60 {
		switch f.random.IntN(16) {
		case 0:
			f.server.Break("configmaps", f.random.IntN(2) == 0)
		case 1:
			f.setFault([...]string{"refused", "no watches", "no lists", "no answers", "forbidden", "too many", "no streamed lists", "gone", "cut"}[f.random.IntN(9)])
		case 2:
			f.setFault("")
		case 3:
			f.server.HoldWatches("configmaps")
		case 4:
			f.server.ReleaseWatches("configmaps")
		case 5:
			restore = f.server.Backup()
		case 6:
			if restore != nil {
				f.setFault("refused")
				f.server.Break("configmaps", false)
				time.Sleep(5 * time.Second)
				restore()
				f.setFault("")
				time.Sleep(time.Minute)
			}
		case 7:
			selection := f.anySelection()
			ctx, cancel := context.WithTimeout(f.Context(), time.Duration(f.random.IntN(40))*time.Second)
			if f.informer.SetRetriever(ctx, informer.RetrieveSelected[*corev1.ConfigMap](f.cluster, selection)) == nil {
				f.selection = selection
			}
			cancel()
		case 8:
			leave()
			f.mu.Lock()
			clear(f.copied) // the next session lists everything
			f.mu.Unlock()
			leave = f.informer.Join(f.Context())
		case 9:
			time.Sleep(time.Duration(f.random.IntN(300)) * time.Second)
		default:
			for range f.random.IntN(4) {
				f.write()
			}
		}
		time.Sleep(time.Duration(f.random.IntN(3000)) * time.Millisecond)
	}
	f.setFault("")
	f.server.ReleaseWatches("configmaps")
	time.Sleep(10 * time.Minute)
	f.compare()
}

// compare compares the shown and the announced objects with those of the server.
func (f *truth) compare() {
	want, shown := map[kube.Key]string{}, map[kube.Key]string{}
	for _, namespace := range []string{"a", "b", "c"} {
		for n := range 6 {
			key := kube.Key{Namespace: namespace, Name: fmt.Sprint("n", n)}
			obj := f.server.Object("configmaps", key)
			selected := len(f.selection.Namespaces) == 0
			for _, other := range f.selection.Namespaces {
				selected = selected || other == namespace
			}
			if obj != nil && selected && (f.selection.LabelSelector == "" || obj.GetLabels()["color"] == "red") {
				want[key] = string(obj.GetUID()) + "/" + obj.GetResourceVersion()
			}
		}
	}
	for obj, err := range f.informer.List(informer.Query{}) {
		if err != nil {
			f.Fatal(err)
		}
		shown[kube.KeyOf(obj)] = string(obj.UID) + "/" + obj.ResourceVersion
		live := f.server.Object("configmaps", kube.KeyOf(obj))
		if live == nil {
			continue // reported below
		}
		if data, _ := live.Object["data"].(map[string]any); fmt.Sprint(data["value"]) != obj.Data["value"] {
			f.Errorf("%s has other content: %v, want %v", obj.Name, obj.Data, data)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !maps.Equal(want, shown):
		f.Errorf("shown are %v, want %v", shown, want)
	case !maps.Equal(want, f.copied):
		f.Errorf("announced are %v, want %v", f.copied, want)
	case f.informer.Ready() != nil:
		f.Errorf("Ready: %v", f.informer.Ready())
	case f.Failed():
	default:
		for n := range f.awaited {
			if f.seen[n] != 1 {
				f.Errorf("write %d was seen %d times", n, f.seen[n])
			}
		}
	}
	if f.Failed() {
		f.Logf("%+v\n%s", f.selection, f.logs)
	}
}
