//go:build unix

package election

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

// defaultRounds is the number of rounds unless EVENKEEL_LEADER_ROUNDS sets another one.
const defaultRounds = 2

// Deposition is a way in which a leader loses its lease while it writes.
type Deposition struct {
	Writers Writers
	// DeleteLease deletes the Lease. Otherwise the leader is stopped with SIGSTOP until another process leads and has
	// written, and is then continued.
	DeleteLease bool
}

// TestDeposedLeaderWritesNothing tests that a leader sends no further write of its term after another process leads, or
// after its Lease was deleted. Two processes compete for a Lease; each of 32 writers of the leader patches one
// ConfigMap. A watch counts late writes: those of an earlier term than the latest one that has begun.
// EVENKEEL_LEADER_ROUNDS is the number of rounds for each deposition.
func TestDeposedLeaderWritesNothing(t *testing.T, cluster *localcluster.Cluster, depositions ...Deposition) {
	rounds := defaultRounds
	if text := os.Getenv("EVENKEEL_LEADER_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("EVENKEEL_LEADER_ROUNDS is %q, want a number of rounds", text)
		}
	}
	for _, d := range depositions {
		name := string(d.Writers)
		if d.DeleteLease {
			name += " and a deleted Lease"
		}
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			e := New(t, cluster, d.Writers)
			late, roundsWithLate, repeated := 0, 0, 0
			for done := 0; done < rounds; {
				valid, n := e.depose(d.DeleteLease)
				late += n
				if n > 0 {
					roundsWithLate++
				}
				if valid {
					done++
					continue
				}
				// The set-up failed: on a busy machine leadership was lost at another time.
				if repeated++; repeated > rounds+10 {
					t.Fatalf("%s: gave up after %d rounds: %d of them could not be set up", name, done+repeated,
						repeated)
				}
			}
			t.Logf("%s: late writes: %d in %d rounds (in %d of them; %d more rounds could not be set up; %d writes "+
				"in %d terms)",
				name, late, rounds, roundsWithLate, repeated, e.writes(), e.Observed().Term)
			if late > 0 {
				t.Errorf("%s: writes of a deposed leader:\n%s", name, strings.Join(e.LateWrites(), "\n"))
			}
		})
	}
}

// Election is two replicas that compete for one Lease, and a watch of their writes.
type Election struct {
	*testing.T
	Clients   kubernetes.Interface
	Namespace string
	Replicas  map[string]*Process

	mu     sync.Mutex
	latest Observation // guarded by mu
	late   []string    // guarded by mu; the first maxLate late writes
	nLate  int         // guarded by mu
	total  int         // guarded by mu
	fences int         // guarded by mu; the latest fence that the watch has shown
}

const maxLate = 20

// Observation is the latest term as shown by the watch.
type Observation struct {
	Term   int64
	By     string
	Writes int // to Targets
}

// StepTimeout limits a step of a round, also on a busy machine.
const StepTimeout = 2 * time.Minute

// New starts two replicas, and deletes them at the end of the test.
func New(t *testing.T, cluster *localcluster.Cluster, writers Writers) *Election {
	t.Helper()
	config := cluster.RESTConfig()
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := &Election{T: t, Clients: clients, Namespace: ns.Name, Replicas: map[string]*Process{}}
	maps := clients.CoreV1().ConfigMaps(e.Namespace)
	create := func(name string, labels map[string]string) string {
		m, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"term": "0"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.ResourceVersion
	}
	for i := range Targets {
		create(targetName(i), map[string]string{"target": "true"})
	}
	// A Lease without a holder: the first term begins at once.
	if _, err := clients.CoordinationV1().Leases(e.Namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: LeaseName},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create("fence", nil)
	version := create(termName, nil)
	watching, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	watched := make(chan struct{})
	go func() { defer close(watched); e.watch(watching, version) }() // waited for by the cleanup
	t.Cleanup(func() { stop(); <-watched })
	for _, identity := range []string{"anna", "bert"} {
		e.Replicas[identity] = start(t, replicaConfig{
			Kubeconfig: cluster.Kubeconfig(), Namespace: e.Namespace, Identity: identity, Writers: writers,
		})
	}
	return e
}

// watch counts writes, from version on.
func (e *Election) watch(ctx context.Context, version string) {
	for ctx.Err() == nil {
		w, err := e.Clients.CoreV1().ConfigMaps(e.Namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			if ctx.Err() == nil {
				e.Errorf("watch: %v", err)
			}
			return
		}
		for event := range w.ResultChan() {
			m, ok := event.Object.(*corev1.ConfigMap)
			if !ok || event.Type != watch.Modified {
				if ctx.Err() == nil && event.Type != watch.Added {
					e.Errorf("the watch received %s %v", event.Type, event.Object)
				}
				continue
			}
			version = m.ResourceVersion
			e.observe(m)
		}
		w.Stop()
	}
}

func (e *Election) observe(m *corev1.ConfigMap) {
	term, err := strconv.ParseInt(m.Data["term"], 10, 64)
	if err != nil {
		e.Errorf("%s has the term %q", m.Name, m.Data["term"])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch m.Name {
	case "fence":
		e.fences = int(term)
	case termName:
		if term <= e.latest.Term {
			e.Errorf("term %d follows term %d", term, e.latest.Term)
		}
		e.latest = Observation{Term: term, By: m.Data["by"]}
	default:
		e.total++
		if term == e.latest.Term {
			e.latest.Writes++
			return
		}
		e.nLate++
		if len(e.late) < maxLate {
			e.late = append(e.late, fmt.Sprintf("%s was written by %s of term %d (write %s) in term %d of %s",
				m.Name, m.Data["by"], term, m.Data["count"], e.latest.Term, e.latest.By))
		}
	}
}

// Observed returns the latest term.
func (e *Election) Observed() Observation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest
}

func (e *Election) writes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.total
}

// LateWrites describes the first late writes.
func (e *Election) LateWrites() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.late...)
}

func (e *Election) countLate() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nLate
}

// Until waits for a condition, and reports whether it was met.
func (e *Election) Until(limit time.Duration, condition func() bool) bool {
	const interval = 10 * time.Millisecond
	err := wait.PollUntilContextTimeout(e.Context(), interval, limit, true, func(context.Context) (bool, error) {
		for _, p := range e.Replicas {
			if err := p.Failed(); err != nil {
				return false, err
			}
		}
		return condition(), nil
	})
	return err == nil
}

// Fatalf fails the test, and logs the output of the replicas.
func (e *Election) Fatalf(format string, args ...any) {
	e.Helper()
	for identity, p := range e.Replicas {
		e.Logf("output of %s:\n%s", identity, p.Log())
	}
	e.T.Fatalf(format, args...)
}

// depose makes the leader lose its lease while it writes, waits until another process leads and writes, and lets the
// first one continue. It returns the number of late writes, and whether everything happened in this order.
func (e *Election) depose(deleteLease bool) (valid bool, late int) {
	e.Helper()
	before := e.countLate()
	valid = e.tryDepose(deleteLease)
	e.Fence()
	return valid, e.countLate() - before
}

func (e *Election) tryDepose(deleteLease bool) (valid bool) {
	e.Helper()
	var leads Observation
	var p *Process
	if !e.Until(StepTimeout, func() bool {
		leads = e.Observed()
		p = e.Replicas[leads.By]
		if p == nil || leads.Writes < Targets/2 {
			return false
		}
		state := p.State()
		return state == TermState{begun: state.begun, ended: state.begun - 1, leads: leads.Term}
	}) {
		e.Fatalf("no process leads and writes: %+v", e.Observed())
	}
	before := p.State()
	p.Signal(syscall.SIGUSR1)
	if !e.Until(StepTimeout, func() bool {
		now := e.Observed()
		return now.Term != leads.Term || now.Writes >= leads.Writes+2*Targets
	}) {
		e.Fatalf("%s leads, but does not write: %+v", p.Identity, e.Observed())
	}
	e.pauseShortly()
	if deleteLease {
		return e.deleteLease(p, before, leads)
	}
	p.Signal(syscall.SIGSTOP)
	defer p.Signal(syscall.SIGCONT)
	if !e.Until(StepTimeout, func() bool {
		now := e.Observed()
		return now.By != p.Identity && now.Writes > 0
	}) {
		e.Fatalf("%s is stopped, but no other process leads and writes: %+v", p.Identity, e.Observed())
	}
	now := e.Observed()
	if valid = now.Term == leads.Term+1 && p.State() == before; !valid {
		e.Logf("%s was not deposed while it was stopped: term %d followed term %d", p.Identity, now.Term, leads.Term)
	}
	p.Signal(syscall.SIGCONT)
	if !e.Until(StepTimeout, func() bool { return p.State().ended > before.ended }) {
		e.Fatalf("%s was deposed and continued, but its work has not ended", p.Identity)
	}
	return valid
}

// deleteLease deletes the Lease of p, which leads.
func (e *Election) deleteLease(p *Process, before TermState, leads Observation) (valid bool) {
	e.Helper()
	err := e.Clients.CoordinationV1().Leases(e.Namespace).Delete(e.Context(), LeaseName, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		// In the previous round leadership was lost at another time, and p has not detected yet that the Lease was
		// deleted.
		e.Until(StepTimeout, func() bool { return p.State().ended > before.ended })
		return false
	}
	if err != nil {
		e.Fatal(err)
	}
	const limit = 5 * LeaseDuration // much longer than a candidate waits
	if !e.Until(limit, func() bool { return p.State().ended > before.ended }) {
		e.Logf("the Lease of %s was deleted, but it continues to lead", p.Identity)
		return false
	}
	if !e.Until(StepTimeout, func() bool { now := e.Observed(); return now.Term > leads.Term && now.Writes > 0 }) {
		e.Fatalf("the Lease was deleted, but no process leads and writes: %+v", e.Observed())
	}
	return true
}

// pauseShortly waits for up to 50 ms, so that the state of the writers differs between rounds.
func (e *Election) pauseShortly() { e.Pause(rand.N(50 * time.Millisecond)) }

// Pause waits.
func (e *Election) Pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// Fence waits until the watch has shown all earlier writes.
func (e *Election) Fence() {
	e.Helper()
	maps := e.Clients.CoreV1().ConfigMaps(e.Namespace)
	e.mu.Lock()
	next := e.fences + 1
	e.mu.Unlock()
	m, err := maps.Get(e.Context(), "fence", metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	m.Data = map[string]string{"term": strconv.Itoa(next)}
	if _, err := maps.Update(e.Context(), m, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	if !e.Until(StepTimeout, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.fences == next
	}) {
		e.Fatalf("the watch does not show the fence")
	}
}
