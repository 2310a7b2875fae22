package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// putNamed creates or changes a Deployment with label app, which has this number of available replicas of three.
func (s *waitServer) putNamed(name, app string, available int64) {
	s.Edit("deployments", kube.Key{Namespace: "shop", Name: name}, "controller", func(obj map[string]any) bool {
		obj["metadata"].(map[string]any)["labels"] = map[string]any{"app": app}
		obj["spec"] = map[string]any{"replicas": int64(3)}
		obj["status"] = map[string]any{
			"observedGeneration": int64(1), "replicas": int64(3), "updatedReplicas": int64(3), "availableReplicas": available,
		}
		return true
	})
}

func (s *waitServer) remove(name string) {
	s.Edit("deployments", kube.Key{Namespace: "shop", Name: name}, "somebody", func(map[string]any) bool { return false })
}

func (s *waitServer) finalizers(name string, finalizers ...any) {
	s.Edit("deployments", kube.Key{Namespace: "shop", Name: name}, "somebody", func(obj map[string]any) bool {
		obj["metadata"].(map[string]any)["finalizers"] = finalizers
		return true
	})
}

// waitForWebs waits for n ready Deployments with label app=web in another goroutine.
func (s *waitServer) waitForWebs(ctx context.Context, n int, check readiness.Check, options ...client.WaitOption) func() ([]string, error) {
	var found []string
	var err error
	ended := make(chan struct{})
	go func() { // waited for by the returned function
		defer close(ended)
		var all []*appsv1.Deployment
		all, err = client.WaitForObjects[*appsv1.Deployment](ctx, s.client, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}, n, check, options...)
		for _, d := range all {
			found = append(found, d.Name)
		}
	}()
	return func() ([]string, error) { <-ended; return found, err }
}

func TestWaitForObjectsCountsReadyObjects(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"in one watch": false, "in several watches, without history": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newWaitServer(t)
				s.putNamed("a", "web", 3)
				result := s.waitForWebs(t.Context(), 2, readiness.Of)
				began, ended := time.Now(), false
				go func() { // joined by result below
					_, _ = result()
					ended = true
				}()
				for _, step := range []func(){
					func() { s.putNamed("b", "web", 1) },  // not ready
					func() { s.putNamed("c", "db", 3) },   // not selected
					func() { s.remove("a") },              // was ready
					func() { s.putNamed("c", "web", 3) },  // one of two
					func() { s.putNamed("c", "web", 2) },  // none
					func() { s.putNamed("b", "web", 3) },  // one
					func() { s.putNamed("c", "gone", 3) }, // left the selection
					func() { s.putNamed("b", "web", 3) },  // still one
				} {
					step()
					if broken {
						s.Break("deployments", true)
					}
					time.Sleep(time.Minute / 2)
					synctest.Wait()
					if ended {
						t.Fatalf("ended after %s", time.Since(began))
					}
				}
				s.putNamed("a2", "web", 3)
				found, err := result()
				if diff := cmp.Diff([]string{"a2", "b"}, found); diff != "" || err != nil {
					t.Errorf("%v; objects (-want +got):\n%s", err, diff)
				}
				synctest.Wait()
			})
		})
	}
}

func TestWaitForObjectsNamesMissingObjects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(s *waitServer)
		n       int
		check   readiness.Check
		want    string
	}{
		"no object": {n: 1, check: readiness.Of, want: "wait for 1 objects: Deployment in shop: context deadline exceeded after 1m0s: no object exists, selected by labels \"app=web\""},
		"some are not ready": {
			prepare: func(s *waitServer) {
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					s.putNamed(name, "web", 1)
				}
				s.putNamed("b", "web", 3)
				s.putNamed("x", "db", 3)
			},
			n: 3, check: readiness.Of,
			want: "1 of 3 are ready, selected by labels \"app=web\"; shop/a: InProgress: 1 of 3 replicas are available; shop/c: InProgress: 1 of 3 replicas are available; shop/d: InProgress: 1 of 3 replicas are available; ...",
		},
		"one is being deleted": {
			prepare: func(s *waitServer) {
				s.putNamed("a", "web", 1)
				s.finalizers("a", "shop.example.com/hold")
				s.remove("a")
			},
			n:    1,
			want: "0 of 1 are ready, selected by labels \"app=web\"; shop/a: it is being deleted",
		},
		"the API server fails": {
			prepare: func(s *waitServer) { s.Fail("list", errors.New("connection reset")) },
			n:       1, want: "connection reset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newWaitServer(t)
				if test.prepare != nil {
					test.prepare(s)
				}
				_, err := s.waitForWebs(t.Context(), test.n, test.check, client.Timeout(time.Minute))()
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("the error is\n%v\nwant\n%s", err, test.want)
				}
			})
		})
	}
}

// TestWaitForObjectsReadsAllPages: the API server returns 500 objects at once.
func TestWaitForObjectsReadsAllPages(t *testing.T) {
	t.Parallel()
	s := newWaitServer(t)
	for i := range 501 {
		s.putNamed(fmt.Sprintf("d%03d", i), "web", 3)
	}
	found, err := s.waitForWebs(t.Context(), 501, nil)()
	if err != nil || len(found) != 501 || found[500] != "d500" {
		t.Errorf("%d objects, %v", len(found), err)
	}
	if diff := cmp.Diff([]string{"discover", "list", "list"}, s.asked()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestWaitForNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		web, within := kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}, client.Timeout(time.Minute)
		s.putNamed("other", "db", 1)
		if err := client.WaitForNone[*appsv1.Deployment](t.Context(), s.client, web, within); err != nil {
			t.Error(err)
		}
		s.putNamed("a", "web", 1)
		s.putNamed("b", "web", 1)
		s.finalizers("b", "shop.example.com/hold")
		s.remove("b")
		err := client.WaitForNone[*appsv1.Deployment](t.Context(), s.client, web, within)
		want := `wait until no object exists: Deployment in shop: context deadline exceeded after 1m0s: objects that still exist: 2, selected by labels "app=web"; ` +
			`shop/a: it still exists (uid `
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), want) ||
			!strings.Contains(err.Error(), `; shop/b: it is being deleted since 2000-01-01T00:00:00Z, held by finalizers ["shop.example.com/hold"]`) {
			t.Errorf("the error is\n%v\nwant\n%s", err, want)
		}
		ended := make(chan error)
		go func() {
			ended <- client.WaitForNone[*appsv1.Deployment](t.Context(), s.client, web, within)
		}() // joined below
		synctest.Wait()
		s.remove("a")
		s.putNamed("c", "web", 1) // created meanwhile
		synctest.Wait()
		s.finalizers("b")
		time.Sleep(time.Second)
		select {
		case err := <-ended:
			t.Fatalf("ended, and c exists: %v", err)
		default:
		}
		s.putNamed("c", "db", 1) // not selected anymore
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestWaitForObjectsRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		ctx := t.Context()
		for name, wait := range map[string]func() error{
			"no number": func() error {
				_, err := client.WaitForObjects[*appsv1.Deployment](ctx, s.client, kube.Selection{}, 0, nil)
				return err
			},
			"an invalid selector": func() error {
				_, err := client.WaitForObjects[*appsv1.Deployment](ctx, s.client, kube.Selection{LabelSelector: "a=b=c"}, 1, nil)
				return err
			},
			"two namespaces": func() error {
				_, err := client.WaitForObjects[*appsv1.Deployment](ctx, s.client, kube.Selection{Namespaces: []string{"a", "b"}}, 1, nil)
				return err
			},
			"none, in two namespaces": func() error {
				return client.WaitForNone[*appsv1.Deployment](ctx, s.client, kube.Selection{Namespaces: []string{"a", "b"}})
			},
			"no client": func() error {
				_, err := client.WaitForObjects[*appsv1.Deployment](ctx, nil, kube.Selection{}, 1, nil)
				return err
			},
			"none, without a client": func() error { return client.WaitForNone[*appsv1.Deployment](ctx, nil, kube.Selection{}) },
			"none, with an invalid selector": func() error {
				return client.WaitForNone[*appsv1.Deployment](ctx, s.client, kube.Selection{FieldSelector: "a"})
			},
			"none, of a kind that is not served": func() error { return client.WaitForNone[*corev1.Secret](ctx, s.client, kube.Selection{}) },
		} {
			began := time.Now()
			if err := wait(); err == nil || errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 0 {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
		if err := client.WaitForNone[*corev1.Secret](ctx, s.client, kube.Selection{}); !errors.Is(err, kube.ErrNotServed) {
			t.Errorf("a kind that is not served: %v", err)
		}
	})
}

// ExampleWaitForObjects is a command that waits for the Pods of a program, deletes them, and waits until they are gone.
func ExampleWaitForObjects() {
	ctx, c := context.Background(), shopClient() // in a program: client.New
	web := kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}
	pods, err := client.WaitForObjects[*corev1.Pod](ctx, c, web, 1, nil)
	for _, pod := range pods {
		fmt.Println(pod.Name, err)
	}
	err = client.DeleteAllOf[*corev1.Pod](ctx, c, web)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = client.WaitForNone[*corev1.Pod](ctx, c, web)
	fmt.Println(err)
	// Output:
	// web-0 <nil>
	// <nil>
}
