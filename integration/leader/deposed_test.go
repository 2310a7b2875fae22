package leader

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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
	"k8s.io/client-go/rest"
)

// defaultRounds is the number of rounds unless EVENKEEL_LEADER_ROUNDS sets another one.
const defaultRounds = 2

// A leader sends no further write of its term after it was stopped until another process leads, or after its Lease was
// deleted. Two processes compete for a Lease; each of 32 writers of the leader patches one ConfigMap. In each round the
// leader is stopped with SIGSTOP while all of them write, until the other process leads and has written, and is then
// continued. A watch counts late writes: those of an earlier term than the latest one that has begun.
func TestDeposedLeaderWritesNothing(t *testing.T) {
	rounds := defaultRounds
	if text := os.Getenv("EVENKEEL_LEADER_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("EVENKEEL_LEADER_ROUNDS is %q, want a number of rounds", text)
		}
	}
	for _, kind := range []struct {
		name    string
		writers writerKind
		deleted bool
	}{
		{string(writersHandlers), writersHandlers, false},
		{string(writersOutliving), writersOutliving, false},
		{string(writersOwnContext), writersOwnContext, false},
		{"a deleted Lease", writersOutliving, true},
	} {
		t.Run(strings.ReplaceAll(kind.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			e := newElection(t, kind.writers)
			late, roundsWithLate, repeated := 0, 0, 0
			for done := 0; done < rounds; {
				valid, n := e.depose(kind.deleted)
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
					t.Fatalf("%s: gave up after %d rounds: %d of them could not be set up", kind.name, done+repeated, repeated)
				}
			}
			t.Logf("%s: late writes: %d in %d rounds (in %d of them; %d more rounds could not be set up; %d writes in %d terms)",
				kind.name, late, rounds, roundsWithLate, repeated, e.writes(), e.observed().term)
			if late > 0 {
				t.Errorf("%s: writes of a deposed leader:\n%s", kind.name, strings.Join(e.lateWrites(), "\n"))
			}
		})
	}
}

// election is two replicas that compete for one Lease, and a watch of their writes.
type election struct {
	*testing.T
	clients   kubernetes.Interface
	namespace string
	replicas  map[string]*process

	mu     sync.Mutex
	latest observation // guarded by mu
	late   []string    // guarded by mu; the first maxLate late writes
	nLate  int         // guarded by mu
	total  int         // guarded by mu
	fences int         // guarded by mu; the latest fence that the watch has shown
}

const maxLate = 20

// observation is the latest term as shown by the watch.
type observation struct {
	term   int64
	by     string
	writes int // to targets
}

// stepTimeout limits a step of a round, also on a busy machine.
const stepTimeout = 2 * time.Minute

func newElection(t *testing.T, writers writerKind) *election {
	t.Helper()
	config := rest.CopyConfig(local.RESTConfig())
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
	e := &election{T: t, clients: clients, namespace: ns.Name, replicas: map[string]*process{}}
	maps := clients.CoreV1().ConfigMaps(e.namespace)
	create := func(name string, labels map[string]string) string {
		m, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"term": "0"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.ResourceVersion
	}
	for i := range targets {
		create(targetName(i), targetLabel)
	}
	// A Lease without a holder: the first term begins at once.
	if _, err := clients.CoordinationV1().Leases(e.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
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
		e.replicas[identity] = start(t, replicaConfig{
			Kubeconfig: local.Kubeconfig(), Namespace: e.namespace, Identity: identity, Writers: writers,
		})
	}
	return e
}

// watch counts writes, from version on.
func (e *election) watch(ctx context.Context, version string) {
	for ctx.Err() == nil {
		w, err := e.clients.CoreV1().ConfigMaps(e.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
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

func (e *election) observe(m *corev1.ConfigMap) {
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
		if term <= e.latest.term {
			e.Errorf("term %d follows term %d", term, e.latest.term)
		}
		e.latest = observation{term: term, by: m.Data["by"]}
	default:
		e.total++
		if term == e.latest.term {
			e.latest.writes++
			return
		}
		e.nLate++
		if len(e.late) < maxLate {
			e.late = append(e.late, fmt.Sprintf("%s was written by %s of term %d (write %s) in term %d of %s",
				m.Name, m.Data["by"], term, m.Data["count"], e.latest.term, e.latest.by))
		}
	}
}

func (e *election) observed() observation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest
}

func (e *election) writes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.total
}

func (e *election) lateWrites() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.late...)
}

func (e *election) countLate() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nLate
}

// until waits for a condition, and reports whether it was met.
func (e *election) until(limit time.Duration, condition func() bool) bool {
	const interval = 10 * time.Millisecond
	err := wait.PollUntilContextTimeout(e.Context(), interval, limit, true, func(context.Context) (bool, error) {
		for _, p := range e.replicas {
			if err := p.failed(); err != nil {
				return false, err
			}
		}
		return condition(), nil
	})
	return err == nil
}

func (e *election) fatalf(format string, args ...any) {
	e.Helper()
	for identity, p := range e.replicas {
		e.Logf("output of %s:\n%s", identity, p.log())
	}
	e.Fatalf(format, args...)
}

// depose makes the leader lose its lease while it writes, waits until another process leads and writes, and lets the
// first one continue. It returns the number of late writes, and whether everything happened in this order.
func (e *election) depose(deleteLease bool) (valid bool, late int) {
	e.Helper()
	before := e.countLate()
	valid = e.tryDepose(deleteLease)
	e.fence()
	return valid, e.countLate() - before
}

func (e *election) tryDepose(deleteLease bool) (valid bool) {
	e.Helper()
	var leads observation
	var p *process
	if !e.until(stepTimeout, func() bool {
		leads = e.observed()
		p = e.replicas[leads.by]
		if p == nil || leads.writes < targets/2 {
			return false
		}
		state := p.state()
		return state == termState{begun: state.begun, ended: state.begun - 1, leads: leads.term}
	}) {
		e.fatalf("no process leads and writes: %+v", e.observed())
	}
	before := p.state()
	p.signal(syscall.SIGUSR1)
	if !e.until(stepTimeout, func() bool {
		now := e.observed()
		return now.term != leads.term || now.writes >= leads.writes+2*targets
	}) {
		e.fatalf("%s leads, but does not write: %+v", p.identity, e.observed())
	}
	e.pauseShortly()
	if deleteLease {
		return e.deleteLease(p, before, leads)
	}
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	if !e.until(stepTimeout, func() bool {
		now := e.observed()
		return now.by != p.identity && now.writes > 0
	}) {
		e.fatalf("%s is stopped, but no other process leads and writes: %+v", p.identity, e.observed())
	}
	now := e.observed()
	if valid = now.term == leads.term+1 && p.state() == before; !valid {
		e.Logf("%s was not deposed while it was stopped: term %d followed term %d", p.identity, now.term, leads.term)
	}
	p.signal(syscall.SIGCONT)
	if !e.until(stepTimeout, func() bool { return p.state().ended > before.ended }) {
		e.fatalf("%s was deposed and continued, but its work has not ended", p.identity)
	}
	return valid
}

// deleteLease deletes the Lease of p, which leads.
func (e *election) deleteLease(p *process, before termState, leads observation) (valid bool) {
	e.Helper()
	err := e.clients.CoordinationV1().Leases(e.namespace).Delete(e.Context(), leaseName, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		// In the previous round leadership was lost at another time, and p has not detected yet that the Lease was
		// deleted.
		e.until(stepTimeout, func() bool { return p.state().ended > before.ended })
		return false
	}
	if err != nil {
		e.Fatal(err)
	}
	const limit = 5 * leaseDuration // much longer than a candidate waits
	if !e.until(limit, func() bool { return p.state().ended > before.ended }) {
		e.Logf("the Lease of %s was deleted, but it continues to lead", p.identity)
		return false
	}
	if !e.until(stepTimeout, func() bool { now := e.observed(); return now.term > leads.term && now.writes > 0 }) {
		e.fatalf("the Lease was deleted, but no process leads and writes: %+v", e.observed())
	}
	return true
}

// pauseShortly waits for up to 50 ms, so that the state of the writers differs between rounds.
func (e *election) pauseShortly() { e.pause(rand.N(50 * time.Millisecond)) }

func (e *election) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// fence waits until the watch has shown all earlier writes.
func (e *election) fence() {
	e.Helper()
	maps := e.clients.CoreV1().ConfigMaps(e.namespace)
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
	if !e.until(stepTimeout, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.fences == next
	}) {
		e.fatalf("the watch does not show the fence")
	}
}

// process is a replica.
type process struct {
	*testing.T
	identity string
	process  *os.Process

	mu     sync.Mutex
	at     termState    // guarded by mu
	stderr bytes.Buffer // guarded by mu
	ended  error        // guarded by mu
	status int          // guarded by mu; valid when it has ended
}

// termState is the state of a replica, from the lines that it prints.
type termState struct {
	begun, ended int // numbers of terms
	leads        int64
	working      int // number of slow handlers
}

// start starts a replica. The end of the test kills it.
func start(t *testing.T, config replicaConfig) *process {
	t.Helper()
	encoded, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{T: t, identity: config.Identity}
	command := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // this binary
	command.Env = append(os.Environ(), replicaVariable+"="+string(encoded))
	command.Stderr = stderrOf{p}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.process = command.Process
	read := make(chan struct{})
	go func() { // ends with the process, which the cleanup kills; waited for there
		defer close(read)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			p.printed(lines.Text())
		}
		err := command.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended, p.status = fmt.Errorf("replica %s has ended: %w", config.Identity, err), command.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-read
	})
	return p
}

func (p *process) printed(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch line {
	case "begins":
		p.at.begun++
	case "ended":
		p.at.ended++
	case "works":
		p.at.working++
	case "writes":
		p.at.working--
	default:
		_, _ = fmt.Sscanf(line, "leads %d", &p.at.leads)
	}
}

func (p *process) state() termState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// exit returns the exit status of a process that has ended.
func (p *process) exit() (status int, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.ended != nil
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

func (p *process) signal(s syscall.Signal) {
	p.Helper()
	if err := p.process.Signal(s); err != nil {
		p.Errorf("signal %s to %s: %v", s, p.identity, err)
	}
}

// stderrOf stores the standard error of a process.
type stderrOf struct{ *process }

func (e stderrOf) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stderr.Write(b)
}
