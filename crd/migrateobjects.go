package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
)

// rewriteAll walks over all objects.
func (m *migrator) rewriteAll(ctx context.Context, kind schema.GroupVersionKind) error {
	m.start(0)
	m.pageSize = migratePage
	continueAt := ""
	for {
		page, err := m.nextPage(ctx, kind, continueAt)
		if err != nil {
			return asRestart(err)
		}
		for _, obj := range page.Objects {
			if err := m.rewrite(ctx, obj); err != nil {
				return err
			}
			m.result.Done++
			m.passed = kube.KeyOf(obj)
		}
		if !m.client.Config().DryRun {
			if err := m.follow(ctx); err != nil {
				return err
			}
		}
		continueAt = page.Continue
		m.report(ctx, continueAt == "")
		if continueAt == "" {
			return nil
		}
	}
}

// objects is a page of the walk.
type objects = client.Page[*metav1.PartialObjectMetadata]

// start resets the progress at the first object.
func (m *migrator) start(total int) {
	m.result.Done, m.result.Total, m.result.Failures = 0, total, nil
	m.unreadable, m.passed = 0, kube.Key{}
}

// nextPage returns the page at continueAt. The API server rejects a page with an object whose conversion fails. Smaller
// pages then end before this object, and it becomes a failure.
func (m *migrator) nextPage(
	ctx context.Context, kind schema.GroupVersionKind, continueAt string,
) (page objects, err error) {
	for {
		limit := maxTransient
		switch m.pageSize {
		case migratePage:
		case 1:
			limit = maxTransientOfOne
		default:
			limit = 0
		}
		err = m.retry(ctx, limit, func() (err error) {
			page, err = m.list(ctx, kind, continueAt)
			if apierrors.IsResourceExpired(err) {
				// Objects that this page lacks were written since the first page.
				continueAt = page.Continue
			}
			return err
		})
		switch {
		case err == nil:
			m.pageSize = min(2*m.pageSize, migratePage)
			if continueAt == "" {
				m.start(len(page.Objects) + int(page.Remaining))
			}
			return page, nil
		case !isServerError(err) || ctx.Err() != nil:
			return page, err
		case m.pageSize == 1:
			return m.passUnreadable(ctx, kind, continueAt, err)
		}
		m.pageSize /= 2
	}
}

func (m *migrator) list(ctx context.Context, kind schema.GroupVersionKind, continueAt string) (objects, error) {
	all := kube.Selection{Kind: kind, Namespaces: []string{kube.AllNamespaces}}
	return client.ListPage[*metav1.PartialObjectMetadata](ctx, m.client, all, continueAt, client.PageSize(m.pageSize))
}

// passUnreadable adds the object at continueAt, which cannot be read in kind, to the failures. An object can be read in
// the version in which it is stored, because it needs no conversion then. The returned page is empty.
func (m *migrator) passUnreadable(
	ctx context.Context, kind schema.GroupVersionKind, continueAt string, cause error,
) (objects, error) {
	for _, other := range servedKinds(m.definition) {
		if other == kind {
			continue
		}
		page, err := m.list(ctx, other, continueAt)
		if err != nil {
			continue
		}
		if continueAt == "" {
			m.start(len(page.Objects) + int(page.Remaining))
		}
		for _, obj := range page.Objects {
			m.passed = kube.KeyOf(obj)
			m.result.Done++
			if m.isCurrent(obj) {
				continue
			}
			m.result.Failures = append(m.result.Failures, fmt.Errorf("read %s %s: %w", kind.Kind, kube.KeyOf(obj),
				cause))
			if m.unreadable++; m.unreadable == maxUnreadable {
				return page, fmt.Errorf("the migration ends after %d objects that cannot be read: %w", maxUnreadable,
					m.failed())
			}
		}
		page.Objects = nil
		return page, nil
	}
	if m.passed == (kube.Key{}) {
		return objects{}, fmt.Errorf("the first object cannot be read in any version: %w", cause)
	}
	return objects{}, fmt.Errorf("the object after %s cannot be read in any version: %w", m.passed, cause)
}

// report logs the progress after a page.
func (m *migrator) report(ctx context.Context, last bool) {
	m.result.Total = max(m.result.Total, m.result.Done)
	if now := time.Now(); !last && !now.Before(m.logAt) {
		m.logAt = now.Add(logInterval)
		m.settings.logger.InfoContext(ctx, "storage migration continues", "name", m.result.name, "version",
			m.result.Version,
			"done", m.result.Done, "total", m.result.Total, "rewritten", m.result.Rewritten, "failed",
			len(m.result.Failures))
	}
}

// rewrite makes the API server store an object in the storage version. It returns an error that ends the migration;
// other errors are added to the failures.
func (m *migrator) rewrite(ctx context.Context, obj *metav1.PartialObjectMetadata) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		if m.isCurrent(obj) {
			return nil
		}
		err := m.retry(ctx, maxTransient, func() error { return m.patch(ctx, obj) })
		switch {
		case err == nil:
			m.result.Rewritten++
			return nil
		case errors.Is(err, client.ErrGone):
			return nil
		case apierrors.IsConflict(err) && attempt < attempts:
			// Usually another client has written the object. An admission webhook may also use this status code.
			live, gone, err := m.reread(ctx, obj)
			if err != nil {
				return err
			}
			if gone {
				return nil
			}
			obj = live
			continue
		case m.isFatal(ctx, err):
			return asRestart(err)
		}
		m.result.Failures = append(m.result.Failures, err) // it names the object
		return nil
	}
}

// isCurrent reports whether the object was written since the mark.
func (m *migrator) isCurrent(obj *metav1.PartialObjectMetadata) bool {
	return m.mark.After != "" && apiobject.OlderVersion(m.mark.After, obj.ResourceVersion)
}

// patch sends a patch that changes nothing, with the object's uid and resourceVersion as preconditions.
func (m *migrator) patch(ctx context.Context, obj *metav1.PartialObjectMetadata) error {
	if m.settings.pace > 0 {
		if err := sleep(ctx, time.Until(m.next)); err != nil {
			return err
		}
		m.next = time.Now().Add(m.settings.pace)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.UID, "resourceVersion": obj.ResourceVersion},
	})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, m.client, obj, client.RawPatch(types.MergePatchType, body))
	return err
}

// reread reads an object again. It returns gone for an object that was deleted or replaced.
func (m *migrator) reread(
	ctx context.Context, obj *metav1.PartialObjectMetadata,
) (live *metav1.PartialObjectMetadata, gone bool, err error) {
	err = m.retry(ctx, maxTransient, func() (err error) {
		live, err = client.GetLive(ctx, m.client, obj)
		return err
	})
	if errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced) {
		return nil, true, nil
	}
	return live, false, err
}

// isFatal reports whether all other objects would fail in the same way: without a response of the API server, such as
// after a lost lease, or without the permission to patch the kind.
func (m *migrator) isFatal(ctx context.Context, err error) bool {
	var status apierrors.APIStatus
	return ctx.Err() != nil || !errors.As(err, &status) || errors.Is(err, kube.ErrNotServed) ||
		apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) &&
		strings.Contains(err.Error(), "cannot patch resource")
}

// asRestart turns the error of a kind that is not served, which a change of the definition may cause, into errRestart.
func asRestart(err error) error {
	if errors.Is(err, kube.ErrNotServed) {
		return fmt.Errorf("%w: %w", errRestart, err)
	}
	return err
}

// failed returns the error for the objects that were not rewritten.
func (m *migrator) failed() error {
	failures := m.result.Failures
	more := ""
	if n := len(failures) - maxFailuresShown; n > 0 {
		failures, more = failures[:maxFailuresShown], fmt.Sprintf("\nand %d more (Migration.Failures)", n)
	}
	return fmt.Errorf("%d of %d objects were not rewritten in %s, so status.storedVersions stays [%s]: correct these "+
		"objects, and migrate again:\n%w%s",
		len(m.result.Failures), m.result.Total, m.result.Version,
		strings.Join(m.definition.Status.StoredVersions, ", "), errors.Join(failures...), more)
}

// retry calls f again after errors that may pass, and after at most limit internal errors.
func (m *migrator) retry(ctx context.Context, limit int, f func() error) error {
	delay, transient, logAt := time.Second, 0, time.Now().Add(logDelay)
	for {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isServerError(err):
			if transient++; transient > limit {
				return err
			}
		case !isTransient(err):
			return err
		}
		if now := time.Now(); !now.Before(logAt) {
			logAt = now.Add(logInterval)
			m.settings.logger.WarnContext(ctx, "storage migration is interrupted", "name", m.result.name, "error", err)
		}
		if err := sleep(ctx, max(delay, retryrules.ServerDelay(err))); err != nil {
			return err
		}
		delay = min(2*delay, maxDelay)
	}
}

// sleep waits, and returns the cause of the end of ctx if that comes first.
func sleep(ctx context.Context, d time.Duration) error {
	if !retryrules.Wait(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
