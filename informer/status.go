package informer

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// manyGone is the number of consecutive requests after which a gone history is an error. The informer lists after each
// of them. It needs two lists if the server does not have the version of the first list either.
const manyGone = 4

// manyShort is the number of consecutive watches that end as soon as they are opened after which this is an error. One
// such watch is normal: when an API server ends all watches, it also ends those that have just been opened.
const manyShort = 2

const (
	// maxReasons is the maximum number of reasons of one episode that are stored and logged at once.
	maxReasons = 8
	// manyReasonsEvery is the interval at which further reasons are logged.
	manyReasonsEvery = time.Hour
)

// status is what a part reports: whether it has listed, and why it fails now.
//
// Invariants: the error of a watch that had been opened remains until an event arrives, or until a later watch stays
// open, because an open watch does not prove that it works. The error of a silent watch remains until an event arrives
// or a list agrees with the cache. Each reason is logged once per episode, as is its end.
type status struct {
	// Immutable.
	logger   *slog.Logger // names the informer and the part
	optional bool

	// lacks is what the cache lacks. It changes with the fields below, and is read without mu.
	lacks atomic.Int32

	mu sync.Mutex
	// unknown is true while the API server does not find the kind of an optional informer, and the discovery has not
	// shown that the kind was removed. Guarded by mu.
	unknown     bool
	absence     absence    // guarded by mu
	first       ChangeType // guarded by mu; the type of changes that the first list announces
	now         condition  // guarded by mu
	broken      bool       // guarded by mu; now.err is the error of a watch that had been opened
	episode     episode    // guarded by mu; what was logged since now.err was nil
	expirations int        // guarded by mu; consecutive requests that failed because history was gone
	short       int        // guarded by mu; consecutive watches that ended as soon as they were opened
}

// condition is the state of a part at one time.
type condition struct {
	synced   bool      // the first list has ended
	complete bool      // a list has ended since begin, and since the part was last degraded
	degraded bool      // nobody waits for the part: see status.degrades
	err      error     // why the list or watch fails now
	errSince time.Time // the begin of the episode
	silent   bool      // err is cache.ErrSilentWatch
	// unverified: requests have failed, and no list has shown since then that versions did not go back and that no
	// awaited write is lost.
	unverified bool
}

// lacking is what the cache of a part lacks.
type lacking int32

const (
	// lacksNothing: the cache has all objects, or those of the last list that worked.
	lacksNothing lacking = iota
	// lacksUnlisted: the first list has not ended. An object that is not cached may exist.
	lacksUnlisted
	// lacksKind: the API server does not find the kind. Objects that are cached may not exist.
	lacksKind
)

// lacking returns what the cache lacks.
func (s *status) lacking() lacking { return lacking(s.lacks.Load()) }

// setLacks sets lacks. mu must be held.
func (s *status) setLacks() {
	lacks := lacksNothing
	skipped := s.optional && s.now.degraded && !apierrors.IsServiceUnavailable(s.now.err)
	switch {
	case s.unknown:
		lacks = lacksKind
	case !s.now.synced && !skipped:
		lacks = lacksUnlisted
	}
	s.lacks.Store(int32(lacks))
}

// episode is the time in which a part fails.
type episode struct {
	logged   map[string]bool // the logged reasons, at most maxReasons
	loggedAt time.Time       // the time of the last logged reason
}

// begin resets s for a session. Objects of its first list are announced as first.
func (s *status) begin(first ChangeType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.now, s.absence = first, condition{}, absence{}
	s.broken, s.unknown, s.expirations, s.short = false, false, 0, 0
	s.setLacks()
}

// condition returns the present state.
func (s *status) condition() condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// typeForNew returns the type with which an object that was not cached is announced.
func (s *status) typeForNew() ChangeType {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.synced {
		return Added
	}
	return s.first
}

// failed records why the part cannot list or watch, and logs it once per reason. broken is true if the watch had been
// opened.
func (s *status) failed(err error, broken bool) {
	reason := usercode.SteadyText(err)
	s.mu.Lock()
	now := time.Now()
	if s.now.err == nil {
		s.now.errSince, s.episode.logged = now, map[string]bool{}
	}
	isNew := s.episode.isNew(reason, now)
	s.now.err, s.now.unverified = err, true
	s.broken = s.broken || broken
	s.now.silent = errors.Is(err, cache.ErrSilentWatch)
	s.now.degraded = s.degrades(err) // false if the server is unreachable
	s.now.complete = s.now.complete && (!s.now.degraded || !isUnavailable(err))
	if s.optional && isNotServed(err) {
		s.unknown = !s.absence.removed
	}
	s.setLacks()
	s.mu.Unlock()
	if isNew {
		s.logger.Warn("informer cannot retrieve, will try again", "optional", s.optional, "error", err)
	}
}

// degrades reports whether the part is degraded by err. An optional part is degraded while the kind cannot be read.
// Another part is degraded only until its first list: then the other parts need not wait for it. mu must be held.
func (s *status) degrades(err error) bool {
	if s.optional {
		return isUnavailable(err) || apierrors.IsServiceUnavailable(err)
	}
	return !s.now.synced && isUnavailable(err)
}

// isNew reports whether a reason must be logged, and records that it was.
func (e *episode) isNew(reason string, now time.Time) bool {
	known := e.logged[reason]
	if len(e.logged) < maxReasons {
		e.logged[reason] = true
	} else {
		// The reason differs each time, because it contains an ID that SteadyText does not recognize.
		known = known || now.Sub(e.loggedAt) < manyReasonsEvery
	}
	if !known {
		e.loggedAt = now
	}
	return !known
}

// historyGone records that history is gone. It reports whether this is an error now, after manyGone consecutive calls.
func (s *status) historyGone() (isError bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expirations++
	return s.expirations >= manyGone
}

// endedAtOnce records that a watch ended as soon as it was opened. It reports whether this is an error now, after
// manyShort consecutive calls.
func (s *status) endedAtOnce() (isError bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short++
	return s.short >= manyShort
}

// endedLater records that a watch ended which was not short: short ones before and after it are not consecutive.
func (s *status) endedLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short = 0
}

// opened records that a watch was opened.
func (s *status) opened() {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if !broken {
		s.clear(false)
	}
}

// delivered records that a watch has delivered an event.
func (s *status) delivered() { s.clear(true) }

// stayedOpen records that a watch has stayed open for the time stableAfter. A silent watch also stays open, so its
// error remains.
func (s *status) stayedOpen() {
	if !s.condition().silent {
		s.clear(true)
	}
}

// notSilent records that the watch is not silent, and clears the error of a silent watch.
func (s *status) notSilent() {
	if s.condition().silent {
		s.clear(true)
	}
}

// clear clears the error. works is true if a watch works: history is available too.
func (s *status) clear(works bool) {
	s.mu.Lock()
	if works {
		s.expirations, s.short = 0, 0
	}
	err, since := s.now.err, s.now.errSince
	s.now.err, s.now.errSince, s.now.degraded, s.now.silent = nil, time.Time{}, false, false
	s.broken = false
	if err != nil {
		s.absence, s.unknown = absence{}, false
	}
	s.setLacks()
	s.mu.Unlock()
	if err != nil {
		s.logger.Info("informer retrieves again", "after", time.Since(since).Round(time.Millisecond))
	}
}

// listed records the end of a list.
func (s *status) listed(end listEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.synced, s.now.complete = true, true
	s.now.unverified = end.ahead || s.now.unverified && !end.verified
	s.setLacks()
}

// verified records that a list has shown the present resource version.
func (s *status) verified() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.unverified = false
}

// isHistoryGone reports whether the server no longer has the requested resource version, or does not have it yet. The
// informer then lists again, and reports no error.
func isHistoryGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// isUnavailable reports whether the cluster does not serve the kind, or forbids this user to read it.
func isUnavailable(err error) bool {
	return isNotServed(err) || apierrors.IsForbidden(err)
}

func isNotServed(err error) bool {
	return errors.Is(err, kube.ErrNotServed) || apierrors.IsNotFound(err)
}
