package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/testfile"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/source"
)

//nolint:gochecknoglobals // a flag must be defined before the tests begin
var update = flag.Bool("update", false, "write testdata/explain anew, which docs/causes.md shows: then run make docs")

// TestExplanations plays short scenarios with an operator, and compares its explanations with the files that
// docs/causes.md shows.
func TestExplanations(t *testing.T) {
	for name, story := range map[string]func(s *shop) string{
		"day":         anOrdinaryDay,
		"runs":        manyRuns,
		"log":         theLog,
		"skipped":     skippedByAPredicate,
		"terminal":    failedForGood,
		"backoff":     backingOff,
		"held":        heldForAnUnseenWrite,
		"unseen":      anUnseenWrite,
		"stalled":     givenUp,
		"debounced":   debounced,
		"standby":     standingBy,
		"forbidden":   aListThatIsForbidden,
		"unselected":  anObjectThatIsNotSelected,
		"ready":       dueAndNoWorker,
		"slow":        slowRuns,
		"stuck":       stuck,
		"growing":     aQueueThatGrows,
		"noisy":       aNoisyNamespace,
		"hotloop":     aHotLoop,
		"hotlooplog":  theLogOfAHotLoop,
		"failing":     failingForLong,
		"disagreeing": ownWritesOfEveryRun,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := strings.TrimSpace(story(newShop(t))) + "\n"
				testfile.Expect(t, filepath.Join("testdata", "explain", name+".txt"), text, *update)
			})
		})
	}
}

func anOrdinaryDay(s *shop) string {
	s.site("web", 2)
	s.open()
	s.rollout("web", 2)
	time.Sleep(time.Minute)
	s.site("web", 3)
	time.Sleep(20 * time.Second)
	s.rollout("web", 3)
	time.Sleep(5 * time.Second)
	return s.explain("web")
}

func manyRuns(s *shop) string {
	s.site("web", 2)
	s.open()
	s.site("blog", 1)
	time.Sleep(time.Second)
	s.rollout("web", 2)
	time.Sleep(time.Minute)
	s.site("web", 3)
	time.Sleep(12 * time.Minute)
	var text strings.Builder
	for _, run := range s.RecentRuns() {
		fmt.Fprintln(&text, run)
	}
	return text.String()
}

func theLog(s *shop) string {
	s.config.Logger = s.logs.logger(slog.LevelDebug)
	var answers atomic.Bool
	reconcile := s.config.Handler
	s.handler(func(ctx context.Context, site unstructuredObject) error {
		if !answers.Load() {
			return errors.New("the registry does not answer")
		}
		return reconcile(ctx, site)
	})
	s.site("web", 0)
	s.open()
	s.touch("web")
	time.Sleep(3 * time.Second)
	answers.Store(true)
	time.Sleep(30 * time.Second)
	return s.logged()
}

func skippedByAPredicate(s *shop) string {
	s.config.Predicate = predicate.GenerationChanged()
	s.site("web", 0)
	s.open()
	s.touch("web")
	time.Sleep(time.Minute)
	return s.explain("web")
}

func failedForGood(s *shop) string {
	s.handler(func(context.Context, unstructuredObject) error {
		return controller.Terminal(errors.New("spec.replicas: the plan of this customer allows 5"))
	})
	s.site("web", 50)
	s.open()
	s.touch("web")
	time.Sleep(time.Hour)
	return s.explain("web")
}

func backingOff(s *shop) string {
	s.fail()
	s.site("web", 2)
	s.open()
	time.Sleep(time.Minute)
	return s.explain("web")
}

func heldForAnUnseenWrite(s *shop) string {
	s.HoldWatches("deployments")
	s.site("web", 2)
	s.open()
	s.site("web", 3)
	time.Sleep(2 * time.Second)
	return s.explain("web")
}

func anUnseenWrite(s *shop) string {
	heldForAnUnseenWrite(s)
	s.logged()
	time.Sleep(8 * time.Second)
	first, _, _ := strings.Cut(s.logged(), "\n")
	return first
}

func givenUp(s *shop) string {
	s.config.Retry.Every.MaxRetries = 3
	s.fail()
	s.site("web", 2)
	s.open()
	time.Sleep(time.Hour)
	return s.explain("web")
}

func debounced(s *shop) string {
	s.config.Queue.Debounce = 5 * time.Second
	s.site("web", 0)
	s.open()
	time.Sleep(time.Minute)
	for replicas := range 3 {
		time.Sleep(2 * time.Second)
		s.site("web", replicas+1)
	}
	time.Sleep(time.Second)
	return s.explain("web")
}

// follower is a controller.LeaderElector that never leads.
type follower struct{}

func (follower) Ready() error { return nil }

func (follower) Run(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return nil
}

func standingBy(s *shop) string {
	s.config.LeaderElector = follower{}
	s.site("web", 2)
	s.open()
	return s.explain("web")
}

func aListThatIsForbidden(s *shop) string {
	s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/deployments") {
			return refused(req, apierrors.NewForbidden(deployments().GroupResource(), "",
				errors.New(`User "system:serviceaccount:shop:website-operator" cannot list resource "deployments" in API group "apps" at the cluster scope`)))
		}
		return do(), nil
	})
	s.site("web", 2)
	s.open()
	time.Sleep(time.Minute)
	return s.explain("web")
}

// refused is the API server's response to a request that it refuses.
func refused(req *http.Request, why *apierrors.StatusError) (*http.Response, error) {
	status := why.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	return &http.Response{
		StatusCode: int(status.Code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}, err
}

func anObjectThatIsNotSelected(s *shop) string {
	s.config.Retriever = informer.RetrieveSelected[unstructuredObject](s.cluster, kube.Selection{Kind: website(), LabelSelector: "tier=gold"})
	s.site("web", 2)
	s.open()
	time.Sleep(time.Minute)
	return s.explain("web")
}

func dueAndNoWorker(s *shop) string {
	s.handler(func(context.Context, unstructuredObject) error { time.Sleep(time.Minute); return nil })
	s.config.Workers, s.config.Runs.DrainTimeout = 2, time.Minute
	s.open()
	for i := range 9 {
		s.site(fmt.Sprint("big-", i), 2)
	}
	time.Sleep(10 * time.Second)
	s.site("web", 2)
	time.Sleep(20 * time.Second)
	return s.explain("web")
}

func slowRuns(s *shop) string {
	reconcile := s.config.Handler
	s.handler(func(ctx context.Context, site unstructuredObject) error {
		time.Sleep(300 * time.Millisecond)
		return reconcile(ctx, site)
	})
	s.site("web", 2)
	s.open()
	s.rollout("web", 2)
	time.Sleep(time.Minute)
	s.HoldWatches("deployments")
	s.site("web", 4)
	time.Sleep(time.Second)
	s.slow(http.MethodPatch, 2*time.Second)
	s.site("web", 5)
	time.Sleep(4 * time.Second)
	s.ReleaseWatches("deployments")
	time.Sleep(time.Minute)
	return s.explain("web")
}

func stuck(s *shop) string {
	answer := make(chan struct{})
	s.config.Runs.StuckAfter = time.Minute
	s.handler(func(context.Context, unstructuredObject) error { return askTheRegistry(answer) })
	s.site("web", 2)
	s.open()
	s.t.Cleanup(func() { close(answer) })
	time.Sleep(90 * time.Second)
	return withoutMachine(s.explain("web"))
}

// askTheRegistry is a call without a timeout.
func askTheRegistry(answer chan struct{}) error {
	<-answer
	return nil
}

// withoutMachine removes from a stack the text that differs between machines, and the frames below the handler.
func withoutMachine(stack string) string {
	for _, replace := range []struct{ pattern, by string }{
		{`goroutine \d+ \[([a-z ]*[a-z])[^\]]*\]`, "goroutine 128 [$1]"},
		{`\((?:0x)[^)]*\)`, "(...)"},
		{`(?m)^\s+/\S+\.go:\d+( \+0x\w+)?\n`, ""},
		{`(?m)^.*controller_test\.stuck.*\n(.*\n)*?(\s+\d)`, "      main.(*operator).Handle(...)\n$2"},
		{`\S+/controller_test\.`, "main."},
	} {
		stack = regexp.MustCompile(replace.pattern).ReplaceAllString(stack, replace.by)
	}
	return stack
}

func aQueueThatGrows(s *shop) string {
	s.handler(func(context.Context, unstructuredObject) error { time.Sleep(1013 * time.Millisecond); return nil })
	s.open()
	for i := range 1500 {
		s.site(fmt.Sprint("site-", i), 1)
		time.Sleep(199 * time.Millisecond)
	}
	return s.problems()
}

func aNoisyNamespace(s *shop) string {
	s.handler(func(context.Context, unstructuredObject) error { time.Sleep(70 * time.Millisecond); return nil })
	s.config.Workers = 1
	s.open()
	for i := range 500 {
		s.siteIn("noisy", fmt.Sprint("site-", i), 1)
	}
	time.Sleep(5 * time.Second)
	s.siteIn("noisy", "last", 1)
	s.site("web", 2)
	time.Sleep(2 * time.Second)
	return s.explain("web") + s.Explain(kube.Key{Namespace: "noisy", Name: "last"})
}

func aHotLoop(s *shop) string {
	fight(s)
	return s.explain("web")
}

func theLogOfAHotLoop(s *shop) string {
	fight(s)
	return s.logged()
}

// fight lets an autoscaler change a field that the operator also writes, at most once a second: managedFields have times in
// seconds, and the names of two writers within a second cannot be told apart.
func fight(s *shop) {
	s.site("web", 3)
	s.open()
	s.rollout("web", 3)
	s.logged()
	for range 50 {
		time.Sleep(time.Second)
		s.Edit("deployments", kube.Key{Namespace: "shop", Name: "web"}, "horizontal-pod-autoscaler", func(obj map[string]any) bool {
			obj["spec"].(map[string]any)["replicas"] = int64(5)
			return true
		})
	}
}

func failingForLong(s *shop) string {
	s.fail()
	s.config.Retry.Every.Max = time.Minute
	s.site("web", 2)
	s.open()
	time.Sleep(15 * time.Minute)
	return s.problems()
}

// ownWritesOfEveryRun sets Runs.HandleOwnWrites. The handler writes the time at each run, and each own write causes another
// run.
func ownWritesOfEveryRun(s *shop) string {
	s.config.Runs.HandleOwnWrites = true
	s.handler(func(ctx context.Context, site unstructuredObject) error {
		time.Sleep(time.Second)
		return s.patch(ctx, websites(), kube.KeyOf(site), fmt.Sprintf(`{"status":{"seen":%q}}`, time.Now().UTC().Format(time.RFC3339)), "status")
	})
	s.site("web", 2)
	s.open()
	time.Sleep(time.Minute)
	return s.explain("web")
}

// TestExplainDuringConcurrentChanges gives the race detector concurrent calls of Explain and writes.
func TestExplainDuringConcurrentChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parts := w.parts(kube.Selection{})
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			name := widget.GetName()
			var writes sync.WaitGroup
			for i := range 3 {
				writes.Go(func() { // waited for below
					_ = w.create(ctx, "parts", "Part", fmt.Sprint(name, i), "widget", name)
					_ = w.patch(ctx, "widgets", name, fmt.Sprintf(`{"status":{"n":%d}}`, i), "status")
				})
			}
			observers.RunningFrom(ctx).SetTraceID("trace")
			_ = controller.SetTimer(ctx, "again", time.Second)
			controller.LoggerFrom(ctx).Debug("writes")
			writes.Wait()
			switch widget.GetResourceVersion()[0] % 4 {
			case 0:
				return errors.New("no")
			case 1:
				return controller.RequeueAfter(time.Millisecond)
			case 2:
				panic("no")
			}
			return nil
		})
		c.Sources = []controller.Source{source.OwnerLabel(parts, "widget")}
		c.Runs.StuckAfter, c.Runs.DrainQueue, c.Runs.UnreadyWhenStuck = time.Millisecond, true, true
		c.Deleted = func(context.Context, unstructuredObject, bool) error { return nil }
		ctrl := w.run(c)
		var clients sync.WaitGroup
		for reader := range 3 {
			clients.Go(func() { // waited for below
				for i := range testlength.Count(60, 300) {
					name := fmt.Sprint("w", i%5)
					switch reader {
					case 0:
						_ = ctrl.Explain(key(name))
					case 1:
						_, _, _ = ctrl.RecentRuns(), ctrl.Problems(), ctrl.Queued(10)
					default:
						_, _ = ctrl.Stats(), ctrl.Ready()
					}
					time.Sleep(7 * time.Millisecond)
				}
			})
		}
		for i := range testlength.Count(80, 400) {
			name := fmt.Sprint("w", i%5)
			if i%17 == 0 && w.Object("widgets", key(name)) != nil {
				w.remove("widgets", name)
			} else {
				w.put("widgets", name, i)
			}
			time.Sleep(5 * time.Millisecond)
		}
		clients.Wait()
	})
}
