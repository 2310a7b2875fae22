package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// endlessError wraps itself. Its Error method would never return.
type endlessError struct{ again error }

func (e *endlessError) Error() string { return "endless: " + e.again.Error() }
func (e *endlessError) Unwrap() error { return e.again }

// endlessListError wraps itself in a list of errors.
type endlessListError struct{}

func (e endlessListError) Error() string   { return "endless list" }
func (e endlessListError) Unwrap() []error { return []error{e, e} }

// panickingMethodsError is an error with methods that panic.
type panickingMethodsError struct{}

func (panickingMethodsError) Error() string { panic("Error panicked") }
func (panickingMethodsError) As(any) bool   { panic("As panicked") }
func (panickingMethodsError) Is(error) bool { panic("Is panicked") }

// panickingUnwrapError is an error with an Unwrap method that panics.
type panickingUnwrapError struct{}

func (panickingUnwrapError) Error() string { return "readable" }
func (panickingUnwrapError) Unwrap() error { panic("Unwrap panicked") }

func endless() error {
	e := &endlessError{}
	e.again = e
	return e
}

// misbehaving returns errors that a handler can return, and the text that the run's record must contain.
func misbehaving() map[string]struct {
	err     error
	outcome controller.Outcome
	text    string
} {
	type test = struct {
		err     error
		outcome controller.Outcome
		text    string
	}
	return map[string]test{
		"nil *StatusError":             {(*apierrors.StatusError)(nil), controller.OutcomeError, "a nil *errors.StatusError was returned as an error: return nil instead"},
		"nil *RequeueError":            {(*controller.RequeueError)(nil), controller.OutcomeError, "a nil *controller.RequeueError"},
		"nil *TerminalError":           {(*usercode.TerminalError)(nil), controller.OutcomeError, "a nil *usercode.TerminalError"},
		"nil *PanicError":              {(*usercode.HandlerPanicError)(nil), controller.OutcomeError, "a nil *usercode.HandlerPanicError"},
		"TerminalError of nil":         {&usercode.TerminalError{}, controller.OutcomeTerminal, "terminal"},
		"terminal nil *StatusError":    {controller.Terminal((*apierrors.StatusError)(nil)), controller.OutcomeTerminal, "terminal: a nil *errors.StatusError was returned as an error"},
		"Error panics":                 {panickingMethodsError{}, controller.OutcomeError, "controller_test.panickingMethodsError, whose Error method panicked: Error panicked"},
		"joined with one that panics":  {errors.Join(errors.New("a"), controller.Terminal(panickingMethodsError{})), controller.OutcomeError, "whose Error method panicked"},
		"Unwrap panics":                {panickingUnwrapError{}, controller.OutcomeError, "controller_test.panickingUnwrapError that"},
		"wraps itself":                 {endless(), controller.OutcomeError, "*controller_test.endlessError that wraps itself"},
		"wraps one that wraps itself":  {&usercode.TerminalError{Err: endless()}, controller.OutcomeError, "*usercode.TerminalError that wraps itself"},
		"lists itself":                 {endlessListError{}, controller.OutcomeError, "controller_test.endlessListError that wraps itself"},
		"panic with an endless error":  {nil, controller.OutcomePanic, "handler panicked: an error of type *controller_test.endlessError that wraps itself"},
		"panic with a panicking value": {nil, controller.OutcomePanic, "handler panicked: "},
	}
}

// TestContract08_MisbehavingErrorsFailOnlyTheirKey checks that an error with methods that panic or do not return ends
// neither the process nor a worker, in a handler, in a reconciler and in Config.Deleted.
func TestContract08_MisbehavingErrorsFailOnlyTheirKey(t *testing.T) {
	for name, test := range misbehaving() {
		fail := func() error {
			switch name {
			case "panic with an endless error":
				panic(test.err)
			case "panic with a panicking value":
				panic(panickingMethodsError{})
			}
			return test.err
		}
		if name == "panic with an endless error" {
			test.err = endless()
		}
		for _, kind := range []string{"Handler", "Reconciler", "Deleted"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					var logs, handled journal
					var told events
					c := w.config(func(_ context.Context, widget unstructuredObject) error {
						if widget.GetName() == "bad" && kind != "Deleted" {
							return fail()
						}
						handled.add("%s", widget.GetName())
						return nil
					})
					switch kind {
					case "Reconciler":
						c.Handler = nil
						c.Reconciler = func(_ context.Context, key kube.Key) error {
							if key.Name == "bad" {
								return fail()
							}
							handled.add("%s", key.Name)
							return nil
						}
					case "Deleted":
						c.Deleted = func(context.Context, unstructuredObject, bool) error { return fail() }
					}
					c.Workers, c.Events, c.Metrics = 1, &told, newRecorder()
					c.Logger = logs.logger(slog.LevelDebug)
					c.Retry = retry.Config{Every: retry.Policy{Base: time.Second, Jitter: -1, MaxRetries: 2}}
					w.put("widgets", "bad", 1)
					ctrl := w.run(c)
					synctest.Wait()
					if kind == "Deleted" {
						w.remove("widgets", "bad")
					}
					time.Sleep(time.Second / 2)
					run := ctrl.Explained(key("bad")).Runs[0]
					if run.Outcome != test.outcome || !strings.Contains(run.Error, test.text) {
						t.Errorf("the record says %s: %q, want %s: %q", run.Outcome, run.Error, test.outcome, test.text)
					}
					time.Sleep(time.Minute)
					w.put("widgets", "good", 1)
					synctest.Wait()
					if got := handled.take(); len(got) == 0 || got[len(got)-1] != "good" {
						t.Errorf("after it another key was not handled: %q", got)
					}
				})
			})
		}
	}
}

// TestContract30_ErrorTextsAreBounded checks that the memory and the output for an error do not depend on the length of
// its text.
func TestContract30_ErrorTextsAreBounded(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs journal
		var told events
		const size, keys = 1 << 20, 100
		long := func() string { return "begin" + strings.Repeat("x", size) + "end" }
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			switch widget.GetName()[0] {
			case 'p':
				panic(long())
			case 'r':
				return controller.RequeueAfter(time.Hour, long())
			case 't':
				return controller.Terminal(errors.New(long()))
			}
			return fmt.Errorf("%s: %w", long(), apierrors.NewInternalError(errors.New(long())))
		})
		c.Events = &told
		c.Logger = logs.logger(slog.LevelDebug)
		c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 1, Base: time.Second}}
		for i := range keys {
			w.put("widgets", fmt.Sprint(string("eprt"[i%4]), i), 1)
		}
		before := heap()
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		grown := heap() - before
		for _, run := range ctrl.RecentRuns() {
			if len(run.Error) > 3000 || len(run.NextReason) > 3000 {
				t.Fatalf("%s: the record has %d B of error, %d B of what follows", run.Key, len(run.Error), len(run.NextReason))
			}
			if run.Outcome == controller.OutcomeError && (!strings.HasPrefix(run.Error, "begin") || !strings.HasSuffix(run.Error, "end") || run.Class != retry.Transient) {
				t.Errorf("class %s, the text begins with %.20q", run.Class, run.Error)
			}
		}
		for _, key := range []string{"e0", "p1", "r2", "t3"} {
			if text := ctrl.Explain(kube.Key{Namespace: "ns", Name: key}); len(text) > 50_000 {
				t.Errorf("%s: the explanation has %d B", key, len(text))
			}
		}
		lines := logs.take()
		for _, line := range append(lines, told.take()...) {
			if len(line) > 10_000 {
				t.Fatalf("a line has %d B: %.200s", len(line), line)
			}
		}
		if grown > 8<<20 {
			t.Errorf("%d failing keys take %d MB", keys, grown>>20)
		}
		runtime.KeepAlive(ctrl)
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestLoggedFieldsAreBounded checks that the log text of an error is bounded, for any number of fields in the API
// server's response.
func TestLoggedFieldsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		var causes []metav1.StatusCause
		for n := range 20_000 {
			causes = append(causes, metav1.StatusCause{Field: fmt.Sprintf("spec.list[%d].value", n)})
		}
		c := config(newServer("a"), func(context.Context, configMap) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{Causes: causes}}}
		})
		c.Logger = logs.logger(slog.LevelWarn)
		start(t, newController(t, c))
		synctest.Wait()
		for _, line := range logs.take() {
			if len(line) > 10_000 {
				t.Errorf("a line of %d bytes: %.300s", len(line), line)
			}
		}
	})
}
