package informer

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// isHistoryGone reports whether the server no longer has the requested resource version, or does not have it yet. The
// informer then lists again, and reports no error.
func isHistoryGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// asksForNoHistory reports whether a request is for the present state. Such a request needs no history, so it has no
// fallback if the server reports that history is gone.
func asksForNoHistory(opts metav1.ListOptions) bool {
	return opts.ResourceVersion == "" && opts.Continue == ""
}

// manyGone is the number of consecutive requests after which a gone history is an error. The informer lists after each
// of them. It needs two lists if the server does not have the version of the first list either.
const manyGone = 4

const (
	// maxReasons is the maximum number of reasons of one episode that are stored and logged at once.
	maxReasons = 8
	// maxReason is the number of bytes of an error's text that distinguish reasons.
	maxReason = 1024
	// manyReasonsEvery is the interval at which further reasons are logged.
	manyReasonsEvery = time.Hour
)

// historyGone records that history is gone. After manyGone consecutive calls it records an error.
func (p *part) historyGone(err error) {
	p.mu.Lock()
	p.gone410++
	many := p.gone410 >= manyGone
	p.mu.Unlock()
	if many {
		p.broke(err)
	}
}

// failed records why the part cannot list or watch, and logs it once per reason.
func (p *part) failed(err error) { p.trouble(err, false) }

// broke does the same as failed, for a watch that had been opened. The error remains when the next watch is opened,
// because that does not prove that the watch works.
func (p *part) broke(err error) { p.trouble(err, true) }

func (p *part) trouble(err error, broken bool) {
	reason := reasonOf(err)
	p.mu.Lock()
	now := time.Now()
	if p.err == nil {
		p.errSince, p.logged = now, map[string]bool{}
	}
	known := p.logged[reason]
	if len(p.logged) < maxReasons {
		p.logged[reason] = true
	} else {
		// The reason differs each time, because it contains an ID that reasonOf does not recognize.
		known = known || now.Sub(p.loggedAt) < manyReasonsEvery
	}
	if !known {
		p.loggedAt = now
	}
	p.err, p.unverified = err, true
	p.broken = p.broken || broken
	p.silent = errors.Is(err, ErrSilentWatch)
	degrades := p.core.optional && isUnavailable(err)
	p.degraded = degrades // false if the server is unreachable
	p.complete = p.complete && !degrades
	p.mu.Unlock()
	if !known {
		p.core.logger.Warn("informer cannot retrieve, will try again",
			"informer", p.core.name, "retrieves", p.describes, "optional", p.core.optional, "error", err)
	}
	if degrades {
		if isNotServed(err) {
			p.forgetAll()
		}
		p.letGo()
		p.core.settle(p)
	}
}

// letGo calls the waiters for writes that p cannot show now.
func (p *part) letGo() {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	p.release()
}

func (p *part) isDegraded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.degraded
}

// problem returns why the part cannot list or watch now, or nil.
func (p *part) problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// isUnverified reports whether requests have failed, and no list has shown since then that resource versions did not go
// back and that no awaited write is lost.
func (p *part) isUnverified() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unverified
}

// verified records that a list has shown the present resource version.
func (p *part) verified() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unverified = false
}

// isUnavailable reports whether the cluster does not serve the kind, or forbids this user to read it. An optional
// informer is then degraded.
func isUnavailable(err error) bool {
	return isNotServed(err) || apierrors.IsForbidden(err)
}

func isNotServed(err error) bool {
	return errors.Is(err, kube.ErrNotServed) || apierrors.IsNotFound(err)
}

// reasonOf returns the error's text without the words that contain digits, such as ports, times and request IDs. So the
// reason is the same for each attempt.
func reasonOf(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
	return strings.Join(words, " ")
}

// opened records that a watch was opened.
func (p *part) opened() {
	p.mu.Lock()
	broken := p.broken
	p.mu.Unlock()
	if !broken {
		p.mended(false)
	}
}

// works records that an event has arrived.
func (p *part) works() { p.mended(true) }

// stands records that a watch has stayed open for the time standing. A silent watch also stays open, so its error
// remains.
func (p *part) stands() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if !silent {
		p.works()
	}
}

// mended clears the error. history is true if history is available too.
func (p *part) mended(history bool) {
	p.mu.Lock()
	if history {
		p.gone410 = 0
	}
	was, since := p.err, p.errSince
	p.err, p.errSince, p.broken, p.degraded, p.silent = nil, time.Time{}, false, false, false
	p.mu.Unlock()
	if was != nil {
		p.core.logger.Info("informer retrieves again",
			"informer", p.core.name, "retrieves", p.describes, "after", time.Since(since).Round(time.Millisecond))
	}
}
