package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// sampling is the interval of the watchdog's checks, unless Config.Stuck.After requires a shorter one.
	sampling = detect.GrowthInterval
	// replacements is the maximum number of replacements for stuck workers, per configured worker: a goroutine cannot
	// be ended from outside, and each keeps its memory.
	replacements = 3
)

// watch is the watchdog: it detects handlers that do not return and a queue that only grows, until ctx ends.
func (l *loop[T]) watch(ctx, workCtx context.Context) {
	every := sampling
	if l.config.Stuck.After > 0 {
		every = min(every, max(l.config.Stuck.After/4, time.Millisecond))
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var growth detect.Growth
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.lookForStuck(ctx, workCtx, now)
			l.lookForGrowth(ctx, &growth, now)
			l.endHotLoops(now)
		}
	}
}

func (l *loop[T]) lookForStuck(ctx, workCtx context.Context, now time.Time) {
	if l.config.Stuck.After < 0 {
		return
	}
	stuck, waiting := map[*worker]*running{}, map[*worker]*running{}
	l.mu.Lock()
	for w := range l.workers {
		switch r := w.run.Load(); {
		case r == nil || now.Sub(r.run.Started) < l.config.Stuck.After:
		case r.stuck.CompareAndSwap(false, true):
			stuck[w] = r
		case !w.replaced.Load():
			waiting[w] = r
		}
	}
	l.mu.Unlock()
	l.replaceLate(ctx, workCtx, waiting)
	for w, r := range stuck {
		if w.run.Load() != r {
			continue // it has just ended
		}
		message := stuckMessage(now.Sub(r.run.Started))
		switch ended, replaced := l.replace(workCtx, w); {
		case ended:
			message = fmt.Sprintf("a handler has been running for %s, and keeps the controller from ending", rounded(now.Sub(r.run.Started)))
		case !replaced:
			message = fmt.Sprintf("a handler has been running for %s, and so many others do that no further worker takes its place", rounded(now.Sub(r.run.Started)))
		default:
			l.queue.Exempt(r.run.Key) // otherwise its group's limit would block the other worker
		}
		l.problems.begin(ctx, Problem{
			Type: ProblemStuck, Key: r.run.Key, Since: r.run.Started, Message: message,
			Details: []slog.Attr{slog.String("causes", r.run.Causes.String()), slog.String("stack", detect.StackOf(w.goroutine))},
		}, false)
		if w.run.Load() != r {
			l.problems.endOf(r.run.Key, ProblemStuck) // the run ended during the report, and could not end this problem
		}
	}
}

// stuckMessage returns the message about a stuck handler that was replaced.
func stuckMessage(running time.Duration) string {
	return fmt.Sprintf("a handler has been running for %s: another worker takes its place until it returns", rounded(running))
}

// replaceLate replaces workers that were reported as stuck when there were too many replacements, now that others
// have returned.
func (l *loop[T]) replaceLate(ctx, workCtx context.Context, waiting map[*worker]*running) {
	for w, r := range waiting {
		if w.run.Load() != r {
			continue // it has just ended
		}
		if _, replaced := l.replace(workCtx, w); replaced {
			l.queue.Exempt(r.run.Key)
			message := stuckMessage(time.Since(r.run.Started))
			l.problems.update(ProblemStuck, r.run.Key, message)
			r.log().InfoContext(ctx, "stuck handler replaced", "message", message)
		}
	}
}

// replace starts another worker in place of a stuck one. ended is true if the term is ending. replaced is true if
// there were not too many workers already.
func (l *loop[T]) replace(ctx context.Context, w *worker) (ended, replaced bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending || len(l.workers) >= l.config.Workers*(1+replacements) {
		return l.ending, false
	}
	w.replaced.Store(true)
	l.addWorker(ctx)
	return false, true
}

func (l *loop[T]) lookForGrowth(ctx context.Context, growth *detect.Growth, now time.Time) {
	stats := l.queue.Stats()
	oldest := time.Duration(0)
	if !stats.OldestReady.IsZero() {
		oldest = now.Sub(stats.OldestReady)
	}
	grows, first := growth.Sample(stats.Ready, oldest, now)
	if first {
		l.problems.begin(ctx, Problem{
			Type: ProblemQueueGrowing, Since: growth.Since(),
			Message: fmt.Sprintf("the queue only grows: %s, the first for %s, and more come than %s can handle", waits(stats.Ready), rounded(oldest), counted(l.config.Workers, "worker")),
		}, false)
	}
	if !grows {
		l.problems.endOf(kube.Key{}, ProblemQueueGrowing)
	}
}

// endHotLoops ends the hot loop problems that have shown no sign for long enough.
func (l *loop[T]) endHotLoops(now time.Time) {
	lasting := map[kube.Key]bool{}
	for _, episode := range l.hot.Episodes(now) {
		lasting[episode.Key] = true
	}
	for _, t := range l.problems.all() {
		if t.Type == ProblemHotLoop && !lasting[t.Key] {
			l.problems.endOf(t.Key, ProblemHotLoop)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Pauses of keys that never ran again.
	maps.DeleteFunc(l.pauses, func(_ kube.Key, until time.Time) bool { return until.Before(now) })
}

// writesUnseen reports that informers did not show in time what a run of key wrote.
func (l *loop[T]) writesUnseen(ctx context.Context, key kube.Key, late []*unseenWrite, waits bool) {
	var names []string
	for _, w := range late {
		names = append(names, w.String())
	}
	slices.Sort(names)
	follows := "the handler runs without it"
	if waits {
		follows = "the key waits until the informer can watch again"
	}
	l.problems.begin(ctx, Problem{
		Type: ProblemUnseenWrite, Key: key, Since: time.Now(),
		Message: fmt.Sprintf("an informer does not show after %s what the last run wrote: %s; %s", rounded(l.config.OwnWrites.ConsistencyTimeout), strings.Join(names, ", "), follows),
	}, false)
}
