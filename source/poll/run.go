package poll

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// sourceRun is one run of a Source: its state of the items outside the cluster.
type sourceRun struct {
	// Immutable after begin.
	source  *Source
	enqueue controller.Enqueue
	logger  *slog.Logger

	// Owned by the run loop, which changes known with mu held.
	known    map[string]knownItem // by ID; shares no memory with a Result
	maxKnown int                  // the largest number of items in known since the map was made
	token    any                  // of the last successful poll; nil: the Poller must list everything
	failures int                  // in a row

	mu    sync.Mutex
	state runState // guarded by mu
}

// runState is the part of a sourceRun that Health reports.
type runState struct {
	synced bool      // a poll has succeeded
	began  time.Time // when the poll in progress began; zero: no poll is in progress
	err    error     // why the last poll failed
	since  time.Time // when polls began to fail
	logged map[string]bool
}

// knownItem is the stored state of an item.
type knownItem struct {
	digest [16]byte   // of its version or content
	keys   []kube.Key // sorted, each once
}

// poll polls once, and returns how long to wait for the next poll.
func (r *sourceRun) poll(ctx context.Context) time.Duration {
	began := time.Now()
	r.mu.Lock()
	r.state.began = began
	r.mu.Unlock()
	result, err := r.ask(ctx)
	if err == nil && !result.Unchanged {
		// Until all changes are announced, known matches neither the previous result nor the current one, so the next
		// poll must list everything.
		r.token = nil
		r.source.keep(result.Items, began) // before the announcement: handlers read it
		err = r.compare(ctx, result.Items)
	}
	if ctx.Err() != nil {
		return 0 // the end of the run is not a failed poll
	}
	if err != nil {
		r.failures++
		wait := r.source.config.wait(r.failures, err)
		r.failed(ctx, err, wait)
		return wait
	}
	r.token = result.Token
	r.failures = 0
	r.succeeded(ctx)
	return r.source.config.wait(0, nil)
}

// ask calls the Poller.
func (r *sourceRun) ask(ctx context.Context) (result Result, err error) {
	c := r.source.config
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	defer recovered("Poller", &err)
	result, err = c.Poller.Poll(ctx, r.token)
	err = usercode.Error(err)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Result{}, fmt.Errorf("no answer within Timeout, %s: %w", c.Timeout, err)
	case err != nil:
		return Result{}, err
	case result.Unchanged && r.token == nil:
		return Result{}, errors.New("the Poller returned \"not changed\", but was called without a token")
	case result.Unchanged:
		return result, nil
	}
	return result, validateItems(result.Items)
}

func validateItems(items []Item) error {
	ids := make(map[string]bool, len(items))
	for i, item := range items {
		if item.ID == "" {
			return fmt.Errorf("item %d of %d has no ID", i, len(items))
		}
		if ids[item.ID] {
			return fmt.Errorf("two items have the ID %q: IDs must be unique", shown(item.ID))
		}
		ids[item.ID] = true
	}
	return nil
}

// compare announces the differences between items and known. If it fails, known does not change for the items that were
// not announced, so that the next poll finds them again.
func (r *sourceRun) compare(ctx context.Context, items []Item) error {
	r.mu.Lock()
	first := !r.state.synced
	r.mu.Unlock()
	present := make(map[string]bool, len(items))
	for _, item := range items {
		present[item.ID] = true
		before, isKnown := r.known[item.ID]
		now := knownItem{digest: digestOf(item), keys: before.keys}
		if !slices.Equal(item.Keys, before.keys) {
			now.keys = sorted(cloned(item.Keys))
		}
		if isKnown && now.digest == before.digest && slices.Equal(now.keys, before.keys) {
			continue
		}
		what := controller.CauseUpdated
		switch {
		case first && !isKnown:
			what = controller.CauseListed
		case !isKnown:
			what = controller.CauseAdded
		}
		id := strings.Clone(item.ID)
		r.change(func() { r.known[id] = now }) // before the announcement: a key that is enqueued is listed (see keys)
		if err := r.announce(ctx, what, item, slices.Concat(before.keys, now.keys)); err != nil {
			r.change(func() {
				delete(r.known, id)
				if isKnown {
					r.known[id] = before
				}
			})
			return err
		}
	}
	r.maxKnown = max(r.maxKnown, len(r.known))
	for id, gone := range r.known {
		if present[id] {
			continue
		}
		if err := r.announce(ctx, controller.CauseDeleted, Item{ID: id, Keys: gone.keys}, gone.keys); err != nil {
			return err
		}
		r.change(func() { delete(r.known, id) })
	}
	r.change(func() { r.known = shrink.Map(r.known, &r.maxKnown) })
	if first {
		r.enqueue(kube.Key{}, controller.Trigger{All: true, Detail: "the first poll has succeeded"})
	}
	return nil
}

// change calls f, which changes known, with mu held.
func (r *sourceRun) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// keys iterates over the keys of all items.
func (r *sourceRun) keys(yield func(kube.Key) bool) {
	r.mu.Lock()
	var all []kube.Key
	for _, item := range r.known {
		all = append(all, item.keys...)
	}
	r.mu.Unlock()
	for _, key := range all {
		if !yield(key) {
			return
		}
	}
}

// announce enqueues keys, and the keys that KeysOf returns for the item. It fails if ctx has ended: shutdown must not
// wait for a long list.
func (r *sourceRun) announce(ctx context.Context, what controller.CauseType, item Item, keys []kube.Key) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	concerned, err := r.alsoConcerned(item)
	if err != nil {
		return fmt.Errorf("item %q, %s: %w", shown(item.ID), what, err)
	}
	why := controller.Trigger{Type: what, Detail: shown(item.ID), FromList: true}
	for _, key := range sorted(slices.Concat(keys, concerned)) {
		r.enqueue(key, why)
	}
	return nil
}

func (r *sourceRun) alsoConcerned(item Item) (keys []kube.Key, err error) {
	if r.source.config.KeysOf == nil {
		return nil, nil
	}
	defer recovered("KeysOf", &err)
	item.Keys = slices.Clone(item.Keys)
	return r.source.config.KeysOf(item), nil
}

// digestOf returns a hash of the item's version, or of its content without one.
func digestOf(item Item) (digest [16]byte) {
	h := sha256.New()
	if item.Version != "" {
		h.Write([]byte("version "))
		h.Write([]byte(item.Version))
	} else {
		h.Write([]byte("content "))
		h.Write(item.Content)
	}
	copy(digest[:], h.Sum(nil))
	return digest
}

// sorted returns a sorted copy of keys without duplicates.
func sorted(keys []kube.Key) []kube.Key {
	if len(keys) == 0 {
		return nil
	}
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b kube.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(keys)
}

// cloned returns a copy of keys with copied strings: the strings of an item may be substrings of a large result, which
// they would keep in memory.
func cloned(keys []kube.Key) []kube.Key {
	own := make([]kube.Key, len(keys))
	for i, key := range keys {
		own[i] = kube.Key{Namespace: strings.Clone(key.Namespace), Name: strings.Clone(key.Name)}
	}
	return own
}

// maxShown is the maximum length of a shown ID in bytes.
const maxShown = 128

// shown returns an ID for logs, errors and causes: on one line, and cut to maxShown bytes.
func shown(id string) string {
	cut := id
	if len(cut) > maxShown {
		end := maxShown - len("…")
		for end > 0 && !utf8.RuneStart(cut[end]) {
			end--
		}
		cut = cut[:end] + "…"
	}
	return strings.Clone(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, cut))
}

// recovered turns a panic into a *usercode.PanicError in err. It must be deferred directly.
func recovered(caller string, err *error) {
	if value := recover(); value != nil {
		*err = &usercode.PanicError{Name: caller, Value: value, Stack: debug.Stack()}
	}
}
