package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

// Phases, in their order.
const (
	phaseStart    = "start"
	phaseRest     = "rest"
	phaseChurn    = "churn"
	phaseOutage   = "outage"
	phaseRestart  = "restart"
	phaseDeletion = "deletion"
)

func phases() []string {
	return []string{phaseStart, phaseRest, phaseChurn, phaseOutage, phaseRestart, phaseDeletion}
}

// session is one program in a separate cluster.
type session struct {
	o          Options
	program    program
	binary     string
	dir        string // of this session, removed at its end
	profileDir string
	progress   io.Writer

	cluster *localcluster.Cluster
	api     *api
	view    *view
	proxy   *proxy
	records *recordServer

	kubeconfig string
	operator   *operator
	revision   int // of the last change
	size       int
}

// quietTime is how long an operator must neither send requests nor handle anything until it counts as done.
const quietTime = time.Second

// measure takes a program through all phases with size WebApps, and leaves nothing behind.
func (s *session) measure(ctx context.Context) (_ map[string]Measurement, err error) {
	if s.dir, err = os.MkdirTemp("", "bench-operator-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	s.say("starting a cluster")
	if s.cluster, err = startCluster(ctx, s.o.Repository, filepath.Join(s.dir, "cluster"), s.progress); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.cluster.Stop()) }()
	if s.api, err = newAPI(s.cluster.RESTConfig()); err != nil {
		return nil, err
	}
	defer s.api.client.CloseIdleConnections()
	if s.records, err = newRecordServer(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.records.close()) }()
	if s.proxy, err = newProxy(s.cluster.RESTConfig()); err != nil {
		return nil, err
	}
	if err := s.proxy.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.proxy.close()) }()
	s.kubeconfig = filepath.Join(s.dir, "kubeconfig")
	if err := writeKubeconfig(s.kubeconfig, s.proxy); err != nil {
		return nil, err
	}

	s.view = newView(s.api.client, s.api.host)
	watchCtx, stopWatches := context.WithCancel(ctx)
	var watches sync.WaitGroup
	for _, path := range []string{webAppsPath, deploymentsPath, configMapsPath} {
		watches.Go(func() { s.view.follow(watchCtx, path) })
	}
	defer func() {
		stopWatches()
		watches.Wait()
	}()
	defer func() {
		if s.operator != nil {
			err = errors.Join(err, s.operator.stop())
		}
	}()
	if err := s.createWebApps(ctx); err != nil {
		return nil, err
	}
	result := make(map[string]Measurement)
	for _, phase := range phases() {
		m, err := s.run(ctx, phase)
		if err != nil {
			return result, fmt.Errorf("%s: %s: %w", s.program.name, phase, err)
		}
		result[phase] = m
		s.say("%s: %.1f s, %d requests, %d conflicts, %.2f s CPU, %.1f MB peak RSS, handled %d%s", phase, m.Seconds,
			m.requestCount(), m.conflicts(),
			m.CPU, float64(m.PeakRSS)/1e6, m.Handled, delayText(m))
	}
	return result, nil
}

// run runs one phase and measures it.
func (s *session) run(ctx context.Context, phase string) (Measurement, error) {
	if phase == phaseRestart {
		if err := s.operator.stop(); err != nil {
			return Measurement{}, err
		}
		s.operator = nil
	}
	s.records.reset()
	s.view.takeDelays()
	before := s.snapshot()
	changes := s.revision
	if phase == phaseStart || phase == phaseRestart {
		if err := s.startOperator(ctx); err != nil {
			return Measurement{}, err
		}
		// What an operator has used before is nothing.
	} else {
		_ = resetPeakRSS(s.operator.command.Process.Pid) // where that fails, the peak is that of the process so far
		cpu, err := cpuTime(s.operator.command.Process.Pid)
		if err != nil {
			return Measurement{}, err
		}
		before.cpu = cpu
	}
	finish, err := s.operator.startProfile(ctx,
		filepath.Join(s.profileDir, fmt.Sprintf("%s-%d-%s", s.program.name, s.size, phase)))
	if err != nil {
		return Measurement{}, err
	}
	seconds, left, err := s.runPhase(ctx, phase)
	if err != nil {
		return Measurement{}, err
	}
	m, err := s.since(before)
	if err != nil {
		return Measurement{}, err
	}
	if err := finish(); err != nil {
		return Measurement{}, err
	}
	m.Seconds, m.Left, m.Changes = seconds, left, s.revision-changes
	delays, unshown := s.view.takeDelays()
	m.P50, m.P99, m.Max = percentile(delays, 50).Seconds(), percentile(delays, 99).Seconds(),
		percentile(delays, 100).Seconds()
	if unshown > 0 {
		m.Left = strings.TrimPrefix(m.Left+fmt.Sprintf(", %d changes that no child shows", unshown), ", ")
	}
	return m, nil
}

func (s *session) startOperator(ctx context.Context) (err error) {
	address := ""
	if s.profileDir != "" {
		if address, err = freeAddress(ctx); err != nil {
			return err
		}
	}
	s.operator, err = startOperator(s.program, s.binary, s.kubeconfig, s.records.url, address)
	return err
}

// snapshot is the state of all counters.
type snapshot struct {
	requests, failures map[string]int
	sent, received     int64
	cpu                time.Duration
}

func (s *session) snapshot() snapshot {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	return snapshot{
		requests: maps.Clone(s.proxy.requests), failures: maps.Clone(s.proxy.failures),
		sent: s.proxy.sent.Load(), received: s.proxy.received.Load(),
	}
}

// since returns the counts since a snapshot.
func (s *session) since(before snapshot) (Measurement, error) {
	now := s.snapshot()
	if err := s.operator.failed(); err != nil {
		return Measurement{}, err
	}
	pid := s.operator.command.Process.Pid
	cpu, err := cpuTime(pid)
	if err != nil {
		return Measurement{}, err
	}
	peak, err := peakRSS(pid)
	if err != nil {
		return Measurement{}, err
	}
	_, handled, _ := s.records.progress()
	return Measurement{
		Requests: difference(before.requests, now.requests), Failures: difference(before.failures, now.failures),
		Sent: now.sent - before.sent, Received: now.received - before.received,
		CPU: (cpu - before.cpu).Seconds(), PeakRSS: peak, Handled: handled, LoadAvg: loadAvg(),
	}, nil
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.progress, "%s, %d WebApps: %s\n", s.program.name, s.size, fmt.Sprintf(format, args...))
}

// namespaceOf spreads the WebApps over a few namespaces.
func namespaceOf(i int) string { return fmt.Sprintf("bench-%d", i%10) }

func nameOf(i int) string { return fmt.Sprintf("app-%d", i) }

func keyOf(i int) string { return namespaceOf(i) + "/" + nameOf(i) }

// createWebApps creates the namespaces and the WebApps while no operator runs.
func (s *session) createWebApps(ctx context.Context) error {
	for i := range min(10, s.size) {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespaceOf(i))
		if _, err := s.api.send(ctx, http.MethodPost, "/api/v1/namespaces", "application/json",
			[]byte(body)); err != nil {
			return err
		}
	}
	s.revision = 1
	indexes := make(chan int)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range indexes {
				if err := s.createWebApp(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range s.size {
		select {
		case indexes <- i:
		case <-ctx.Done():
		}
	}
	close(indexes)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	_, err := s.await(ctx, func() (bool, string) {
		c := s.view.counts()
		return c.apps == s.size && s.view.isSynced(), fmt.Sprintf("created %d of %d", c.apps, s.size)
	})
	return err
}

func (s *session) createWebApp(ctx context.Context, i int) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "webapp.example.com/v1", "kind": "WebApp",
		"metadata": map[string]any{"namespace": namespaceOf(i), "name": nameOf(i)},
		"spec": map[string]any{
			// Without Pods: their scheduler and kubelets would take the cores from the operators.
			"image": "shop:1", "replicas": 0, "host": nameOf(i) + ".example.org",
			"config": map[string]string{revisionKey: "1", "COLOUR": "blue", "GREETING": "hello"},
		},
	})
	if err != nil {
		return err
	}
	_, err = s.api.send(ctx, http.MethodPost, "/apis/webapp.example.com/v1/namespaces/"+namespaceOf(i)+
		"/webapps?fieldManager="+fieldManager, "application/json", body)
	return err
}

// await polls a condition until it holds, and returns when it was seen to hold. It prints the state each two seconds,
// and gives up after the time limit of a phase.
func (s *session) await(ctx context.Context, condition func() (done bool, state string)) (time.Time, error) {
	const poll, reportInterval = 20 * time.Millisecond, 2 * time.Second
	deadline, reported := time.Now().Add(s.o.Timeout), time.Now()
	for {
		done, state := condition()
		now := time.Now()
		if done {
			return now, nil
		}
		if s.operator != nil {
			if err := s.operator.failed(); err != nil {
				return now, err
			}
		}
		if now.After(deadline) {
			return now, fmt.Errorf("%w after %v: %s", errTimeout, s.o.Timeout, state)
		}
		if now.Sub(reported) >= reportInterval {
			reported = now
			s.say("%s", state)
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(poll):
		}
	}
}

var errTimeout = errors.New("the phase's condition does not hold")

// awaitQuiet waits until the operator has sent no request and handled nothing for quietTime.
func (s *session) awaitQuiet(ctx context.Context) error {
	_, err := s.await(ctx, func() (bool, string) {
		_, calls, last := s.records.progress()
		quiet := s.proxy.quietFor() >= quietTime && time.Since(last) >= quietTime
		return quiet, fmt.Sprintf("waiting until the operator is quiet; it has handled %d", calls)
	})
	return err
}
