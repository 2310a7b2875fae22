package simulation

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// user does the steps of a scenario, one after the other, in a goroutine of its own: the handler whose write has a
// fault does not act for the user.
type user struct {
	trial    *trial
	requests chan chan bool // for next steps

	mu      sync.Mutex
	begun   int           // guarded by mu; the number of steps that have begun
	acts    bool          // guarded by mu; a step is being done
	stepped chan struct{} // guarded by mu; closed after the next step, or when it lasts too long
}

// stepTimeout is the time after which what waits for the end of a step goes on: the step may wait for it.
const stepTimeout = 5 * time.Minute

func newUser(t *trial) *user {
	return &user{trial: t, requests: make(chan chan bool), stepped: make(chan struct{})}
}

// run does steps until ctx ends.
func (u *user) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case done := <-u.requests:
			done <- u.step()
		}
	}
}

// next does the next step. It returns false if there is none, or if ctx has ended.
func (u *user) next(ctx context.Context) bool {
	done := make(chan bool, 1)
	select {
	case u.requests <- done:
	case <-ctx.Done():
		return false
	}
	select {
	case is := <-done:
		return is
	case <-ctx.Done():
		return false
	}
}

// bringForward does the next step now, unless one is being done. It returns at the end of the step, when that lasts too
// long, or when ctx ends.
func (u *user) bringForward(ctx context.Context) {
	_, stepped := u.progress()
	select {
	case u.requests <- make(chan bool, 1):
	case <-stepped:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-stepped:
	case <-ctx.Done():
	}
}

func (u *user) step() bool {
	t := u.trial
	u.mu.Lock()
	if u.begun == len(t.scenario.Steps) {
		u.mu.Unlock()
		u.ended()
		return false
	}
	next := t.scenario.Steps[u.begun]
	u.begun++
	number := u.begun
	u.acts = true
	u.mu.Unlock()
	unfinished := t.unfinishedDeletions()
	t.mu.Lock()
	t.outcome.steps[number] = time.Now()
	t.outcome.unfinished[number] = unfinished
	t.mu.Unlock()
	hasFaults := len(t.plan.faults) > 0
	timeout := time.AfterFunc(stepTimeout, func() {
		if t.plan.isAwaited() {
			t.setImpossible("step %d lasted more than %v: it may wait for what a fault delays", number, stepTimeout)
		}
		u.ended()
	})
	returned := t.guard(ruleStep, func() { t.ordered(func() { next(t.cluster) }) })
	if hasFaults && (!returned || t.hasViolated(ruleStep)) {
		t.setImpossible("step %d was not possible, because the programs had not done enough before it", number)
	}
	timeout.Stop()
	u.mu.Lock()
	u.acts = false
	u.mu.Unlock()
	u.ended()
	return true
}

// ended lets those go on that wait for the end of a step.
func (u *user) ended() {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.stepped)
	u.stepped = make(chan struct{})
}

// wait waits while a step is being done, and returns false if there is none.
func (u *user) wait() (waited bool) {
	for {
		u.mu.Lock()
		acts, stepped := u.acts, u.stepped
		u.mu.Unlock()
		if !acts {
			return waited
		}
		waited = true
		<-stepped
	}
}

// progress returns the number of steps that have begun, and a channel that is closed after the next one.
func (u *user) progress() (begun int, stepped <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.begun, u.stepped
}

// unfinishedDeletions returns the deleted objects that still exist, except for Pods, which need time to end.
func (t *trial) unfinishedDeletions() map[objectID]bool {
	unfinished := map[objectID]bool{}
	for _, kind := range t.cluster.server.Kinds() {
		resource := schema.GroupResource{Group: kind.Group, Resource: kind.Resource}
		if kind.Kind == "Pod" {
			continue
		}
		for _, obj := range t.cluster.server.Objects(resource) {
			if obj.GetDeletionTimestamp() != nil {
				unfinished[objectID{resource, kube.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}}] = true
			}
		}
	}
	return unfinished
}

// longestLease returns the longest duration of a lease. A candidate waits for it when the leader has crashed.
func (t *trial) longestLease() (longest time.Duration) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for _, obj := range t.cluster.server.Objects(leases) {
		var lease struct {
			Spec struct {
				LeaseDurationSeconds int `json:"leaseDurationSeconds"`
			} `json:"spec"`
		}
		if encoded, err := json.Marshal(obj); err == nil && json.Unmarshal(encoded, &lease) == nil {
			longest = max(longest, time.Duration(lease.Spec.LeaseDurationSeconds)*time.Second)
		}
	}
	return longest
}
