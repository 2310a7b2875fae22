package owned

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/retry"
)

const (
	// maxDeletions is how often a Set deletes a child within loopWindow that another client creates again. A child that
	// the Set has created itself may be deleted more often.
	maxDeletions = 3
	loopWindow   = 10 * time.Minute
)

// ownedChild identifies a child of an owner.
type ownedChild struct {
	owner types.UID
	child identity
}

// deletion describes the deletions of one child.
type deletion struct {
	since   time.Time // of the first one
	count   int
	created types.UID // by the Set, after a deletion
	ending  types.UID // whose deletion began before it had finished; only for Child.Once
	loop    error     // of any child of the owner, at the time since; only for the zero child
}

// loopError reports that another client creates a child again and again: another program, or another set with the same
// name, has another desired state, and neither of them would ever stop.
type loopError struct {
	child    identity
	set      string
	deletion deletion
}

// Error implements error.
func (e *loopError) Error() string {
	return fmt.Sprintf("%s %s was deleted %d times within %s, and another client has created it again: it is "+
		"deleted only every %s from now on: stop that client, or if it has a set with the name %q, too, use "+
		"another name",
		e.child.kind.Kind, e.child.key, e.deletion.count, loopWindow, loopWindow, e.set)
}

// Persistent reports that a retry alone does not help.
func (e *loopError) Persistent() bool { return true }

// RetryClass determines the class for package retry. Like for an object of another owner, nothing announces the end.
func (e *loopError) RetryClass() retry.Class { return retry.Forbidden }

// checkLoop returns the error for a child that is in a loop. deletes is false if it must not be deleted now.
func (p *pass) checkLoop(id identity, uid types.UID) (deletes bool, loop error) {
	d := p.set.deletions.Get(ownedChild{p.owner.GetUID(), id})
	if d.count < maxDeletions || d.created == uid {
		return true, nil
	}
	loop = &loopError{id, p.set.config.Name, d}
	p.set.deletions.Do(ownedChild{owner: p.owner.GetUID()}, func(d *deletion) {
		*d = deletion{since: time.Now(), loop: loop}
	})
	return time.Since(d.since) >= loopWindow, loop
}

// lastLoop returns the error of a loop of the owner's children of which loopWindow has not passed without a sign: after
// a deletion, the other client may wait.
func (p *pass) lastLoop() error {
	if d := p.set.deletions.Get(ownedChild{owner: p.owner.GetUID()}); !p.plan && time.Since(d.since) < loopWindow {
		return d.loop
	}
	return nil
}

// noteDeletion counts the deletion of a child.
func (p *pass) noteDeletion(id identity, uid types.UID) {
	if p.plan {
		return
	}
	p.set.deletions.Do(ownedChild{p.owner.GetUID(), id}, func(d *deletion) {
		d.ending = uid
		switch isOld := time.Since(d.since) >= loopWindow; {
		case d.created == uid:
		case isOld && d.count >= maxDeletions:
			d.since = time.Now()
		case isOld:
			d.since, d.count = time.Now(), 1
		default:
			d.count++
		}
	})
}

// noteCreation records that the Set has created a child that it deleted before.
func (p *pass) noteCreation(id identity, uid types.UID) {
	child := ownedChild{p.owner.GetUID(), id}
	if !p.plan && p.set.deletions.Get(child) != (deletion{}) {
		p.set.deletions.Do(child, func(d *deletion) { d.created = uid })
	}
}

// claim returns an error if two Sets of one name manage the children of one owner in turn: each would delete the
// children of the other.
func (p *pass) claim() error {
	claims := apiobject.ClaimsOf(p.client.Cluster().HTTPClient())
	name := struct {
		set   string
		owner types.UID
	}{p.set.config.Name, p.owner.GetUID()}
	if !claims.Use(name, p.set) {
		return fmt.Errorf("another Set with the name %q manages the children of %s too, and both would delete the "+
			"children of the other: create one Set, or give it another Name", p.set.config.Name, p)
	}
	return nil
}
