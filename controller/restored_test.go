package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// restoredWhileAway calls restore while the API server is unreachable, as during a restore of etcd, and calls first
// before clients can reach the server again.
func (w *world) restoredWhileAway(restore, first func()) {
	var back atomic.Bool
	w.Hook(func(_ *http.Request, do func() *http.Response) (*http.Response, error) {
		if !back.Load() {
			return nil, errors.New("connection refused")
		}
		return do(), nil
	})
	w.Break("widgets", false)
	w.Break("parts", false)
	time.Sleep(5 * time.Second)
	restore()
	first()
	back.Store(true)
}

// TestContract07_HandlerRunsAfterRestore checks a restore of etcd from a backup. Resource versions go back, and the
// writes after the backup are lost. The handler must run with the restored state, and each run must still see the
// writes of the run before.
func TestContract07_HandlerRunsAfterRestore(t *testing.T) {
	for name, lags := range map[string]bool{"the informer had shown the lost write": false, "the informer had not shown it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				parts := w.parts(kube.Selection{})
				var runs journal
				var mu sync.Mutex
				written, lost := 0, false
				c := w.config(func(ctx context.Context, widget unstructuredObject) error {
					part, found, err := parts.Get(key("p"))
					if err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					runs.add("%v", widget.Object["spec"])
					note := fmt.Sprint(written)
					if found && part.GetLabels()["note"] != note && !lost {
						t.Errorf("a run reads %s, and the run before has written %s", part.GetLabels()["note"], note)
					}
					written, lost = written+1, false
					if !found {
						return w.create(ctx, "parts", "Part", "p", "note", fmt.Sprint(written))
					}
					return w.patch(ctx, "parts", "p", fmt.Sprintf(`{"metadata":{"labels":{"note":"%d"}}}`, written))
				})
				c.Reads = []informer.Any{parts}
				w.put("widgets", "a", "first")
				ctrl := w.run(c)
				time.Sleep(time.Minute)
				restore := w.Backup()
				for i := range 20 {
					w.put("parts", "other", i) // writes that the restore loses
				}
				synctest.Wait()
				if lags {
					w.HoldWatches("parts")
				}
				w.put("widgets", "a", "lost")
				time.Sleep(time.Second)
				if got := runs.take(); !slices.Equal(got, []string{"map[value:first]", "map[value:lost]"}) {
					t.Errorf("before the restore, handled: %q", got)
				}
				w.restoredWhileAway(restore, func() {
					mu.Lock()
					defer mu.Unlock()
					lost = true
				})
				time.Sleep(3 * time.Minute)
				if got := runs.take(); !slices.Equal(got, []string{"map[value:first]"}) {
					t.Errorf("after the restore, handled: %q\n%s", got, ctrl.Explain(key("a")))
				}
				for i := range 10 {
					if i%2 == 0 {
						w.HoldWatches("parts")
					}
					w.put("widgets", "a", 2*i)
					time.Sleep(time.Second)
					w.put("widgets", "a", 2*i+1)
					time.Sleep(time.Second)
					w.ReleaseWatches("parts")
					time.Sleep(30 * time.Second)
					if got := runs.take(); len(got) != 2 {
						t.Errorf("two changes after the restore, handled: %q\n%s", got, ctrl.Explain(key("a")))
					}
				}
			})
		})
	}
}

// TestContract13_ReusedVersionOfLostOwnWriteRunsHandler checks another client's write after a restore. The write can get
// the resource version of a lost own write, and can start from the same version. It must be handled.
func TestContract13_ReusedVersionOfLostOwnWriteRunsHandler(t *testing.T) {
	for name, lags := range map[string]bool{"the informer had shown the lost write": false, "the informer had not shown it": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { versionOfALostWrite(t, lags) }) })
	}
}

func versionOfALostWrite(t *testing.T, lags bool) {
	t.Helper()
	w := newWorld(t)
	var runs journal
	c := w.config(func(ctx context.Context, widget unstructuredObject) error {
		runs.add("%v", widget.Object["spec"])
		if widget.GetLabels()["handled"] != "" {
			return nil
		}
		if lags {
			w.HoldWatches("widgets")
		}
		return w.patch(ctx, "widgets", "a", fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{"handled":"yes"}}}`, widget.GetResourceVersion()))
	})
	ctrl := w.run(c)
	synctest.Wait()
	w.HoldWatches("widgets") // the backup must not contain the handler's write
	w.put("widgets", "a", "first")
	restore := w.Backup()
	w.ReleaseWatches("widgets")
	synctest.Wait()
	own := w.Object("widgets", key("a")).GetResourceVersion()
	runs.take()
	w.restoredWhileAway(restore, func() {
		if foreign := w.put("widgets", "a", "second"); foreign != own {
			t.Fatalf("the own write had version %s, another client's has %s", own, foreign)
		}
	})
	time.Sleep(5 * time.Minute)
	if got := runs.take(); len(got) == 0 || got[len(got)-1] != "map[value:second]" {
		t.Errorf("handled %q\n%s", got, ctrl.Explain(key("a")))
	}
}
