package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// behind is a client with an informer of ConfigMaps whose watch is delayed.
type behind struct {
	*testing.T
	server   *apitest.Server
	cluster  *kube.Cluster
	informer *informer.Informer[*corev1.ConfigMap]
	client   *client.Client
}

// lag runs test in a bubble, with the ConfigMaps ns/old and ns/blue. change may change the client's config.
func lag(t *testing.T, selection kube.Selection, change func(*client.Config), test func(b *behind)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		maps := apiserver.ConfigMaps()
		maps.Rules.Fields = func(obj apiserver.Object) fields.Set { return fields.Set{"data.k": obj.(*corev1.ConfigMap).Data["k"]} }
		maps.Rules.FieldLabels = []string{"data.k"}
		b := &behind{T: t, server: apitest.New(maps, apitest.Pods())}
		for _, name := range []string{"old", "blue"} {
			b.server.Apply("configmaps", mapKey(name), "test", fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":%q,"labels":{"color":%q}},"data":{"k":"1"}}`, name, name))
		}
		var err error
		if b.cluster, err = kube.Connect(b.server.Config("test")); err != nil {
			t.Fatal(err)
		}
		b.cluster.SetLogger((&testlog.Buffer{}).Logger(nil))
		b.informer = b.inform(selection)
		config := client.Config{Cluster: b.cluster, FieldOwner: "test", ReadOwnWrites: true, Informers: []client.Informer{b.informer}}
		if change != nil {
			change(&config)
		}
		if b.client, err = client.New(config); err != nil {
			t.Fatal(err)
		}
		test(b)
	})
}

func (b *behind) inform(selection kube.Selection) *informer.Informer[*corev1.ConfigMap] {
	b.Helper()
	return b.start(informer.RetrieveSelected[*corev1.ConfigMap](b.cluster, selection))
}

// start starts an informer.
func (b *behind) start(retriever informer.Retriever[*corev1.ConfigMap]) *informer.Informer[*corev1.ConfigMap] {
	b.Helper()
	i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: retriever})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(i.Join(b.Context()))
	if err := i.WaitSynced(b.Context()); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Minute)
	return i
}

// use replaces the informers of the client.
func (b *behind) use(informers ...client.Informer) {
	b.Helper()
	var err error
	b.client, err = b.client.With(func(c *client.Config) { c.Informers = informers })
	b.must(err)
}

// user returns a client of another program.
func (b *behind) user() *client.Client {
	b.Helper()
	user, err := client.New(client.Config{Cluster: b.cluster, FieldOwner: "user"})
	b.must(err)
	return user
}

func (b *behind) create(c *client.Client, name, color string) *corev1.ConfigMap {
	b.Helper()
	obj := newMap(name)
	obj.Labels["color"] = color
	created, err := client.Create(b.Context(), c, obj)
	b.must(err)
	return created
}

func (b *behind) patch(name, patch string) {
	b.Helper()
	_, err := client.Patch(b.Context(), b.client, newMap(name), merge(patch))
	b.must(err)
}

// answer replaces the responses to requests with a method.
func (b *behind) answer(method string, answer func(*http.Response) (*http.Response, error)) {
	b.server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		res := do()
		if req.Method == method {
			return answer(res)
		}
		return res, nil
	})
}

func mapKey(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

func newMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"color": name}}, Data: map[string]string{"k": "1"}}
}

// hold delays the watch, by d from now; negative: until the end of the test.
func (b *behind) hold(d time.Duration) {
	b.server.HoldWatches("configmaps")
	if d >= 0 {
		time.AfterFunc(d, func() { b.server.ReleaseWatches("configmaps") })
	}
}

// requests returns the reads since the last call.
func (b *behind) requests() (reads []string) {
	for _, request := range b.server.Requests() {
		if verb, _, _ := strings.Cut(request, " "); verb == http.MethodGet {
			reads = append(reads, request)
		}
	}
	return reads
}

func (b *behind) get(name string) string {
	obj, err := client.Get[*corev1.ConfigMap](b.Context(), b.client, mapKey(name))
	switch {
	case errors.Is(err, client.ErrGone):
		return "gone"
	case err != nil:
		return err.Error()
	}
	return obj.Data["k"]
}

func (b *behind) list(selection kube.Selection) string {
	var all []string
	for obj, err := range client.List[*corev1.ConfigMap](b.Context(), b.client, selection) {
		if err != nil {
			return err.Error()
		}
		all = append(all, cmp.Or(obj.GenerateName, obj.Name)+"="+obj.Data["k"])
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func merge(patch string) client.PatchBody {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}

func (b *behind) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// writes are writes to ConfigMaps, with what reads show after each of them.
func writes() map[string]struct {
	write func(b *behind)
	name  string // of the object
	get   string
	list  string
} {
	type m = *corev1.ConfigMap
	return map[string]struct {
		write     func(b *behind)
		name      string
		get, list string
	}{
		"create": {func(b *behind) {
			_, err := client.Create(b.Context(), b.client, newMap("new"))
			b.must(err)
		}, "new", "1", "blue=1 new=1 old=1"},
		"create with a generated name": {func(b *behind) {
			obj := newMap("")
			obj.GenerateName = "new"
			created, err := client.Create(b.Context(), b.client, obj)
			b.must(err)
			if got := b.get(created.Name); got != "1" {
				b.Errorf("%s: %s", created.Name, got)
			}
			b.must(client.Delete(b.Context(), b.client, created))
		}, "old", "1", "blue=1 old=1"},
		"update": {func(b *behind) {
			obj := newMap("old")
			obj.Data["k"] = "2"
			_, err := client.Update(b.Context(), b.client, obj)
			b.must(err)
		}, "old", "2", "blue=1 old=2"},
		"patch": {func(b *behind) {
			_, err := client.Patch(b.Context(), b.client, newMap("old"), merge(`{"data":{"k":"3"}}`))
			b.must(err)
		}, "old", "3", "blue=1 old=3"},
		"apply": {func(b *behind) {
			obj := newMap("old")
			obj.Data["k"] = "4"
			_, err := client.Apply(b.Context(), b.client, obj, client.Force())
			b.must(err)
		}, "old", "4", "blue=1 old=4"},
		"delete": {func(b *behind) { b.must(client.Delete(b.Context(), b.client, newMap("old"))) }, "old", "gone", "blue=1"},
		"create, then delete": {func(b *behind) {
			created, err := client.Create(b.Context(), b.client, newMap("new"))
			b.must(err)
			b.must(client.Delete(b.Context(), b.client, created))
		}, "new", "gone", "blue=1 old=1"},
		"delete, then create": {func(b *behind) {
			b.must(client.Delete(b.Context(), b.client, newMap("old")))
			_, err := client.Create(b.Context(), b.client, newMap("old"))
			b.must(err)
		}, "old", "1", "blue=1 old=1"},
		"update, then delete": {func(b *behind) {
			obj := newMap("old")
			obj.Data["k"] = "2"
			updated, err := client.Update(b.Context(), b.client, obj)
			b.must(err)
			b.must(client.Delete(b.Context(), b.client, updated))
		}, "old", "gone", "blue=1"},
		"removal of the last finalizer": {func(b *behind) {
			patch := func(finalizers string) {
				_, err := client.Patch(b.Context(), b.client, newMap("old"), merge(`{"metadata":{"finalizers":`+finalizers+`}}`))
				b.must(err)
			}
			patch(`["example.com/f"]`)
			b.must(client.Delete(b.Context(), b.client, newMap("old")))
			if got := b.get("old"); got != "1" {
				b.Errorf("with a finalizer: %s", got)
			}
			patch("null")
		}, "old", "gone", "blue=1"},
		"delete of all": {func(b *behind) {
			b.must(client.DeleteAllOf[m](b.Context(), b.client, kube.Selection{Namespaces: []string{"ns"}, LabelSelector: "color=old"}))
		}, "old", "gone", "blue=1"},
		"delete of those that match": {func(b *behind) {
			_, err := client.DeleteMatching(b.Context(), b.client, kube.Selection{Namespaces: []string{"ns"}, LabelSelector: "color=old"},
				func(m) (bool, error) { return true, nil })
			b.must(err)
		}, "old", "gone", "blue=1"},
		"a write of another client": {func(b *behind) {
			user, err := client.New(client.Config{Cluster: b.cluster, FieldOwner: "user"})
			b.must(err)
			b.must(client.Delete(b.Context(), user, newMap("old")))
			time.Sleep(time.Minute) // until the informer has it
		}, "old", "gone", "blue=1"},
	}
}

// TestReadsShowOwnWrites checks each write with a watch that is fast, delayed, or delivers nothing: a read waits for the
// informer, or makes a request.
func TestReadsShowOwnWrites(t *testing.T) {
	t.Parallel()
	for name, test := range writes() {
		for _, delay := range []time.Duration{0, 300 * time.Millisecond, -1} {
			t.Run(fmt.Sprintf("%s, watch delayed by %s", name, delay), func(t *testing.T) {
				t.Parallel()
				lag(t, kube.Selection{}, nil, func(b *behind) {
					if other := name == "a write of another client"; !other {
						b.hold(delay)
					}
					test.write(b)
					b.requests()
					began := time.Now()
					if got := b.get(test.name); got != test.get {
						b.Errorf("Get: %s, want %s", got, test.get)
					}
					if exists, err := client.Exists[*corev1.ConfigMap](b.Context(), b.client, mapKey(test.name)); exists != (test.get != "gone") || err != nil {
						b.Errorf("Exists: %v, %v", exists, err)
					}
					if got := b.list(kube.Selection{}); got != test.list {
						b.Errorf("List: %s, want %s", got, test.list)
					}
					if got := b.list(kube.Selection{Namespaces: []string{"ns"}}); got != test.list {
						b.Errorf("List in the namespace: %s, want %s", got, test.list)
					}
					keys, err := client.Keys[*corev1.ConfigMap](b.Context(), b.client, kube.Selection{})
					if err != nil || keys.Len() != len(strings.Fields(test.list)) {
						b.Errorf("Keys: %v, %v", keys, err)
					}
					took, requests := time.Since(began), b.requests()
					known := name != "delete of all" // the response does not show its effects
					if known && delay >= 0 && len(requests) > 0 {
						b.Errorf("reads that the informer can answer make the requests %q", requests)
					}
					if atMost := 1100 * time.Millisecond; took > atMost || known && delay >= 0 && took > delay*2+10*time.Millisecond {
						b.Errorf("reads took %s", took)
					}
					b.server.ReleaseWatches("configmaps")
					time.Sleep(3 * time.Minute)
					b.requests()
					if got := b.get(test.name) + " " + b.list(kube.Selection{}); got != test.get+" "+test.list {
						b.Errorf("later: %s", got)
					}
					if requests := b.requests(); len(requests) > 0 {
						b.Errorf("later reads make the requests %q", requests)
					}
					if n := client.OwnWrites(b.client); n > 0 {
						b.Errorf("%d writes are kept after reads", n)
					}
				})
			})
		}
	}
}

// Without the switch, a read does not wait.
func TestReadsAreStaleWithoutReadOwnWrites(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, func(c *client.Config) { c.ReadOwnWrites = false }, func(b *behind) {
		b.hold(-1)
		began := time.Now()
		if writes()["update"].write(b); b.get("old") != "1" || time.Since(began) > 0 {
			b.Errorf("after an update: %s, after %s", b.get("old"), time.Since(began))
		}
	})
}

// A read waits until 1 s after the write, and for half of the time that its context has. It does not wait for an
// informer whose watch fails.
func TestWaitForOwnWritesOfClientIsBounded(t *testing.T) {
	t.Parallel()
	read := func(b *behind, within, atLeast, atMost time.Duration) {
		b.Helper()
		ctx := b.Context()
		if within > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, within)
			defer cancel()
		}
		began := time.Now()
		obj, err := client.Get[*corev1.ConfigMap](ctx, b.client, mapKey("old"))
		if err != nil || obj.Data["k"] != "2" {
			b.Errorf("read %v, %v", obj, err)
		}
		if took := time.Since(began); took < atLeast || took > atMost {
			b.Errorf("the read took %s, want %s to %s", took, atLeast, atMost)
		}
	}
	lag(t, kube.Selection{}, nil, func(b *behind) {
		b.hold(-1)
		writes()["update"].write(b)
		read(b, 200*time.Millisecond, 100*time.Millisecond, 150*time.Millisecond)
		read(b, 0, 800*time.Millisecond, time.Second)
		read(b, 0, 0, 50*time.Millisecond)
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if _, err := client.Get[*corev1.ConfigMap](ctx, b.client, mapKey("old")); !errors.Is(err, context.Canceled) {
			b.Errorf("with a context that has ended: %v", err)
		}
		b.requests()
		if got := b.get("blue"); got != "1" || len(b.requests()) > 0 {
			b.Errorf("an object that was not written: %s", got)
		}
		time.Sleep(9 * time.Minute)
		read(b, 0, 0, 50*time.Millisecond)
	})
	lag(t, kube.Selection{}, nil, func(b *behind) { // several informers: one wait
		b.use(b.informer, b.inform(kube.Selection{}), b.inform(kube.Selection{LabelSelector: "color=old"}))
		b.hold(-1)
		writes()["update"].write(b)
		read(b, 400*time.Millisecond, 200*time.Millisecond, 201*time.Millisecond)
		read(b, 0, 700*time.Millisecond, 801*time.Millisecond)
	})
	lag(t, kube.Selection{}, nil, func(b *behind) { // an informer that is behind all the time: a long wait every 10 s
		b.hold(-1)
		number := 0
		write := func() {
			number++
			b.patch("old", fmt.Sprintf(`{"data":{"k":"2","number":"%d"}}`, number))
		}
		for range 3 {
			write()
			read(b, 0, time.Second, time.Second)
			for range 9 {
				time.Sleep(time.Second)
				write()
				read(b, 0, 0, 20*time.Millisecond)
			}
			time.Sleep(3 * time.Second)
		}
		b.server.ReleaseWatches("configmaps")
		time.Sleep(time.Minute)
		b.requests()
		b.hold(300 * time.Millisecond)
		write()
		if read(b, 0, 300*time.Millisecond, 350*time.Millisecond); len(b.requests()) > 0 {
			b.Error("a read does not wait for an informer that is no longer behind")
		}
	})
	lag(t, kube.Selection{}, nil, func(b *behind) {
		b.server.Fail("watch", apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil))
		b.server.Fail("list", apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil))
		b.server.Break("configmaps", false)
		time.Sleep(time.Minute)
		writes()["update"].write(b)
		read(b, 0, 0, 10*time.Millisecond)
	})
}

// A write that the informer does not select is not waited for; one that leaves the selection is.
func TestOwnWritesAndSelections(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		write func(b *behind)
		want  string
		waits bool
	}{
		"of an object that is not selected": {func(b *behind) { b.must(client.Delete(b.Context(), b.client, newMap("blue"))) }, "old=1", false},
		"that creates a selected object": {func(b *behind) {
			obj := newMap("new")
			obj.Labels["color"] = "old"
			_, err := client.Create(b.Context(), b.client, obj)
			b.must(err)
		}, "new=1 old=1", true},
		"that creates and deletes one": {func(b *behind) {
			obj := newMap("new")
			obj.Labels["color"] = "old"
			created, err := client.Create(b.Context(), b.client, obj)
			b.must(err)
			b.must(client.Delete(b.Context(), b.client, created))
		}, "old=1", true},
		"that takes an object out of the selection": {func(b *behind) {
			_, err := client.Patch(b.Context(), b.client, newMap("old"), merge(`{"metadata":{"labels":{"color":"red"}}}`))
			b.must(err)
		}, "", true},
		"that takes an object into the selection": {func(b *behind) {
			_, err := client.Patch(b.Context(), b.client, newMap("blue"), merge(`{"metadata":{"labels":{"color":"old"}}}`))
			b.must(err)
		}, "blue=1 old=1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lag(t, kube.Selection{LabelSelector: "color=old"}, nil, func(b *behind) {
				b.hold(500 * time.Millisecond)
				test.write(b)
				b.requests()
				began := time.Now()
				if got := b.list(kube.Selection{LabelSelector: "color=old"}); got != test.want {
					b.Errorf("List: %q, want %q", got, test.want)
				}
				if waited := time.Since(began) > 400*time.Millisecond; waited != test.waits || len(b.requests()) > 0 {
					b.Errorf("the list took %s, want a wait: %v", time.Since(began), test.waits)
				}
			})
		})
	}
}

// A write without a response may have been made, so its object is read from the API server for some time. A rejected
// write, and a dry run, have no effect.
func TestReadsAfterWritesWithoutResponse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer   func(do func() *http.Response) (*http.Response, error)
		options  []client.WriteOption
		want     string
		requests bool
	}{
		"lost response": {func(do func() *http.Response) (*http.Response, error) {
			_ = do().Body.Close()
			return nil, errors.New("connection reset")
		}, nil, "2", true},
		"server timeout": {func(do func() *http.Response) (*http.Response, error) {
			_ = do().Body.Close()
			return apitest.Failure(apierrors.NewTimeoutError("slow", 0)), nil
		}, nil, "2", true},
		"server error": {func(do func() *http.Response) (*http.Response, error) {
			_ = do().Body.Close()
			return apitest.Failure(apierrors.NewInternalError(errors.New("etcdserver: request timed out"))), nil
		}, nil, "2", true},
		"connection refused": {func(func() *http.Response) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}, nil, "1", false},
		"no webhook": {func(func() *http.Response) (*http.Response, error) {
			return apitest.Failure(apierrors.NewInternalError(errors.New(`failed calling webhook "a.example.com": no endpoints available`))), nil
		}, nil, "1", false},
		"too large": {func(func() *http.Response) (*http.Response, error) {
			return apitest.Failure(apierrors.NewInternalError(errors.New("etcdserver: request is too large"))), nil
		}, nil, "1", false},
		"rejected": {func(func() *http.Response) (*http.Response, error) {
			return apitest.Failure(apierrors.NewForbidden(corev1.Resource("configmaps"), "old", nil)), nil
		}, nil, "1", false},
		"dry run": {func(do func() *http.Response) (*http.Response, error) { return do(), nil }, []client.WriteOption{client.DryRun()}, "1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lag(t, kube.Selection{}, nil, func(b *behind) {
				b.hold(-1)
				b.server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
					if req.Method == http.MethodPut {
						return test.answer(do)
					}
					return do(), nil
				})
				obj := newMap("old")
				obj.Data["k"] = "2"
				_, _ = client.Update(b.Context(), b.client, obj, test.options...)
				b.requests()
				began := time.Now()
				if got := b.get("old") + " " + b.list(kube.Selection{}); got != test.want+" blue=1 old="+test.want {
					b.Errorf("read %s, want %s", got, test.want)
				}
				if requests := b.requests(); len(requests) > 0 != test.requests || time.Since(began) > 0 {
					b.Errorf("requests %q after %s", requests, time.Since(began))
				}
			})
		})
	}
}

// A subscriber of the informer reads without a deadlock: the informer cannot show a write while it calls the subscriber.
func TestSubscriberReadsOwnWrites(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		var got []string
		var took time.Duration
		defer b.informer.Subscribe(func(c informer.Change) {
			if c.Type != informer.Updated {
				return
			}
			began := time.Now()
			writes()["create"].write(b)
			got = append(got, b.get("new"), b.list(kube.Selection{}))
			took = time.Since(began)
		})()
		writes()["update"].write(b)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(got, []string{"1", "blue=1 new=1 old=2"}) || took > 1100*time.Millisecond {
			b.Errorf("read %q after %s", got, took)
		}
	})
}

// An informer that does not run, and one that stops, are not waited for.
func TestOwnWritesAndStoppedInformers(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, func(c *client.Config) { c.Informers = nil }, func(b *behind) {
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](b.cluster)})
		b.must(err)
		b.client, err = b.client.With(func(c *client.Config) { c.Informers = []client.Informer{i} })
		b.must(err)
		expect := func(when, want string) {
			b.Helper()
			began := time.Now()
			if got := b.get("old"); got != want || time.Since(began) > 20*time.Millisecond {
				b.Errorf("%s: %s after %s", when, got, time.Since(began))
			}
		}
		writes()["update"].write(b)
		expect("before it runs", "2")
		leave := i.Join(b.Context())
		b.must(i.WaitSynced(b.Context()))
		expect("after its start", "2")
		b.hold(-1)
		writes()["patch"].write(b)
		leave()
		expect("after its end", "3")
	})
}

// The clients of With share what they write, if they have the same informers.
func TestClientsOfWithReadWritesOfEachOther(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		other, err := b.client.With(func(c *client.Config) { c.FieldOwner = "other" })
		b.must(err)
		if !other.Config().ReadOwnWrites {
			b.Error("With drops ReadOwnWrites")
		}
		b.hold(-1)
		first := b.client
		b.client = other
		writes()["update"].write(b)
		if b.client = first; b.get("old") != "2" {
			b.Errorf("the first client reads %s", b.get("old"))
		}
	})
}

// Shown writes are removed, also if nothing reads them.
func TestManyOwnWrites(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		second := b.inform(kube.Selection{LabelSelector: "color=blue"})
		var err error
		b.client, err = b.client.With(func(c *client.Config) { c.Informers = append(c.Informers, second) })
		b.must(err)
		for i := range 1200 {
			_, err := client.Create(b.Context(), b.client, newMap(fmt.Sprint("m-", i)))
			b.must(err)
		}
		time.Sleep(time.Minute)
		_, err = client.Create(b.Context(), b.client, newMap("last"))
		b.must(err)
		if n := client.OwnWrites(b.client); n > 4*256 {
			b.Errorf("%d writes are kept after the informer has shown them", n)
		}
		for i := range 1200 {
			b.must(client.Delete(b.Context(), b.client, newMap(fmt.Sprint("m-", i))))
		}
		if n := client.OwnWrites(b.client); n > 4*256 {
			b.Errorf("%d deletions are kept after the informer has shown them", n)
		}
		b.hold(-1)
		_, err = client.Create(b.Context(), b.client, newMap("unseen"))
		b.must(err)
		if got := b.get("unseen"); got != "1" {
			b.Errorf("after many writes: %s", got)
		}
	})
}

// The objects of a kind are the same in all its versions, and a write to a subresource changes the object.
func TestOwnWritesOfOtherVersionsAndSubresources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := apitest.Widgets()
		beta := apitest.WithStatus(apiserver.Custom(stored.GroupKind().WithVersion("v1beta1"), "widgets"))
		convert := func(version string) func(apiserver.Object) (apiserver.Object, error) {
			return func(obj apiserver.Object) (apiserver.Object, error) {
				converted := obj.DeepCopyObject().(apiserver.Object)
				converted.GetObjectKind().SetGroupVersionKind(stored.GroupKind().WithVersion(version))
				return converted, nil
			}
		}
		stored.Scale = &apiserver.Scale{Replicas: ".spec.replicas", StatusReplicas: ".status.replicas"}
		beta.Scale = stored.Scale
		stored.From, beta.From, beta.Storage = convert("v1"), convert("v1beta1"), stored
		server := apitest.New(stored, beta)
		cluster, err := kube.Connect(server.Config("test"))
		if err != nil {
			t.Fatal(err)
		}
		selection := kube.Selection{Kind: stored.GroupVersionKind}
		i, err := informer.New(informer.Config[*unstructured.Unstructured]{Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, selection)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(i.Join(t.Context()))
		time.Sleep(time.Minute)
		c, err := client.New(client.Config{Cluster: cluster, ReadOwnWrites: true, Informers: []client.Informer{i}})
		if err != nil {
			t.Fatal(err)
		}
		widget := func(version, size string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/" + version, "kind": "Widget", "metadata": map[string]any{"namespace": "ns", "name": "w"},
				"spec": map[string]any{"size": size}, "status": map[string]any{"size": size},
			}}
		}
		expect := func(when, spec, status string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			requests := server.Count("get") + server.Count("list")
			time.AfterFunc(100*time.Millisecond, func() { server.ReleaseWatches("widgets") })
			obj, err := client.Get[*unstructured.Unstructured](t.Context(), c, mapKey("w"), client.OfKind(stored.GroupVersionKind))
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			gotSpec, _, _ := unstructured.NestedString(obj.Object, "spec", "size")
			if replicas, scaled, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas"); scaled {
				gotSpec += fmt.Sprint(" times ", replicas)
			}
			gotStatus, _, _ := unstructured.NestedString(obj.Object, "status", "size")
			if gotSpec != spec || gotStatus != status {
				t.Errorf("%s: spec %q, status %q, want %q and %q", when, gotSpec, gotStatus, spec, status)
			}
			if more := server.Count("get") + server.Count("list") - requests; more > 0 {
				t.Errorf("%s: %d requests", when, more)
			}
			time.Sleep(time.Second)
			server.HoldWatches("widgets")
		}
		server.HoldWatches("widgets")
		created, err := client.Create(t.Context(), c, widget("v1beta1", "1"))
		expect("create in v1beta1", "1", "", err)
		_, err = client.Patch(t.Context(), c, created, merge(`{"spec":{"size":"2"}}`))
		expect("patch in v1beta1", "2", "", err)
		changed := widget("v1", "3")
		_, err = client.Patch(t.Context(), c, changed, merge(`{"status":{"size":"3"}}`), client.Subresource("status"))
		expect("patch of the status", "2", "3", err)
		_, err = client.Patch[*autoscalingv1.Scale](t.Context(), c, nil, merge(`{"spec":{"replicas":4}}`), client.SubresourceOf(changed, "scale"))
		expect("patch of the scale", "2 times 4", "3", err)
	})
}

// What a client has written to one cluster says nothing about another one.
func TestOwnWritesOfTwoClusters(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		there := *b
		other := apitest.New(apiserver.ConfigMaps())
		other.Renumber(2)
		var err error
		there.server, there.informer = other, nil
		there.cluster, err = kube.Connect(other.Config("test"))
		b.must(err)
		informer := there.inform(kube.Selection{})
		there.client, err = b.client.With(func(c *client.Config) { c.Cluster, c.Informers = there.cluster, []client.Informer{informer} })
		b.must(err)
		b.hold(-1)
		there.hold(500 * time.Millisecond)
		there.create(there.client, "old", "old")
		began := time.Now()
		if got := b.get("old"); got != "1" || time.Since(began) > 0 {
			b.Errorf("got %s after %s", got, time.Since(began))
		}
		b.patch("old", `{"data":{"k":"2"}}`)
		there.requests()
		if got := there.get("old"); got != "1" || time.Since(began) > 550*time.Millisecond || len(there.requests()) > 0 {
			b.Errorf("in the other cluster: %s after %s", got, time.Since(began))
		}
		if got := b.get("old"); got != "2" {
			b.Errorf("after a patch: %s", got)
		}
	})
}

// A read of all namespaces of the Cluster is one of each.
func TestOwnWritesOfLimitedNamespaces(t *testing.T) {
	t.Parallel()
	lag(t, kube.Selection{}, nil, func(b *behind) {
		limited, err := kube.Connect(b.server.Config("test"))
		b.must(err)
		b.must(limited.SetNamespaces("ns", "other"))
		b.cluster = limited
		b.client, err = client.New(client.Config{
			Cluster: limited, FieldOwner: "test", ReadOwnWrites: true, Informers: []client.Informer{b.inform(kube.Selection{})},
		})
		b.must(err)
		b.hold(500 * time.Millisecond)
		elsewhere := newMap("there")
		elsewhere.Namespace = "other"
		_, err = client.Create(b.Context(), b.client, elsewhere)
		b.must(err)
		b.must(client.Delete(b.Context(), b.client, newMap("old")))
		outside := newMap("outside")
		outside.Namespace = "outside"
		_, err = client.Create(b.Context(), b.client, outside)
		b.must(err)
		b.requests()
		began := time.Now()
		if got := b.list(kube.Selection{}); got != "blue=1 there=1" {
			b.Errorf("List: %s", got)
		}
		if took, requests := time.Since(began), b.requests(); took > 550*time.Millisecond || len(requests) > 0 {
			b.Errorf("the list took %s, with the requests %q", took, requests)
		}
		if exists, err := client.Exists[*corev1.ConfigMap](b.Context(), b.client, kube.KeyOf(outside)); !exists || err != nil {
			b.Errorf("in a namespace without an informer: %v, %v", exists, err)
		}
	})
}

// An optional informer of a kind that the API server does not serve is not awaited. When it lists the kind, it may show
// a state before the writes.
func TestOwnWritesAndOptionalInformers(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"missing":   apierrors.NewNotFound(corev1.Resource("configmaps"), ""),
		"forbidden": apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lag(t, kube.Selection{}, func(c *client.Config) { c.Informers = nil }, func(b *behind) {
				b.server.Fail("list", refusal)
				b.server.Fail("watch", refusal)
				i, err := informer.New(informer.Config[*corev1.ConfigMap]{
					Retriever: informer.Retrieve[*corev1.ConfigMap](b.cluster), Optional: true,
				})
				b.must(err)
				defer i.Join(b.Context())()
				time.Sleep(time.Second)
				b.use(i)
				b.server.ServeStale()
				writes()["update"].write(b)
				b.create(b.client, "new", "new")
				b.must(client.Delete(b.Context(), b.client, newMap("blue")))
				began := time.Now()
				for when, wait := range map[string]time.Duration{"at once": 0, "later": time.Second} {
					time.Sleep(wait)
					if got := b.get("old") + b.get("new") + b.get("blue"); got != "21gone" {
						b.Errorf("%s: %s", when, got)
					}
				}
				if took := time.Since(began); took > time.Second {
					b.Errorf("reads waited for %s", took-time.Second)
				}
				b.hold(-1)
				b.server.Fail("list", nil)
				b.server.Fail("watch", nil)
				time.Sleep(time.Minute)
				for range 2 {
					if got := b.get("old") + b.get("new") + b.get("blue"); got != "21gone" {
						b.Errorf("after a list: %s", got)
					}
					b.server.ReleaseWatches("configmaps")
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// A Set finds the children that it has just created, and prunes them.
func TestSetOfClientWithReadOwnWritesPrunesNewChildren(t *testing.T) {
	t.Parallel()
	for _, selector := range []string{"", owned.LabelSet} {
		lag(t, kube.Selection{}, nil, func(b *behind) {
			b.use(b.inform(kube.Selection{LabelSelector: selector}))
			owner, err := client.Get[*corev1.ConfigMap](b.Context(), b.client, mapKey("old"))
			b.must(err)
			set, err := owned.New(owned.Config{
				Client: b.client, Name: "test", Kinds: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")},
			})
			b.must(err)
			b.hold(-1)
			for _, names := range [][]string{{"a", "b"}, {"b"}, {"a"}, {}} {
				var children []kube.Object
				for _, name := range names {
					children = append(children, newMap(name))
				}
				_, err := set.Apply(b.Context(), owner, owned.Of(children...)...)
				b.must(err)
				var left []string
				for _, key := range b.server.Keys("configmaps") {
					if name := strings.TrimPrefix(key, "ns/"); name != "old" && name != "blue" {
						left = append(left, name)
					}
				}
				if !slices.Equal(left, names) {
					b.Errorf("selector %q: the children are %q, want %q", selector, left, names)
				}
			}
		})
	}
}
