package contractmatrix

const (
	toolkit  = "the helpers of the toolkit do not see how a controller is configured; `dev/integration/toolkit` and `dev/integration/owned` test them on API servers with server-side apply"
	noObject = "there is no object; `New` refuses the field of `Config`"
	getsKeys = "`middleware.Status` needs the object; a Reconciler gets its key"
)

// contracts returns the rows of the matrix, one for each contract of docs/reference/contracts.md.
func contracts() []contract {
	return []contract{
		{number: 1, scenario: oneKeyAtOnce, tests: "four workers, six objects that change all the time: no object is handled twice at once, by any process; different ones are"},
		{number: 2, scenario: lastChangeHandled, tests: "changes at random with handlers that fail, panic and requeue, while watches and lists fail: the last value of each object is handled"},
		{
			number: 3, scenario: listedOnceThenResynced, tests: "each object is handled once at the start (of a term), then once in each resync interval",
		},
		{number: 4, scenario: successResetsAndDrain, tests: "after failures and a success the next failure counts from 0; a stop lets the handler finish within the drain time"},
		{number: 5, scenario: runEndsLast, tests: "`Run` returns after a handler and a source that are slow to end, with no watch open"},
		{number: 6, scenario: lossCancelsAndRefuses, tests: "under an elector that loses its lease: handlers are cancelled with the cause, and their writes are refused"},
		{number: 7, scenario: ownWritesAreSeen, tests: "watches that lag behind a handler's writes: no run reads a state older than the write of the run before"},
		{number: 8, scenario: panicIsAnErrorOfItsKey, tests: "a handler panics: its key is retried, others continue, the stack is logged once"},
		{number: 9, scenario: forbiddenIsNamed, tests: "the API server forbids to list: readiness and the log name the kind within seconds, and it recovers"},
		{number: 10, scenario: reconnectHandlesNothing, tests: "watches that break, with and without their history: objects that did not change are not handled"},
		{number: 11, scenario: runsHaveCauses, tests: "a change, a retry and a requeue: each run has its causes with source, object, class of change, manager and reason"},
		{number: 12, scenario: runsLeaveRecords, tests: "a run that writes and requests another run: the record has causes, the write with its outcome, and the next run"},
		{number: 13, scenario: ownWritesDoNotWake, tests: "a handler's write does not make it run again; a change by another client just before that write does (an informer of metadata only, or with a Transform, cannot prove the former, and allows one more run)"},
		{number: 14, scenario: deletionsMeanOneObject, tests: "a handler deletes an object that was replaced meanwhile: the other one stays"},
		{number: 15, scenario: stalenessIsKnown, tests: "a watch delivers nothing for 50 s: the informer reports how old its content may be"},
		{number: 16, scenario: queueHasAKeyOnce, tests: "20 changes while the only worker is busy: one run, with the last value"},
		{number: 17, scenario: failuresHaveAnEnd, tests: "a terminal error and the last retry end the runs; another object of the same name begins anew; a change ends the problem"},
		{
			number: 18, scenario: problemIsAnEventOnce, tests: "a stalled key is an Event about its object, once per episode",
			except: map[string]string{"noobject": noObject},
		},
		{number: 19, scenario: hotLoopIsNamed, tests: "two clients fight over a field: it is named with both managers, an Event once, and slowed (with an informer of metadata only, or with a Transform, which does not show the fields of the API server: a handler that its own writes run again)"},
		{number: 20, scenario: stuckHandlerIsReplaced, tests: "the only worker's handler does not return: its stack is logged once, another worker takes its place, readiness names it"},
		{number: 21, scenario: endlessFailuresAreReported, tests: "a key that fails for hours is reported once, until it succeeds"},
		{number: 22, scenario: silentWatchIsNamed, tests: "a watch is open and delivers nothing: readiness names it, and a list finds the change"},
		{number: 23, scenario: timersBelongToObjects, tests: "timers fire although other runs happen; those of objects that are deleted or replaced do not"},
		{number: 24, scenario: pollsFindChanges, tests: "a `poll.New` beside the configuration's own sources: items that are added, updated, removed; polls that fail"},
		{
			number: 25, scenario: deletedGetsTheLastState, tests: "`Config.Deleted` gets the last state, from watches and lists, again after an error, and before another object of the name is handled",
			except: map[string]string{"noobject": noObject},
		},
		{number: 26, scenario: logLinesOfRuns, tests: "a debug line for each run, at most one warning a second for one error, and a line when it recovers"},
		{number: 27, scenario: tracesHaveRuns, tests: "a trace has the run, its causes and its calls, and the record has the trace"},
		{number: 28, scenario: labelsAreFew, tests: "failures and requeues of 30 objects: no label of a metric has an object's name as its value"},
		{number: 29, scenario: resyncsAreSpread, tests: "the resyncs of 40 objects are spread over the interval; a failing object is left to its retries"},
		{number: 30, scenario: recordsAreBounded, tests: "260 objects: at most 256 runs are kept, four of each key, and the idle queue is empty"},
		{
			number: 31, scenario: toolkitAtRest, tests: "a handler reads through a client with the controller's informers, and ensures a finalizer and a label, after faults of every kind: a run makes no request",
			except: map[string]string{"transform": "a client reads from the API server instead of an informer with a Transform"},
		},
		{number: 32, because: toolkit},
		{number: 33, scenario: foreignEntriesStay, tests: "another client changes finalizers and annotations that the informer does not show yet: a handler that adds and removes its own finalizer loses none of them"},
		{
			number: 34, scenario: statusIsWrittenOnce, tests: "`middleware.Status` writes the status after a success, a failure, a requeue and a panic, and only when it differs",
			except: map[string]string{
				"reconciler": getsKeys,
				"noobject":   getsKeys,
				"metadata":   "objects of metadata have no status",
			},
		},
		{number: 35, scenario: teardownGoesOn, tests: "a process is killed between two steps of the teardowns of three objects: another one continues, and only the interrupted step runs twice"},
	}
}
