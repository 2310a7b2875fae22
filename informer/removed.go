package informer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A kind is treated as removed, and its objects are removed from the cache, after this number of consecutive answers
// of the discovery without it, over at least this time. A single 404 proves nothing: it may come from a load balancer,
// from a replica that is starting, or because the objects are served in another version now.
const (
	removalAnswers = 3
	removalTime    = time.Minute
)

// discoveryTimeout limits the requests that determine whether a kind was removed.
const discoveryTimeout = 30 * time.Second

// isRemoved reports whether the discovery of the API server has no version of the kind. Only complete answers count.
func (r *clusterRetriever[T]) isRemoved(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	client, err := r.cluster.RESTClient(r.kind.GroupVersion())
	if err != nil {
		return false, err
	}
	get := func(into runtime.Object, path ...string) error {
		return client.Get().AbsPath(path...).Do(ctx).Into(into)
	}
	paths := [][]string{{"/api", r.kind.Version}} // the core group has one version
	if r.kind.Group != "" {
		paths = nil
		groups := &metav1.APIGroupList{}
		if err := get(groups, "/apis"); err != nil {
			return false, err
		}
		for _, group := range groups.Groups {
			for _, version := range group.Versions {
				if group.Name == r.kind.Group {
					paths = append(paths, []string{"/apis", group.Name, version.Version})
				}
			}
		}
	}
	for _, path := range paths {
		resources := &metav1.APIResourceList{}
		if err := get(resources, path...); err != nil {
			return false, err
		}
		isKind := func(a metav1.APIResource) bool { return a.Kind == r.kind.Kind }
		if slices.ContainsFunc(resources.APIResources, isKind) {
			return false, nil
		}
	}
	return true, nil
}

// exists reports whether the API server has the object with this uid, also outside of the selection of r. It lists
// objects of its name, because who may list need not be permitted to get.
func (r *clusterRetriever[T]) exists(ctx context.Context, key kube.Key, uid types.UID) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	named := *r
	named.namespace, named.labels = key.Namespace, ""
	named.fields = fields.OneTermEqualSelector(fieldName, key.Name).String()
	var received atomic.Int64
	_, err = named.feed(nil, &received).list(ctx, metav1.ListOptions{}, func(o *wire.Object) error {
		found = found || o.Key == key && o.UID == uid
		return nil
	})
	return found, err
}

// listFailed records that a list has failed. If it did not find the kind of an optional informer, the discovery decides
// whether the kind was removed with its objects.
func (p *part) listFailed(ctx context.Context, err error) {
	removed := false
	if p.status.optional && isNotServed(err) {
		absent := errors.Is(err, kube.ErrNotServed) // the Retriever of a program has checked that
		if p.isRemoved != nil {
			confirmed, errAsked := p.isRemoved(ctx)
			absent = confirmed && errAsked == nil
		}
		removed = p.status.discovered(absent)
	}
	p.failed(err, false)
	if removed {
		p.contents.removeAll()
	}
}

// discovered records an answer of the discovery. It reports whether the kind was removed. Before the first list, the
// cache has no objects, and one answer is enough.
func (s *status) discovered(absent bool) (removed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !absent {
		s.absence = absence{}
		return false
	}
	if s.absence.answers++; s.absence.answers == 1 {
		s.absence.since = now
	}
	s.absence.removed = s.absence.removed || !s.now.synced ||
		s.absence.answers >= removalAnswers && now.Sub(s.absence.since) >= removalTime
	return s.absence.removed
}

// absence is what consecutive answers of the discovery have shown about a kind that they do not contain.
type absence struct {
	answers int
	since   time.Time // the first of them
	removed bool      // the kind was removed
}
