package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// shownBy returns the names of the objects in an informer.
func (w *world) shownBy(parts *informer.Informer[unstructuredObject]) (names []string) {
	for obj, err := range parts.List(informer.Query{}) {
		if err != nil {
			w.t.Error(err)
			continue
		}
		names = append(names, obj.GetName())
	}
	slices.Sort(names)
	return names
}

// TestWaitForOwnWrites checks that a run reads from its informer what it has written, after a wait that lasts no longer
// than the informer needs.
func TestWaitForOwnWrites(t *testing.T) {
	create := func(w *world, ctx context.Context) error { return w.create(ctx, "parts", "Part", "p", "color", "red") }
	remove := func(w *world, ctx context.Context) error {
		return w.objects("parts").Delete(ctx, "p", metav1.DeleteOptions{})
	}
	for name, test := range map[string]struct {
		selection *kube.Selection
		write     []func(w *world, ctx context.Context) error
		waits     bool
		has       []string // the names in the informer after the wait
		mayHave   string   // a name that another client removes
	}{
		"nothing is written": {selection: &kube.Selection{}, has: []string{"old"}},
		"a creation":         {&kube.Selection{}, []func(*world, context.Context) error{create}, true, []string{"old", "p"}, ""},
		"a deletion": {&kube.Selection{}, []func(*world, context.Context) error{func(w *world, ctx context.Context) error {
			return w.objects("parts").Delete(ctx, "old", metav1.DeleteOptions{})
		}}, true, nil, ""},
		"a creation and its deletion": {&kube.Selection{}, []func(*world, context.Context) error{create, remove}, true, []string{"old"}, ""},
		"a creation that another client undoes": {&kube.Selection{}, []func(*world, context.Context) error{create, func(w *world, _ context.Context) error {
			w.remove("parts", "p")
			return nil
		}}, true, []string{"old"}, "p"},
		"a change that takes the object out of the selection": {
			&kube.Selection{LabelSelector: "color=red"},
			[]func(*world, context.Context) error{create, func(w *world, ctx context.Context) error {
				return w.patch(ctx, "parts", "p", `{"metadata":{"labels":{"color":"blue"}}}`)
			}},
			true, nil, "",
		},
		"an object that is not selected": {&kube.Selection{LabelSelector: "color=blue"}, []func(*world, context.Context) error{create}, false, nil, ""},
		"a kind without an informer":     {nil, []func(*world, context.Context) error{create}, false, nil, ""},
		"the handled object": {&kube.Selection{}, []func(*world, context.Context) error{func(w *world, ctx context.Context) error {
			return w.patch(ctx, "widgets", "a", `{"status":{"done":true}}`, "status")
		}}, false, []string{"old"}, ""},
		"a deletion of a collection": {&kube.Selection{}, []func(*world, context.Context) error{func(w *world, ctx context.Context) error {
			return w.objects("parts").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}}, false, []string{"old"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var steps journal
				var parts *informer.Informer[unstructuredObject]
				var shown []string
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					for _, write := range test.write {
						if err := write(w, ctx); err != nil {
							return err
						}
					}
					steps.add("written")
					if err := controller.WaitForOwnWrites(ctx); err != nil {
						return err
					}
					if parts != nil {
						shown = w.shownBy(parts)
					}
					steps.add("waited")
					return nil
				})
				if test.selection != nil {
					parts = w.parts(*test.selection)
					c.Reads = []informer.Any{parts}
				}
				w.put("parts", "old", "1")
				w.put("widgets", "a", "1")
				w.HoldWatches("parts")
				ctrl := w.run(c)
				time.Sleep(time.Second)
				synctest.Wait()
				if waited := slices.Contains(steps.take(), "waited"); waited == test.waits {
					t.Errorf("the run waits for the informer: %v, want %v", !waited, test.waits)
				}
				w.ReleaseWatches("parts")
				synctest.Wait()
				if waited := slices.Equal(steps.take(), []string{"waited"}); waited != test.waits {
					t.Errorf("the run goes on when the informer shows its writes: %v, want %v", waited, test.waits)
				}
				shown = slices.DeleteFunc(shown, func(name string) bool { return name == test.mayHave })
				if !slices.Equal(shown, test.has) {
					t.Errorf("after the wait the informer has %q, want %q", shown, test.has)
				}
				if runs := ctrl.RecentRuns(); len(runs) != 1 || runs[0].Outcome != controller.OutcomeSuccess {
					t.Errorf("runs %v, want one: an own write causes no run after the wait either", runs)
				}
			})
		})
	}
}

// TestWaitForOwnWritesIsBounded checks that the wait ends with ConsistencyTimeout or the handler's context, and that the
// error names what is missing, and the failure of the informer.
func TestWaitForOwnWritesIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		timeout, deadline time.Duration // 0: the default, and none
		broken            bool          // the watch fails
		want              time.Duration
	}{
		"the default":             {0, 0, false, 10 * time.Second},
		"ConsistencyTimeout":      {time.Minute, 0, false, time.Minute},
		"the deadline of the ctx": {0, 3 * time.Second, false, 3 * time.Second},
		"the watch fails":         {0, 0, true, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var got error
				var took time.Duration
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					if took != 0 {
						return nil
					}
					if err := w.create(ctx, "parts", "Part", "p"); err != nil {
						return err
					}
					if test.deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, test.deadline)
						defer cancel()
					}
					if test.broken {
						w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
							if strings.HasSuffix(req.URL.Path, "/parts") {
								return answerForbidden(), nil
							}
							return do(), nil
						})
						w.Break("parts", false)
					}
					began := time.Now()
					got = controller.WaitForOwnWrites(ctx)
					took = time.Since(began)
					return nil
				})
				c.Reads = []informer.Any{w.parts(kube.Selection{})}
				c.Runs.ConsistencyTimeout = test.timeout
				w.put("widgets", "a", "1")
				w.HoldWatches("parts")
				w.run(c)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if took != test.want {
					t.Errorf("waited for %s, want %s", took, test.want)
				}
				if !errors.Is(got, context.DeadlineExceeded) || !strings.Contains(got.Error(), `informer "parts" does not show Part ns/p at resource version`) {
					t.Errorf("error %v, want one that names the part", got)
				}
				if named := strings.Contains(got.Error(), "forbidden"); named != test.broken {
					t.Errorf("error %v has the failure of the watch: %v, want %v", got, named, test.broken)
				}
			})
		})
	}
}

// TestWaitForOwnWritesEndsForLostWrites checks an optional informer that is forbidden, and a restore of etcd
// that undoes the write: the wait ends, because the informer will never show the write.
func TestWaitForOwnWritesEndsForLostWrites(t *testing.T) {
	t.Run("optional and forbidden", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			parts, err := informer.New(informer.Config[unstructuredObject]{
				Retriever: informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{Kind: kindOf("Part")}), Optional: true,
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
				if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/parts") {
					return answerForbidden(), nil
				}
				return do(), nil
			})
			c := w.config(func(ctx context.Context, _ unstructuredObject) error {
				return errors.Join(w.create(ctx, "parts", "Part", "p"), controller.WaitForOwnWrites(ctx))
			})
			c.Reads = []informer.Any{parts}
			w.put("widgets", "a", "1")
			ctrl := w.run(c)
			synctest.Wait()
			if runs := ctrl.RecentRuns(); len(runs) != 1 || runs[0].Outcome != controller.OutcomeSuccess || runs[0].Duration > time.Second {
				t.Errorf("runs %+v, want one without a wait", runs)
			}
		})
	})
	t.Run("versions went back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			restore := w.Backup()
			began := make(chan struct{})
			c := w.config(func(ctx context.Context, _ unstructuredObject) error {
				if err := w.create(ctx, "parts", "Part", "p"); err != nil {
					return err
				}
				close(began)
				return controller.WaitForOwnWrites(ctx)
			})
			parts := w.parts(kube.Selection{})
			c.Reads = []informer.Any{parts}
			c.Runs.ConsistencyTimeout = time.Hour
			w.HoldWatches("parts")
			ctrl := w.run(c)
			time.Sleep(time.Minute)
			w.put("widgets", "a", "1")
			<-began
			w.restoredWhileAway(restore, func() { w.ReleaseWatches("parts") })
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			runs := ctrl.RecentRuns()
			if len(runs) == 0 || runs[0].Outcome != controller.OutcomeSuccess {
				t.Fatalf("runs %+v, want the first one to have ended: the restore has undone its write", runs)
			}
			if cache.Of(parts).Has(key("p")) {
				t.Error("the informer has the part, although the restore has undone its creation")
			}
		})
	})
}

// TestWaitForOwnWritesRejectsUntrackedContext checks the errors outside a run, after its end, and without tracking.
func TestWaitForOwnWritesRejectsUntrackedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := controller.WaitForOwnWrites(t.Context()); err == nil || !strings.Contains(err.Error(), "no handler's context") {
			t.Errorf("outside a handler: %v", err)
		}
		w := newWorld(t)
		var untracked error
		var runContext context.Context
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			untracked, runContext = controller.WaitForOwnWrites(ctx), ctx
			return nil
		})
		w.put("widgets", "a", "1")
		w.run(c)
		synctest.Wait()
		if untracked != nil {
			t.Errorf("in a run without writes: %v", untracked)
		}
		if err := controller.WaitForOwnWrites(context.WithoutCancel(runContext)); err == nil || !strings.Contains(err.Error(), "the run has ended") {
			t.Errorf("after the end of the run: %v", err)
		}
		c.Name, c.Runs.ConsistencyTimeout = "untracked", -1
		w.run(c)
		synctest.Wait()
		if untracked == nil || !strings.Contains(untracked.Error(), "ConsistencyTimeout is negative") {
			t.Errorf("without tracking: %v", untracked)
		}
	})
}
