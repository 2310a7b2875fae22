package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// maxEntries is the number of runs and skips in an explanation's text.
const maxEntries = 12

// String returns the text of Controller.Explain. Times are relative to now.
func (e explanation) String() string {
	now := time.Now()
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	line("%s %s", e.Key, e.state(now))
	if e.NotReady != "" && e.Phase != PhaseStopped && e.Phase != PhaseDraining {
		line("  %s", strings.ReplaceAll(e.NotReady, "\n", "\n  "))
	}
	switch {
	case e.Exists || !e.works():
	case e.Retrieves == "":
		line("  no source lists it: there are no resyncs")
	default:
		line("  not in the cache, which selects: %s", e.Retrieves)
	}
	switch {
	case e.Failures == 1:
		line("  failed, %s: %s", ago(e.FailingSince, now), e.LastError)
	case e.Failures > 1:
		line("  failed %d times in a row, for %s: %s", e.Failures, rounded(now.Sub(e.FailingSince)), e.LastError)
	}
	for _, write := range e.Unseen {
		line("  its informer does not show this write yet: %s", write)
	}
	for _, t := range e.Problems {
		line("  %s", strings.ReplaceAll(t.text(), "\n", "\n  "))
	}
	happened := e.timeline(now)
	for _, entry := range happened[:min(len(happened), maxEntries)] {
		line("  %s", entry)
	}
	if more := len(happened) - maxEntries; more > 0 {
		line("  and %d more before", more)
	}
	return s.String()
}

// state returns the state of the key, as the rest of a sentence that starts with the key.
func (e explanation) state(now time.Time) string {
	switch {
	case e.Phase == PhaseStandby:
		return "does not run: the controller is a standby, another process leads"
	case !e.works():
		return "does not run: the controller is " + string(e.Phase)
	case e.Queued == nil && len(e.WaitingForRoom.List()) > 0:
		return fmt.Sprintf("waits for room in the queue: %s\n  busy workers: %d of %d; ready keys: %d; keys that "+
			"wait for room: %d",
			e.WaitingForRoom, e.Stats.Processing, e.Stats.Workers, e.Stats.Ready, e.Stats.WaitingForRoom)
	case e.Queued == nil:
		return "is idle" + e.nextRunText()
	}
	left, since := rounded(e.Queued.Due.Sub(now)), rounded(now.Sub(e.Queued.Due))
	switch workqueue.KeyState(e.Queued.State) {
	case workqueue.Processing:
		return fmt.Sprintf("is running, for %s so far: %s", rounded(now.Sub(e.started(now))), e.Queued.Causes)
	case workqueue.ProcessingAgain:
		return fmt.Sprintf("is running, for %s so far, and will run again: %s", rounded(now.Sub(e.started(now))),
			e.Queued.Causes)
	case workqueue.Ready:
		return fmt.Sprintf("has been ready for %s: %s\n  busy workers: %d of %d; ready keys: %d, the first for %s",
			since, e.Queued.Causes, e.Stats.Processing, e.Stats.Workers, e.Stats.Ready, rounded(e.Stats.OldestWait))
	case workqueue.Held:
		if slices.ContainsFunc(e.Problems, func(t Problem) bool { return t.Type == ProblemInterrupted }) {
			return fmt.Sprintf("is held back until other keys have run: %s", e.Queued.Causes)
		}
		return fmt.Sprintf("is held back for at most %s more: %s", left, e.Queued.Causes)
	case workqueue.Backoff:
		return fmt.Sprintf("is in backoff for %s: %s", left, e.Queued.Causes)
	case workqueue.Delayed:
		return fmt.Sprintf("runs in %s: %s", left, e.Queued.Causes)
	}
	return fmt.Sprintf("is %s: %s", e.Queued.State, e.Queued.Causes)
}

// works reports whether the controller is running or draining: only then are its objects known.
func (e explanation) works() bool { return e.Phase == PhaseRunning || e.Phase == PhaseDraining }

// nextRunText returns what makes a key run that is not in the queue.
func (e explanation) nextRunText() string {
	switch {
	case !e.Exists && e.Retrieves != "":
		return ""
	case len(e.Runs) == 0:
		return ": no runs are recorded"
	}
	return "; next run " + e.Runs[0].NextReason
}

// started returns when the current run started.
func (e explanation) started(now time.Time) time.Time {
	if len(e.Runs) == 0 {
		return now
	}
	return e.Runs[0].Started
}

// timeline returns the runs and skips, latest first.
func (e explanation) timeline(now time.Time) []string {
	type entry struct {
		at    time.Time
		text  string
		count int
	}
	var all []entry
	for _, skip := range e.Skipped {
		all = append(all, entry{skip.Time, fmt.Sprintf("skipped (%s): %s", skip.Why, skip.Cause), 1})
	}
	for _, r := range e.Runs {
		all = append(all, entry{r.Started, r.details(), 1})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return b.at.Compare(a.at) })
	var texts []string
	for i, m := range all {
		if i+1 < len(all) && all[i+1].text == m.text { // merge equal entries
			all[i+1].count += m.count
			all[i+1].at = m.at
			continue
		}
		if m.count > 1 {
			m.text += fmt.Sprintf(", %d times", m.count)
		}
		texts = append(texts, ago(m.at, now)+" "+m.text)
	}
	return texts
}

// details returns the run as a paragraph: its line, its writes, and what follows.
func (r RunRecord) details() string {
	var s strings.Builder
	fmt.Fprintf(&s, "run %d: %s", r.ID, r.summary())
	for _, w := range r.writes {
		fmt.Fprintf(&s, "\n    %s", w)
	}
	if r.writesDropped > 0 {
		fmt.Fprintf(&s, "\n    and %d more", r.writesDropped)
	}
	if r.NextReason != "" {
		fmt.Fprintf(&s, "\n    next: %s", nextRun{r.NextRun, r.NextReason}.after(r.Started.Add(r.Duration)))
	}
	return s.String()
}

// String returns the run in one line.
func (r RunRecord) String() string { return fmt.Sprintf("run %d of %s: %s", r.ID, r.Key, r.summary()) }

// Shorter times are not shown.
const (
	minWaitShown      = 100 * time.Millisecond
	minDecodeShown    = 10 * time.Millisecond
	minCallTimeShown  = 100 * time.Millisecond
	minStalenessShown = 2 * time.Minute // bookmarks come each minute
)

// summary returns the causes of the run, its outcome, and where the time went if the run was slow.
func (r RunRecord) summary() string {
	var s strings.Builder
	s.WriteString(r.Causes.String())
	if r.Attempt > 0 {
		fmt.Fprintf(&s, ", attempt %d", r.Attempt+1)
	}
	switch {
	case r.Wait-r.Held < minWaitShown && r.Held >= minWaitShown:
		fmt.Fprintf(&s, ", held back for %s", rounded(r.Held))
	case r.Held >= minWaitShown:
		fmt.Fprintf(&s, ", waited %s (held back for %s of it)", rounded(r.Wait), rounded(r.Held))
	case r.Wait >= minWaitShown:
		fmt.Fprintf(&s, ", waited %s", rounded(r.Wait))
	}
	if r.Staleness >= minStalenessShown {
		fmt.Fprintf(&s, ", the cache %s old", rounded(r.Staleness))
	}
	s.WriteString(" -> ")
	if r.Outcome == "" {
		s.WriteString("running")
		return s.String() + r.timeBreakdown()
	}
	fmt.Fprintf(&s, "%s in %s%s", r.Outcome, rounded(r.Duration), r.timeBreakdown())
	if n := len(r.writes) + r.writesDropped; n > 0 {
		fmt.Fprintf(&s, ", %s", counted(n, "write"))
	}
	if r.Error != "" {
		fmt.Fprintf(&s, ": %s", r.Error)
	}
	return s.String()
}

// timeBreakdown returns the parts of the run's time that were not spent in the handler's own code.
func (r RunRecord) timeBreakdown() string {
	var parts []string
	if r.Decode >= minDecodeShown {
		parts = append(parts, fmt.Sprintf("decoding took %s", rounded(r.Decode)))
	}
	if r.callTime >= minCallTimeShown {
		parts = append(parts, fmt.Sprintf("%s took %s", counted(r.Calls, "call"), rounded(r.callTime)))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// after returns what follows a run that ended at the given time.
func (n nextRun) after(ended time.Time) string {
	if n.at.IsZero() {
		return n.why
	}
	return fmt.Sprintf("in %s, %s", rounded(n.at.Sub(ended)), n.why)
}

// String returns the problem as text: a sentence, and a line per detail.
func (t Problem) String() string {
	if t.Key == (kube.Key{}) {
		return t.text()
	}
	return t.Key.String() + " " + t.text()
}

func (t Problem) text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "problem (%s): %s", t.Type, t.Message)
	for _, d := range t.Details {
		fmt.Fprintf(&s, "\n  %s: %s", d.Key, strings.ReplaceAll(strings.TrimSpace(d.Value.String()), "\n", "\n    "))
	}
	return s.String()
}

func ago(t, now time.Time) string { return rounded(now.Sub(t)) + " ago" }

// rounded returns d as text with about three digits.
func rounded(d time.Duration) string {
	unit := time.Microsecond
	switch d = d.Abs(); {
	case d >= time.Hour:
		unit = time.Minute
	case d >= time.Minute:
		unit = time.Second
	case d >= 10*time.Second:
		unit = 100 * time.Millisecond
	case d >= time.Second:
		unit = 10 * time.Millisecond
	case d >= 10*time.Millisecond:
		unit = time.Millisecond
	}
	text := d.Round(unit).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// counted returns "1 write" or "2 writes".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func waits(keys int) string {
	return cmp.Or(map[int]string{1: "1 key is ready"}[keys], fmt.Sprintf("%d keys are ready", keys))
}
