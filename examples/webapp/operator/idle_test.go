package operator

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
)

// requests records all requests except those of informers: their watches continue, and restart when the API server ends
// them.
type requests struct {
	mu   sync.Mutex
	seen []string // guarded by mu
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if query := req.URL.Query(); query.Get("watch") == "" && !query.Has("resourceVersion") {
			r.mu.Lock()
			r.seen = append(r.seen, req.Method+" "+req.URL.RequestURI())
			r.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// While nothing changes, every resync calls every helper, and none of them makes a request.
func TestIdleWebappMakesNoCalls(t *testing.T) {
	t.Parallel()
	everywhere(t, (*world).idle)
	t.Run("memory, stored in v2", inMemoryWithV2((*world).idle))
}

func (w *world) idle() {
	w.Helper()
	counted := &requests{}
	w.config = rest.CopyConfig(w.config)
	w.config.Wrap(counted.wrap)
	w.resync = 500 * time.Millisecond
	ctrl, stop := w.operate()
	w.create(w.app("shop"))
	w.create(w.app("suspended"))
	w.untilReady("shop")
	w.untilReady("suspended")
	resyncs := func(runs uint64) {
		first := newest(ctrl.RecentRuns())
		w.until("the objects have been resynced", func() error {
			if last := newest(ctrl.RecentRuns()); last < first+runs {
				return fmt.Errorf("%d runs since run %d", last-first, first)
			}
			return nil
		})
	}
	w.until("the last rollout is in the status", func() error {
		counted.take()
		resyncs(4)
		if seen := counted.take(); len(seen) > 0 {
			return fmt.Errorf("%q", seen)
		}
		return nil
	})
	resyncs(10)
	stop() // so that no run is active
	if seen := counted.take(); len(seen) > 0 {
		w.Errorf("idle runs made requests: %q", seen)
	}
	for _, run := range ctrl.RecentRuns()[:8] {
		if run.Calls > 0 || run.Outcome != controller.OutcomeSuccess {
			w.Errorf("an idle run: %s", run)
		}
	}
}

// maxRequestsOfNewWebApp is the finalizer, three children, and the status before and after the rollout.
// The name of the record is written together with the first status.
const maxRequestsOfNewWebApp = 6

// TestNewWebAppMakesFewRequests counts the requests for new WebApps, and those that the process makes
// once: together at most 7 for each WebApp.
func TestNewWebAppMakesFewRequests(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		counted := &requests{}
		w.config = rest.CopyConfig(w.config)
		w.config.Wrap(counted.wrap)
		const apps = 10
		for n := range apps {
			app := w.app(fmt.Sprint("shop-", n))
			app.Spec.Replicas = new(int32(0)) // so that the rollout has only one observable state
			w.create(app)
		}
		_, stop := w.operate()
		for n := range apps {
			w.untilReady(fmt.Sprint("shop-", n))
		}
		stop()
		seen := counted.take()
		perApp := 0
		for _, request := range seen {
			if strings.Contains(request, "shop-") {
				perApp++
			}
		}
		if len(seen) > 7*apps || perApp > maxRequestsOfNewWebApp*apps {
			w.Errorf("%d requests for %d WebApps, of which %d name one, want at most %d and %d: %q",
				len(seen), apps, perApp, 7*apps, maxRequestsOfNewWebApp*apps, seen)
		}
		w.Logf("%d requests for %d WebApps, of which %d name one", len(seen), apps, perApp)
	})
}

func newest(runs []controller.RunRecord) uint64 {
	var id uint64
	for _, run := range runs {
		id = max(id, run.ID)
	}
	return id
}
