package informer

import (
	"cmp"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// gaps are the parts whose objects are not all cached. They must be read before the cache: otherwise a list that ends
// in between would make an object look missing.
type gaps []gap

type gap struct {
	part  *part
	lacks lacking
}

// of returns the errors of a read of key, whose Name is empty for a read of a namespace, and which is empty for a read
// of everything: missing for an object that is not cached, and hidden also for one that is.
func (g gaps) of(key kube.Key) (missing, hidden error) {
	for _, lacking := range g {
		switch selects := lacking.part.selects; {
		case selects.excludes(key):
		case lacking.lacks == lacksKind:
			hidden = cmp.Or(hidden, lacking.part.lacksErr("the API server does not find their kind"))
		default:
			missing = cmp.Or(missing, lacking.part.lacksErr("they have not been listed (see WaitSynced)"))
		}
	}
	return cmp.Or(hidden, missing), hidden
}

// lacksErr returns the error of a read of objects that may exist.
func (p *part) lacksErr(reason string) error {
	// The cause is not wrapped, because a 404 would mean to callers that the object does not exist.
	cause, class := p.status.condition().err, retry.Transient
	if apierrors.IsForbidden(cause) {
		class = retry.Forbidden
	}
	if cause != nil {
		reason = fmt.Sprintf("%s: %v", reason, cause)
	}
	return retry.WithClass(fmt.Errorf("informer %q of %s: its objects may exist, but %s", p.core.name, p.describes,
		reason), class)
}
