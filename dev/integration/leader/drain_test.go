package leader

import (
	"context"
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
)

// After SIGTERM, handlers finish their work, which takes longer than a lease lasts, and write the result. Then the
// lease is released, and the other process leads. No write is sent out of this order.
func TestTerminatedLeaderDrainsBeforeRelease(t *testing.T) {
	t.Parallel()
	e := election.New(t, local, election.Slow)
	var leads election.Observation
	if !e.Until(election.StepTimeout, func() bool {
		leads = e.Observed()
		p := e.Replicas[leads.By]
		return p != nil && leads.Writes == 0 && p.State().Working == election.Targets
	}) {
		e.Fatalf("no process leads and works")
	}
	terminated := e.Replicas[leads.By]
	delete(e.Replicas, leads.By)

	lease, err := e.Clients.CoordinationV1().Leases(e.Namespace).Get(t.Context(), election.LeaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changes := watchLease(e, lease.ResourceVersion)
	signalled := time.Now()
	terminated.Signal(syscall.SIGTERM)
	renewals := 0
	var released, taken *coordinationv1.Lease
	var releasedAt time.Time
	for timeout := time.After(election.StepTimeout); taken == nil; {
		select {
		case l := <-changes:
			switch holder := l.Spec.HolderIdentity; {
			case holder == nil || *holder == "":
				released, releasedAt = l, time.Now()
			case *holder == terminated.Identity && released == nil:
				renewals++
			default:
				taken = l
			}
		case <-timeout:
			e.Fatalf("%s was terminated, but no other process acquired the lease:\n%s", terminated.Identity, terminated.Log())
		}
	}
	takenAt := time.Now()
	if !e.Until(election.StepTimeout, func() bool { return e.Observed().By != leads.By && terminated.Failed() != nil }) {
		e.Fatalf("%s has not ended, or no other process leads:\n%s", terminated.Identity, terminated.Log())
	}
	if status, _ := terminated.Exit(); status != 0 {
		t.Errorf("%s ended with status %d:\n%s", terminated.Identity, status, terminated.Log())
	}
	if released == nil {
		t.Fatal("the lease was acquired by another process without a release")
	}
	maps, err := e.Clients.CoreV1().ConfigMaps(e.Namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "target=true"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps.Items {
		if m.Data["term"] != strconv.FormatInt(leads.Term, 10) {
			t.Errorf("%s was not written by its handler, which was running when the process was terminated: %v", m.Name, m.Data)
		} else if versionOf(t, &m) > versionOf(t, released) {
			t.Errorf("%s was written after the lease was released", m.Name)
		}
	}
	if lateWrites := e.LateWrites(); len(lateWrites) > 0 {
		t.Errorf("late writes: %q", lateWrites)
	}
	if renewals == 0 {
		t.Error("the lease was not renewed while handlers finished")
	}
	t.Logf("%d handlers; released %s after SIGTERM, with %d renewals in between; the other process led %s later",
		len(maps.Items), releasedAt.Sub(signalled).Round(time.Millisecond), renewals,
		takenAt.Sub(releasedAt).Round(time.Millisecond))
}

func versionOf(tb testing.TB, obj metav1.Object) int64 {
	tb.Helper()
	version, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return version
}

// watchLease returns a channel with each state of the lease after version.
func watchLease(e *election.Election, version string) <-chan *coordinationv1.Lease {
	e.Helper()
	w, err := e.Clients.CoordinationV1().Leases(e.Namespace).Watch(context.WithoutCancel(e.Context()),
		metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		e.Fatal(err)
	}
	changes := make(chan *coordinationv1.Lease, 1000)
	ended := make(chan struct{})
	go func() { // waited for by the cleanup
		defer close(ended)
		for event := range w.ResultChan() {
			if l, ok := event.Object.(*coordinationv1.Lease); ok {
				changes <- l
			}
		}
	}()
	e.Cleanup(func() { w.Stop(); <-ended })
	return changes
}

// A leader gets SIGTERM, and is stopped while its handlers finish or while it releases the lease, until another process
// leads. When it continues, it must send no further write, and exit.
func TestLeaderStoppedWhileItDrains(t *testing.T) {
	t.Parallel()
	const rounds = 2
	for round := range rounds {
		e := election.New(t, local, election.Slow)
		var leads election.Observation
		if !e.Until(election.StepTimeout, func() bool {
			leads = e.Observed()
			p := e.Replicas[leads.By]
			return p != nil && p.State().Working == election.Targets
		}) {
			e.Fatalf("no process leads and works")
		}
		p := e.Replicas[leads.By]
		delete(e.Replicas, leads.By)
		p.Signal(syscall.SIGTERM)
		// In the first round while handlers work, in the others near the time when they write and the lease is released.
		delay := election.SlowWork / 2
		if round > 0 {
			delay = election.SlowWork - 500*time.Millisecond + rand.N(time.Second)
		}
		e.Pause(delay)
		stopped := p.Process.Signal(syscall.SIGSTOP) == nil // it may have ended
		if !e.Until(election.StepTimeout, func() bool { return e.Observed().By != p.Identity && e.Observed().Writes >= election.Targets }) {
			e.Fatalf("%s is stopped, and no other process leads and writes: %+v", p.Identity, e.Observed())
		}
		if stopped {
			p.Signal(syscall.SIGCONT)
		}
		if !e.Until(election.StepTimeout, func() bool { return p.Failed() != nil }) {
			e.Fatalf("%s was continued, but has not ended:\n%s", p.Identity, p.Log())
		}
		e.Fence()
		if lateWrites := e.LateWrites(); len(lateWrites) > 0 {
			t.Errorf("round %d: late writes: %q", round, lateWrites)
		}
		status, _ := p.Exit()
		t.Logf("round %d: stopped %s after SIGTERM; exit status %d, ended before: %v",
			round, delay.Round(time.Millisecond), status, !stopped)
		if status != 0 {
			t.Errorf("round %d: %s ended with status %d:\n%s", round, p.Identity, status, p.Log())
		}
	}
}
