package informer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// An API server whose etcd was restored from a backup accepts a watch from a version that the restore has lost, and
// sends nothing. The informer detects that by the missing bookmarks.
func TestRestoreIsDetectedByMissingBookmarks(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList)
				old := server.Put(object("a", "backed up"))
				restore := server.Backup()
				f := start(t, server, nil)
				server.Put(object("a", "lost"))
				b := server.Put(object("b", "lost"))
				server.Bookmark()
				f.expect("listed a", "updated a", "added b")
				lost := b
				lost.ResourceVersion = "1004"
				writes := await(f, written(lost))

				restore()
				time.Sleep(time.Minute)
				server.Bookmark()
				f.expect()
				if err := f.informer.Ready(); err != nil {
					t.Errorf("too early: %v", err)
				}
				time.Sleep(2 * time.Minute)
				f.expect("updated a", "deleted b")
				if got := f.value("a"); got != "backed up" {
					t.Errorf("a is %q", got)
				}
				expectSeen(t, "a write that is lost", writes, 1)
				if n := strings.Count(f.logs.String(), "resource versions went back"); n == 0 {
					t.Errorf("the log does not tell:\n%s", f.logs)
				}
				if n := strings.Count(f.logs.String(), "level=WARN"); n != 1 {
					t.Errorf("logged %d times, want once:\n%s", n, f.logs)
				}
				// Versions after the restore count, although they are lower than the versions before.
				after := await(f, cache.Write{Key: key("a"), UID: old.UID, ResourceVersion: "1002"})
				expectSeen(t, "a write after the restore", after, 0)
				server.Put(object("a", "after"))
				f.expect("updated a")
				expectSeen(t, "a write after the restore", after, 1)
				if err := f.informer.Ready(); err != nil {
					t.Errorf("Ready: %v", err)
				}
				time.Sleep(20 * time.Minute)
				server.Bookmark()
				f.expect()
			})
		})
	}
}

// After an outage in which its watch could not be opened, an informer checks at once whether versions went back,
// without waiting for missing bookmarks.
func TestRestoreDuringOutageIsDetectedAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		restores bool
		outage   error
		lists    int // after the outage
	}{
		"restored while connections were refused": {restores: true, outage: syscall.ECONNREFUSED, lists: 1},
		"restored while answers were errors":      {restores: true, outage: apierrors.NewInternalError(errors.New("no etcd")), lists: 1},
		"only an outage":                          {outage: syscall.ECONNREFUSED, lists: 1},
		"no outage":                               {lists: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps())
				put := func(name, value string) {
					server.Edit("configmaps", key(name), "user", func(obj map[string]any) bool {
						obj["data"] = map[string]any{"value": value}
						return value != ""
					})
				}
				put("a", "backed up")
				restore := server.Backup()
				logs := &logBuffer{}
				i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{Logger: logs.logger()}, kube.Selection{})
				defer joinSynced(t, i)()
				for n := range 10 {
					put("a", fmt.Sprint("lost ", n))
				}
				put("b", "lost")
				synctest.Wait()
				var outage atomic.Bool
				outage.Store(test.outage != nil)
				var status *apierrors.StatusError
				server.Hook(func(_ *http.Request, do func() *http.Response) (*http.Response, error) {
					switch {
					case !outage.Load():
						return do(), nil
					case errors.As(test.outage, &status):
						return apitest.Failure(status), nil
					}
					return nil, test.outage
				})
				server.Break("configmaps", false)
				time.Sleep(10 * time.Second)
				if test.restores {
					restore()
					put("a", "after")
				}
				server.Requests()
				outage.Store(false)
				time.Sleep(15 * time.Second)
				want := "lost 9"
				if test.restores {
					want = "after"
				}
				obj, found, err := i.Get(key("a"))
				if err != nil || !found || obj.Data["value"] != want || cache.Of(i).Has(key("b")) == test.restores {
					t.Errorf("a is %v, %t, %v; b is shown: %t\n%s", obj, found, err, cache.Of(i).Has(key("b")), logs)
				}
				if err := i.Ready(); err != nil {
					t.Errorf("Ready: %v", err)
				}
				if lists := len(server.Requests()); !test.restores && lists > test.lists {
					t.Errorf("%d lists after the outage, want at most %d", lists, test.lists)
				}
				put("a", "later")
				synctest.Wait()
				if obj, _, _ := i.Get(key("a")); obj == nil || obj.Data["value"] != "later" {
					t.Errorf("a later change is not shown: %v", obj)
				}
			})
		})
	}
}

// The check whether versions went back is repeated until it succeeds, even if the watch that was opened after the
// outage ends first.
func TestRestoreIsDetectedAfterFailedChecks(t *testing.T) {
	for name, breaks := range map[string]bool{"lists fail": false, "lists fail and the watch ends": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps())
				put := func(value string) {
					server.Edit("configmaps", key("a"), "user", func(obj map[string]any) bool {
						obj["data"] = map[string]any{"value": value}
						return true
					})
				}
				put("backed up")
				restore := server.Backup()
				logs := &logBuffer{}
				i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{Logger: logs.logger()}, kube.Selection{})
				defer joinSynced(t, i)()
				for n := range 10 {
					put(fmt.Sprint("lost ", n))
				}
				synctest.Wait()
				var watches, lists atomic.Bool // true: requests fail
				watches.Store(true)
				lists.Store(true)
				server.Hook(func(r *http.Request, do func() *http.Response) (*http.Response, error) {
					switch isWatch := r.URL.Query().Has("watch"); {
					case isWatch && watches.Load():
						return nil, syscall.ECONNREFUSED
					case !isWatch && lists.Load():
						return apitest.Failure(apierrors.NewInternalError(errors.New("it has just been started"))), nil
					}
					return do(), nil
				})
				server.Break("configmaps", false)
				time.Sleep(10 * time.Second)
				restore()
				put("after")
				watches.Store(false)
				time.Sleep(30 * time.Second)
				if breaks {
					server.Break("configmaps", false) // the next watch is opened at the first attempt
					time.Sleep(2 * time.Second)
				}
				lists.Store(false)
				time.Sleep(time.Minute)
				if obj, found, err := i.Get(key("a")); err != nil || !found || obj.Data["value"] != "after" {
					t.Errorf("a is %v, %t, %v\n%s", obj, found, err, logs)
				}
			})
		})
	}
}

// A write that a restore has lost is not awaited, even if the informer had not reached its version.
func TestWriteLostByRestoreIsNotAwaited(t *testing.T) {
	for name, outage := range map[string]error{"the watch goes on": syscall.ECONNREFUSED, "a list follows": apierrors.NewInternalError(errors.New("no etcd"))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps())
				put := func(value string) (version string) {
					return server.Edit("configmaps", key("a"), "user", func(obj map[string]any) bool {
						obj["data"] = map[string]any{"value": value}
						return true
					})
				}
				put("backed up")
				restore := server.Backup()
				i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{}, kube.Selection{})
				defer joinSynced(t, i)()
				server.Hook(func(*http.Request, func() *http.Response) (*http.Response, error) {
					if status := (*apierrors.StatusError)(nil); errors.As(outage, &status) {
						return apitest.Failure(status), nil
					}
					return nil, outage
				})
				server.Break("configmaps", false)
				time.Sleep(time.Second)
				put("lost")
				version := put("lost, too")
				var lost, later atomic.Int32
				cache.Of(i).Await(cache.Write{Key: key("a"), ResourceVersion: version}, func() { lost.Add(1) })
				time.Sleep(10 * time.Second)
				restore()
				server.Hook(nil)
				time.Sleep(20 * time.Second)
				expectSeen(t, "the lost write", &lost, 1)
				server.HoldWatches("configmaps")
				cache.Of(i).Await(cache.Write{Key: key("a"), ResourceVersion: put("after")}, func() { later.Add(1) })
				expectSeen(t, "a write after the restore", &later, 0)
				server.ReleaseWatches("configmaps")
				expectSeen(t, "a write after the restore", &later, 1)
			})
		})
	}
}

// maxRetryDelay is the longest pause between two attempts to list and watch: 10 s plus a jitter of half of that. See
// the backoff in reflector.go.
const maxRetryDelay = 15 * time.Second

// A list that fails midway may deliver objects that a restore of etcd loses, and that are newer than the next list.
func TestObjectsOfFailedListAreLostByRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps())
		put := func(name, value string) {
			server.Edit("configmaps", key(name), "user", func(obj map[string]any) bool {
				obj["data"] = map[string]any{"value": value}
				return true
			})
		}
		put("a", "backed up")
		restore := server.Backup()
		i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{}, kube.Selection{})
		defer joinSynced(t, i)()
		server.Hook(func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			if r.URL.Query().Has("watch") {
				return apitest.Failure(apierrors.NewInternalError(errors.New("too busy"))), nil
			}
			response := do()
			response.Body = &cutBody{ReadCloser: response.Body, left: int(response.ContentLength) - 60}
			return response, nil
		})
		server.Break("configmaps", false)
		time.Sleep(time.Second)
		put("a", "lost")
		put("b", "lost")
		put("c", "lost") // the last object of the list, which is cut
		time.Sleep(10 * time.Second)
		if !cache.Of(i).Has(key("b")) {
			t.Fatal("the list has not brought b")
		}
		restore()
		server.Hook(nil)
		time.Sleep(2 * maxRetryDelay) // the next attempt detects the restore, the one after it lists
		if obj, _, err := i.Get(key("a")); err != nil || obj == nil || obj.Data["value"] != "backed up" || cache.Of(i).Has(key("b")) {
			t.Errorf("a is %v, %v; b is shown: %t", obj, err, cache.Of(i).Has(key("b")))
		}
	})
}

// newFormat is an API server that does not accept the versions that it returned before an upgrade.
type newFormat struct {
	*kindserver.Server[configMap]
	from atomic.Int64 // lower versions are rejected
}

func (n *newFormat) refuses(opts metav1.ListOptions) error {
	if version, err := strconv.ParseInt(opts.ResourceVersion, 10, 64); err == nil && version < n.from.Load() {
		return apierrors.NewBadRequest("resourceVersion: Invalid value: " + opts.ResourceVersion)
	}
	return nil
}

func (n *newFormat) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if err := n.refuses(opts); err != nil {
		return nil, err
	}
	return n.Server.List(ctx, opts)
}

func (n *newFormat) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := n.refuses(opts); err != nil {
		return nil, err
	}
	return n.Server.Watch(ctx, opts)
}

// A resource version that the API server no longer accepts is not requested repeatedly.
func TestRejectedVersionIsNotRequestedAgain(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &newFormat{Server: newServer(watchList)}
				server.Put(object("a", "1"))
				f := start(t, server.Server, server)
				f.expect("listed a")
				server.Put(object("a", "2"))
				server.from.Store(103)
				server.Put(object("a", "3"))
				f.expect("updated a", "updated a")
				server.from.Store(104)
				server.DropWatches()
				time.Sleep(time.Second)
				server.Put(object("a", "4"))
				time.Sleep(time.Minute)
				f.expect("updated a")
				if err := f.informer.Ready(); err != nil {
					t.Errorf("Ready: %v", err)
				}
			})
		})
	}
}

// perObject is a Retriever of an API server that counts the writes of each object.
type perObject struct {
	informer.Retriever[configMap]
	mu      sync.Mutex
	version string // version of lists; guarded by mu
	objects map[kube.Key]configMap
	watch   *watch.FakeWatcher // guarded by mu
	asked   []string           // resource versions of lists; guarded by mu
}

func newPerObject(version string) *perObject {
	return &perObject{
		Retriever: newServer(false), version: version, objects: map[kube.Key]configMap{},
		watch: watch.NewFakeWithChanSize(10, false),
	}
}

// put stores an object at its own version. With send, the watch delivers it.
func (p *perObject) put(name, version string, send bool) configMap {
	p.mu.Lock()
	defer p.mu.Unlock()
	obj := object(name, version)
	obj.UID, obj.ResourceVersion = types.UID("uid-"+name), version
	_, found := p.objects[key(name)]
	p.objects[key(name)] = obj
	switch {
	case send && found:
		p.watch.Modify(obj.DeepCopy())
	case send:
		p.watch.Add(obj.DeepCopy())
	}
	return obj
}

// remove deletes an object. With send, the watch delivers the deletion.
func (p *perObject) remove(name string, send bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if send {
		p.watch.Delete(p.objects[key(name)].DeepCopy())
	}
	delete(p.objects, key(name))
}

// breakWatch ends the watch.
func (p *perObject) breakWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
	p.watch = watch.NewFakeWithChanSize(10, false)
}

func (p *perObject) List(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, opts.ResourceVersion)
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: p.version}}
	for _, obj := range p.objects {
		list.Items = append(list.Items, *obj.DeepCopy())
	}
	return list, nil
}

func (p *perObject) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watch, nil
}

// Some aggregated API servers count the writes of each object. The version of one object is then not related to another
// object.
func TestVersionsOfEachObject(t *testing.T) {
	for _, listed := range []string{"1", "7", "50", ""} {
		t.Run("list at "+listed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newPerObject(listed)
				server.put("often", "50", false)
				server.put("first", "1", false)
				server.put("second", "1", false)
				f := start(t, nil, server)
				f.seen.take()

				update := await(f, written(server.put("first", "2", false)))
				expectSeen(t, "an update that was not sent", update, 0)
				server.put("often", "51", true)
				expectSeen(t, "an update of another object", update, 0)
				server.put("first", "2", true)
				expectSeen(t, "the update", update, 1)

				creation := await(f, cache.Write{Key: key("third"), UID: "uid-third", ResourceVersion: "1"})
				expectSeen(t, "a creation that was not sent", creation, 0)
				server.put("often", "52", true)
				expectSeen(t, "a creation, after an update of another object", creation, 0)
				server.put("third", "1", true)
				expectSeen(t, "the creation", creation, 1)

				deletion := await(f, deleted(server.put("second", "1", false), "1"))
				expectSeen(t, "a deletion that was not sent", deletion, 0)
				server.remove("second", true)
				expectSeen(t, "the deletion", deletion, 1)
				f.seen.take()

				// The changes that a list finds after the watch broke are announced, whatever their versions.
				server.put("fourth", "1", false)
				server.put("first", "3", false)
				server.remove("third", false)
				server.breakWatch()
				time.Sleep(time.Minute)
				f.expectOnce("added fourth", "updated first", "deleted third")

				// A quiet watch does not cause repeated lists.
				server.mu.Lock()
				lists := len(server.asked)
				server.mu.Unlock()
				time.Sleep(time.Hour)
				f.expect()
				server.mu.Lock()
				defer server.mu.Unlock()
				if n := len(server.asked) - lists; n > 7 {
					t.Errorf("%d lists in an hour of quiet", n)
				}
				if err := f.informer.Ready(); err != nil {
					t.Errorf("Ready: %v", err)
				}
			})
		})
	}
}
