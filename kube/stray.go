package kube

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

const (
	// handlerFrame is the controller's function that calls handlers.
	handlerFrame = modulePath + "/controller.(*loop[...]).call"
	modulePath   = "github.com/evenkeel-go/evenkeel"
	// maxStraySites limits the number of recorded call sites. Further ones are not reported.
	maxStraySites = 1000
	// maxProfiles limits the number of goroutine profiles, which are needed to read a goroutine's labels.
	maxProfiles = 100
)

// strays detects writes with another context than that of the work that makes them, and reports each call site once.
// Such a write is missing in the run's record, its arrival in the informers is not awaited, and it is sent even after
// leadership was lost.
type strays struct {
	seed maphash.Seed

	mu       sync.Mutex
	seen     map[uint64]struct{} // stacks that were checked; guarded by mu
	profiles int                 // guarded by mu
}

func newStrays() *strays { return &strays{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}} }

// checkStray is called for each write without an observer.
func (c *Cluster) checkStray(req *http.Request, term *leadership.Term) {
	lost := false
	if term == nil {
		l := c.term.Load()
		lost = l != nil && l.Err() != nil
	}
	from := stack{lost: lost}
	runtime.Callers(3, from.pcs[:])
	site, first := c.strays.firstTime(from)
	if !first {
		return
	}
	call := callOf(req, c.basePath)
	switch group := call.Resource.Group; {
	case group == "coordination.k8s.io", call.Resource.Resource == "events":
		return // leader election and Events write outside of the work on purpose
	case group == "authentication.k8s.io", group == "authorization.k8s.io":
		return // reviews store nothing
	}
	const hint = "pass on the context that the handler or the work was given: " +
		"context.WithoutCancel and kube.UntilLeadershipLost of it may outlive the run; reported once for each call site"
	attrs := []any{"verb", call.Verb, "resource", call.Resource.Resource, "key", call.Key.String(), "at", site.at}
	switch {
	case site.inHandler:
		c.Logger().WarnContext(req.Context(), "a handler wrote with a context that is not its run's",
			append(attrs, "controller", site.controller, "hint", hint)...)
	case lost:
		c.Logger().WarnContext(req.Context(), "write without leadership after leadership was lost",
			append(attrs, "hint", hint)...)
	}
}

// stack identifies a place that makes writes.
type stack struct {
	pcs  [64]uintptr
	lost bool // leadership is lost, which is another problem to report
}

// straySite is the place where a write was made.
type straySite struct {
	at         string // file:line (function), and its callers
	inHandler  bool
	controller string // empty if unknown
}

// firstTime reports whether a stack is new, and returns its site.
func (s *strays) firstTime(from stack) (straySite, bool) {
	id := maphash.Comparable(s.seed, from)
	s.mu.Lock()
	_, known := s.seen[id]
	if known || len(s.seen) >= maxStraySites {
		s.mu.Unlock()
		return straySite{}, false
	}
	s.seen[id] = struct{}{}
	s.mu.Unlock()
	site := siteOf(from)
	site.controller = s.controllerOfGoroutine(from)
	site.inHandler = site.inHandler || site.controller != ""
	return site, true
}

// siteOf returns the call site of a stack: the first function that does not belong to a package that makes requests.
func siteOf(from stack) straySite {
	const callers = 3
	var site straySite
	var at []string
	frames := runtime.CallersFrames(from.pcs[:])
	for {
		frame, more := frames.Next()
		if frame.Function == handlerFrame {
			site.inHandler = true
		}
		if len(at) < callers && frame.Function != "" && (len(at) > 0 || !makesRequests(frame.Function)) {
			at = append(at, fmt.Sprintf("%s:%d (%s)", frame.File, frame.Line, frame.Function))
		}
		if !more {
			site.at = strings.Join(at, " <- ")
			return site
		}
	}
}

// makesRequests reports whether a function belongs to a package that makes requests on behalf of callers.
func makesRequests(function string) bool {
	for _, prefix := range []string{"net/http.", "k8s.io/client-go/", "runtime."} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	rest, isOurs := strings.CutPrefix(function, modulePath+"/")
	if !isOurs {
		return false
	}
	name, _, _ := strings.Cut(rest, ".")
	switch name {
	case "kube", "client", "client/strategic", "owned", "owned/watched", "status", "finalizer", "owned/ownerref", "crd",
		"event", "middleware":
		return true
	}
	return false
}

// controllerOfGoroutine returns the controller of the calling goroutine: its handler calls, or has started the
// goroutine. from is the caller's stack. Go exposes labels only in profiles of all goroutines. Other goroutines in the
// profile may be in this function too, if they wait for mu or belong to other Clusters, so the caller is identified by
// the program counters of its stack. If several goroutines have this stack, it returns a name only if all have the same
// label.
func (s *strays) controllerOfGoroutine(from stack) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.profiles++; s.profiles > maxProfiles {
		return ""
	}
	var text bytes.Buffer
	if pprof.Lookup("goroutine").WriteTo(&text, 1) != nil {
		return ""
	}
	const ownFunction = "kube.(*strays).controllerOfGoroutine+" // as in a profile: function+offset
	callers := from.inProfile()
	controller := ""
	_, records, _ := strings.Cut(text.String(), "\n") // the first line is the number of goroutines
	for record := range strings.SplitSeq(records, "\n\n") {
		// A record is "2 @ 0x4711 0x4712", a line with labels, and one line per function.
		counters, _, _ := strings.Cut(record, "\n")
		if !strings.Contains(counters+" ", callers) || !strings.Contains(record, ownFunction) {
			continue
		}
		name := controllerIn(record)
		if name == "" || controller != "" && controller != name {
			return ""
		}
		controller = name
	}
	return controller
}

// inProfile returns the program counters in the format of a goroutine profile.
func (s stack) inProfile() string {
	text := []byte(" ")
	for _, pc := range s.pcs {
		if pc == 0 {
			break
		}
		text = fmt.Appendf(text, "%#x ", pc)
	}
	return string(text)
}

// controllerIn returns the value of leadership.ControllerLabel in a record of a goroutine profile, or "".
func controllerIn(record string) string {
	_, labels, found := strings.Cut(record, fmt.Sprintf("%q:", leadership.ControllerLabel))
	if !found {
		return ""
	}
	quoted, err := strconv.QuotedPrefix(labels)
	if err != nil {
		return ""
	}
	name, _ := strconv.Unquote(quoted)
	return name
}
