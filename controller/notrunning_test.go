package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
)

// TestHandlerReadsStoppedInformer checks a handler that reads an informer that is not running. Its runs fail,
// and the log and the run's record name the informer at once. After ten minutes, a problem names it. Ready returns nil,
// because the controller cannot detect which informers a handler reads. When the informer is started, the retries
// succeed.
func TestHandlerReadsStoppedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherInformer, err := informer.New(informer.Config[configMap]{Name: "others", Retriever: newServer("x"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var logs journal
		c := config(newServer("a"), func(context.Context, configMap) error {
			_, found, err := otherInformer.Get(key("x"))
			if err == nil && !found {
				t.Error("an object of an informer that nobody runs counts as not found")
			}
			return err
		})
		c.Logger = logs.logger(slog.LevelWarn)
		ctrl := newController(t, c)
		start(t, ctrl)
		named := func(where, text string) {
			t.Helper()
			for _, want := range []string{`"others"`, "the informer does not run", "Reads"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s has no %s: %s", where, want, text)
				}
			}
		}
		time.Sleep(time.Second)
		named("the log after a second", strings.ReplaceAll(strings.Join(logs.take(), "\n"), `\"`, `"`))
		if runs := ctrl.RecentRuns(); len(runs) == 0 || runs[0].Outcome != controller.OutcomeError {
			t.Errorf("the runs are %+v", runs)
		} else {
			named("the record of the run", runs[0].Error)
		}
		named("Explain", ctrl.Explain(key("a")))
		if err := ctrl.Ready(); err != nil {
			t.Errorf("Ready: %v, want nil: keys that fail are problems", err)
		}

		time.Sleep(30 * time.Minute)
		if problems := ctrl.Problems(); len(problems) != 1 || problems[0].Type != controller.ProblemFailing {
			t.Errorf("problems after half an hour: %v", problems)
		} else {
			named("the problem", problems[0].String())
		}

		running, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- otherInformer.Run(running) }() // waited for below
		time.Sleep(20 * time.Minute)                        // longer than any backoff
		if problems := ctrl.Problems(); len(problems) != 0 || ctrl.Stats().Failing != 0 {
			t.Errorf("somebody runs the informer: problems %v, %+v", problems, ctrl.Stats())
		}
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
