package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// scene is a history of writes while the watches of the informers are held. Reads must show its end from the last write
// on, whatever part of the changes the informers have read.
type scene struct {
	informers []informer.Retriever[*corev1.ConfigMap] // each of them is one; nil: one of all ConfigMaps
	write     func(b *behind)
	reads     map[string]string // by name: what Get returns
	selects   string            // label selector of the list; "": all
	list      string
}

func scenes(cluster *kube.Cluster) map[string]scene {
	retrieve := func(selection kube.Selection) informer.Retriever[*corev1.ConfigMap] {
		return informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection)
	}
	all := retrieve(kube.Selection{})
	old, blue := retrieve(kube.Selection{LabelSelector: "color=old"}), retrieve(kube.Selection{LabelSelector: "color=blue"})
	ones := retrieve(kube.Selection{FieldSelector: "data.k=1"})
	type informers = []informer.Retriever[*corev1.ConfigMap]
	leaves := func(b *behind) *corev1.ConfigMap {
		created := b.create(b.client, "new", "old")
		b.patch("new", `{"metadata":{"labels":{"color":"red"}},"data":{"k":"2"}}`)
		return created
	}
	deletes := func(del func(b *behind, obj *corev1.ConfigMap) error) scene {
		return scene{write: func(b *behind) {
			b.create(b.user(), "new", "new")
			seen, err := client.Get[*corev1.ConfigMap](b.Context(), b.client, mapKey("new"), client.FromAPI())
			b.must(err)
			b.must(del(b, seen))
		}, reads: map[string]string{"new": "gone"}, list: "blue=1 old=1"}
	}
	return map[string]scene{
		"an object leaves the selection before it is shown": {
			informers: informers{old}, write: func(b *behind) { leaves(b) }, reads: map[string]string{"new": "2"}, selects: "color=old", list: "old=1",
		},
		"and is deleted": {
			informers: informers{old}, write: func(b *behind) { b.must(client.Delete(b.Context(), b.client, leaves(b))) },
			reads: map[string]string{"new": "gone"}, selects: "color=old", list: "old=1",
		},
		"an object leaves the selection by a field before it is shown": {
			informers: informers{ones}, write: func(b *behind) {
				b.create(b.client, "new", "new")
				b.patch("new", `{"data":{"k":"2"}}`)
				for i := range 600 { // so that shown writes are forgotten
					b.patch("blue", fmt.Sprintf(`{"data":{"i":"%d"}}`, i))
				}
			}, reads: map[string]string{"new": "2", "old": "1"}, list: "blue=1 new=2 old=1",
		},
		"an object changes in the selection by a field before it is shown": {
			informers: informers{ones}, write: func(b *behind) {
				b.create(b.client, "new", "new")
				b.patch("new", `{"metadata":{"labels":{"color":"red"}}}`)
				b.must(client.Delete(b.Context(), b.client, newMap("old")))
			}, reads: map[string]string{"new": "1", "old": "gone"}, selects: "color=red", list: "new=1",
		},
		"an object moves between combined selections": {
			informers: informers{informer.Combine(old, blue)}, write: func(b *behind) {
				b.patch("old", `{"metadata":{"labels":{"color":"blue"}},"data":{"k":"2"}}`)
			}, reads: map[string]string{"old": "2", "blue": "1"}, selects: "color=blue", list: "blue=1 old=2",
		},
		"an object moves between the selections of two informers": {
			informers: informers{old, blue}, write: func(b *behind) {
				b.patch("old", `{"metadata":{"labels":{"color":"blue"}},"data":{"k":"2"}}`)
				b.patch("blue", `{"metadata":{"labels":{"color":"old"}},"data":{"k":"2"}}`)
			}, reads: map[string]string{"old": "2", "blue": "2"}, selects: "color=old", list: "blue=2",
		},
		"combined namespaces": {
			informers: informers{informer.Combine(retrieve(kube.Selection{Namespaces: []string{"ns"}}), retrieve(kube.Selection{Namespaces: []string{"other"}}))},
			write: func(b *behind) {
				elsewhere := newMap("old")
				elsewhere.Namespace = "other"
				_, err := client.Create(b.Context(), b.client, elsewhere)
				b.must(err)
				b.must(client.Delete(b.Context(), b.client, newMap("old")))
			}, reads: map[string]string{"old": "gone", "blue": "1"}, list: "blue=1 old=1",
		},
		"one informer of all, and one of a part": {
			informers: informers{old, all}, write: func(b *behind) { leaves(b) }, reads: map[string]string{"new": "2", "old": "1"}, list: "blue=1 new=2 old=1",
		},
		"Delete": deletes(func(b *behind, obj *corev1.ConfigMap) error { return client.Delete(b.Context(), b.client, obj) }),
		"Delete by name": deletes(func(b *behind, obj *corev1.ConfigMap) error {
			return client.Delete(b.Context(), b.client, newMap(obj.Name))
		}),
		"Delete IfUnchanged": deletes(func(b *behind, obj *corev1.ConfigMap) error {
			return client.Delete(b.Context(), b.client, obj, client.IfUnchanged())
		}),
		"DeleteLive": deletes(func(b *behind, obj *corev1.ConfigMap) error {
			return client.DeleteLive(b.Context(), b.client, obj, nil)
		}),
		"DeleteMatching": deletes(func(b *behind, _ *corev1.ConfigMap) error {
			_, err := client.DeleteMatching(b.Context(), b.client, kube.Selection{Namespaces: []string{"ns"}, FieldSelector: "metadata.name=new"},
				func(*corev1.ConfigMap) (bool, error) { return true, nil })
			return err
		}),
		"DeleteAllOf that deletes an object and is rejected for another": deletes(func(b *behind, _ *corev1.ConfigMap) error {
			b.answer(http.MethodDelete, func(res *http.Response) (*http.Response, error) {
				_ = res.Body.Close()
				return apitest.Failure(apierrors.NewForbidden(corev1.Resource("configmaps"), "x", nil)), nil
			})
			err := client.DeleteAllOf[*corev1.ConfigMap](b.Context(), b.client, kube.Selection{Namespaces: []string{"ns"}, LabelSelector: "color=new"})
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("DeleteAllOf: %w", err)
			}
			return nil
		}),
		"a patch that changes nothing after a change by another client": {write: func(b *behind) {
			_, err := client.Patch(b.Context(), b.user(), newMap("old"), merge(`{"data":{"k":"2"}}`))
			b.must(err)
			b.patch("old", `{"data":{"k":"2"}}`)
		}, reads: map[string]string{"old": "2"}, list: "blue=1 old=2"},
		"a deletion with a finalizer, and its removal": {write: func(b *behind) {
			b.patch("old", `{"metadata":{"finalizers":["example.com/f"]}}`)
			b.must(client.Delete(b.Context(), b.client, newMap("old")))
			b.patch("old", `{"data":{"k":"2"}}`)
			b.patch("old", `{"metadata":{"finalizers":null}}`)
			again := newMap("old")
			again.Data["k"] = "3"
			_, err := client.Create(b.Context(), b.client, again)
			b.must(err)
		}, reads: map[string]string{"old": "3"}, list: "blue=1 old=3"},
		"a create with a generated name without a response": {write: func(b *behind) {
			b.answer(http.MethodPost, func(res *http.Response) (*http.Response, error) {
				_ = res.Body.Close()
				return nil, errors.New("connection reset")
			})
			obj := newMap("")
			obj.GenerateName, obj.Labels["color"] = "new-", "red"
			if created, err := client.Create(b.Context(), b.client, obj); err == nil {
				b.Errorf("created %s", created.Name)
			}
		}, selects: "color=red", list: "new-=1"},
		"the response of a deletion comes after that of the next creation": {write: func(b *behind) {
			b.answer(http.MethodDelete, func(res *http.Response) (*http.Response, error) {
				time.Sleep(100 * time.Millisecond)
				return res, nil
			})
			var wg sync.WaitGroup
			wg.Go(func() { b.must(client.Delete(b.Context(), b.client, newMap("old"))) })
			synctest.Wait()
			again := newMap("old")
			again.Data["k"] = "again"
			_, err := client.Create(b.Context(), b.client, again)
			b.must(err)
			wg.Wait()
		}, reads: map[string]string{"old": "again"}, list: "blue=1 old=again"},
		"an earlier response with other labels comes last": {
			informers: informers{old}, write: func(b *behind) { b.flip("red", "old") }, reads: map[string]string{"blue": "1"},
			selects: "color=old", list: "blue=1 old=1",
		},
		"an earlier response with selected labels comes last": {
			informers: informers{old}, write: func(b *behind) { b.flip("old", "red") }, reads: map[string]string{"blue": "1"},
			selects: "color=old", list: "old=1",
		},
	}
}

// flip patches the label of blue twice, by two goroutines. The first response comes last.
func (b *behind) flip(first, second string) {
	var delayed bool
	b.answer(http.MethodPatch, func(res *http.Response) (*http.Response, error) {
		if !delayed {
			delayed = true
			time.Sleep(100 * time.Millisecond)
		}
		return res, nil
	})
	var wg sync.WaitGroup
	wg.Go(func() { b.patch("blue", `{"metadata":{"labels":{"color":"`+first+`"}}}`) })
	synctest.Wait()
	b.patch("blue", `{"metadata":{"labels":{"color":"`+second+`"}}}`)
	wg.Wait()
}

// TestReadsShowOwnWritesWhileWatchCatchesUp reads before an informer has read any of the changes, after each of them,
// and at the end.
func TestReadsShowOwnWritesWhileWatchCatchesUp(t *testing.T) {
	t.Parallel()
	for name := range scenes(nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, readsBefore := range []bool{false, true} {
				lag(t, kube.Selection{}, nil, func(b *behind) {
					scene := scenes(b.cluster)[name]
					if scene.informers != nil {
						var informers []client.Informer
						for _, retriever := range scene.informers {
							informers = append(informers, b.start(retriever))
						}
						b.use(informers...)
					}
					b.hold(-1)
					scene.write(b)
					b.server.Hook(nil)
					for step := range 8 {
						when := fmt.Sprintf("after %d changes (first from a list: %t)", step, readsBefore)
						listed := func() {
							if got := b.list(kube.Selection{LabelSelector: scene.selects}); got != scene.list {
								b.Errorf("%s: List %q, want %q", when, got, scene.list)
							}
						}
						if readsBefore {
							listed()
						}
						for name, want := range scene.reads {
							if got := b.get(name); got != want {
								b.Errorf("%s: Get of %s: %s, want %s", when, name, got, want)
							}
						}
						if !readsBefore {
							listed()
						}
						b.server.ReleaseOne("configmaps")
						synctest.Wait()
					}
				})
			}
		})
	}
}

// A write that is read while the informer does not run is kept.
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

// After a restore of etcd, reads do not wait 1 s for each write.
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
	lag(t, kube.Selection{}, func(c *client.Config) { c.Informers = nil }, func(b *behind) {
		t := b.T
		var informers []client.Informer
		for _, s := range selections {
			informers = append(informers, b.inform(kube.Selection{LabelSelector: s}))
		}
		b.use(informers...)
		c, user, server := b.client, b.user(), b.server
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

// fuzzSeeds returns the number of random histories of each configuration.
func fuzzSeeds() uint64 { return uint64(testlength.Count(3, 20)) }

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
			for seed := range fuzzSeeds() {
				fuzz := f
				fuzz(t, seed)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// Several goroutines write the same objects, whose responses arrive in any order. A read shows no state before that of a
// response that had arrived before it.
func TestReadsOfConcurrentWrites(t *testing.T) {
	t.Parallel()
	for _, selections := range [][]string{{""}, {"color=blue"}, {"color=blue", ""}} {
		for seed := range fuzzSeeds() {
			t.Run(fmt.Sprintf("%q, seed %d", selections, seed), func(t *testing.T) {
				t.Parallel()
				lag(t, kube.Selection{}, nil, func(b *behind) { writeConcurrently(b, selections, seed) })
			})
		}
	}
}

func writeConcurrently(b *behind, selections []string, seed uint64) {
	var informers []client.Informer
	for _, s := range selections {
		informers = append(informers, b.inform(kube.Selection{LabelSelector: s}))
	}
	b.use(informers...)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	b.server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodPatch {
			time.Sleep(time.Duration(roll(5)) * time.Millisecond)
			defer func() { time.Sleep(time.Duration(roll(30)) * time.Millisecond) }()
		}
		return do(), nil
	})
	returned, colors := 0, map[int]string{0: "blue"} // the version of the last response; by version: of the returned writes
	flying := 0
	state := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		return returned, flying > 0
	}
	ctx, cancel := context.WithCancel(b.Context())
	var writers, others sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for range 40 {
				time.Sleep(time.Duration(roll(40)) * time.Millisecond)
				mu.Lock()
				flying++
				mu.Unlock()
				color := []string{"blue", "red"}[roll(2)]
				obj, err := client.Patch(b.Context(), b.client, newMap("blue"), merge(fmt.Sprintf(
					`{"metadata":{"labels":{"color":%q}},"data":{"k":"%d"}}`, color, roll(1000))))
				b.must(err)
				version, err := strconv.Atoi(obj.ResourceVersion)
				b.must(err)
				mu.Lock()
				flying--
				returned, colors[version] = max(returned, version), color
				mu.Unlock()
			}
		})
	}
	check := func(how string) {
		least, _ := state()
		obj, err := client.Get[*corev1.ConfigMap](b.Context(), b.client, mapKey("blue"))
		b.must(err)
		if version, _ := strconv.Atoi(obj.ResourceVersion); version < least {
			b.Errorf("%s: Get returns version %d after %d", how, version, least)
		}
		least, writes := state()
		all, err := client.All[*corev1.ConfigMap](b.Context(), b.client, kube.Selection{LabelSelector: "color=blue"})
		b.must(err)
		_, more := state()
		found := slices.IndexFunc(all, func(obj *corev1.ConfigMap) bool { return obj.Name == "blue" })
		if found >= 0 {
			if version, _ := strconv.Atoi(all[found].ResourceVersion); version < least {
				b.Errorf("%s: the list has version %d after %d", how, version, least)
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		isRed := writes || more
		for version, color := range colors {
			isRed = isRed || version >= least && color == "red"
		}
		if !isRed {
			b.Errorf("%s: the list lacks the object after version %d", how, least)
		}
	}
	for range 2 {
		others.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(roll(10)) * time.Millisecond)
				check("a reader")
			}
		})
	}
	others.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(roll(20)) * time.Millisecond)
			switch roll(4) {
			case 0:
				b.server.HoldWatches("configmaps")
			case 1, 2:
				b.server.ReleaseOne("configmaps")
			case 3:
				b.server.ReleaseWatches("configmaps")
			}
		}
	})
	writers.Wait()
	cancel()
	others.Wait()
	b.server.HoldWatches("configmaps")
	for range 5 {
		check("at the end")
		b.server.ReleaseOne("configmaps")
		synctest.Wait()
	}
}

// Another client replaces an object, which the informer does not show yet, and this client deletes the new one by name:
// the response has the uid of an object that the informer will still show.
func TestDeletionOfReplacedObjectIsSeen(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		b.hold(-1)
		user := b.user()
		b.must(client.Delete(b.Context(), user, newMap("old")))
		_, err := client.Create(b.Context(), user, newMap("old"))
		b.must(err)
		b.must(client.Delete(b.Context(), b.client, newMap("old")))
		for step := range 5 {
			if got := b.get("old") + ", " + b.list(kube.Selection{}); got != "gone, blue=1" {
				b.Errorf("after %d events: %s, want gone, blue=1", step, got)
			}
			b.server.ReleaseOne("configmaps")
			synctest.Wait()
		}
	})
}
