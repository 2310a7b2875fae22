package finalizer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
)

const progress = own + "-done"

// process is one run of a program that tears down an object. It crashes with a panic at one of its moments: before and
// after the effect of each step, and before and after each request.
type process struct {
	left     int      // moments until it crashes; negative: it does not crash
	begun    []string // steps
	effected []string // steps that took effect
	effect   func()   // called at each effect; optional
}

var errKilled = errors.New("killed")

func (p *process) moment() {
	if p.left == 0 {
		panic(errKilled)
	}
	p.left--
}

// teardown runs the teardown of obj. It returns errKilled if the process crashed.
func (p *process) teardown(e env, obj *corev1.ConfigMap) (err error) {
	e.Helper()
	mortal, err := e.Client.With(func(c *client.Config) {
		c.Interceptors = append(c.Interceptors, func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				p.moment()
				err := next(ctx, r)
				p.moment() // the response is lost
				return err
			}
		})
	})
	if err != nil {
		e.Fatal(err)
	}
	defer func() {
		if value := recover(); value == any(errKilled) {
			err = errKilled
		} else if value != nil {
			panic(value)
		}
	}()
	return p.finalizer(e, mortal, nil).Teardown(e.Context(), obj)
}

func (p *process) finalizer(e env, c *client.Client, fail map[string]error) *finalizer.Finalizer[*corev1.ConfigMap] {
	e.Helper()
	step := func(name string) finalizer.Step[*corev1.ConfigMap] {
		return finalizer.Step[*corev1.ConfigMap]{Name: name, Run: func(context.Context, *corev1.ConfigMap) error {
			p.begun = append(p.begun, name)
			p.moment()
			if err := fail[name]; err != nil {
				return err
			}
			p.effected = append(p.effected, name)
			if p.effect != nil {
				p.effect()
			}
			p.moment()
			return nil
		}}
	}
	f, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
		Client: c, Name: own, Steps: []finalizer.Step[*corev1.ConfigMap]{step("dns"), step("bucket"), step("account")},
	})
	if err != nil {
		e.Fatal(err)
	}
	return f
}

func forever() *process { return &process{left: -1} }

// notedOf returns the completed steps in the object's annotation.
func notedOf(obj *corev1.ConfigMap) string {
	return strings.TrimPrefix(obj.Annotations[progress], string(obj.UID)+":")
}

// After a crash at any moment, the next process completes the teardown: each step takes effect, in order, and only the
// step that was not recorded runs again. The finalizer of another client stays.
func TestContract35_TeardownContinuesAfterCrash(t *testing.T) {
	e := newEnv(t)
	for moment := 0; ; moment++ {
		name := fmt.Sprint("killed-", moment)
		e.create(name, other, own)
		e.remove(name)
		first, second := &process{left: moment}, forever()
		switch err := first.teardown(e, e.live(name)); {
		case err == nil:
			if moment < 14 {
				t.Errorf("only %d moments came: something is not killed", moment)
			}
			if live := e.live(name); !slices.Equal(live.Finalizers, []string{other}) {
				t.Errorf("the finalizers are %q", live.Finalizers)
			}
			return
		case !errors.Is(err, errKilled):
			t.Fatal(err)
		}
		noted := strings.FieldsFunc(notedOf(e.live(name)), func(r rune) bool { return r == ',' })
		// The restarted process has a fresh cache in half of the rounds, and a stale one in the others.
		obj := e.live(name)
		if moment%2 == 1 {
			delete(obj.Annotations, progress)
			obj.Finalizers = []string{other, own}
		}
		if err := second.teardown(e, obj); err != nil {
			t.Fatalf("killed at moment %d: %v", moment, err)
		}
		live := e.live(name)
		if !slices.Equal(live.Finalizers, []string{other}) || live.Annotations[progress] != "" {
			t.Errorf("killed at moment %d: the object has finalizers %q and annotations %q", moment, live.Finalizers, live.Annotations)
		}
		if slices.ContainsFunc(noted, func(step string) bool { return slices.Contains(second.begun, step) }) {
			t.Errorf("killed at moment %d: %q were noted, and %q was begun again", moment, noted, second.begun)
		}
		order := slices.Compact(append(slices.Clone(first.effected), second.effected...))
		if !slices.Equal(order, []string{"dns", "bucket", "account"}) {
			t.Errorf("killed at moment %d: the effects were %q, then %q", moment, first.effected, second.effected)
		}
	}
}

func TestTeardownContinuesAfterError(t *testing.T) {
	e := newEnv(t)
	obj := e.create("a", own)
	p := forever()
	if err := p.finalizer(e, e.Client, nil).Teardown(t.Context(), obj); err == nil {
		t.Error("a live object was torn down")
	}
	e.remove("a")
	obj = e.live("a")
	observer := newCalls()
	ctx := kube.ObserveCalls(t.Context(), observer)
	wait := controller.RequeueAfter(time.Hour, "the bucket is being emptied")
	err := p.finalizer(e, e.Client, map[string]error{"bucket": wait}).Teardown(ctx, obj)
	if controller.OutcomeOf(err) != controller.OutcomeRequeue || !strings.Contains(err.Error(), `step "bucket"`) {
		t.Errorf("the answer is %v, want the step's", err)
	}
	observer.Want(t, "to the second step", "get", "patch")
	if got := p.finalizer(e, e.Client, nil).Blocking(obj); got.Step != "bucket" || !slices.Equal(got.Done, []string{"dns"}) {
		t.Errorf("the report is %+v", got)
	}
	if live := e.live("a"); notedOf(live) != "dns" || live.ResourceVersion != obj.ResourceVersion {
		t.Errorf("the progress is %q; resourceVersions are %s, live %s", live.Annotations[progress], obj.ResourceVersion, live.ResourceVersion)
	}
	// A step that returns ErrGone for another object does not complete the teardown.
	err = p.finalizer(e, e.Client, map[string]error{"bucket": fmt.Errorf("find the bucket: %w", client.ErrGone)}).Teardown(ctx, obj)
	if !errors.Is(err, client.ErrGone) || len(obj.Finalizers) != 1 {
		t.Errorf("the answer is %v, the finalizers are %q", err, obj.Finalizers)
	}
	// After the context has ended, no further step begins, but a completed step is recorded.
	ending, cancel := context.WithCancel(ctx)
	cancel()
	if err := p.finalizer(e, e.Client, nil).Teardown(ending, obj); !errors.Is(err, context.Canceled) {
		t.Errorf("the answer is %v", err)
	}
	if want := []string{"dns", "bucket", "bucket"}; !slices.Equal(p.begun, want) {
		t.Errorf("begun were %q, want %q", p.begun, want)
	}
	observer.Take()
	ending, cancel = context.WithCancel(ctx)
	p.effect = cancel
	if err := p.finalizer(e, e.Client, nil).Teardown(ending, obj); !errors.Is(err, context.Canceled) || notedOf(e.live("a")) != "dns,bucket" {
		t.Errorf("the answer is %v, noted is %q", err, e.live("a").Annotations[progress])
	}
	if err := p.finalizer(e, e.Client, nil).Teardown(ctx, obj); err != nil {
		t.Fatal(err)
	}
	observer.Want(t, "to the end", "get", "patch", "get", "patch")
	if e.exists("a") || len(obj.Finalizers) > 0 {
		t.Errorf("it is still there: %v, with finalizers %q", e.exists("a"), obj.Finalizers)
	}
}

// Between two steps the finalizers are removed by force, so that the object is deleted. Another object of the same name
// may then be created.
func TestTeardownOfReplacedObject(t *testing.T) {
	e := newEnv(t)
	for _, retried := range []bool{false, true} {
		e.create("a", own)
		e.remove("a")
		obj := e.live("a")
		f, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
			Client: e.Client, Name: own, Steps: []finalizer.Step[*corev1.ConfigMap]{
				{Name: "one", Run: func(context.Context, *corev1.ConfigMap) error {
					e.change("a", func(c *corev1.ConfigMap) { c.Finalizers = nil }) //nolint:contextcheck // the context of another client
					if retried {
						e.create("a", own) //nolint:contextcheck // the context of another client
					}
					return nil
				}},
				{Name: "two", Run: func(context.Context, *corev1.ConfigMap) error {
					t.Error("the second step ran for an object that is gone")
					return nil
				}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Teardown(t.Context(), obj); err != nil || len(obj.Finalizers) > 0 {
			t.Errorf("another one: %v: the answer is %v, the finalizers are %q", retried, err, obj.Finalizers)
		}
		if !retried {
			continue
		}
		if live := e.live("a"); live.Annotations != nil || !slices.Equal(live.Finalizers, []string{own}) {
			t.Errorf("the other object was written: %+v", live.ObjectMeta)
		}
	}
}

// outside has the records outside the cluster that belong to the objects.
type outside struct {
	mu      sync.Mutex
	records map[string]bool
	asked   map[string]int // number of removal requests
	runs    int
}

// In a controller, from creation to deletion. Idle objects cause no calls.
func TestFinalizerInController(t *testing.T) {
	e := newEnv(t)
	out := &outside{records: map[string]bool{}, asked: map[string]int{}}
	f, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
		Client: e.Client, Name: own,
		Steps: []finalizer.Step[*corev1.ConfigMap]{{Name: "record", Run: func(_ context.Context, obj *corev1.ConfigMap) error {
			out.mu.Lock()
			defer out.mu.Unlock()
			if out.asked[obj.Name]++; out.asked[obj.Name] < 3 {
				return controller.RequeueAfter(20*time.Millisecond, "the record is being removed")
			}
			delete(out.records, obj.Name)
			return nil
		}}, {Name: "nothing", Run: func(context.Context, *corev1.ConfigMap) error { return nil }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	observer := newCalls()
	clustertest.Run(t, controller.Config[*corev1.ConfigMap]{
		Name:      "finalized",
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](e.Cluster, kube.Selection{Namespaces: []string{e.Namespace}, FieldSelector: "metadata.name!=kube-root-ca.crt"}),
		Handler: controller.Chain(func(_ context.Context, obj *corev1.ConfigMap) error {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.runs++
			if !slices.Contains(e.live(obj.Name).Finalizers, own) { //nolint:contextcheck // the context of another client
				t.Errorf("%s is handled without its finalizer", obj.Name)
			}
			out.records[obj.Name] = true
			return nil
		}, func(next controller.Handler[*corev1.ConfigMap]) controller.Handler[*corev1.ConfigMap] {
			return func(ctx context.Context, obj *corev1.ConfigMap) error {
				return next(kube.ObserveCalls(ctx, observer), obj)
			}
		}, middleware.Finalizer(f, middleware.FinalizerOptions[*corev1.ConfigMap]{})),
		ResyncInterval: 200 * time.Millisecond, Runs: controller.RunsConfig{ConsistencyTimeout: 10 * time.Minute}, // even if the watch is late
	})
	const objects = 5
	for i := range objects {
		e.create(fmt.Sprint("obj-", i))
	}
	clustertest.Eventually(t, func() string {
		out.mu.Lock()
		defer out.mu.Unlock()
		if len(out.records) != objects {
			return fmt.Sprintf("there are records %v", out.records)
		}
		return ""
	})
	if got := observer.Take(); len(got) != objects || slices.Compact(got)[0] != "patch" {
		t.Errorf("calls to begin: %q", got)
	}
	before := 0
	clustertest.Eventually(t, func() string {
		out.mu.Lock()
		defer out.mu.Unlock()
		if before == 0 {
			before = out.runs
		}
		if out.runs < before+3*objects {
			return fmt.Sprintf("%d runs since", out.runs-before)
		}
		return ""
	})
	observer.Want(t, "resyncs")
	for i := range objects {
		e.remove(fmt.Sprint("obj-", i))
	}
	clustertest.Eventually(t, func() string {
		for i := range objects {
			if e.exists(fmt.Sprint("obj-", i)) {
				return fmt.Sprint("there is still obj-", i)
			}
		}
		return ""
	})
	out.mu.Lock()
	defer out.mu.Unlock()
	if len(out.records) > 0 {
		t.Errorf("records are left behind: %v", out.records)
	}
}
