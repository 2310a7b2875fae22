package operator

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
)

// requests counts what passes, but for what informers ask for: their watches go on, and begin again
// when the API server ends them.
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

// While nothing changes, every resync runs every helper, and none of them makes a request.
func TestWebappMakesNoCallsAtRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
		first := newest(ctrl.Runs())
		w.until("the objects have been resynced", func() error {
			if last := newest(ctrl.Runs()); last < first+runs {
				return fmt.Errorf("%d runs since run %d", last-first, first)
			}
			return nil
		})
	}
	w.until("the last of the rollouts is written down", func() error {
		counted.take()
		resyncs(4)
		if seen := counted.take(); len(seen) > 0 {
			return fmt.Errorf("%q", seen)
		}
		return nil
	})
	resyncs(10)
	stop() // so that no run is still under way
	if seen := counted.take(); len(seen) > 0 {
		t.Errorf("runs at rest made requests: %q", seen)
	}
	for _, run := range ctrl.Runs()[:8] {
		if run.Calls > 0 || run.Outcome != controller.OutcomeSuccess {
			t.Errorf("a run at rest: %s", run)
		}
	}
}

func newest(runs []controller.Run) uint64 {
	var id uint64
	for _, run := range runs {
		id = max(id, run.ID)
	}
	return id
}
