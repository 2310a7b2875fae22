package prometheus

import (
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/retry"
)

// The label values that exist from the start, or at all. A test compares them with the constants.

func causeTypes() []controller.CauseType {
	return []controller.CauseType{
		controller.CauseListed, controller.CauseAdded, controller.CauseUpdated, controller.CauseDeleted,
		controller.CauseResync, controller.CauseRetry, controller.CauseRequeue, controller.CauseTimer,
		controller.CauseTriggered,
	}
}

func skipReasons() []controller.SkipReason {
	return []controller.SkipReason{controller.SkipPredicate, controller.SkipOwnWrite, controller.SkipTerminal}
}

// problemTypes returns the types that a controller counts: not those of informers and sources.
func problemTypes() []controller.ProblemType {
	return []controller.ProblemType{
		controller.ProblemHotLoop, controller.ProblemStuck, controller.ProblemStalled, controller.ProblemFailing,
		controller.ProblemQueueGrowing, controller.ProblemUnseenWrite, controller.ProblemInterrupted,
	}
}

func outcomes() []controller.Outcome {
	return []controller.Outcome{
		controller.OutcomeSuccess, controller.OutcomeRequeue, controller.OutcomeError, controller.OutcomeTimeout,
		controller.OutcomePanic, controller.OutcomeTerminal, controller.OutcomeCancelled, controller.OutcomeGone,
	}
}

func phases() []controller.Phase {
	return []controller.Phase{
		controller.PhaseStopped, controller.PhaseStandby, controller.PhaseSyncing, controller.PhaseRunning,
		controller.PhaseDraining,
	}
}

func classes() []retry.Class {
	return []retry.Class{
		retry.Terminal, retry.Panic, retry.Invalid, retry.Forbidden, retry.Default, retry.Timeout, retry.Throttled,
		retry.Transient, retry.Conflict, retry.NamespaceTerminating,
	}
}
