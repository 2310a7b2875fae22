package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

// An object that is created selected, and then taken out of the selection, is shown in its first state afterwards.
func TestObjectLeavesSelectionBeforeItIsShown(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{LabelSelector: "color=old"}, nil, func(b *behind) {
		b.hold(-1)
		obj := newMap("new")
		obj.Labels["color"] = "old"
		_, err := client.Create(b.Context(), b.client, obj)
		b.must(err)
		_, err = client.Patch(b.Context(), b.client, newMap("new"), merge(`{"metadata":{"labels":{"color":"red"}},"data":{"k":"2"}}`))
		b.must(err)
		sel := kube.Selection{LabelSelector: "color=old"}
		if got := b.list(sel); got != "old=1" {
			b.Errorf("at once: %s", got)
		}
		b.server.ReleaseOne("configmaps")
		synctest.Wait()
		if got := b.list(sel); got != "old=1" {
			b.Errorf("after the watch delivered the creation: List %s", got)
		}
		if got := b.get("new"); got != "2" {
			b.Errorf("after the watch delivered the creation: Get %s", got)
		}
	})
}

// T1b: without an earlier read.
func TestObjectIsDeletedOutsideOfSelectionBeforeItIsShown(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{LabelSelector: "color=old"}, nil, func(b *behind) {
		b.hold(-1)
		obj := newMap("new")
		obj.Labels["color"] = "old"
		created, err := client.Create(b.Context(), b.client, obj)
		b.must(err)
		_, err = client.Patch(b.Context(), b.client, newMap("new"), merge(`{"metadata":{"labels":{"color":"red"}},"data":{"k":"2"}}`))
		b.must(err)
		b.must(client.Delete(b.Context(), b.client, created))
		sel := kube.Selection{LabelSelector: "color=old"}
		if got := b.list(sel); got != "old=1" {
			b.Errorf("at once: %s", got)
		}
		b.server.ReleaseOne("configmaps")
		synctest.Wait()
		if got := b.list(sel); got != "old=1" {
			b.Errorf("deleted; after the watch delivered the creation: List %s", got)
		}
		if got := b.get("new"); got != "gone" {
			b.Errorf("deleted; after the watch delivered the creation: Get %s", got)
		}
	})
}

// A deletion of an object whose creation the informer has not shown yet.
func TestObjectIsDeletedBeforeItIsShown(t *testing.T) {
	t.Parallel()
	for name, del := range map[string]func(b *behind, obj *corev1.ConfigMap) error{
		"Delete": func(b *behind, obj *corev1.ConfigMap) error { return client.Delete(b.Context(), b.client, obj) },
		"Delete IfUnchanged": func(b *behind, obj *corev1.ConfigMap) error {
			return client.Delete(b.Context(), b.client, obj, client.IfUnchanged())
		},
		"DeleteLive": func(b *behind, obj *corev1.ConfigMap) error {
			return client.DeleteLive(b.Context(), b.client, obj, nil)
		},
		"DeleteMatching": func(b *behind, _ *corev1.ConfigMap) error {
			_, err := client.DeleteMatching(b.Context(), b.client, kube.Selection{Namespaces: []string{"ns"}, FieldSelector: "metadata.name=new"},
				func(*corev1.ConfigMap) (bool, error) { return true, nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			lag(t, kube.Selection{}, nil, func(b *behind) {
				b.hold(-1)
				user, err := client.New(client.Config{Cluster: b.cluster, FieldOwner: "user"})
				b.must(err)
				_, err = client.Create(b.Context(), user, newMap("new"))
				b.must(err)
				seen, err := client.Get[*corev1.ConfigMap](b.Context(), b.client, mapKey("new"), client.FromAPI())
				b.must(err)
				b.must(del(b, seen))
				if got := b.get("new"); got != "gone" {
					b.Errorf("at once: %s", got)
				}
				b.server.ReleaseOne("configmaps")
				synctest.Wait()
				if got := b.get("new"); got != "gone" {
					b.Errorf("after the watch delivered the creation: Get %s", got)
				}
				if got := b.list(kube.Selection{}); got != "blue=1 old=1" {
					b.Errorf("after the watch delivered the creation: List %s", got)
				}
			})
		})
	}
}

// A read while the informer does not run forgets the write.
func TestReadBeforeInformerRunsKeepsWrites(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"no read", "stopped", "first list fails"} {
		t.Run(how, func(t *testing.T) {
			lag(t, kube.Selection{}, func(c *client.Config) { c.Informers = nil }, func(b *behind) {
				b.server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
					if strings.Contains(req.URL.RawQuery, "sendInitialEvents=true") { // servers before 1.34
						return apitest.Failure(apierrors.NewBadRequest("no streamed lists")), nil
					}
					return do(), nil
				})
				i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](b.cluster)})
				b.must(err)
				b.client, err = b.client.With(func(c *client.Config) { c.Informers = []client.Informer{i} })
				b.must(err)
				leave := func() {}
				if how == "first list fails" {
					b.server.Fail("list", apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil))
					leave = i.Join(b.Context())
					time.Sleep(time.Second)
				}
				b.server.ServeStale()
				writes()["update"].write(b)
				if how != "no read" {
					if got := b.get("old"); got != "2" {
						b.Errorf("before: %s", got)
					}
				}
				b.hold(-1)
				if how == "first list fails" {
					b.server.Fail("list", nil)
					time.Sleep(20 * time.Second)
				} else {
					leave = i.Join(b.Context())
				}
				defer leave()
				b.must(i.WaitSynced(b.Context()))
				if got := b.get("old"); got != "2" {
					b.Errorf("after the list of a cache that is behind: %s", got)
				}
			})
		})
	}
}

// After a restore of etcd, reads after each write wait 1 s, without end.
func TestReadsAfterRestoreOfServer(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		second := b.inform(kube.Selection{LabelSelector: "color=blue"})
		var err error
		b.client, err = b.client.With(func(c *client.Config) { c.Informers = append(c.Informers, second) })
		b.must(err)
		restore := b.server.Backup()
		for i := range 100 {
			_, err := client.Patch(b.Context(), b.client, newMap("old"), merge(fmt.Sprintf(`{"data":{"n":"%d"}}`, i)))
			b.must(err)
		}
		restore()
		time.Sleep(15 * time.Minute)
		b.requests()
		slow, took := 0, time.Duration(0)
		for i := range 50 {
			_, err := client.Patch(b.Context(), b.client, newMap("old"), merge(fmt.Sprintf(`{"data":{"n":"again-%d"}}`, i)))
			b.must(err)
			began := time.Now()
			obj, err := client.Get[*corev1.ConfigMap](b.Context(), b.client, mapKey("old"))
			b.must(err)
			if obj.Data["n"] != fmt.Sprintf("again-%d", i) {
				b.Errorf("stale %s", obj.Data["n"])
			}
			took += time.Since(began)
			if time.Since(began) > 500*time.Millisecond {
				slow++
			}
			time.Sleep(5 * time.Minute)
		}
		if slow > 0 {
			b.Errorf("%d of 50 reads after a write waited 1 s, in the %s after a restore (total %s), with %d requests", slow, 50*5*time.Minute, took, len(b.requests()))
		}
	})
}

// The response of a deletion overtakes that of a creation.
func TestResponseOfDeletionComesLate(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		b.server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			r := do()
			if req.Method == http.MethodDelete {
				time.Sleep(100 * time.Millisecond)
			}
			return r, nil
		})
		b.hold(-1)
		var wg sync.WaitGroup
		wg.Go(func() { b.must(client.Delete(b.Context(), b.client, newMap("old"))) })
		synctest.Wait()
		again := newMap("old")
		again.Data["k"] = "again"
		_, err := client.Create(b.Context(), b.client, again)
		b.must(err)
		wg.Wait()
		b.server.ReleaseOne("configmaps") // the deletion
		synctest.Wait()
		if got := b.get("old"); got != "again" {
			b.Errorf("after both writes have returned: %s", got)
		}
	})
}

// Labels of an older response replace those of the newer.
func TestResponsesInOtherOrder(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{LabelSelector: "color=old"}, nil, func(b *behind) {
		n := 0
		b.server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			r := do()
			if req.Method == http.MethodPatch {
				if n++; n == 1 {
					time.Sleep(100 * time.Millisecond)
				}
			}
			return r, nil
		})
		b.hold(-1)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := client.Patch(b.Context(), b.client, newMap("blue"), merge(`{"metadata":{"labels":{"color":"red"}}}`))
			b.must(err)
		})
		synctest.Wait()
		_, err := client.Patch(b.Context(), b.client, newMap("blue"), merge(`{"metadata":{"labels":{"color":"old"}}}`))
		b.must(err)
		wg.Wait()
		if got := b.list(kube.Selection{LabelSelector: "color=old"}); got != "blue=1 old=1" {
			b.Errorf("List: %s", got)
		}
	})
}

// fuzzState is a state of an object that clients may read.
type fuzzState struct {
	k     string // "" : gone
	color string
}

type fuzzObject struct {
	mu     sync.Mutex
	states []fuzzState // all that the server may have had, in order
	own    int         // index of the state of the last own write that has returned
}

func (o *fuzzObject) begin(s fuzzState) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.states = append(o.states, s)
	return len(o.states) - 1
}

func (o *fuzzObject) end(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.own = n
}

func (o *fuzzObject) now() (own int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.own
}

func (o *fuzzObject) check(from int, ok func(s fuzzState) bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.states[from:], ok)
}

func fuzz(t *testing.T, seed uint64, selections []string, foreign, flips, delays, breaks bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apitest.Pods())
		cluster, err := kube.Connect(server.Config("test"))
		if err != nil {
			t.Fatal(err)
		}
		cluster.SetLogger((&testlog.Buffer{}).Logger(nil))
		var informers []client.Informer
		for _, s := range selections {
			i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{LabelSelector: s})})
			if err != nil {
				t.Fatal(err)
			}
			defer i.Join(t.Context())()
			if err := i.WaitSynced(t.Context()); err != nil {
				t.Fatal(err)
			}
			informers = append(informers, i)
		}
		c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "test", ReadOwnWrites: true, Informers: informers})
		if err != nil {
			t.Fatal(err)
		}
		user, _ := client.New(client.Config{Cluster: cluster, FieldOwner: "user"})
		if delays {
			var mu sync.Mutex
			rnd := rand.New(rand.NewPCG(seed, 99))
			pause := func() {
				mu.Lock()
				d := time.Duration(rnd.IntN(4)) * time.Millisecond
				mu.Unlock()
				time.Sleep(d)
			}
			server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
				if strings.Contains(req.URL.RawQuery, "watch=") {
					return do(), nil
				}
				pause()
				r := do()
				pause()
				return r, nil
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		const count = 4
		objects := make([]*fuzzObject, count)
		for n := range objects {
			objects[n] = &fuzzObject{states: []fuzzState{{}}}
		}
		var writers, others sync.WaitGroup
		name := func(n int) string { return fmt.Sprint("o-", n) }
		fail := func(format string, args ...any) { t.Errorf("seed %d: "+format, append([]any{seed}, args...)...) }
		get := func(_ *rand.Rand, n int, who string) {
			o := objects[n]
			from := o.now()
			obj, err := client.Get[*corev1.ConfigMap](t.Context(), c, mapKey(name(n)))
			got := fuzzState{}
			switch {
			case err == nil:
				got = fuzzState{obj.Data["k"], obj.Labels["color"]}
			case !errors.Is(err, client.ErrGone):
				return
			}
			if !o.check(from, func(s fuzzState) bool { return s == got || s.k == got.k && s.k == "" }) {
				fail("%s: Get of %s: %+v, states since the last own write: %+v", who, name(n), got, o.states[from:])
			}
		}
		list := func(r *rand.Rand, who string) {
			var from [count]int
			for n, o := range objects {
				from[n] = o.now()
			}
			selection := kube.Selection{}
			if r.IntN(2) == 0 {
				selection.LabelSelector = "color=blue"
			}
			all, err := client.All[*corev1.ConfigMap](t.Context(), c, selection)
			if err != nil {
				return
			}
			for n, o := range objects {
				got := fuzzState{}
				for _, obj := range all {
					if obj.Name == name(n) {
						got = fuzzState{obj.Data["k"], obj.Labels["color"]}
					}
				}
				if !o.check(from[n], func(s fuzzState) bool {
					if selection.LabelSelector != "" && s.color != "blue" {
						s = fuzzState{}
					}
					return s == got || s.k == got.k && s.k == ""
				}) {
					fail("%s: list %q of %s: %+v, states since the last own write: %+v", who, selection.LabelSelector, name(n), got, o.states[from[n]:])
				}
			}
		}
		for n := range count {
			writers.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				o, current, k := objects[n], fuzzState{}, 0
				for range 60 {
					if r.IntN(3) == 0 {
						time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
					}
					k++
					next := fuzzState{fmt.Sprint(k), current.color}
					if next.color == "" || flips && r.IntN(3) == 0 {
						next.color = []string{"blue", "red"}[r.IntN(2)]
					}
					obj := newMap(name(n))
					by := c
					isForeign := foreign && r.IntN(4) == 0
					if isForeign {
						by = user
					}
					var err error
					var at int
					switch deletes := r.IntN(4) == 0; {
					case current.k != "" && deletes:
						next = fuzzState{}
						at = o.begin(next)
						if foreign || r.IntN(2) == 0 {
							live, e := client.Get[*corev1.ConfigMap](ctx, by, mapKey(name(n)), client.FromAPI())
							if e != nil {
								t.Error(e)
							}
							err = client.Delete(ctx, by, live)
						} else {
							err = client.Delete(ctx, by, obj)
						}
					case current.k == "":
						at = o.begin(next)
						obj.Labels["color"], obj.Data["k"] = next.color, next.k
						_, err = client.Create(ctx, by, obj)
					case r.IntN(2) == 0:
						at = o.begin(next)
						obj.Labels["color"], obj.Data["k"] = next.color, next.k
						_, err = client.Update(ctx, by, obj)
					default:
						at = o.begin(next)
						_, err = client.Patch(ctx, by, obj, merge(fmt.Sprintf(`{"metadata":{"labels":{"color":%q}},"data":{"k":%q}}`, next.color, next.k)))
					}
					if err != nil {
						t.Errorf("write: %v", err)
						return
					}
					current = next
					if !isForeign {
						o.end(at)
					}
					if r.IntN(2) == 0 {
						get(r, n, "writer")
					}
					if r.IntN(4) == 0 {
						list(r, "writer")
					}
				}
			})
		}
		for n := range 3 {
			others.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(100+n)))
				for ctx.Err() == nil {
					time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
					if r.IntN(3) == 0 {
						list(r, "reader")
					} else {
						get(r, r.IntN(count), "reader")
					}
				}
			})
		}
		others.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1000))
			for ctx.Err() == nil {
				time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
				switch r.IntN(6) {
				case 0, 1:
					server.HoldWatches("configmaps")
				case 2, 3, 4:
					server.ReleaseOne("configmaps")
				case 5:
					server.ReleaseWatches("configmaps")
					if breaks && r.IntN(3) == 0 {
						server.Break("configmaps", r.IntN(2) == 0)
					}
				}
			}
			server.ReleaseWatches("configmaps")
		})
		writers.Wait()
		cancel()
		others.Wait()
	})
}

// fuzzSeeds is the number of random histories of each configuration.
const fuzzSeeds = 8

// A read is never older than the client's own last write that had returned before it.
func TestReadsOfRandomWrites(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(t *testing.T, seed uint64){
		"all":          func(t *testing.T, s uint64) { t.Helper(); fuzz(t, s, []string{""}, false, true, true, false) },
		"all, breaks":  func(t *testing.T, s uint64) { t.Helper(); fuzz(t, s, []string{""}, false, true, true, true) },
		"all, foreign": func(t *testing.T, s uint64) { t.Helper(); fuzz(t, s, []string{""}, true, true, true, false) },
		"blue, no flips": func(t *testing.T, s uint64) {
			t.Helper()
			fuzz(t, s, []string{"color=blue"}, false, false, true, false)
		},
		"blue":          func(t *testing.T, s uint64) { t.Helper(); fuzz(t, s, []string{"color=blue"}, false, true, true, false) },
		"two informers": func(t *testing.T, s uint64) { t.Helper(); fuzz(t, s, []string{"", ""}, false, true, true, true) },
		"two informers, blue": func(t *testing.T, s uint64) {
			t.Helper()
			fuzz(t, s, []string{"color=blue", ""}, false, false, true, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(fuzzSeeds) {
				fuzz := f
				fuzz(t, seed)
				if t.Failed() {
					return
				}
			}
		})
	}
}
