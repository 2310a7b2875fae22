package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Defaults of PollConfig.
const (
	DefaultPollInterval = time.Minute
	DefaultPollJitter   = 0.1
	DefaultPollTimeout  = 30 * time.Second
)

// MaxRetryAfter is the longest wait that a NextPollAfter error can ask for.
const MaxRetryAfter = time.Hour

// PollConfig says what is polled, and when. It is taken by value: Poll neither keeps nor
// changes the caller's.
type PollConfig struct {
	// Name names the source in causes, logs and readiness, so it should be one of few.
	// Required.
	Name string
	// Poller finds out what is there now: ListFunc is a function as one, HTTP fetches a
	// document. Required.
	Poller Poller

	// KeysOf returns who else an item concerns, besides Item.Keys, at the moment at which it
	// is listed, added, updated or removed: the objects of an informer that refer to it, for
	// instance, which must be the controller's own or in its Config.Reads: one that nobody runs
	// is empty. Of a removed item it gets the ID, and the Keys that it had. Its answers are
	// not remembered: what an item itself says belongs into Item.Keys. It is called for one
	// item after the other. After a panic in it, that item and those that follow are announced
	// by the next poll. Default nil: nobody.
	KeysOf func(item Item) []kube.Key

	// KeepItems keeps the items that the latest poll has found, with their contents, so that
	// handlers can read them with PollSource.Item. Default false: between polls about 200 bytes are
	// kept for an item, and no content.
	KeepItems bool

	// Interval is the time from the end of a poll to the start of the next. Default 1 min.
	Interval time.Duration
	// MaxBackOff is the longest wait while polls fail: from the second failure in a row on,
	// the wait doubles each time. At least Interval. Default: 32 times Interval, but no more
	// than the longer of an hour and Interval.
	MaxBackOff time.Duration
	// Jitter is the largest part, from 0 to 1, by which each wait is lengthened at random, so
	// that replicas do not poll in step. Default 0.1; negative: none.
	Jitter float64
	// Timeout is after how long a poll's context is cancelled, which makes it a failure if
	// the Poller then says so. Default 30 s; negative: never.
	Timeout time.Duration

	// Logger receives failing polls at warning level (panics, with their stack, at error
	// level), once per reason until a poll succeeds, which is told at info level. Default:
	// the controller's.
	Logger *slog.Logger
}

// Item is one thing in the outside world that keys depend on: a document, a row, a machine.
type Item struct {
	// ID tells the item from the others of its source. The causes of the keys that it
	// concerns show it, cut to 128 bytes. Required.
	ID string
	// Version differs whenever the item differs: an ETag, a revision, a hash. It is only
	// compared. Default: a hash of Content.
	Version string
	// Content is compared where there is no Version. It is kept with PollConfig.KeepItems only. An
	// item with neither is only there, or not.
	Content []byte
	// Keys are the keys that the item concerns. An item whose Keys differ (as a set) is
	// updated, whatever its Version. May be empty.
	Keys []kube.Key
}

// Poller finds out what there is of something outside the cluster. It remembers nothing
// between polls but what it puts into PollResult.Token, so that several controllers may use
// one. It may also have a method Validate() error, which is asked for mistakes in how it was
// made.
type Poller interface {
	// Poll returns all that is there now. An error, or a panic, changes nothing: a list that
	// is only partly known is an error. Poll should return when ctx ends; until it does, no
	// other poll begins, and the controller cannot stop.
	//
	// token is that of the result before. It is nil at the first poll of each Run of the
	// source, and when not all of the result before could be announced.
	Poll(ctx context.Context, token any) (PollResult, error)
}

// PollResult is what a Poller has found.
type PollResult struct {
	// Items are all that there are, in any order, each ID once. None: all are gone.
	Items []Item
	// Unchanged says that everything is as at the poll before; Items does not matter then. It
	// is a mistake where token was nil.
	Unchanged bool
	// Token is given to the next poll: what it takes to find out cheaply whether anything
	// has changed, such as an ETag. Nobody else looks into it.
	Token any
}

// ListFunc is a function that lists everything, as a Poller.
type ListFunc func(ctx context.Context) ([]Item, error)

// Poll implements Poller.
func (f ListFunc) Poll(ctx context.Context, _ any) (PollResult, error) {
	items, err := f(ctx)
	return PollResult{Items: items}, err
}

// NextPollAfter marks the error of a poll: the next poll should not begin before delay has
// passed, however short the interval is. More than MaxRetryAfter is cut to that.
func NextPollAfter(delay time.Duration, err error) error {
	return &retryAfterError{delay: delay, err: err}
}

type retryAfterError struct {
	delay time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// Poll is a source of what no watch tells: it asks a Poller again and again what there is
// outside the cluster, and enqueues the keys that are concerned when an item has come, changed
// or gone. Its items need no objects in the cluster, only keys.
//
// Flow:
//  1. The first poll begins at once. Each item of the first that succeeds is listed: its keys
//     are enqueued with a cause of type CauseListed. Then every object of the controller is
//     enqueued that was handled before, so that those whose item is missing are handled with that
//     knowledge (controller.Trigger.All).
//  2. From then on, what a poll finds is compared with the last: CauseAdded, CauseUpdated (also
//     for the keys that an item had before) and CauseDeleted (for the keys that it had). What
//     is the same enqueues nothing. A poll can find any number of keys at once: all are enqueued at
//     low priority, when there is room in the queue (controller.Trigger.FromList).
//  3. In each term of leadership this begins anew, with no memory of the last one.
//
// Guarantees: polls do not overlap. A poll that fails changes nothing, and does not end the
// controller; Ready and Health tell, the log says so once per reason, and further polls follow
// with back-off. A poll that is under way when the controller ends is cancelled. A handler that
// runs because of an item reads it, or a later state of it, with Item.
//
// Caller must: expect handlers to be called before the first poll has succeeded, for no
// controller waits for what is outside the cluster (Item then returns ErrNotPolled, and a handler
// that returns that is called again as soon as a poll has succeeded); and nobody to see a change
// that is undone between two polls.
//
// Mistakes in config are returned by controller.New and AddSource, as for every source.
func Poll(config PollConfig) *PollSource {
	config = config.withDefaults()
	return &PollSource{config: config, problem: config.validate()}
}

// withDefaults returns the config with every zero field set to its default.
func (c PollConfig) withDefaults() PollConfig {
	c.Interval = cmp.Or(c.Interval, DefaultPollInterval)
	c.MaxBackOff = cmp.Or(c.MaxBackOff, defaultMaxBackOff(c.Interval))
	c.Jitter = max(cmp.Or(c.Jitter, DefaultPollJitter), 0)
	c.Timeout = cmp.Or(c.Timeout, DefaultPollTimeout)
	return c
}

func defaultMaxBackOff(interval time.Duration) time.Duration {
	if interval > time.Hour/32 {
		return max(interval, time.Hour)
	}
	return 32 * interval
}

// validate names every mistake in a config with its defaults set.
func (c PollConfig) validate() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch c.Name {
	case "":
		mistake("Name is required: causes, logs and readiness name the source by it")
	case controller.SourceSelf, controller.SourceLoop:
		// The default of EndBackoffIf, for one, would take an item for the object.
		mistake("Name is %q: causes call so what comes from the controller itself", c.Name)
	}
	if list, ok := c.Poller.(ListFunc); usercode.IsNil(c.Poller) || ok && list == nil {
		mistake("Poller is required: source.ListFunc makes one of a function, source.HTTP of a URL")
	} else if checked, ok := c.Poller.(interface{ Validate() error }); ok {
		errs = append(errs, checked.Validate())
	}
	if fetch, ok := c.Poller.(*httpPoller); ok && fetch.concernsNobody() && c.KeysOf == nil {
		mistake("the document would concern nobody: set HTTPConfig.Keys, HTTPConfig.Split or PollConfig.KeysOf")
	}
	if c.Interval < 0 {
		mistake("Interval is %s: it cannot be negative (0 means %s)", c.Interval, DefaultPollInterval)
	} else if c.MaxBackOff < c.Interval {
		mistake("MaxBackOff is %s, below Interval, %s", c.MaxBackOff, c.Interval)
	}
	if c.Jitter > 1 || math.IsNaN(c.Jitter) {
		mistake("Jitter is %g: it cannot exceed 1 (negative: none)", c.Jitter)
	}
	return errors.Join(errs...)
}

// wait returns how long to wait after a poll that failed with err, as the last of so many in a
// row; after a success, these are nil and 0.
func (c PollConfig) wait(failures int, err error) time.Duration {
	d := c.Interval
	for i := 1; i < failures && d < c.MaxBackOff; i++ {
		if d > c.MaxBackOff/2 {
			d = c.MaxBackOff
		} else {
			d *= 2
		}
	}
	if later, ok := errors.AsType[*retryAfterError](err); ok {
		d = max(d, min(later.delay, MaxRetryAfter))
	}
	jitter := rand.Float64() * c.Jitter * float64(d)
	if jitter >= float64(math.MaxInt64-d) {
		return math.MaxInt64 // whoever polls once in 200 years must not poll at once
	}
	return d + time.Duration(jitter)
}

// PollSource is the source that Poll makes.
type PollSource struct {
	// Immutable after Poll.
	config  PollConfig
	problem error

	mu       sync.Mutex
	runs     []*pollRun // guarded by mu; those under way
	polls    int64      // guarded by mu
	failures int64      // guarded by mu
	kept     keptItems  // guarded by mu
}

// keptItems are the items of a poll, for handlers.
type keptItems struct {
	polled bool      // a poll has succeeded
	began  time.Time // when that poll began
	items  map[string]Item
}

// ErrNotPolled is returned by PollSource.Item when no poll has succeeded since the source was
// started.
var ErrNotPolled = errors.New("no poll has succeeded yet")

// Item returns the item of an ID, as the latest poll has found it; found is false when it was not
// there. It makes no request. The caller must not change the item's Content and Keys.
//
// Errors: ErrNotPolled, which says nothing about the item; a handler returns it, and is called again
// when a poll has succeeded. It is also an error when PollConfig.KeepItems is not set.
func (s *PollSource) Item(id string) (item Item, found bool, err error) {
	if !s.config.KeepItems {
		return Item{}, false, fmt.Errorf("source %q: read item %q: set PollConfig.KeepItems", s.config.Name, shown(id))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept.polled {
		return Item{}, false, fmt.Errorf("source %q: read item %q: %w", s.config.Name, shown(id), ErrNotPolled)
	}
	item, found = s.kept.items[id]
	return item, found, nil
}

// keep keeps the items that a poll has found which began at a moment, unless a later poll has
// found others: several controllers may run the source.
func (s *PollSource) keep(items []Item, began time.Time) {
	if !s.config.KeepItems {
		return
	}
	kept := keptItems{polled: true, began: began, items: make(map[string]Item, len(items))}
	for _, item := range items {
		// The Poller may use its answer again, and an ID may be a part of a large one.
		item.ID, item.Version = strings.Clone(item.ID), strings.Clone(item.Version)
		item.Content, item.Keys = bytes.Clone(item.Content), cloned(item.Keys)
		kept.items[item.ID] = item
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept.polled || s.kept.began.Before(began) {
		s.kept = kept
	}
}

// Prepare implements controller.Source. The runs of several controllers are independent of each other.
func (s *PollSource) Prepare(target controller.Target) (controller.PreparedSource, error) {
	if s.problem != nil {
		return controller.PreparedSource{}, fmt.Errorf("source.Poll %q: %w", s.config.Name, s.problem)
	}
	logger := cmp.Or(s.config.Logger, target.Logger)
	start := func(ctx context.Context, enqueue controller.Enqueue) (run func() error) {
		return s.start(ctx, enqueue, logger)
	}
	return controller.PreparedSource{Name: s.config.Name, Start: start, Ready: s.Ready}, nil
}

// start registers a run: from then on Item returns ErrNotPolled until a poll has succeeded, unless another controller
// runs the source, so that no handler of a term reads what a poll of an earlier term has found. run polls until ctx ends,
// and returns when the poll that is under way then has returned.
func (s *PollSource) start(ctx context.Context, enqueue controller.Enqueue, logger *slog.Logger) (run func() error) {
	r := s.begin(enqueue, logger)
	return func() error {
		defer s.end(r)
		for ctx.Err() == nil {
			timer := time.NewTimer(r.poll(ctx))
			select {
			case <-ctx.Done():
				timer.Stop()
			case <-timer.C:
			}
		}
		return nil
	}
}
