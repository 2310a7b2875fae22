package owned

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// A user creates an object while Apply is about to create a child of the same name. Exactly one of them creates it, and
// the user's object is never changed.
func TestApplyDoesNotAdoptConcurrentlyCreatedObject(t *testing.T) {
	e := newEnv(t)
	set := e.set(func(c *owned.Config) { c.Kinds = []schema.GroupVersionKind{configMapKind} })
	app := e.app("web")
	const rounds = 200
	var adopted, users, children int
	for n := range rounds {
		name := fmt.Sprintf("race-%d", n)
		var start, done sync.WaitGroup
		start.Add(1)
		var userErr error
		done.Go(func() {
			start.Wait()
			// Apply makes other requests first, so the user waits for the time of a few requests.
			for range n % 4 {
				_, _ = client.Exists[*corev1.ConfigMap](t.Context(), e.c, e.key("absent"))
			}
			_, userErr = client.Create(t.Context(), e.c, e.configMap(name, "of", "the user"))
		})
		start.Done()
		_, applyErr := set.Apply(t.Context(), app, owned.Of(e.configMap(name, "colour", "blue"))...)
		done.Wait()
		got := e.get(e.key(name))
		switch {
		case got == nil:
			t.Fatalf("%s: nobody created it: user: %v, apply: %v", name, userErr, applyErr)
		case userErr == nil:
			users++
			if metav1.IsControlledBy(got, app) || got.Data["colour"] != "" {
				adopted++
			}
			if err := client.Delete(t.Context(), e.c, got); err != nil {
				t.Fatal(err)
			}
		case apierrors.IsAlreadyExists(userErr):
			children++
			if applyErr != nil {
				t.Errorf("%s: apply created it and failed: %v", name, applyErr)
			}
		default:
			t.Fatal(userErr)
		}
	}
	t.Logf("of %d objects the user created %d, and Apply %d; %d of the user's were adopted", rounds, users, children, adopted)
	if adopted > 0 {
		t.Errorf("%d of the user's objects were adopted", adopted)
	}
	if users == 0 || children == 0 {
		t.Error("there was no race: one side always came first")
	}
}

// If a run is cancelled after its create was processed, or the response is lost, the child of the owner exists. The
// next run detects it as its child, whatever the cache shows.
func TestChildIsFoundAfterLostResponse(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	losing := must(e.c.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if err := next(ctx, r); err != nil {
					return err
				}
				return io.ErrUnexpectedEOF
			}
		}, client.VerbApply)}
	}))(t)
	for _, child := range []owned.Child{
		{Object: e.configMap("child", "colour", "blue")}, {Object: e.configMap("once", "password", "first"), CreateOnly: true},
	} {
		_, err := e.set(func(c *owned.Config) { c.Client = losing }).Apply(t.Context(), app, child)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("the error is %v", err)
		}
		behind, _ := e.behind() // a set with an empty cache
		e.want(e.apply(behind, app, child).Results, outcomes([]owned.Result{{Kind: configMapKind, Key: kube.KeyOf(child.Object), Outcome: owned.Unchanged}})...)
	}
}

// An object with the name of a child in another namespace, where owner references are not possible, is not adopted
// either.
func TestApplyKeepsUncachedObjectOfUser(t *testing.T) {
	e := newEnv(t)
	far := clustertest.Namespace(t, e.c)
	behind, _ := e.behind(func(c *owned.Config) { c.Namespaces = []string{far} })
	app := e.app("web")
	for _, namespace := range []string{e.namespace, far} {
		users := must(client.Create(t.Context(), e.c, configMapIn(namespace, "users", "of", "the user")))(t)
		for _, child := range []owned.Child{
			{Object: configMapIn(namespace, "users", "of", "the set")},
			{Object: configMapIn(namespace, "users", "of", "the user")},
			{Object: configMapIn(namespace, "users", "of", "the set"), CreateOnly: true},
		} {
			plan, _ := behind.Plan(t.Context(), app, child)
			e.want(plan.Results, "ConfigMap users: foreign")
			report, err := behind.Apply(t.Context(), app, child)
			e.want(report.Results, "ConfigMap users: foreign")
			if foreign, ok := errors.AsType[*owned.ForeignError](err); !ok || !foreign.Orphan {
				t.Errorf("the error is %v", err)
			}
		}
		if now := e.get(kube.KeyOf(users)); now.ResourceVersion != users.ResourceVersion {
			t.Errorf("it was changed: %+v", now)
		}
	}
}
