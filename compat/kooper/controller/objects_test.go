package controller_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
	kooperlogrus "github.com/evenkeel-go/evenkeel/compat/kooper/log/logrus"
)

// server is a Retriever whose lists and watches the test determines.
type server struct {
	mu      sync.Mutex
	list    func(metav1.ListOptions) (runtime.Object, error) // guarded by mu
	watches []*watch.FakeWatcher                             // guarded by mu
	from    []string                                         // guarded by mu; the resource versions of watches
}

func (s *server) List(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list(options)
}

func (s *server) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches, s.from = append(s.watches, watch.NewFake()), append(s.from, options.ResourceVersion)
	return s.watches[len(s.watches)-1], nil
}

// lists sets the objects of the next lists.
func (s *server) lists(version string, items ...runtime.Object) {
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, item := range items {
		list.Items = append(list.Items, runtime.RawExtension{Object: item})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = func(metav1.ListOptions) (runtime.Object, error) { return list, nil }
}

// watch returns the open watch.
func (s *server) watch() *watch.FakeWatcher {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[len(s.watches)-1]
}

// expire ends the open watch with 410 Gone, so that the objects are listed again, and waits for that.
func (s *server) expire() {
	s.watch().Error(&apierrors.NewResourceExpired("too old").ErrStatus)
	time.Sleep(time.Minute)
}

// kept is a running controller that records its objects.
type kept struct {
	*server
	controller controller.Controller
	stop       func() error
	log        *bytes.Buffer // locked by logrus; read it after stop

	mu  sync.Mutex
	got []runtime.Object // guarded by mu
}

// start runs a controller on s without resync.
func start(t *testing.T, s *server) *kept {
	t.Helper()
	k := &kept{server: s, log: &bytes.Buffer{}}
	logger := logrus.New()
	logger.SetOutput(k.log)
	k.controller, k.stop = runController(t, controller.Config{
		Name: "kept", Retriever: s, DisableResync: true, ConcurrentWorkers: 1,
		Logger: kooperlogrus.New(logrus.NewEntry(logger)),
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.got = append(k.got, obj)
			return nil
		}),
	})
	time.Sleep(time.Minute)
	return k
}

// objects returns the objects that the handler got since the last call.
func (k *kept) objects() (objects []runtime.Object) {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	objects, k.got = k.got, nil
	return objects
}

// expect checks the ConfigMaps that the handler got since the last call, in any order, as name=value.
func (k *kept) expect(t *testing.T, want ...string) {
	t.Helper()
	got := []string{}
	for _, obj := range k.objects() {
		m := obj.(*corev1.ConfigMap)
		got = append(got, m.Name+"="+m.Data["k"])
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("the handler got %q, want %q", got, want)
	}
}

// keeps checks how many states are kept.
func (k *kept) keeps(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	if got := controller.KeptStates(k.controller); got != want {
		t.Errorf("%d states are kept, want %d", got, want)
	}
}

// version returns a ConfigMap of a resource version. Its uid begins with its name.
func version(name, value string, version int, uid ...string) *corev1.ConfigMap {
	m := configMap(name, value)
	m.ResourceVersion, m.UID = strconv.Itoa(version), types.UID(name+strings.Join(uid, ""))
	if version == 0 {
		m.ResourceVersion = ""
	}
	return m
}

// odd is an object whose fields JSON cannot carry.
type odd struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Array    [2]int
	Large    uint64
	ByNumber map[int]string
	hidden   string
	Raw      runtime.RawExtension
	Empty    []string `json:"empty,omitempty"`
	Call     any      `json:"call"`
}

func (o *odd) DeepCopyObject() runtime.Object {
	copied := *o
	copied.ByNumber = maps.Clone(o.ByNumber)
	return &copied
}

func TestHandlerGetsObjectAsRetrieverReturnedIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		original := func(version string) *odd {
			return &odd{
				ObjectMeta: metav1.ObjectMeta{Name: "odd", ResourceVersion: version},
				Array:      [2]int{1, 2}, Large: math.MaxUint64, ByNumber: map[int]string{7: "seven"}, hidden: "x",
				Raw: runtime.RawExtension{Raw: []byte("not JSON"), Object: configMap("raw", "0")}, Empty: []string{},
				Call: make(chan int),
			}
		}
		s, want := &server{}, original("1")
		s.lists("1", want)
		k := start(t, s)
		changed := original("2")
		changed.Call = want.Call
		s.watch().Modify(changed)
		got := k.objects()
		got = append(got, k.objects()...)
		if len(got) != 2 || !reflect.DeepEqual(got[0], runtime.Object(want)) ||
			!reflect.DeepEqual(got[1], runtime.Object(changed)) {
			t.Errorf("the handler got %+v, want %+v", got, want)
		}
		if got[0] == runtime.Object(want) {
			t.Error("the handler got the Retriever's object, not a copy")
		}
	})
}

func TestObjectsOfSeveralTypesInOneList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.lists("3", version("a", "0", 1), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}},
			&odd{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
		k := start(t, s)
		s.watch().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "d", ResourceVersion: "4"}})
		var got []string
		for _, obj := range k.objects() {
			got = append(got, fmt.Sprintf("%T", obj))
		}
		slices.Sort(got)
		if want := []string{"*controller_test.odd", "*v1.ConfigMap", "*v1.Pod", "*v1.Secret"}; !slices.Equal(got, want) {
			t.Errorf("the handler got %q, want %q", got, want)
		}
	})
}

func TestRelistShowsChangesAndRemovesLostObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.lists("3", version("a", "0", 1), version("b", "0", 2), version("c", "0", 3))
		k := start(t, s)
		k.expect(t, "a=0", "b=0", "c=0")
		s.lists("9", version("a", "0", 1), version("b", "1", 8))
		s.expire()
		k.expect(t, "b=1")
		k.keeps(t, 2)
	})
}

func TestDeletedObjectIsForgottenAndRecreatedOneIsHandled(t *testing.T) {
	t.Parallel()
	for name, uids := range map[string][2]string{"with uids": {"1", "2"}, "without uids": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.lists("1", version("a", "0", 1, uids[0]))
				k := start(t, s)
				k.expect(t, "a=0")
				s.watch().Delete(version("a", "0", 2, uids[0]))
				k.expect(t)
				k.keeps(t, 0)
				s.watch().Add(version("a", "1", 3, uids[1]))
				k.expect(t, "a=1")
				k.keeps(t, 1)
				// Both events arrive before the engine has processed the first one.
				s.watch().Delete(version("a", "1", 4, uids[1]))
				s.watch().Add(version("a", "2", 5, uids[0]))
				k.expect(t, "a=2")
				k.keeps(t, 1)
			})
		})
	}
}

func TestListInPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{list: func(options metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "2", Continue: "more"}}
			list.Items = []corev1.ConfigMap{*version("a", "0", 1)}
			if options.Continue == "more" {
				list.Continue, list.Items = "", []corev1.ConfigMap{*version("b", "0", 2)}
			}
			return list, nil
		}}
		k := start(t, s)
		k.expect(t, "a=0", "b=0")
		k.keeps(t, 2)
	})
}

func TestBookmarkIsNoObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.lists("1", version("a", "0", 1))
		k := start(t, s)
		k.expect(t, "a=0")
		s.watch().Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
		s.watch().Stop()
		time.Sleep(time.Minute)
		k.expect(t)
		k.keeps(t, 1)
		s.mu.Lock()
		defer s.mu.Unlock()
		if want := []string{"1", "7"}; !slices.Equal(s.from, want) {
			t.Errorf("watches from %q, want %q", s.from, want)
		}
	})
}

func TestWatchAndListThatFailAreRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{list: func(metav1.ListOptions) (runtime.Object, error) { return nil, errors.New("no list yet") }}
		k := start(t, s)
		k.expect(t)
		s.lists("1", version("a", "0", 1))
		time.Sleep(time.Minute)
		k.expect(t, "a=0")
		s.lists("2", version("a", "1", 2))
		s.watch().Error(&apierrors.NewInternalError(errors.New("the watch broke")).ErrStatus)
		time.Sleep(time.Minute)
		s.expire()
		k.expect(t, "a=1")
		if err := k.stop(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"no list yet", "the watch broke"} {
			if !strings.Contains(k.log.String(), want) {
				t.Errorf("the log has no %q:\n%s", want, k.log)
			}
		}
	})
}

func TestInvalidObjectsAreReported(t *testing.T) {
	t.Parallel()
	var none *corev1.ConfigMap
	for want, bad := range map[string]struct{ list, event runtime.Object }{
		"returned no list":                                   {list: (*corev1.ConfigMapList)(nil)},
		"returned a nil object":                              {event: none},
		"returned a *v1.Status, which has no metadata":       {event: &metav1.Status{}},
		"returned a *v1.ConfigMap where a list was expected": {list: version("a", "0", 1)},
		"returned a *v1.APIVersions, which has no metadata":  {list: &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.APIVersions{}}}}},
		"returned a nil object ":                             {list: &metav1.List{Items: []runtime.RawExtension{{Object: none}}}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.lists("1", version("a", "0", 1))
				k := start(t, s)
				k.expect(t, "a=0")
				if bad.list != nil {
					s.mu.Lock()
					s.list = func(metav1.ListOptions) (runtime.Object, error) { return bad.list, nil }
					s.mu.Unlock()
					s.expire()
				} else {
					s.watch().Modify(bad.event)
					time.Sleep(time.Second)
				}
				s.lists("9", version("a", "1", 9))
				time.Sleep(time.Minute)
				if bad.list == nil {
					s.expire()
				}
				k.expect(t, "a=1")
				if err := k.stop(); err != nil {
					t.Error(err)
				}
				if !strings.Contains(k.log.String(), strings.TrimSpace(want)) {
					t.Errorf("the log has no %q:\n%s", want, k.log)
				}
			})
		})
	}
}

// Kooper runs the handler for every event, whatever its resource version, and for every object of a new list. Here a
// new list runs only the objects that have changed.
func TestEventsWithTheSameResourceVersionRunTheHandler(t *testing.T) {
	t.Parallel()
	for _, number := range []int{0, 5} {
		t.Run(strconv.Itoa(number), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.lists("5", version("a", "0", number))
				k := start(t, s)
				k.expect(t, "a=0")
				for _, value := range []string{"0", "1", "1", "2"} {
					s.watch().Modify(version("a", value, number))
					k.expect(t, "a="+value)
					k.keeps(t, 1)
				}
				s.lists("6", version("a", "3", number))
				s.expire()
				k.expect(t, "a=3")
				s.expire()
				k.expect(t, map[bool][]string{true: {"a=3"}}[number == 0]...)
				k.keeps(t, 1)
			})
		})
	}
}

// runController is run with the controller as a result.
func runController(t *testing.T, config controller.Config) (_ controller.Controller, stop func() error) {
	t.Helper()
	if config.Logger == nil {
		config.Logger = log.Dummy
	}
	ctrl, err := controller.New(&config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ctrl.Run(ctx) }() // waited for by stop
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return ctrl, stop
}

// Versions of a Retriever's own may go back, and an API server may be behind another one.
func TestEventsWithOlderVersionsRunHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.lists("10", version("a", "0", 10))
		k := start(t, s)
		k.expect(t, "a=0")
		s.watch().Modify(version("a", "1", 3))
		k.expect(t, "a=1")
		for n := range 100 {
			s.watch().Modify(version("a", "old", 2-n%2))
		}
		k.objects()
		k.keeps(t, 1)
	})
}

// client-go's fake clients do not replace generateName by a name.
func TestObjectWithoutNameDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.lists("5", version("a", "0", 1), version("", "n", 2), version("b", "0", 3))
		start(t, s).expect(t, "=n", "a=0", "b=0")
	})
}
