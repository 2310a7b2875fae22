package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/source"
)

// family is one owner, a ConfigMap, and its children, immutable ConfigMaps with a text.
type family struct {
	*testing.T
	*simulation.Cluster
	owner *corev1.ConfigMap
}

func newFamily(t *testing.T, c *simulation.Cluster) family {
	t.Helper()
	c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}`)
	return family{t, c, simulation.Get[*corev1.ConfigMap](c, "default/owner")}
}

// set returns a set of a process: each has its own connection.
func (f family) set(process string) *owned.Set {
	f.Helper()
	return f.setOn(f.Connect(process))
}

func (f family) setOn(cluster *kube.Cluster) *owned.Set {
	f.Helper()
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "family"})
	if err != nil {
		f.Fatal(err)
	}
	set, err := owned.New(owned.Config{
		Client: c, Name: "family",
		Kinds: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")},
	})
	if err != nil {
		f.Fatal(err)
	}
	return set
}

// children returns immutable children of these names, which may be recreated.
func children(text string, names ...string) (all []owned.Child) {
	for _, name := range names {
		all = append(all, owned.Child{Recreate: true, Object: &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Immutable:  new(true), Data: map[string]string{"text": text},
		}})
	}
	return all
}

// Two processes have sets of one name with different children, or with the same children and different immutable
// fields. Each deletes what the other one creates.
func TestSetsThatDeleteEachOthersChildrenReportIt(t *testing.T) {
	t.Parallel()
	for name, desired := range map[string][2][]owned.Child{
		"different names":  {children("a", "first"), children("a", "second")},
		"different fields": {children("a", "both"), children("b", "both")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
				f := newFamily(t, c)
				sets := [2]*owned.Set{f.set("one"), f.set("two")}
				var errs []error
				deletions := 0
				c.Intercept(func(r simulation.Request, _ func()) error {
					if r.Verb == "delete" {
						deletions++
					}
					return nil
				})
				for n := range 40 {
					if _, err := sets[n%2].Apply(t.Context(), f.owner, desired[n%2]...); err != nil {
						errs = append(errs, err)
					}
					time.Sleep(time.Second)
				}
				if len(errs) == 0 || !strings.Contains(errs[0].Error(), "was deleted 3 times within 10m0s, and "+
					"another client has created it again") ||
					!strings.Contains(errs[0].Error(), `set with the name "family"`) || !retryrules.Persistent(errs[0]) {
					t.Fatalf("%d errors, the first one: %v", len(errs), slices.Concat(errs, []error{nil})[0])
				}
				if deletions > 6 {
					t.Errorf("%d deletions in 40 s, want at most 3 of each set", deletions)
				}
				// The conflict ends: one program is stopped.
				time.Sleep(10 * time.Minute)
				for n := range 4 { // the first one deletes, and reports it
					if _, err := sets[1].Apply(t.Context(), f.owner, desired[1]...); (err != nil) != (n == 0) {
						t.Errorf("attempt %d: %v", n, err)
					}
					time.Sleep(10 * time.Minute)
				}
			})
		})
	}
}

// A program may delete and create its own children often.
func TestSetMayDeleteItsOwnChildrenOften(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		f := newFamily(t, c)
		set := f.set("one")
		for n := range 20 {
			for _, desired := range [][]owned.Child{
				children(fmt.Sprint(n), "fields", "names"),
				children(fmt.Sprint(n), "fields"),
			} {
				for range 2 { // a recreated child is created by the next run
					if _, err := set.Apply(t.Context(), f.owner, desired...); err != nil {
						t.Fatalf("attempt %d: %v", n, err)
					}
				}
			}
		}
	})
}

// The rest of the children is applied, and and the loop is a problem of the controllers.
func TestLoopOfSetsIsProblemOfController(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		f := newFamily(t, c)
		var controllers []*controller.Controller[*corev1.ConfigMap]
		for _, process := range []string{"one", "two"} {
			cluster, set := c.Connect(process), f.set(process)
			configs, err := informer.New(informer.Config[*corev1.ConfigMap]{
				Retriever: informer.Retrieve[*corev1.ConfigMap](cluster),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
				Name: process, Retriever: informer.Retrieve[*corev1.ConfigMap](cluster),
				Handler: func(ctx context.Context, owner *corev1.ConfigMap) error {
					if owner.Name != "owner" {
						return nil
					}
					_, err := set.Apply(ctx, owner, children("text", process)...)
					return err
				},
				Sources: []controller.Source{source.Mapped(configs, owned.OwnerKeys[*corev1.ConfigMap]("family"))},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Run(ctrl)()
			controllers = append(controllers, ctrl)
		}
		var writes atomic.Int64
		c.Intercept(func(r simulation.Request, _ func()) error {
			if r.IsWrite() {
				writes.Add(1)
			}
			return nil
		})
		c.Advance(5 * time.Minute)
		if n := writes.Load(); n > 60 {
			t.Errorf("%d writes in 5 min", n)
		}
		c.Advance(time.Hour)
		for _, ctrl := range controllers {
			if problems := fmt.Sprint(ctrl.Problems()); !strings.Contains(problems,
				"another client has created it again") {
				t.Errorf("the problems are %s", problems)
			}
		}
	})
}

// A child gets another password in each run. No informer shows it, and nothing but resyncs runs the handler.
func TestRandomChildWithoutInformerIsReported(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		newFamily(t, c)
		cluster := c.Connect("one")
		writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "family"})
		if err != nil {
			t.Fatal(err)
		}
		set, err := owned.New(owned.Config{
			Client: writer, Name: "family",
			Kinds: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Secret")},
		})
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "owners", Retriever: informer.Retrieve[*corev1.ConfigMap](cluster), Workers: 1,
			Handler: func(ctx context.Context, owner *corev1.ConfigMap) error {
				if owner.Name != "owner" {
					return nil
				}
				runs++
				_, err := set.Apply(ctx, owner, owned.Of(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "login"},
					StringData: map[string]string{"password": fmt.Sprint("generated-", runs)},
				})...)
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Run(ctrl)()
		c.Advance(2 * time.Hour)
		if problems := fmt.Sprint(ctrl.Problems()); !strings.Contains(problems, "Secret default/login") ||
			!strings.Contains(problems, "create content that is random only once") || strings.Contains(problems, "Z2VuZXJh") {
			t.Errorf("the problems are %s", problems)
		}
	})
}

// Two sets of one name in one process would delete each other's children, so the first one reports it. A new set may
// replace an earlier one.
func TestSetsOfOneNameInOneProcess(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		f := newFamily(t, c)
		cluster := c.Connect("one")
		first, second := f.setOn(cluster), f.setOn(cluster)
		use := func(set *owned.Set, want string) {
			t.Helper()
			_, err := set.Apply(t.Context(), f.owner, children("a", "child")...)
			_, deleteErr := set.Delete(t.Context(), f.owner)
			for _, err := range []error{err, deleteErr} {
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q", err, want)
				}
			}
		}
		const other = `another Set with the name "family" manages the children of ConfigMap default/owner too`
		use(first, "")
		if _, err := second.Plan(t.Context(), f.owner, children("b", "child")...); err != nil { // writes nothing
			t.Error(err)
		}
		use(first, "")
		use(second, "")
		use(first, other)
		use(second, "")
		use(f.set("two"), "") // another connection
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: another}}`)
		f.owner = simulation.Get[*corev1.ConfigMap](c, "default/another")
		use(first, "")
		use(f.setOn(cluster), "")
		use(f.setOn(cluster), "")
	})
}

func TestSetIsUsedAgainAfterOtherOne(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		f := newFamily(t, c)
		cluster := f.Connect("one")
		sets := []*owned.Set{f.setOn(cluster), f.setOn(cluster)}
		apply := func(n int) error {
			_, err := sets[n].Apply(t.Context(), f.owner, children("a", "first")...)
			return err
		}
		for n := range 2 {
			if err := apply(n); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		for range 60 { // the second one is not used anymore
			time.Sleep(time.Minute)
			err = apply(0)
		}
		if err != nil {
			t.Errorf("an hour after the last use of the other Set: %v", err)
		}
	})
}

func TestOneDeletionLongAfterLoopIsNoLoop(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		f := newFamily(t, c)
		one, two := f.set("one"), f.set("two")
		for range 20 {
			_, _ = one.Apply(t.Context(), f.owner, children("a", "first")...)
			_, _ = two.Apply(t.Context(), f.owner, children("a", "second")...)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Hour)
		if _, err := f.set("three").Apply(t.Context(), f.owner, children("a", "first", "second")...); err != nil {
			t.Fatal(err)
		}
		if _, err := one.Apply(t.Context(), f.owner, children("a", "first")...); err != nil {
			t.Errorf("10 h later: %v", err)
		}
	})
}
