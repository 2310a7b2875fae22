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

// isHistoryGone reports whether the server no longer has, or does not have yet, the requested resource version. The
// informer lists again then, and reports no error.
func isHistoryGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// asksForNoHistory reports whether a request is for the present state. It cannot fail because history is gone, and
// there is no fallback if it does.
func asksForNoHistory(opts metav1.ListOptions) bool {
	return opts.ResourceVersion == "" && opts.Continue == ""
}

// manyGone is the number of consecutive requests for which history may be gone. A list follows each time; two are
// needed if the server does not have the version of the first list either.
const manyGone = 4

const (
	// maxReasons is the maximum number of reasons of one episode that are remembered, and logged at once.
	maxReasons = 8
	// maxReason is the number of bytes of an error's text that distinguish reasons.
	maxReason = 1024
	// manyReasonsEvery is the interval at which further reasons are logged.
	manyReasonsEvery = time.Hour
)

// historyGone records that history is gone. It becomes an error if no request succeeds in between.
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

// broke is failed for a watch that had been opened. That the next one can be opened does not prove that it works.
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
		// The reasons differ each time: an id that reasonOf does not recognise is among them.
		known = known || now.Sub(p.loggedAt) < manyReasonsEvery
	}
	if !known {
		p.loggedAt = now
	}
	p.err, p.unverified = err, true
	p.broken = p.broken || broken
	p.silent = errors.Is(err, ErrSilentWatch)
	degrades := p.core.optional && isUnavailable(err)
	p.degraded = degrades // and no longer, when the server is out of reach
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
// informer is degraded then.
func isUnavailable(err error) bool {
	return isNotServed(err) || apierrors.IsForbidden(err)
}

func isNotServed(err error) bool {
	return errors.Is(err, kube.ErrNotServed) || apierrors.IsNotFound(err)
}

// reasonOf returns the error's text without the words that contain digits, such as ports, times and request IDs, so
// that it is the same for each attempt.
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

// stands records that a watch has stayed open. A silent watch also stays open, so it does not count.
func (p *part) stands() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if !silent {
		p.works()
	}
}

// mended clears the error. history reports that history is available too.
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
