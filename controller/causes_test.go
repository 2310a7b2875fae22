package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// TestContract11_RunHasItsCauses makes each kind of change in turn, as several clients.
func TestContract11_RunHasItsCauses(t *testing.T) {
	edit := func(w *world, manager string, change func(obj map[string]any)) {
		w.Edit("widgets", key("a"), manager, func(obj map[string]any) bool { change(obj); return true })
	}
	metadata := func(field string, value any) func(map[string]any) {
		return func(obj map[string]any) { obj["metadata"].(map[string]any)[field] = value }
	}
	for name, test := range map[string]struct {
		do   func(w *world)
		want string
	}{
		"spec": {func(w *world) { w.put("widgets", "a", 2) }, "updated (spec) by somebody"},
		"status": {func(w *world) {
			edit(w, "other-operator", func(o map[string]any) { o["status"] = map[string]any{"x": "y"} })
		}, "updated (status) by other-operator"},
		"labels":      {func(w *world) { edit(w, "kubectl-label", metadata("labels", map[string]any{"a": "b"})) }, "updated (labels) by kubectl-label"},
		"annotations": {func(w *world) { edit(w, "kubectl", metadata("annotations", map[string]any{"a": "b"})) }, "updated (annotations) by kubectl"},
		"finalizers":  {func(w *world) { edit(w, "x", metadata("finalizers", []any{"example.com/y"})) }, "updated (finalizers) by x"},
		"owner references": {func(w *world) {
			edit(w, "x", metadata("ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}}))
		}, "updated (ownerReferences) by x"},
		"several merge": {func(w *world) {
			w.HoldWatches("widgets")
			w.put("widgets", "a", 2)
			edit(w, "x", metadata("labels", map[string]any{"a": "b"}))
			w.ReleaseWatches("widgets")
		}, "updated 2 times (labels,spec) by x"},
		"creation":           {func(w *world) { w.put("widgets", "b", 1) }, "added by somebody"},
		"an object of its":   {func(w *world) { w.put("parts", "p", 2) }, "owner label parts: Part ns/p updated (spec) by somebody"},
		"what goes":          {func(w *world) { w.remove("parts", "p") }, "owner label parts: Part ns/p deleted"},
		"what is created":    {func(w *world) { _ = w.create(t.Context(), "parts", "Part", "q", "widget", "a") }, "owner label parts: Part ns/q added by operator"},
		"what is changed by": {func(w *world) { _ = w.patch(t.Context(), "parts", "p", `{"status":{"n":1}}`) }, "owner label parts: Part ns/p updated (status) by operator"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				c := w.config(func(ctx context.Context, _ unstructuredObject) error { runs.add("%s", causesOf(ctx)); return nil })
				c.Sources = []controller.Source{source.OwnerLabel(w.parts(kube.Selection{}), "widget")}
				c.Queue.Debounce = time.Second
				w.widgetWithPart()
				w.run(c)
				time.Sleep(time.Minute)
				runs.take()
				test.do(w)
				time.Sleep(time.Minute)
				if got := runs.take(); !slices.Equal(got, []string{test.want}) {
					t.Errorf("causes %q, want %q", got, test.want)
				}
			})
		})
	}
}

// TestContract11_CausesHaveDetails checks every field that a cause provides to programs.
func TestContract11_CausesHaveDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var last []controller.Cause
		fail := false
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			run, _ := controller.RunFrom(ctx)
			last = run.Causes.List()
			if fail {
				fail = false
				return errors.New("no luck")
			}
			if widget.GetName() == "later" {
				return controller.RequeueAfter(time.Minute, "it takes a while")
			}
			return nil
		})
		w.put("widgets", "a", 1)
		w.run(c)
		synctest.Wait()
		after := w.put("widgets", "a", 2)
		synctest.Wait()
		want := controller.Cause{
			Type: controller.CauseUpdated, Source: controller.SourceSelf, Kind: kindOf("Widget").GroupKind(), Object: key("a"), UID: w.uid("widgets", "a"),
			ResourceVersion: after, Changed: kube.ChangedSpec | kube.ChangedGeneration | kube.ChangedResourceVersion,
			Manager: "somebody", Time: time.Now(), Count: 1,
		}
		if diff := cmp.Diff([]controller.Cause{want}, last, cmpopts.IgnoreUnexported(controller.Cause{})); diff != "" {
			t.Errorf("the cause of an update (-want +got):\n%s", diff)
		}
		fail = true
		w.put("widgets", "a", 3)
		time.Sleep(time.Second)
		synctest.Wait()
		retried := controller.Cause{Type: controller.CauseRetry, Source: controller.SourceLoop, Attempt: 1, Detail: "error", Count: 1}
		if diff := cmp.Diff([]controller.Cause{retried}, last, cmpopts.IgnoreFields(controller.Cause{}, "Time", "Staleness"), cmpopts.IgnoreUnexported(controller.Cause{})); diff != "" {
			t.Errorf("the cause of a retry (-want +got):\n%s", diff)
		}
		w.put("widgets", "later", 1)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if len(last) != 1 || last[0].Type != controller.CauseRequeue || last[0].Detail != "it takes a while" {
			t.Errorf("the cause of a requeue: %+v", last)
		}
	})
}

// TestContract11_StalenessIsInCauses checks that a cause that does not come from the API server has the time since the
// last message from the API server.
func TestContract11_StalenessIsInCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var staleness []time.Duration
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			run, _ := controller.RunFrom(ctx)
			for _, cause := range run.Causes.List() {
				staleness = append(staleness, cause.Staleness.Round(time.Millisecond), run.Staleness.Round(time.Millisecond))
			}
			return controller.RequeueAfter(10 * time.Second)
		})
		w.put("widgets", "a", 1)
		w.HoldWatches("widgets")
		w.run(c)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		// The list causes the first run; nothing is stale when it ends. The second run, ten seconds later, is stale.
		if want := []time.Duration{0, 0, 0, 10 * time.Second}; !slices.Equal(staleness, want) {
			t.Errorf("causes and runs are stale by %s, want %s", staleness, want)
		}
	})
}

// TestContract11_CausesAreBounded checks that causes beyond the maximum are counted.
func TestContract11_CausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		c := w.config(func(ctx context.Context, _ unstructuredObject) error { runs.add("%s", causesOf(ctx)); return nil })
		c.Sources = []controller.Source{source.OwnerLabel(w.parts(kube.Selection{}), "widget")}
		c.Queue.Debounce = time.Second
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(time.Minute)
		runs.take()
		for i := range 2 * workqueue.MaxCauses {
			if err := w.create(t.Context(), "parts", "Part", fmt.Sprint("p", i), "widget", "a"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if got := runs.take(); len(got) != 1 || strings.Count(got[0], "added") != workqueue.MaxCauses || !strings.Contains(got[0], fmt.Sprintf("and %d more", workqueue.MaxCauses)) {
			t.Errorf("causes %q", got)
		}
	})
}

// TestContract12_RunIsRecorded checks that a record has the causes, the writes and the result of its run, and the time
// and reason of the next run.
func TestContract12_RunIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			time.Sleep(2 * time.Second)
			if _, err := w.objects("parts").Get(ctx, "p", metav1.GetOptions{}); err == nil {
				t.Error("there is a part")
			}
			_ = w.create(ctx, "parts", "Part", "p")
			_ = w.create(ctx, "parts", "Part", "p")
			_ = w.patch(ctx, "widgets", "a", `{"status":{"a":1}}`, "status")
			_ = w.patch(ctx, "widgets", "a", `{"status":{"a":1}}`, "status")
			_ = w.objects("parts").Delete(ctx, "p", metav1.DeleteOptions{})
			return controller.RequeueAfter(time.Hour, "to look again")
		})
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Second)
		under := ctrl.RecentRuns()
		if len(under) != 1 || under[0].Outcome != "" || !strings.HasSuffix(under[0].String(), "listed -> running") {
			t.Errorf("a run under way: %v", under)
		}
		time.Sleep(time.Minute)
		runs := ctrl.RecentRuns()
		if len(runs) != 1 {
			t.Fatalf("%d runs, want 1", len(runs))
		}
		run := runs[0]
		var writes []string
		for _, write := range run.WriteRecords() {
			writes = append(writes, write.String())
		}
		want := []string{
			"create Part ns/p: done (resource version 1002)",
			"create Part in ns: rejected (409 Conflict)",
			"patch Widget/status ns/a: done (resource version 1003)",
			"patch Widget/status ns/a: no change (resource version 1003)",
			"delete Part ns/p: done",
		}
		if diff := cmp.Diff(want, writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		if run.Controller != "widgets" || run.ID != 1 || run.Key != key("a") || run.UID != w.uid("widgets", "a") || run.Generation != 1 ||
			run.Duration != 2*time.Second || run.Outcome != controller.OutcomeRequeue || run.Calls != 6 {
			t.Errorf("run %+v", run)
		}
		if run.NextReason != "as the handler asked (to look again)" || !run.NextRun.Equal(run.Started.Add(2*time.Second+time.Hour)) {
			t.Errorf("next %q at %s", run.NextReason, run.NextRun)
		}
	})
}

// TestRunRecordText checks the text of runs that wrote more than a record contains, or that read an old cache.
func TestRunRecordText(t *testing.T) {
	for name, test := range map[string]struct {
		run  controller.RunRecord
		want string
	}{
		"dropped writes": {controller.RunRecord{Outcome: controller.OutcomeSuccess}.WithWrites(2, 3), ", 5 writes"},
		"an old cache":   {controller.RunRecord{Staleness: 5 * time.Minute}, ", the cache 5m old ->"},
	} {
		if got := test.run.String(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %q does not contain %q", name, got, test.want)
		}
	}
}

// TestContract30_RecordsAreBounded runs many keys often.
func TestContract30_RecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		const objects = 700
		for i := range objects {
			w.put("widgets", fmt.Sprint("w", i), 1)
		}
		ctrl := w.run(c)
		synctest.Wait()
		for round := range 6 {
			w.put("widgets", "w0", round+2)
			synctest.Wait()
		}
		runs := ctrl.RecentRuns()
		if len(runs) != 256 || runs[0].ID != objects+6 {
			t.Errorf("%d runs are kept, the latest is number %d", len(runs), runs[0].ID)
		}
		if records := ctrl.Explained(key("w0")).Runs; len(records) != 4 || records[0].ID != objects+6 || records[3].ID != objects+3 {
			t.Errorf("of one key: %v", records)
		}
		known := 0
		for i := range objects {
			known += min(len(ctrl.Explained(key(fmt.Sprint("w", i))).Runs), 1)
		}
		if known != 256 {
			t.Errorf("runs of %d keys are kept, want 256", known)
		}
	})
}

// TestContract12_SkippedChangeIsExplained checks that Explain reports a change that a predicate drops, and the states
// of a key.
func TestContract12_SkippedChangeIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var answer error
		c := w.config(func(context.Context, unstructuredObject) error { return answer })
		c.Predicate = func(change informer.Change) bool {
			return change.Type != informer.Updated || change.Changed(kube.ChangedSpec) != 0
		}
		w.put("widgets", "a", 1)
		ctrl, err := controller.New(c)
		if err != nil {
			t.Fatal(err)
		}
		expect := func(texts ...string) {
			t.Helper()
			got := ctrl.Explain(key("a"))
			for _, text := range texts {
				if !strings.Contains(got, text) {
					t.Errorf("the explanation lacks %q:\n%s", text, got)
				}
			}
		}
		expect("ns/a does not run: the controller is stopped")
		start(t, ctrl)
		synctest.Wait()
		expect("ns/a is idle; next run when something changes", "run 1: listed -> success")
		w.Edit("widgets", key("a"), "other", func(obj map[string]any) bool { obj["status"] = "x"; return true })
		synctest.Wait()
		expect("skipped (predicate): updated")
		answer = controller.Terminal(errors.New("nothing will help"))
		w.put("widgets", "a", 2)
		synctest.Wait()
		expect("ns/a is idle; next run when its object changes or a source enqueues it (the error is terminal)", "nothing will help")
		answer = errors.New("no luck")
		w.put("widgets", "a", 3)
		time.Sleep(10 * time.Second)
		expect("ns/a is in backoff for ", "no luck", "times in a row")
		if state := ctrl.Queued(10); len(state) != 1 || state[0].Key != key("a") {
			t.Errorf("the queue has %+v", state)
		}
	})
}

func TestCausesHas(t *testing.T) {
	t.Parallel()
	causes := controller.NewCauses(
		controller.Cause{Type: controller.CauseListed}, controller.Cause{Type: controller.CauseUpdated, Detail: "spec"})
	var has []controller.CauseType
	for _, cause := range []controller.CauseType{controller.CauseListed, controller.CauseAdded, controller.CauseUpdated, controller.CauseRetry} {
		if causes.Has(cause) {
			has = append(has, cause)
		}
	}
	if diff := cmp.Diff([]controller.CauseType{controller.CauseListed, controller.CauseUpdated}, has); diff != "" {
		t.Errorf("has (-want +got):\n%s", diff)
	}
	if got, want := causes.String(), "listed, updated (spec)"; got != want {
		t.Errorf("String is %q, want %q", got, want)
	}
	if got := (controller.Causes{}).String(); got != "" {
		t.Errorf("the text of no causes is %q, want an empty text", got)
	}
}

func TestCausesAreMergedAndBounded(t *testing.T) {
	t.Parallel()
	var all []controller.Cause
	for detail := range strings.FieldsSeq("1 2 3 4 5 6 7 8 9 1 10") {
		all = append(all, controller.Cause{Type: controller.CauseTriggered, Detail: detail})
	}
	causes := controller.NewCauses(all...)
	if list := causes.List(); len(list) != 8 || list[0].Count != 2 || list[1].Count != 1 || causes.FirstType() != controller.CauseTriggered {
		t.Errorf("the causes are %+v, the first of type %q", list, causes.FirstType())
	}
	if got, want := causes.String(), "triggered 2 times (1), triggered (2)"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, ", and 2 more") {
		t.Errorf("String is %q", got)
	}
}

func TestCausesAsJSON(t *testing.T) {
	t.Parallel()
	causes := controller.NewCauses(controller.Cause{Type: controller.CauseUpdated, Changed: kube.ChangedSpec | kube.ChangedLabels})
	encoded, err := json.Marshal(causes)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"List":[{"Type":"updated"`, `"Changed":"labels,spec"`, `"Dropped":0`} {
		if !strings.Contains(string(encoded), want) {
			t.Errorf("the causes as JSON lack %s: %s", want, encoded)
		}
	}
}
