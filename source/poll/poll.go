// Package poll has a source of keys for systems that have no watch: New returns a source that calls a Poller
// repeatedly. List, HTTP and FromObjectStore return Pollers.
package poll

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Defaults of Config.
const (
	defaultInterval = time.Minute
	defaultJitter   = 0.1
	defaultTimeout  = 30 * time.Second
)

// maxRetryAfter is the longest wait that an error can ask for with a method RetryAfter.
const maxRetryAfter = time.Hour

// Config configures New. New copies it and does not change the caller's copy.
type Config struct {
	// Name names the source in causes, logs and readiness: keep its cardinality low. Required.
	Name string
	// Poller returns the current items. List calls a function; HTTP fetches a document; FromObjectStore reads the
	// objects of a store. Required.
	Poller Poller

	// KeysOf returns further keys for an item, in addition to Item.Keys, when the item is listed, added, updated or
	// removed. A controller of controller.NoObject resyncs Item.Keys only. For example, it returns the objects of an
	// informer that refer to the item. That informer must be the controller's own or in its Config.Reads: otherwise its
	// reads return informer.ErrNotRunning. For a removed item, KeysOf gets the ID and the Keys that the item had. The
	// result is not stored: keys that follow from the item itself belong in Item.Keys. It is called for one item at a
	// time. If it panics, the poll fails, and the next poll announces that item and those that follow. Default nil: no
	// further keys.
	KeysOf func(item Item) []kube.Key

	// KeepItems stores the items of the latest poll, with their contents, so that handlers can read them with
	// Source.Item. Default false: between polls, about 200 bytes are stored for each item, and no content.
	KeepItems bool

	// Interval is the time from the end of a poll to the start of the next. Default 1 min.
	Interval time.Duration
	// MaxBackoff is the longest wait while polls fail: from the second failure in a row on, the wait doubles each time.
	// It must be at least Interval. Default: 32 times Interval, but at most one hour or Interval, whichever is longer.
	MaxBackoff time.Duration
	// Jitter is the largest fraction, from 0 to 1, by which each wait is lengthened at random, so that replicas do not
	// poll at the same time. Default 0.1; negative: no jitter.
	Jitter float64
	// Timeout limits a poll: the poll's context is cancelled after it. The poll fails if the Poller then returns an
	// error. Default 30 s; negative: no limit.
	Timeout time.Duration
}

// Item is one thing outside the cluster that keys depend on, such as a document, a row or a machine.
type Item struct {
	// ID identifies the item within its source. It is shown in the causes of the item's keys, cut to 128 bytes.
	// Required.
	ID string
	// Version differs whenever the item differs: an ETag, a revision, a hash. It is only compared for equality.
	// Default: a hash of Content.
	Version string
	// Content is compared if Version is empty. It is stored only with Config.KeepItems. An item with neither
	// Version nor Content never changes: it is only added and removed.
	Content []byte
	// Keys are the keys to enqueue when the item changes. An item with other Keys than before (as a set) is updated,
	// whatever its Version. May be empty.
	Keys []kube.Key
}

// Poller lists items outside the cluster. It stores nothing between polls except in Result.Token, so that several
// controllers may share one. It may also have a method Validate() error, which returns the mistakes in its
// configuration.
type Poller interface {
	// Poll returns all current items. An error or a panic changes nothing: if the list is incomplete, Poll must return
	// an error. Poll should return when ctx ends: until it returns, no other poll begins, and the controller cannot
	// stop. After an error with a method RetryAfter() time.Duration, the next poll does not begin before that time, at
	// most an hour.
	//
	// token is the Token of the previous result. It is nil for the first poll after each start of the source, and if
	// the previous result could not be announced completely.
	Poll(ctx context.Context, token any) (Result, error)
}

// Result is the result of a poll.
type Result struct {
	// Items are all current items, in any order, each ID once. Empty: all items are removed.
	Items []Item
	// Unchanged means that nothing has changed since the previous poll; Items is then ignored. It is an error if token
	// was nil.
	Unchanged bool
	// Token is passed to the next poll. It has the data that the Poller needs to detect changes cheaply, such as an
	// ETag. Only the Poller reads it.
	Token any
}

// List returns a Poller that calls list, which returns all current items. If the list is incomplete, list must return
// an error.
func List(list func(ctx context.Context) ([]Item, error)) Poller { return listPoller(list) }

type listPoller func(ctx context.Context) ([]Item, error)

// Poll implements Poller.
func (list listPoller) Poll(ctx context.Context, _ any) (Result, error) {
	items, err := list(ctx)
	return Result{Items: items}, err
}

// New returns a source that calls a Poller repeatedly, and enqueues the keys of each item that was added, changed or
// removed. The items need no objects in the cluster, only keys.
//
// Flow:
//  1. The first poll begins at once. Each item of the first successful poll is listed: its keys are enqueued with a
//     cause of type CauseListed. Then every object that the controller handled before is enqueued
//     (controller.Trigger.All), because from then on handlers can read which objects have no item.
//  2. Each later poll is compared with the previous one: CauseAdded, CauseUpdated (also for the keys that an item had
//     before) and CauseDeleted (for the keys that the item had). Unchanged items enqueue nothing. Because a poll can
//     find any number of keys at once, all are enqueued at low priority, when there is room in the queue
//     (controller.Trigger.FromList).
//  3. Each term of leadership starts again with the first poll; nothing is kept from the previous term.
//
// Guarantees: polls do not overlap. A failed poll changes nothing and does not stop the controller; Ready
// reports it, it is logged once per reason, and further polls follow with backoff. When the controller stops, a poll in
// progress is cancelled. A handler that runs because of an item reads that state of the item, or a later one, with
// Item.
//
// Limits: handlers may be called before the first poll has succeeded, because controllers do not wait for systems
// outside the cluster. Item then returns ErrNotPolled; a handler that returns this error is called again as soon as a
// poll has succeeded. A change that is undone between two polls is not detected.
//
// controller.New and AddSource return the mistakes in config, as for every source.
func New(config Config) *Source {
	config = config.withDefaults()
	return &Source{config: config, problem: config.validate()}
}

// withDefaults returns the config with every zero field set to its default.
func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, defaultMaxBackoff(c.Interval))
	c.Jitter = max(cmp.Or(c.Jitter, defaultJitter), 0)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	return c
}

func defaultMaxBackoff(interval time.Duration) time.Duration {
	if interval > time.Hour/32 {
		return max(interval, time.Hour)
	}
	return 32 * interval
}

// validate returns every mistake in a config that has its defaults set.
func (c Config) validate() error {
	var mistakes usercode.Mistakes
	switch c.Name {
	case "":
		mistakes.Addf("Name is required: causes, logs and readiness name the source by it")
	case controller.SourceSelf, controller.SourceLoop:
		// Otherwise the default of EndBackoffIf, for one, would treat an item as the object.
		mistakes.Addf("Name is %q: this name is reserved for the controller's own causes", c.Name)
	}
	if usercode.IsNil(c.Poller) {
		mistakes.Addf("Poller is required: poll.List calls a function, poll.HTTP fetches a document, " +
			"poll.FromObjectStore reads a store")
	} else if checked, ok := c.Poller.(interface{ Validate() error }); ok {
		mistakes.Join(checked.Validate())
	}
	if fetch, ok := c.Poller.(*httpPoller); ok && fetch.enqueuesNothing() && c.KeysOf == nil {
		mistakes.Addf("changes of the document would enqueue no key: set HTTPConfig.Keys, HTTPConfig.Split or " +
			"Config.KeysOf")
	}
	if c.Interval < 0 {
		mistakes.Addf("Interval is %s: it cannot be negative (0 means %s)", c.Interval, defaultInterval)
	} else if c.MaxBackoff < c.Interval {
		mistakes.Addf("MaxBackoff is %s, below Interval, %s", c.MaxBackoff, c.Interval)
	}
	mistakes.AddIf(c.Jitter > 1 || math.IsNaN(c.Jitter), "Jitter is %g: it cannot exceed 1 (negative: none)", c.Jitter)
	return mistakes.Err()
}

// wait returns how long to wait after a poll. failures is the number of failed polls in a row, and err the error of the
// last one; after a success, they are 0 and nil.
func (c Config) wait(failures int, err error) time.Duration {
	d := retryrules.Delay(retry.Policy{Base: c.Interval, Factor: 2, Max: c.MaxBackoff}, failures, 0)
	after, _ := usercode.RetryAfter(err)
	d = max(d, min(after, maxRetryAfter))
	jitter := rand.Float64() * c.Jitter * float64(d)
	if jitter >= float64(math.MaxInt64-d) {
		return math.MaxInt64 // the sum would overflow to a negative wait
	}
	return d + time.Duration(jitter)
}

// Source is the source that New returns.
type Source struct {
	// Immutable after New.
	config  Config
	problem error

	mu   sync.Mutex
	runs []*sourceRun // guarded by mu; runs in progress
	kept keptItems    // guarded by mu
}

// keptItems are the items of a poll, for handlers.
type keptItems struct {
	polled bool      // a poll has succeeded
	began  time.Time // when that poll began
	items  map[string]Item
}

// ErrNotPolled is returned by Source.Item when no poll has succeeded since the source was started.
var ErrNotPolled = errors.New("no poll has succeeded yet")

// Item returns the item with an ID from the latest successful poll; found is false if that poll did not contain it. It
// makes no request. The caller must not change the item's Content and Keys.
//
// Errors: ErrNotPolled, which does not mean that the item is missing; a handler that returns this error is called again
// when a poll has succeeded. Item also returns an error if Config.KeepItems is not set.
func (s *Source) Item(id string) (item Item, found bool, err error) {
	if !s.config.KeepItems {
		return Item{}, false, fmt.Errorf("source %q: read item %q: set Config.KeepItems", s.config.Name, shown(id))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept.polled {
		return Item{}, false, fmt.Errorf("source %q: read item %q: %w", s.config.Name, shown(id), ErrNotPolled)
	}
	item, found = s.kept.items[id]
	return item, found, nil
}

// keep stores the items of the poll that started at began, unless the items of a later poll are stored: several
// controllers may run the source.
func (s *Source) keep(items []Item, began time.Time) {
	if !s.config.KeepItems {
		return
	}
	kept := keptItems{polled: true, began: began, items: make(map[string]Item, len(items))}
	for _, item := range items {
		// Copies: the Poller may reuse its result, and an ID may be a substring of a large one.
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
func (s *Source) Prepare(target controller.Target) (controller.PreparedSource, error) {
	if s.problem != nil {
		return controller.PreparedSource{}, fmt.Errorf("poll.New %q: %w", s.config.Name, s.problem)
	}
	var latest atomic.Pointer[sourceRun] // of this controller
	start := func(ctx context.Context, enqueue controller.Enqueue) (run func() error, err error) {
		r := s.begin(enqueue, target.Logger)
		latest.Store(r)
		return func() error { return s.run(ctx, r) }, nil
	}
	keys := func(yield func(kube.Key) bool) {
		if r := latest.Load(); r != nil {
			r.keys(yield)
		}
	}
	return controller.PreparedSource{Name: s.config.Name, Start: start, Keys: keys, Ready: s.Ready}, nil
}

// run polls until ctx ends, and returns after the poll in progress has returned.
func (s *Source) run(ctx context.Context, r *sourceRun) error {
	defer s.end(r)
	for ctx.Err() == nil {
		retryrules.Wait(ctx, r.poll(ctx))
	}
	return nil
}
