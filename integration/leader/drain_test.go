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
)

// After SIGTERM, handlers finish their work, which takes longer than a lease lasts, and write the result. Then the
// lease is released, and the other process leads. No write is sent out of this order.
func TestTerminatedLeaderDrainsBeforeRelease(t *testing.T) {
	t.Parallel()
	e := newElection(t, writersSlow)
	var leads observation
	if !e.until(stepTimeout, func() bool {
		leads = e.observed()
		p := e.replicas[leads.by]
		return p != nil && leads.writes == 0 && p.state().working == targets
	}) {
		e.fatalf("no process leads and works")
	}
	terminated := e.replicas[leads.by]
	delete(e.replicas, leads.by)

	lease, err := e.clients.CoordinationV1().Leases(e.namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changes := e.watchLease(lease.ResourceVersion)
	signalled := time.Now()
	terminated.signal(syscall.SIGTERM)
	renewals := 0
	var released, taken *coordinationv1.Lease
	var releasedAt time.Time
	for late := time.After(stepTimeout); taken == nil; {
		select {
		case l := <-changes:
			switch holder := l.Spec.HolderIdentity; {
			case holder == nil || *holder == "":
				released, releasedAt = l, time.Now()
			case *holder == terminated.identity && released == nil:
				renewals++
			default:
				taken = l
			}
		case <-late:
			e.fatalf("%s was terminated, but no other process acquired the lease:\n%s", terminated.identity, terminated.log())
		}
	}
	takenAt := time.Now()
	if !e.until(stepTimeout, func() bool { return e.observed().by != leads.by && terminated.failed() != nil }) {
		e.fatalf("%s has not ended, or no other process leads:\n%s", terminated.identity, terminated.log())
	}
	if status, _ := terminated.exit(); status != 0 {
		t.Errorf("%s ended with status %d:\n%s", terminated.identity, status, terminated.log())
	}
	if released == nil {
		t.Fatal("the lease was acquired by another process without a release")
	}
	maps, err := e.clients.CoreV1().ConfigMaps(e.namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "target=true"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps.Items {
		if m.Data["term"] != strconv.FormatInt(leads.term, 10) {
			t.Errorf("%s was not written by its handler, which was running when the process was terminated: %v", m.Name, m.Data)
		} else if versionOf(t, &m) > versionOf(t, released) {
			t.Errorf("%s was written after the lease was released", m.Name)
		}
	}
	if late := e.lateWrites(); len(late) > 0 {
		t.Errorf("late writes: %q", late)
	}
	if renewals == 0 {
		t.Error("the lease was not renewed while handlers finished")
	}
	if after := takenAt.Sub(releasedAt); after > 2*time.Second {
		t.Errorf("no process led for %s after the release, want at most 2 s", after)
	}
	t.Logf("%d handlers; released %s after SIGTERM, with %d renewals in between; the other process led %s later",
		len(maps.Items), releasedAt.Sub(signalled).Round(time.Millisecond), renewals,
		takenAt.Sub(releasedAt).Round(time.Millisecond))
}

func versionOf(t *testing.T, obj metav1.Object) int64 {
	t.Helper()
	version, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// watchLease returns a channel with each state of the lease after version.
func (e *election) watchLease(version string) <-chan *coordinationv1.Lease {
	e.Helper()
	w, err := e.clients.CoordinationV1().Leases(e.namespace).Watch(context.WithoutCancel(e.Context()),
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
		e := newElection(t, writersSlow)
		var leads observation
		if !e.until(stepTimeout, func() bool {
			leads = e.observed()
			p := e.replicas[leads.by]
			return p != nil && p.state().working == targets
		}) {
			e.fatalf("no process leads and works")
		}
		p := e.replicas[leads.by]
		delete(e.replicas, leads.by)
		p.signal(syscall.SIGTERM)
		// In the first round while handlers work, in the others near the time when they write and the lease is released.
		delay := slowWork / 2
		if round > 0 {
			delay = slowWork - 500*time.Millisecond + rand.N(time.Second)
		}
		e.pause(delay)
		stopped := p.process.Signal(syscall.SIGSTOP) == nil // it may have ended
		if !e.until(stepTimeout, func() bool { return e.observed().by != p.identity && e.observed().writes >= targets }) {
			e.fatalf("%s is stopped, and no other process leads and writes: %+v", p.identity, e.observed())
		}
		if stopped {
			p.signal(syscall.SIGCONT)
		}
		if !e.until(stepTimeout, func() bool { return p.failed() != nil }) {
			e.fatalf("%s was continued, but has not ended:\n%s", p.identity, p.log())
		}
		e.fence()
		if late := e.lateWrites(); len(late) > 0 {
			t.Errorf("round %d: late writes: %q", round, late)
		}
		status, _ := p.exit()
		t.Logf("round %d: stopped %s after SIGTERM; exit status %d, ended before: %v",
			round, delay.Round(time.Millisecond), status, !stopped)
		if status != 0 {
			t.Errorf("round %d: %s ended with status %d:\n%s", round, p.identity, status, p.log())
		}
	}
}
