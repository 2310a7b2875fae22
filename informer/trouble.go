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

// isHistoryGone says that the server no longer has, or does not have yet, the resource
// version that was asked for. That is answered by a relist and is nobody's failure.
func isHistoryGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// asksForNoHistory says that a request is for what there is now. It cannot fail because history
// is gone, and there is nothing to follow it up with if it does.
func asksForNoHistory(opts metav1.ListOptions) bool {
	return opts.ResourceVersion == "" && opts.Continue == ""
}

// manyGone is how often history may be gone in a row. A list follows each time; it takes two,
// when the server does not have the version of the first either.
const manyGone = 4

const (
	// maxReasons is how many reasons of one episode are remembered, and logged at once.
	maxReasons = 8
	// maxReason is how many bytes of an error's text tell reasons apart.
	maxReason = 1024
	// manyReasonsEvery is how often further reasons are logged.
	manyReasonsEvery = time.Hour
)

// historyGone notes that history is gone, which becomes trouble when nothing works in between.
func (p *part) historyGone(err error) {
	p.mu.Lock()
	p.gone410++
	many := p.gone410 >= manyGone
	p.mu.Unlock()
	if many {
		p.broke(err)
	}
}

// failed notes why the part cannot list or watch, and logs it once per reason.
func (p *part) failed(err error) { p.trouble(err, false) }

// broke is failed for a watch that had been opened: that one can be opened again does not
// mean that it works.
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

// letGo calls those who wait for what p will not show now.
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

// isUnverified reports whether requests have failed, and no list has shown since that resource
// versions did not go back meanwhile and that no awaited write is lost.
func (p *part) isUnverified() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unverified
}

// verified notes that a list has shown the present resource version.
func (p *part) verified() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unverified = false
}

// isUnavailable says that the cluster does not serve the kind, or does not let this user
// read it: what an optional informer does without.
func isUnavailable(err error) bool {
	return isNotServed(err) || apierrors.IsForbidden(err)
}

func isNotServed(err error) bool {
	return errors.Is(err, kube.ErrNotServed) || apierrors.IsNotFound(err)
}

// reasonOf returns the error's text in a form that does not change from one attempt to
// the next: without the words that have digits, such as ports, times and ids of requests.
func reasonOf(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
	return strings.Join(words, " ")
}

// opened notes that a watch was opened.
func (p *part) opened() {
	p.mu.Lock()
	broken := p.broken
	p.mu.Unlock()
	if !broken {
		p.mended(false)
	}
}

// works notes that an event has come.
func (p *part) works() { p.mended(true) }

// stands notes that a watch stands. Silent ones do, too.
func (p *part) stands() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if !silent {
		p.works()
	}
}

// mended notes that what was wrong is over; history says that it is there, too.
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
