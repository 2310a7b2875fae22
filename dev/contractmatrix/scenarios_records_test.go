package contractmatrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
)

// changeCause is part of the cause of a change of the user's value.
func (x *cell) changeCause(name string) []string {
	switch {
	case x.conf.poll:
		return []string{"registry: updated (" + name + ")"}
	case x.conf.parts:
		return []string{"parts: Part " + x.key(name).String() + " updated", "by " + user}
	case x.conf.metadata:
		return []string{"updated (", "annotations", "by " + user}
	}
	return []string{"updated (", "spec", "by " + user}
}

func runsHaveCauses(x *cell) {
	x.put("a", "1")
	x.handler = func(_ context.Context, r *run) error {
		switch {
		case r.value == "fails" && r.attempt == 0:
			return x.failure()
		case r.value == "later" && !strings.Contains(r.causes, "requeue"):
			return controller.RequeueAfter(time.Minute, "to look again")
		}
		return nil
	}
	x.start()
	x.settle()
	x.take()
	expect := func(what string, causes ...[]string) {
		x.t.Helper()
		time.Sleep(2 * time.Minute)
		runs := of(x.take(), "a")
		if len(runs) != len(causes) {
			x.t.Errorf("%s: runs %v, want %d", what, runs, len(causes))
			return
		}
		for i, r := range runs {
			for _, part := range causes[i] {
				if !strings.Contains(r.causes, part) {
					x.t.Errorf("%s: the causes of run %d are %q, without %q", what, i, r.causes, part)
				}
			}
		}
	}
	x.set("a", "2")
	expect("a change", x.changeCause("a"))
	x.set("a", "fails")
	expect("a failure", x.changeCause("a"), []string{"retry 1 (error)"})
	x.set("a", "later")
	expect("a requeue", x.changeCause("a"), []string{"requeue (to look again)"})
}

func runsLeaveRecords(x *cell) {
	x.put("a", "1")
	x.handler = func(ctx context.Context, r *run) error {
		if r.value != "writes" || strings.Contains(r.causes, "requeue") || r.note != "" {
			return nil
		}
		if err := r.write(ctx, "noted"); err != nil {
			return err
		}
		return controller.RequeueAfter(time.Hour, "to look again")
	}
	x.start()
	x.settle()
	x.set("a", "writes")
	x.settle()
	p := x.leading()
	runs := slices.DeleteFunc(p.runsOf(x.key("a")), func(r controller.RunRecord) bool { return r.Writes == 0 })
	if len(runs) != 1 {
		x.t.Fatalf("%d runs that wrote are recorded, want one", len(runs))
	}
	r := runs[0]
	kind := "Widget"
	if x.conf.parts {
		kind = "Part"
	}
	text := p.runner.Explain(x.key("a"))
	if n := x.conf.calls(); r.Calls != n || !strings.Contains(text, fmt.Sprintf("patch %s %s: done (resource version", kind, x.key("a"))) {
		x.t.Errorf("%d calls, want %d\n%s", r.Calls, n, text)
	}
	for _, part := range x.changeCause("a") {
		if !strings.Contains(r.Causes.String(), part) {
			x.t.Errorf("the record's causes are %q, without %q", r.Causes, part)
		}
	}
	if r.Outcome != controller.OutcomeRequeue || r.NextReason != "as the handler asked (to look again)" || r.NextRun.Sub(r.Started).Round(time.Minute) != time.Hour {
		x.t.Errorf("run %+v", r)
	}
	if !x.conf.reconciler && !x.conf.noObject && (r.UID == "" || r.Generation == 0) {
		x.t.Errorf("the record has the uid %q and the generation %d", r.UID, r.Generation)
	}
	if runs := p.runner.RecentRuns(); len(runs) == 0 || runs[0].Started.Before(runs[len(runs)-1].Started) {
		x.t.Errorf("the latest runs are not in order: %v", runs)
	}
}

func ownWritesDoNotWake(x *cell) {
	x.put("a", "1")
	var mu sync.Mutex
	foreign := false
	x.handler = func(ctx context.Context, r *run) error {
		if strings.HasPrefix(r.note, r.value) || x.conf.poll && r.obj.GetAnnotations()[noteAnnotation] == r.value {
			return nil
		}
		mu.Lock()
		disturb := foreign
		foreign = false
		mu.Unlock()
		if disturb {
			x.setCarrier("a", "foreign")
		}
		return r.write(ctx, r.value)
	}
	x.start()
	x.settle()
	for i := range 4 {
		x.take()
		x.set("a", fmt.Sprint("own-", i))
		time.Sleep(5 * time.Minute)
		most := 1
		if x.conf.showsPartsOfObjects() {
			most = 2 // a part of an object does not prove that nobody changed the rest: decision 6
		}
		if runs := of(x.take(), "a"); len(runs) < 1 || len(runs) > most {
			x.t.Errorf("change %d: %d runs, want the one that writes: %v", i, len(runs), runs)
		}
	}
	mu.Lock()
	foreign = true
	mu.Unlock()
	x.set("a", "own-4")
	time.Sleep(5 * time.Minute)
	if runs := of(x.take(), "a"); len(runs) < 2 || !x.conf.poll && !slices.ContainsFunc(runs, func(r *run) bool { return r.value == "foreign" }) {
		x.t.Errorf("a change by another client just before the own write: runs %v", runs)
	}
}

func stalenessIsKnown(x *cell) {
	x.put("a", "1")
	x.start()
	x.settle()
	p := x.leading()
	x.serverOf(x.carrier()).HoldWatches(x.carrier())
	time.Sleep(50 * time.Second)
	if s := p.carrierHealth().Staleness; s < 50*time.Second || s > 2*time.Minute {
		x.t.Errorf("after 50 s without anything from the API server: stale by %s", s)
	}
	x.serverOf(x.carrier()).ReleaseWatches(x.carrier())
	time.Sleep(10 * time.Minute)
	// The server ends a watch after 30 to 60 minutes; the next one begins after a pause, and gets its first bookmark a minute
	// later.
	if s := p.carrierHealth().Staleness; s > time.Minute+5*time.Second {
		x.t.Errorf("with a bookmark every minute: stale by %s", s)
	}
}

// eventLog is a controller.EventRecorder.
type eventLog struct{ lines }

func (e *eventLog) Event(regarding corev1.ObjectReference, eventType, reason, _, note string) {
	e.add("%s %s/%s %s %s: %s", eventType, regarding.Kind, regarding.Name, regarding.UID, reason, note)
}

func problemIsAnEventOnce(x *cell) {
	x.put("a", "1")
	var told eventLog
	x.settings.events = &told
	x.settings.retry.Every.MaxRetries = 2
	x.handler = func(_ context.Context, r *run) error {
		if strings.HasPrefix(r.value, "fails") {
			return x.failure()
		}
		return nil
	}
	x.start()
	x.settle()
	told.take()
	expect := func(what string, want int) {
		x.t.Helper()
		time.Sleep(20 * time.Minute)
		uid := string(x.server.Object("widgets", x.key("a")).GetUID())
		events := with(told.take(), "Warning Widget/a ", " Stalled: ")
		if len(events) != want || want > 0 && !strings.Contains(events[0], uid) {
			x.t.Errorf("%s made the Events %q, want %d about the object with %s", what, events, want, uid)
		}
	}
	x.set("a", "fails-1")
	expect("the first failures", 1)
	x.setOwn("a", "fails-2")
	expect("failures of the same episode", 0)
	x.mend("a", "works")
	expect("success", 0)
	x.set("a", "fails-3")
	expect("the next failures", 1)
}

func silentWatchIsNamed(x *cell) {
	x.put("a", "1")
	x.start()
	x.settle()
	x.take()
	x.serverOf(x.carrier()).HoldWatches(x.carrier())
	x.setCarrier("a", "2")
	p := x.leading()
	var ready error
	for began := time.Now(); ready == nil && time.Since(began) < 15*time.Minute; time.Sleep(time.Second) {
		ready = p.ready()
	}
	if !errors.Is(ready, cache.ErrSilentWatch) {
		x.t.Errorf("Ready: %v, want it to name the silent watch", ready)
	}
	time.Sleep(time.Minute)
	if runs := of(x.take(), "a"); len(runs) != 1 || !x.conf.poll && runs[0].value != "2" {
		x.t.Errorf("behind a silent watch: runs %v, want one with the value", runs)
	}
	x.serverOf(x.carrier()).ReleaseWatches(x.carrier())
	x.setCarrier("a", "3")
	time.Sleep(5 * time.Minute)
	if err := p.ready(); err != nil {
		x.t.Errorf("when the watch brings something again: %v", err)
	}
}

func logLinesOfRuns(x *cell) {
	x.put("a", "1")
	x.handler = func(ctx context.Context, r *run) error {
		controller.LoggerFrom(ctx).Info("the handler speaks")
		if r.value == "fails" {
			return errors.New("no luck")
		}
		return nil
	}
	x.start()
	x.settle()
	x.take()
	x.logs.take()
	x.set("a", "fails")
	time.Sleep(10 * time.Second)
	logged := x.logs.take()
	key := "run.key=" + x.key("a").String()
	runs := of(x.take(), "a")
	if spoken := with(logged, "the handler speaks", "controller=widgets", key, "run.id="); len(spoken) != len(runs) || len(runs) < 5 {
		x.t.Errorf("%d lines of a handler that ran %d times", len(spoken), len(runs))
	}
	if handled := with(logged, "level=DEBUG", "msg=handled", x.key("a").String()); len(handled) != len(runs) {
		x.t.Errorf("%d lines of %d runs", len(handled), len(runs))
	}
	if warned := with(logged, "level=WARN", "will try again", x.key("a").String()); len(warned) < 1 || len(warned) > 11 {
		x.t.Errorf("the same error is logged %d times in 10 s and %d runs", len(warned), len(runs))
	}
	x.mend("a", "works")
	time.Sleep(20 * time.Minute)
	if recovered := with(x.logs.take(), "level=INFO", "handler recovered", x.key("a").String()); len(recovered) != 1 {
		x.t.Errorf("the handler's success after failures is logged %d times: %q", len(recovered), recovered)
	}
}

// spans is a middleware.Tracer, and each of its spans.
type spans struct{ lines }

func (s *spans) Start(ctx context.Context, run controller.RunRecord, _ kube.Object) (context.Context, middleware.Span) {
	s.add("begin %s: %s", run.Key, run.Causes)
	return ctx, s
}

func (s *spans) TraceID() string { return "4bf92f35" }

func (s *spans) CallBegan(ctx context.Context, _ kube.Call) context.Context { return ctx }

func (s *spans) CallEnded(_ context.Context, call kube.Call) {
	s.add("%s %s: %d", call.Verb, call.Key, call.Status)
}

func (s *spans) End(_ context.Context, err error) { s.add("end: %t", err == nil) }

func tracesHaveRuns(x *cell) {
	x.put("a", "1")
	var traced spans
	x.settings.tracer = &traced
	x.handler = func(ctx context.Context, r *run) error {
		if r.value == "writes" && r.note == "" {
			return r.write(ctx, "noted")
		}
		return nil
	}
	x.start()
	x.settle()
	traced.take()
	x.set("a", "writes")
	x.settle()
	got := traced.take()
	key := x.key("a").String()
	if begun := with(got, append(x.changeCause("a"), "begin "+key)...); len(begun) != 1 {
		x.t.Errorf("the trace does not have the run and its causes: %q", got)
	}
	if calls := with(got, "patch "+key+": 200"); len(calls) != x.conf.calls() {
		x.t.Errorf("the trace does not have the call: %q", got)
	}
	if id := x.leading().runsOf(x.key("a"))[0].TraceID; id != "4bf92f35" {
		x.t.Errorf("the record has the trace %q", id)
	}
}

// labelLog is a controller.Recorder that collects the values of labels.
type labelLog struct {
	mu     sync.Mutex
	values map[string]bool // guarded by mu
}

func (l *labelLog) add(label, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values[label+"="+value] = true
}

func (l *labelLog) ObserveInformer(string, func() informer.Health) func() { return func() {} }

func (l *labelLog) ObserveController(string, func() controller.Stats) func() { return func() {} }

func (l *labelLog) Triggered(_, source string, cause controller.CauseType) {
	l.add("source", source)
	l.add("cause", string(cause))
}

func (l *labelLog) Skipped(_ string, why controller.SkipReason) { l.add("skip", string(why)) }

func (l *labelLog) ProblemDetected(_ string, problem controller.ProblemType) {
	l.add("problem", string(problem))
}

func (l *labelLog) RunEnded(_ string, run controller.RunRecord) {
	l.add("outcome", string(run.Outcome))
	l.add("class", string(run.Class))
}

func labelsAreFew(x *cell) {
	all := names(30)
	for _, name := range all {
		x.put(name, "1")
	}
	labels := &labelLog{values: map[string]bool{}}
	x.settings.metrics = labels
	x.handler = func(_ context.Context, r *run) error {
		if r.attempt == 0 {
			return x.failure()
		}
		return controller.RequeueAfter(time.Hour, "because of "+r.name)
	}
	x.start()
	for i, name := range all {
		x.set(name, fmt.Sprint(i))
		time.Sleep(time.Second)
	}
	x.settle()
	x.upset()
	x.settle()
	labels.mu.Lock()
	defer labels.mu.Unlock()
	if len(labels.values) > 40 {
		x.t.Errorf("%d values of labels", len(labels.values))
	}
	for value := range labels.values {
		for _, name := range all[10:] { // "w1" may be part of something else
			if strings.Contains(value, name) {
				x.t.Errorf("the value %q of a label has the name of an object", value)
			}
		}
	}
}

func recordsAreBounded(x *cell) {
	all := names(260)
	for _, name := range all {
		x.put(name, "1")
	}
	x.settings.workers = 10
	x.start()
	x.settle()
	for i := range 10 {
		x.set("w0", fmt.Sprint("again-", i))
		time.Sleep(15 * time.Second)
	}
	synctest.Wait()
	p := x.leading()
	if n := len(p.runner.RecentRuns()); n > 256 {
		x.t.Errorf("%d runs are kept", n)
	}
	if text := p.runner.Explain(x.key("w0")); strings.Count(text, " ago run ") == 0 || strings.Count(text, " ago run ") > 4 {
		x.t.Errorf("not 1 to 4 runs of one key are kept\n%s", text)
	}
	if s := p.runner.Stats(); !x.conf.errors && (s.Ready != 0 || s.Delayed != 0 || s.Held != 0 || s.Backoff != 0) {
		x.t.Errorf("at rest the queue has %+v", s)
	}
}

// runsOf returns the runs of a key, latest first.
func (p *process) runsOf(key kube.Key) []controller.RunRecord {
	return slices.DeleteFunc(p.runner.RecentRuns(), func(r controller.RunRecord) bool { return r.Key != key })
}
