package informer

import (
	"time"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/versionorder"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// typeForNew returns the type with which an object that was not cached is announced.
func (p *part) typeForNew() ChangeType {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced {
		return Added
	}
	return p.first
}

// arrived stores an object of a list or an event and announces the change, unless the cached state is the same or
// newer. A consistent list also replaces newer states. An object that was not cached is announced as typeForNew.
//
// For items of lists, two states of the same version are the same only if their content is. An API server that was
// restored from a backup reuses versions, and one that converts objects differently than before keeps their versions.
func (p *part) arrived(o *wire.Object, typeForNew ChangeType, from origin) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	objects, newest := p.saw(o.ResourceVersion, from)
	listed := from == fromList
	believed := listed && p.consistent
	delete(p.unconfirmed, o.Key)
	p.store(objects, o, typeForNew, from, func(kept store.Ref) bool {
		found := kept.Exists()
		isOlder := found && versionorder.Older(o.ResourceVersion, kept.ResourceVersion())
		switch {
		case found && kept.Same(o) && (!listed || !p.core.states.hasOtherContent(kept, o)), isOlder && !believed:
			objects.Mark(o.Key)
			if listed && isOlder {
				p.isAhead(kept.ResourceVersion())
			}
		case isOlder && p.streamed,
			!found && listed && (p.streamed || !believed) && versionorder.NotAfter(o.ResourceVersion, newest):
			p.postpone(o)
		default:
			return true
		}
		return false
	})
	p.shown(o.Key)
}

// store stores and announces o, if accept returns true. core.events must be held.
func (p *part) store(objects *store.Store, o *wire.Object, typeForNew ChangeType, from origin, accept func(kept store.Ref) bool) {
	old, current, err := objects.PutIf(o, accept)
	if !current.Exists() {
		return
	}
	if err != nil {
		p.unindexed(o.Key, err)
	}
	p.core.states.arrived(old, current, o, from)
	as := typeForNew
	if old.Exists() {
		as = Updated
	}
	p.core.announce(p, as, o.Key)
}

// unindexed logs that an index fails to find an object. It logs at most one warning an hour, because an index may fail
// for each state of each object. core.events must be held.
func (p *part) unindexed(key kube.Key, err error) {
	log := p.core.logger.Debug
	if now := time.Now(); p.unindexedAt.IsZero() || now.Sub(p.unindexedAt) >= manyReasonsEvery {
		log, p.unindexedAt = p.core.logger.Warn, now
	}
	log("informer keeps an object without an index", "informer", p.core.name, "key", key.String(), "error", usercode.Error(err))
}

// gone removes an object after its delete event.
func (p *part) gone(o *wire.Object, from origin) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	defer p.shown(o.Key)
	objects, _ := p.saw(o.ResourceVersion, from)
	if listed, found := p.unconfirmed[o.Key]; found && !versionorder.Older(o.ResourceVersion, listed.ResourceVersion) {
		delete(p.unconfirmed, o.Key)
	}
	kept, found := objects.Get(o.Key)
	if !found {
		return
	}
	if kept.UID() != o.UID && (versionorder.Older(o.ResourceVersion, kept.ResourceVersion()) || p.isPerObject()) {
		return // the event deleted an earlier object of this name
	}
	p.forget(objects, o.Key, from == unbroken && kept.UID() == o.UID, from)
}

// forget removes the object under key and announces it. last is true if the cached state is the object's last one.
// core.events must be held.
func (p *part) forget(objects *store.Store, key kube.Key, last bool, from origin) {
	if old, found := objects.Delete(key); found {
		p.core.states.gone(old, last, from)
		p.core.announce(p, Deleted, key)
	}
}

// forgetAll removes all objects, because the part was dropped, or because the kind was removed with its objects. If the
// kind is installed again, its versions are not related to the earlier ones.
func (p *part) forgetAll() {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	p.unconfirmed = nil
	p.mu.Lock()
	p.newest = ""
	p.mu.Unlock()
	objects := p.objects()
	for key := range objects.Keys() {
		p.forget(objects, key, false, fromList)
	}
	p.release()
}
