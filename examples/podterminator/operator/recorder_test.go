package operator

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/informer"
)

// outcomes is a Recorder that only records the outcomes of runs.
type outcomes struct{ seen *exampletest.Output }

func newOutcomes() *outcomes { return &outcomes{seen: exampletest.NewOutput()} }

func (o *outcomes) wait(t *testing.T, outcome controller.Outcome) {
	t.Helper()
	o.seen.Wait(t, string(outcome)+"\n")
}

func (o *outcomes) RunEnded(_ string, run controller.RunRecord) {
	_, _ = o.seen.Write([]byte(string(run.Outcome) + "\n"))
}

func (o *outcomes) ObserveController(string, func() controller.Stats) func() { return func() {} }
func (o *outcomes) ObserveInformer(string, func() informer.Health) func()    { return func() {} }
func (o *outcomes) Triggered(string, string, controller.CauseType)           {}
func (o *outcomes) Skipped(string, controller.SkipReason)                    {}
func (o *outcomes) ProblemDetected(string, controller.ProblemType)           {}
