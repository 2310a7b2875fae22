package controller_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
)

// TestProblemsAreLoggedWithFixedAttributes checks the log line of each type of problem: alerts and searches rely on its
// message and on the names of its attributes.
func TestProblemsAreLoggedWithFixedAttributes(t *testing.T) {
	common := []string{"controller", "level", "message", "msg", "problem", "since", "time"}
	ofKey := append([]string{"run"}, common...)
	for name, test := range map[string]struct {
		problem controller.ProblemType
		story   func(s *shop)
		message string
		attrs   []string
	}{
		"hot loop of writes": {
			controller.ProblemHotLoop, fight, "key is in a hot loop", append([]string{"object", "managers", "fields"}, ofKey...),
		},
		"hot loop of requeues": {controller.ProblemHotLoop, func(s *shop) {
			s.handler(func(context.Context, unstructuredObject) error { return controller.RequeueAfter(0) })
			s.site("web", 1)
			s.open()
			time.Sleep(time.Minute)
		}, "key is in a hot loop", ofKey},
		"stuck": {
			controller.ProblemStuck, func(s *shop) { stuck(s) }, "handler does not return", append([]string{"causes", "stack"}, ofKey...),
		},
		"stalled": {
			controller.ProblemStalled, func(s *shop) { givenUp(s) },
			"handler failed, retries are exhausted; next run when something changes or at the next resync",
			[]string{"attempt", "causes", "class", "controller", "error", "level", "msg", "outcome", "retries", "run", "time"},
		},
		"informer, which logs it itself": {controller.ProblemInformer, func(s *shop) { aListThatIsForbidden(s) }, "", nil},
		"failing":                        {controller.ProblemFailing, func(s *shop) { failingForLong(s) }, "handler keeps failing", ofKey},
		"queue growing":                  {controller.ProblemQueueGrowing, func(s *shop) { aQueueThatGrows(s) }, "queue keeps growing", common},
		"unseen write": {controller.ProblemUnseenWrite, func(s *shop) {
			heldForAnUnseenWrite(s)
			time.Sleep(8 * time.Second)
		}, "informer does not show a write", ofKey},
		"interrupted": {controller.ProblemInterrupted, func(s *shop) {
			s.config.Name, s.config.Runs.StateDir = "test", interruptedDir(s.t, map[string]int{"web": 1})
			s.siteIn("ns", "web", 1)
			s.open()
		}, "process ended while it handled the key", ofKey},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t)
				var lines journal // fight takes those of the shop
				s.config.Logger = slog.New(slog.NewJSONHandler(&lines, nil))
				test.story(s)
				synctest.Wait()
				found := 0
				for _, text := range lines.take() {
					var line map[string]any
					if err := json.Unmarshal([]byte(text), &line); err != nil {
						t.Fatalf("%v: %s", err, text)
					}
					if line["problem"] != string(test.problem) && line["msg"] != test.message {
						continue
					}
					found++
					attrs := slices.Sorted(maps.Keys(line))
					level := "WARN"
					if test.problem == controller.ProblemStalled {
						level = "ERROR" // the line of the failed run
					}
					if line["msg"] != test.message || line["level"] != level || !slices.Equal(attrs, slices.Sorted(slices.Values(test.attrs))) {
						t.Errorf("logged %q, want %q with %q", text, test.message, test.attrs)
					}
					if run, ofKey := line["run"].(map[string]any); ofKey && !strings.HasSuffix(run["key"].(string), "/web") {
						t.Errorf("the run is %v", run)
					}
				}
				if want := min(len(test.attrs), 1); found != want {
					t.Errorf("%d lines, want %d", found, want)
				}
			})
		})
	}
}
