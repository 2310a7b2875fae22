package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// runner measures.
type runner struct {
	dir     string
	options Options
	results *Results
	client  *http.Client
	self    string // this program, which is the API server too
	begin   time.Time
	burst   int // the number of the latest burst of events
}

// compare builds everything and measures it. With an error come the results so far.
func compare(ctx context.Context, dir string, o Options) (*Results, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if len(contestants(o.Only)) == 0 {
		return nil, fmt.Errorf("no controller is named %s", strings.Join(o.Only, " or "))
	}
	r := &runner{dir: dir, options: o, results: newResults(o), self: self, begin: time.Now()}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // loopback
	defer transport.CloseIdleConnections()
	r.client = &http.Client{Transport: transport, Timeout: o.Timeout}
	err = r.all(ctx)
	r.results.Seconds = time.Since(r.begin).Seconds()
	return r.results, err
}

// all measures everything that the options ask for.
func (r *runner) all(ctx context.Context) error {
	o := r.options
	if err := r.buildAll(ctx); err != nil {
		return err
	}
	if o.Cold {
		if err := r.coldBuilds(ctx); err != nil {
			return err
		}
	}
	for _, kind := range []string{probe.Pods, probe.Databases} {
		for i, n := range o.Sizes {
			if err := r.size(ctx, kind, n, o.Rounds, i == 0, contestants(o.Only)); err != nil {
				return err
			}
		}
	}
	for _, n := range o.ChartSizes {
		selected, rounds := contestants(o.Only), o.Rounds
		if n > slices.Max(o.Sizes) {
			selected, rounds = contestants([]string{evenKeel}), 1
		}
		if err := r.size(ctx, probe.Pods, n, rounds, false, selected); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) uses(module string) bool {
	return slices.ContainsFunc(contestants(r.options.Only), func(c contestant) bool { return c.module == module })
}

func (r *runner) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...))
}

// size measures every controller with n objects, in turns.
func (r *runner) size(ctx context.Context, kind string, n, rounds int, events bool, selected []contestant) error {
	r.progress("make %d %s", n, kind)
	formats := "json"
	if kind == probe.Pods {
		formats = "protobuf" // what all clients ask for; the server would make JSON when asked
	}
	args := []string{serveCommand, "-kind", kind, "-n", strconv.Itoa(n), "-formats", formats}
	if r.options.TLS {
		args = append(args, "-tls")
	}
	server, err := startProcess(ctx, "the API server", r.self, nil, args...)
	if err != nil {
		return err
	}
	defer server.end()
	var ready serving
	if err := server.read(ctx, &ready, 3*r.options.Timeout); err != nil {
		return err
	}
	for format, size := range ready.BytesPerObject {
		r.results.ObjectBytes[kind+" in "+format] = size
	}
	for round := range rounds {
		for i := range selected {
			c := selected[(i+round)%len(selected)] // no program is always the first
			r.progress("%d %s, round %d of %d: %s", n, kind, round+1, rounds, c.title)
			err := r.visit(ctx, ready.URL, c, kind, n, events)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r.progress("failed: %v", err)
				r.results.Failures = append(r.results.Failures,
					Failure{Contestant: c.name, Kind: kind, Objects: n, Round: round + 1, Err: err.Error()})
			}
		}
	}
	return nil
}

// visit measures one program once.
func (r *runner) visit(ctx context.Context, url string, c contestant, kind string, n int, events bool) error {
	args := []string{"-server", url, "-kind", kind, "-workers", strconv.Itoa(r.options.Workers)}
	if c.best {
		args = append(args, "-best")
	}
	var variables []string
	if n >= million {
		variables = append(variables, "GOMEMLIMIT="+millionLimit)
	}
	p, err := startProcess(ctx, c.title, r.binary(c.module), variables, args...)
	if err != nil {
		return err
	}
	defer p.end()
	if _, err := r.control(ctx, url+"/control/requests"); err != nil {
		return err
	}
	a, err := r.ask(ctx, p, probe.Command{Op: probe.OpSync, N: n})
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if a.Runs > int64(n)+int64(r.options.Workers) {
		r.progress("%s handled %d objects in %d runs: the machine is so slow that resyncs had begun", c.title, n,
			a.Runs)
	}
	suffix := suffixOf(kind)
	for metric, value := range map[string]float64{
		"heap_per" + suffix:  float64(a.HeapBytes) / float64(n),
		"peak_rss" + suffix:  float64(a.PeakRSSBytes),
		"sync_time" + suffix: a.Seconds,
		"sync_cpu" + suffix:  a.CPUSeconds,
	} {
		r.results.add(sized(metric, n), c.name, value)
	}
	if !events {
		return nil
	}
	if err := r.events(ctx, p, url, c, suffix, n); err != nil {
		return err
	}
	a, err = r.ask(ctx, p, probe.Command{Op: probe.OpReads, Millis: r.options.ReadMillis})
	if err != nil {
		return fmt.Errorf("reads: %w", err)
	}
	if a.GetNanos > 0 {
		r.results.add("get_first"+suffix, c.name, a.FirstGetNanos/1000)
		r.results.add("get"+suffix, c.name, a.GetNanos/1000)
		r.results.add("list_1000_first"+suffix, c.name, a.FirstListNanos/float64(max(a.Listed, 1)))
		r.results.add("list_1000"+suffix, c.name, a.ListNanos/float64(max(a.Listed, 1)))
	}
	requests, err := r.control(ctx, url+"/control/requests")
	if err != nil {
		return err
	}
	r.results.Requests[kind+" "+c.name] = requests
	return nil
}

// events measures the bursts of events.
func (r *runner) events(ctx context.Context, p *process, url string, c contestant, suffix string, n int) error {
	o := r.options
	distinct := min(n, o.Distinct)
	a, err := r.burstOf(ctx, p, url, probe.Command{Count: distinct, Keys: distinct}, 0)
	if err != nil {
		return fmt.Errorf("events over distinct keys: %w", err)
	}
	r.results.add("event_cpu_distinct"+suffix, c.name, a.CPUSeconds*1e6/float64(distinct))

	hot := int(float64(o.HotRate) * o.HotSeconds)
	a, err = r.burstOf(ctx, p, url,
		probe.Command{Count: hot, Keys: min(n, o.HotKeys), HandlerMicros: o.HotHandlerMicros}, o.HotRate)
	if err != nil {
		return fmt.Errorf("events over few keys: %w", err)
	}
	r.results.add("event_cpu_hot"+suffix, c.name, a.CPUSeconds*1e6/float64(hot))
	r.results.add("handled_hot"+suffix, c.name, float64(a.Runs)/float64(hot))

	paced := int(float64(o.PacedRate) * o.PacedSeconds)
	a, err = r.burstOf(ctx, p, url, probe.Command{Count: paced, Keys: min(n, paced)}, o.PacedRate)
	if err != nil {
		return fmt.Errorf("paced events: %w", err)
	}
	for i, metric := range []string{"latency_p50", "latency_p99", "latency_p999"} {
		r.results.add(metric+suffix, c.name, a.LatencyMicros[i])
	}
	return nil
}

// burstOf lets the server send a burst of events at a rate (zero: all at once) and returns what
// handling it took.
func (r *runner) burstOf(ctx context.Context, p *process, url string, c probe.Command, rate int) (probe.Answer, error) {
	r.burst++
	c.Burst = r.burst % 1000
	prepare := fmt.Sprintf("%s/control/prepare?burst=%d&count=%d&keys=%d", url, c.Burst, c.Count, c.Keys)
	if _, err := r.control(ctx, prepare); err != nil {
		return probe.Answer{}, err
	}
	c.Op = probe.OpExpect
	if _, err := r.ask(ctx, p, c); err != nil {
		return probe.Answer{}, err
	}
	if _, err := r.control(ctx, fmt.Sprintf("%s/control/push?rate=%d", url, rate)); err != nil {
		return probe.Answer{}, err
	}
	c.Op = probe.OpEvents
	return r.ask(ctx, p, c)
}

func (r *runner) ask(ctx context.Context, p *process, c probe.Command) (probe.Answer, error) {
	var a probe.Answer
	if err := p.ask(ctx, c, &a, r.options.Timeout); err != nil {
		return a, err
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

// control makes the server do something.
func (r *runner) control(ctx context.Context, url string) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var body json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	var list []string
	_ = json.Unmarshal(body, &list) // a body that is not a list only confirms the request
	return list, nil
}
