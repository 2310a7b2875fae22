package manager

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/leader"
)

// debugRunnable is a runnable in the response of /debug.
type debugRunnable struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	NotReady string `json:"notReady,omitempty"`
	Debug    string `json:"debug,omitempty"` // path of its state
}

// serveDebug serves all runnables and the lease.
func (m *Manager) serveDebug(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	members := slices.Clone(m.members)
	m.mu.Unlock()
	response := struct {
		Runnables []debugRunnable `json:"runnables"`
		Lease     string          `json:"lease,omitempty"`
		State     string          `json:"state,omitempty"`
		Leader    string          `json:"leader,omitempty"`
	}{Runnables: []debugRunnable{}}
	if m.elector != nil {
		status := m.Leadership()
		response.Lease, response.State, response.Leader = status.Lease, leadershipText(status), status.Leader
	}
	for _, r := range members {
		d := debugRunnable{Name: r.Name, Group: r.Group.String()}
		if err := m.readyOf(r); err != nil {
			d.NotReady = err.Error()
		}
		if _, ok := r.Runner.(debugged); ok {
			d.Debug = (&url.URL{Path: "/debug/" + r.Name}).String()
		}
		response.Runnables = append(response.Runnables, d)
	}
	writeJSON(w, response)
}

// serveDebugOf serves the state of one runnable, or with ?key=KEY of one of its keys.
func (m *Manager) serveDebugOf(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	m.mu.Lock()
	i := slices.IndexFunc(m.members, func(r *member) bool { return r.Name == name })
	var runner Runner
	if i >= 0 {
		runner = m.members[i].Runner
	}
	m.mu.Unlock()
	inspected, ok := runner.(debugged)
	if !ok {
		http.Error(w, fmt.Sprintf("no runnable %q with a state: GET /debug lists them", name), http.StatusNotFound)
		return
	}
	var value any
	err := m.guard.Try("Debug of "+name, func() (err error) {
		value, err = inspected.Debug(req.URL.Query().Get("key"))
		return err
	})
	if err == nil {
		writeJSON(w, value)
		return
	}
	code := http.StatusBadRequest
	if _, panicked := errors.AsType[*usercode.PanicError](err); panicked {
		code = http.StatusInternalServerError
	}
	http.Error(w, err.Error(), code)
}

func writeJSON(w http.ResponseWriter, value any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		http.Error(w, fmt.Sprintf("encode the state: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = text.WriteTo(w) // a failure is the client's
}

// onlyLoopback returns a handler that calls next only for requests from this host or through kubectl port-forward. A
// proxy on this host forwards requests of other hosts, and a page in a browser can make it send requests with the
// page's own name as the host: these requests are refused.
func onlyLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host := req.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		forwarded := slices.ContainsFunc([]string{
			"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
			"X-Forwarded-Proto",
		},
			func(name string) bool { return req.Header.Get(name) != "" })
		if forwarded || !isLoopback(req.RemoteAddr) || !isLoopback(net.JoinHostPort(host, "0")) {
			http.Error(w, "without authorization, only clients on this host are served: use kubectl port-forward, or "+
				"set --authorize", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// maxProfileTime is less than the time that the HTTP server has for a response.
const maxProfileTime = time.Minute

// serveProfile serves the profile of a name for go tool pprof, as net/http/pprof does. It does not use that package,
// because importing it adds its handlers to http.DefaultServeMux, which the program may serve to anybody.
func serveProfile(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	start, stop := pprof.StartCPUProfile, pprof.StopCPUProfile
	switch name {
	case "trace":
		start, stop = trace.Start, trace.Stop
	case "profile":
	default:
		profile := pprof.Lookup(name)
		if profile == nil {
			http.Error(w, fmt.Sprintf("no profile %q: use profile, trace, heap, allocs, goroutine, mutex or block",
				name), http.StatusNotFound)
			return
		}
		level, _ := strconv.Atoi(req.URL.Query().Get("debug")) // 0: the format of go tool pprof
		if level > 0 {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		_ = profile.WriteTo(w, level) // a failure is the client's
		return
	}
	duration, err := profileTime(req.URL.Query().Get("seconds"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := start(w); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer stop()
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
	}
}

// profileTime parses the duration of a profile. The default is that of net/http/pprof.
func profileTime(seconds string) (time.Duration, error) {
	if seconds == "" {
		return 30 * time.Second, nil
	}
	n, err := strconv.ParseFloat(seconds, 64)
	if err != nil || !(n > 0 && n <= maxProfileTime.Seconds()) {
		return 0, errors.New("seconds must be a number between 0 and " + fmt.Sprint(maxProfileTime.Seconds()))
	}
	return time.Duration(n * float64(time.Second)), nil
}

// leadershipText returns the state of an elector as text.
func leadershipText(status leader.Status) string {
	switch {
	case status.Leading:
		return "leading"
	case status.Standby:
		return "standby"
	}
	return "not leading"
}
