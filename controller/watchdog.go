package controller

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/kube"
)

// sampling is the interval of the watchdog's checks, unless Config.Runs.StuckAfter requires a shorter one.
const sampling = detect.GrowthInterval

// slowRun is the time after which a running handler is logged.
const slowRun = 30 * time.Second

// watchdog detects handlers that do not return, and a queue that only grows. It reports each as a problem, and lets the
// pool replace the workers of stuck handlers. It is an observer; its other state belongs to its goroutine.
type watchdog struct {
	ignore

	// Immutable.
	stuckAfter time.Duration // negative: never
	workers    int           // Config.Workers
	pool       *pool
	queue      *queue
	problems   *problems
	observers  observerList

	growth detect.Growth
}

// watch checks at intervals, until ctx ends. Handlers of replacing workers run with workCtx.
func (d *watchdog) watch(ctx, workCtx context.Context) {
	every := sampling
	if d.stuckAfter > 0 {
		every = min(every, max(d.stuckAfter/4, time.Millisecond))
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			stuck := d.checkHandlers(ctx, workCtx, now)
			d.observers.each(func(o observer) { o.checked(now, stuck) })
			d.logSlow(ctx, now)
			d.checkGrowth(ctx, now)
		}
	}
}

// ended ends the problem of a handler that was stuck.
func (d *watchdog) ended(ctx context.Context, r *running) {
	if r.stuck.Load() {
		d.problems.endOf(r.run.Key, ProblemStuck)
		r.log().InfoContext(ctx, "the handler that was stuck has returned", "after",
			r.run.Duration.Round(time.Millisecond))
	}
}

// logSlow logs handlers that have been running for slowRun, long before they are reported as stuck.
func (d *watchdog) logSlow(ctx context.Context, now time.Time) {
	for _, r := range d.pool.slowRuns(now.Add(-slowRun)) {
		r.log().InfoContext(ctx, "handler is still running", "duration", now.Sub(r.run.Started).Round(time.Second),
			"causes",
			r.run.Causes.String())
	}
}

// checkHandlers reports handlers that do not return, and has their workers replaced. It returns their keys.
func (d *watchdog) checkHandlers(ctx, workCtx context.Context, now time.Time) (keys []kube.Key) {
	if d.stuckAfter < 0 {
		return nil
	}
	stuck, notReplaced := d.pool.longRuns(now.Add(-d.stuckAfter))
	d.replaceLate(ctx, workCtx, notReplaced)
	for _, r := range stuck {
		if !r.lasts() {
			continue // it has just ended
		}
		keys = append(keys, r.run.Key)
		message := stuckMessage(now.Sub(r.run.Started))
		switch ended, replaced := d.pool.replace(workCtx, r.worker); {
		case ended:
			message = fmt.Sprintf("a handler has been running for %s, and keeps the controller from ending",
				rounded(now.Sub(r.run.Started)))
		case !replaced:
			message = fmt.Sprintf("a handler has been running for %s, and is not replaced: the maximum number of "+
				"stuck handlers was replaced already", rounded(now.Sub(r.run.Started)))
		default:
			d.queue.Exempt(r.run.Key) // otherwise its group's limit would block the other worker
		}
		d.problems.begin(ctx, Problem{
			Type: ProblemStuck, Key: r.run.Key, Since: r.run.Started, Message: message,
			Details: []slog.Attr{slog.String("causes", r.run.Causes.String()), slog.String("stack", r.stack())},
		}, false)
		if !r.lasts() {
			d.problems.endOf(r.run.Key, ProblemStuck) // the run ended during the report, and could not end this problem
		}
	}
	return keys
}

// stuckMessage returns the message about a stuck handler whose worker was replaced.
func stuckMessage(running time.Duration) string {
	return fmt.Sprintf("a handler has been running for %s: another worker takes its place until it returns",
		rounded(running))
}

// replaceLate replaces workers that were reported as stuck when there were too many replacements, now that others
// have returned.
func (d *watchdog) replaceLate(ctx, workCtx context.Context, notReplaced []currentRun) {
	for _, r := range notReplaced {
		if !r.lasts() {
			continue // it has just ended
		}
		if _, replaced := d.pool.replace(workCtx, r.worker); replaced {
			d.queue.Exempt(r.run.Key)
			message := stuckMessage(time.Since(r.run.Started))
			d.problems.update(ProblemStuck, r.run.Key, message)
			r.log().InfoContext(ctx, "stuck handler replaced", "message", message)
		}
	}
}

// checkGrowth reports a queue that only grows.
func (d *watchdog) checkGrowth(ctx context.Context, now time.Time) {
	stats := d.queue.Stats()
	oldest := time.Duration(0)
	if !stats.OldestReady.IsZero() {
		oldest = now.Sub(stats.OldestReady)
	}
	grows, first := d.growth.Sample(stats.Ready, oldest, now)
	if first {
		d.problems.begin(ctx, Problem{
			Type: ProblemQueueGrowing, Since: d.growth.Since(),
			Message: fmt.Sprintf("the queue only grows: %s, the first for %s, and more come than %s can handle",
				waits(stats.Ready), rounded(oldest), counted(d.workers, "worker")),
		}, false)
	}
	if !grows {
		d.problems.endOf(kube.Key{}, ProblemQueueGrowing)
	}
}
