package controller

import (
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// debugKeys is the number of queue entries that Debug returns.
const debugKeys = 100

// debugState is the JSON of Debug without a key.
type debugState struct {
	Phase        string         `json:"phase"`
	NotReady     string         `json:"notReady,omitempty"`
	Workers      int            `json:"workers"`
	Queue        debugQueue     `json:"queue"`
	Failing      int            `json:"failing"`
	FailingSince *time.Time     `json:"failingSince,omitempty"`
	Keys         []debugKey     `json:"keys"`
	Problems     []debugProblem `json:"problems"`
	Runs         []debugRun     `json:"runs"`
	Informers    []any          `json:"informers"`
}

type debugQueue struct {
	Ready          int    `json:"ready"`
	OldestWait     string `json:"oldestWait"`
	Processing     int    `json:"processing"`
	Delayed        int    `json:"delayed"`
	Backoff        int    `json:"backoff"`
	Held           int    `json:"held"`
	WaitingForRoom int    `json:"waitingForRoom"`
}

type debugKey struct {
	Key    string    `json:"key"`
	State  string    `json:"state"`
	Due    time.Time `json:"due"`
	Causes string    `json:"causes"`
}

type debugProblem struct {
	Type    ProblemType       `json:"type"`
	Key     string            `json:"key,omitempty"`
	Since   *time.Time        `json:"since,omitempty"`
	Message string            `json:"message"`
	Details map[string]string `json:"details,omitempty"`
}

type debugRun struct {
	ID       uint64     `json:"id"`
	Key      string     `json:"key"`
	Started  time.Time  `json:"started"`
	Causes   string     `json:"causes"`
	Attempt  int        `json:"attempt,omitempty"`
	Wait     string     `json:"wait"`
	Held     string     `json:"held,omitempty"`
	Outcome  Outcome    `json:"outcome,omitempty"`
	Duration string     `json:"duration,omitempty"`
	Error    string     `json:"error,omitempty"`
	Writes   []string   `json:"writes,omitempty"`
	Next     string     `json:"next,omitempty"`
	NextRun  *time.Time `json:"nextRun,omitempty"`
	TraceID  string     `json:"traceID,omitempty"`
}

// debugExplanation is the JSON of Debug with a key.
type debugExplanation struct {
	Key         string         `json:"key"`
	Explanation []string       `json:"explanation"`
	Exists      bool           `json:"exists"`
	Failures    int            `json:"failures,omitempty"`
	LastError   string         `json:"lastError,omitempty"`
	Problems    []debugProblem `json:"problems"`
	Runs        []debugRun     `json:"runs"`
}

// Debug returns the state of the controller as a value for encoding/json: queue, problems, recent runs, informers. If
// key is not empty, it returns the state of that key instead, with the lines of Explain. A key that is not
// NAMESPACE/NAME or NAME is an error, except for NoObject. package manager serves it. No value of a Secret is in it;
// errors of handlers are.
func (c *Controller[T]) Debug(key string) (any, error) {
	if key != "" {
		k, err := c.primary.parseKey(key)
		if err != nil {
			return nil, err
		}
		e := c.explain(k)
		return debugExplanation{
			Key: k.String(), Explanation: strings.Split(strings.TrimSuffix(e.String(), "\n"), "\n"), Exists: e.Exists,
			Failures: e.Failures, LastError: e.LastError, Problems: debugProblems(e.Problems), Runs: debugRuns(e.Runs),
		}, nil
	}
	stats := c.Stats()
	state := debugState{
		Phase: string(stats.Phase), Workers: stats.Workers,
		Queue: debugQueue{
			Ready: stats.Ready, OldestWait: stats.OldestWait.String(), Processing: stats.Processing,
			Delayed: stats.Delayed,
			Backoff: stats.Backoff, Held: stats.Held, WaitingForRoom: stats.WaitingForRoom,
		},
		Failing: stats.Failing, FailingSince: timeOrNil(stats.FailingSince),
		Keys: []debugKey{}, Problems: debugProblems(c.Problems()), Runs: debugRuns(c.RecentRuns()),
		Informers: []any{},
	}
	if err := c.Ready(); err != nil {
		state.NotReady = err.Error()
	}
	for _, e := range c.queued(debugKeys) {
		state.Keys = append(state.Keys, debugKey{
			Key: e.Key.String(), State: e.State, Due: e.Due,
			Causes: e.Causes.String(),
		})
	}
	var listed []informer.Any
	for _, read := range c.reads() {
		if !slices.Contains(listed, read) { // several sources may share one
			listed = append(listed, read)
			state.Informers = append(state.Informers, cache.Of(read).Debug())
		}
	}
	return state, nil
}

func debugProblems(problems []Problem) []debugProblem {
	all := []debugProblem{}
	for _, p := range problems {
		d := debugProblem{Type: p.Type, Since: timeOrNil(p.Since), Message: p.Message}
		if p.Key != (kube.Key{}) {
			d.Key = p.Key.String()
		}
		for _, detail := range p.Details {
			if d.Details == nil {
				d.Details = map[string]string{}
			}
			d.Details[detail.Key] = detail.Value.String()
		}
		all = append(all, d)
	}
	return all
}

func debugRuns(runs []RunRecord) []debugRun {
	all := []debugRun{}
	for _, r := range runs {
		d := debugRun{
			ID: r.ID, Key: r.Key.String(), Started: r.Started, Causes: r.Causes.String(), Attempt: r.Attempt,
			Wait:    r.Wait.String(),
			Outcome: r.Outcome, Error: r.Error, Next: r.NextReason, NextRun: timeOrNil(r.NextRun), TraceID: r.TraceID,
		}
		if r.Held > 0 {
			d.Held = r.Held.String()
		}
		if r.Outcome != "" {
			d.Duration = r.Duration.String()
		}
		for _, w := range r.writes {
			d.Writes = append(d.Writes, w.String())
		}
		all = append(all, d)
	}
	return all
}

// timeOrNil returns nil for the zero time, which JSON then leaves out.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
