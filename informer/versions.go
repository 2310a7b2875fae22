package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/versionorder"
	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// errHistoryReset is the reason for a new list after the versions of the API server went back.
var errHistoryReset = errors.New("the API server's resource versions went back, as after a restore of etcd")

// versionCheck compares the versions of a list's items with the version of the list. An API server that counts all
// writes in one sequence, as those with etcd do, never gives two items the same version, nor an item a newer version
// than its list. An API server that counts the writes of each object does.
type versionCheck struct {
	newest, last string
	repeated     bool
}

// item records the version of an item.
func (v *versionCheck) item(version string) {
	v.repeated = v.repeated || version == v.last && isComparable(version)
	v.last = version
	if v.newest == "" || versionorder.Older(v.newest, version) {
		v.newest = version
	}
}

// perObject reports whether the items and the version of their list show that the API server counts the writes of each
// object.
func (v *versionCheck) perObject(list string) bool {
	return v.repeated || versionorder.Older(list, v.newest)
}

func isComparable(version string) bool {
	_, ok := parseVersion(version)
	return ok
}

// foundPerObject records that versions of different objects cannot be compared.
func (p *part) foundPerObject() {
	p.mu.Lock()
	known := p.perObject
	p.perObject = true
	p.mu.Unlock()
	if !known {
		p.core.logger.Info("resource versions of different objects cannot be compared: every list is a consistent read from now on",
			"informer", p.core.name, "retrieves", p.describes)
	}
}

func (p *part) isPerObject() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.perObject
}

// wentBack returns an error if a list is older than seen. The list must be consistent, and must have started after
// everything up to seen had arrived.
func (p *part) wentBack(seen, list string) error {
	if p.isPerObject() || !versionorder.Older(list, seen) {
		return nil
	}
	return fmt.Errorf("watch %s: %w: a list is at resource version %s, but version %s was seen before: listing anew",
		p.describes, errHistoryReset, list, seen)
}

// versionRefused makes the next list request no version if err reports a malformed list request. After an upgrade, an
// aggregated API server may not accept the versions that it returned before.
func (p *part) versionRefused(opts metav1.ListOptions, err error) {
	if opts.ResourceVersion != "" && (apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.suspect = true
	}
}

// checkVersion requests the present resource version, and returns an error if it is older than the versions seen
// before. The server accepts a watch from such an earlier version, but sends nothing until its versions have caught up.
// checkVersion repeats the request until it succeeds or ctx ends.
func (p *part) checkVersion(ctx context.Context) (reset error) {
	for pause := inFlight; ; pause = min(2*pause, maxVersionPause) {
		seen, began := p.newestSeen(), time.Now()
		var versions versionCheck
		about, err := p.page(ctx, metav1.ListOptions{Limit: 1}, func(o *wire.Object) { versions.item(o.ResourceVersion) })
		switch {
		case err != nil && sleep(ctx, pause):
			continue
		case err != nil:
			return nil //nolint:nilerr // the watch has ended; the next one asks
		}
		p.verified()
		if versions.perObject(about.ResourceVersion) {
			p.foundPerObject()
			return nil
		}
		p.releaseLost(about.ResourceVersion, began)
		return p.wentBack(seen, about.ResourceVersion)
	}
}
