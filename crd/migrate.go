package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Migration is the result of Migrate.
//
// An object that was changed, deleted or replaced after it was listed is in the storage version already. An object is a
// failure if the API server rejects the patch: an admission webhook denies the request, its conversion fails, or it is
// invalid in the storage version. (Since Kubernetes 1.30 an invalid spec is rewritten.) Migrate continues with the
// other objects, and then returns an error. Migrate retries while the API server is unreachable or asks for fewer
// requests (after its Retry-After, at most 10 min), until ctx ends, and 10 times when it reports an internal error. An
// object that cannot be converted makes the API server reject lists: Migrate names it if a served version can show it,
// and ends after 100 of them.
type Migration struct {
	name string // of the definition
	// Version is the storage version.
	Version string
	// Total is the number of objects when the walk over all objects began. It is 0 if no object has to be rewritten,
	// and if no page was read.
	Total int
	// Done is the number of objects that the walk has passed: those that were rewritten by this call, an earlier call
	// or another client, that were deleted, and those in Failures.
	Done int
	// Rewritten is the number of objects that this call has written. Those that were stored in Version already are
	// included, because the API server does not report that it had nothing to write.
	Rewritten int
	// Failures are the objects that were not rewritten, in the order of the walk: each error names one.
	Failures []error
}

// String returns the result as one line.
func (m Migration) String() string {
	return fmt.Sprintf("%s to %s: %d of %d objects done, %d rewritten, %d failed", m.name, m.Version, m.Done, m.Total,
		m.Rewritten, len(m.Failures))
}

// Migrate rewrites all objects of the definition with this name in the storage version, and then removes all
// other versions from the definition's status.storedVersions. Only then can these versions be removed from the
// definition. Migrate returns at once if status.storedVersions contains no other version.
//
// Steps:
//
//  1. Migrate waits for 5 s, so that each API server uses the current storage version, and marks the definition
//     with an annotation: objects with a later resourceVersion are in the storage version.
//  2. It lists the metadata of all objects page by page, and sends an empty patch for each object that was not
//     written since the mark. So the API server converts and stores the object. One patch at a time is under way.
//  3. It sets status.storedVersions, if every object was rewritten and the storage version did not change in
//     between, and removes the annotation.
//
// Migrate may be killed between any two requests, and may run in several processes: the next call continues
// after the mark. If the storage version changes in between, it starts again.
// The process needs list and patch of the kind, patch of customresourcedefinitions/status, and get and
// patch of customresourcedefinitions. Clients that watch the kind receive an event for each rewritten object;
// generation and managedFields do not change.
//
// With a client for dry runs Migrate waits for nothing and changes nothing, and reports the objects that would fail.
//
// Options: Pace. Default: no pause, and no time limit. The progress is logged every 10 s.
//
// Errors: the objects that were not rewritten (100 of them; Migration.Failures has all), a missing permission,
// a definition that does not exist or that serves no version, errors of requests.
func Migrate(ctx context.Context, c *client.Client, name string, options ...MigrateOption) (Migration, error) {
	s, err := newSettings(ctx, c, options...)
	if err == nil && name == "" {
		err = errors.New("it has no name")
	}
	m := &migrator{settings: s, result: Migration{name: name}}
	if err == nil {
		err = m.run(ctx)
	}
	if err != nil {
		return m.result, fmt.Errorf("migrate objects of %s %s: %w", kindName, name, err)
	}
	return m.result, nil
}

const (
	// settleTime is the time between the first read of a definition and the mark. An API server that has not seen a
	// change of the definition yet stores objects in the old version. Kubernetes waits for as long before a new
	// definition counts as established by all API servers.
	settleTime = 5 * time.Second
	// maxRestarts is how often Migrate starts again because the storage version may have changed.
	maxRestarts = 10
	// maxTransient is how often a request is repeated after internal errors. A conversion that always fails has one.
	maxTransient = 10
	// maxTransientOfOne is the same for an object of a page that could not be read.
	maxTransientOfOne = 2
	maxDelay          = 30 * time.Second
	// maxUnreadable is the number of objects that cannot be read after which a migration ends: the conversion webhook
	// is probably down.
	maxUnreadable = 100
	// migratePage is the number of objects of a page. The API server reads and converts whole objects, although it
	// sends metadata only.
	migratePage = 250
	// maxFailuresShown is the number of objects in the text of an error.
	maxFailuresShown = 100
)

// annotationMigration is the annotation of a definition with a mark.
const annotationMigration = "evenkeel.dev/storage-migration"

// mark is the state of a migration that later calls of Migrate use.
type mark struct {
	UID types.UID `json:"uid"`
	// Generation is the definition's generation, and Version its storage version, when the mark was written.
	Generation int64  `json:"generation"`
	Version    string `json:"version"`
	// After is a resourceVersion: objects with a later one were written in Version.
	After string `json:"after"`
}

// isValidFor reports whether the storage version was Version at all times since the mark was written. One change of
// the spec cannot change the storage version and change it back, but two can.
func (k mark) isValidFor(d *apiextensionsv1.CustomResourceDefinition) bool {
	return d.UID == k.UID && storageVersion(d) == k.Version &&
		(d.Generation == k.Generation || d.Generation == k.Generation+1)
}

// markOf returns the mark in the annotation of the definition, if it is valid.
func markOf(d *apiextensionsv1.CustomResourceDefinition) (k mark, ok bool) {
	err := json.Unmarshal([]byte(d.Annotations[annotationMigration]), &k)
	return k, err == nil && k.After != "" && k.isValidFor(d)
}

// errRestart means that objects may have been written in another version since the mark.
var errRestart = errors.New("the storage version may have changed, or the kind is not served")

// migrator is one call of Migrate.
type migrator struct {
	settings
	result Migration

	definition *apiextensionsv1.CustomResourceDefinition // as last read; valid for mark
	mark       mark
	next       time.Time // of the next write
	logAt      time.Time // of the next log line

	pageSize   int64
	unreadable int      // the number of objects that could not be read
	passed     kube.Key // the last object of the walk
}

func (m *migrator) run(ctx context.Context) error {
	for restart := 1; ; restart++ {
		err := m.migrate(ctx)
		if !errors.Is(err, errRestart) || restart == maxRestarts {
			return err
		}
		m.settings.logger.InfoContext(ctx, "storage migration starts again", "name", m.result.name, "reason", err)
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// migrate is one attempt of run. Error: errRestart.
func (m *migrator) migrate(ctx context.Context) error {
	if err := m.read(ctx); err != nil {
		return err
	}
	m.result.Version = storageVersion(m.definition)
	if m.isMigrated() {
		return m.removeMark(ctx)
	}
	kind, err := m.kind()
	if err != nil {
		return err
	}
	dryRun := m.client.Config().DryRun
	if !dryRun {
		if err := m.begin(ctx, kind); err != nil {
			return err
		}
	}
	if err := m.rewriteAll(ctx, kind); err != nil {
		return err
	}
	if len(m.result.Failures) > 0 {
		return m.failed()
	}
	if dryRun {
		return nil
	}
	return m.finish(ctx)
}

// isMigrated reports whether status.storedVersions contains only the storage version.
func (m *migrator) isMigrated() bool {
	return !slices.ContainsFunc(m.definition.Status.StoredVersions, func(v string) bool {
		return v != m.result.Version
	})
}

// read reads the definition.
func (m *migrator) read(ctx context.Context) error {
	return m.retry(ctx, maxTransient, func() (err error) {
		m.definition, err = read(ctx, m.client, m.result.name)
		if err == nil && m.definition.DeletionTimestamp != nil {
			return client.ErrTerminating
		}
		return err
	})
}

// kind returns the kind for requests: that of the storage version, if it is served.
func (m *migrator) kind() (schema.GroupVersionKind, error) {
	served := servedKinds(m.definition)
	if len(served) == 0 {
		return schema.GroupVersionKind{},
			errors.New("none of its versions is served, so its objects cannot be listed: serve one version")
	}
	for _, kind := range served {
		if kind.Version == m.result.Version {
			return kind, nil
		}
	}
	return served[0], nil
}

// begin sets the mark: the one of an earlier call, or a new one.
func (m *migrator) begin(ctx context.Context, kind schema.GroupVersionKind) error {
	waiting := &ensurer{
		settings: m.settings,
		name:     m.result.name,
		result:   Ensured{Definition: m.definition},
	}
	limited, cancel := context.WithTimeout(ctx, m.settings.timeout)
	defer cancel()
	if err := waiting.waitServed(limited); err != nil {
		return err
	}
	var resumed bool
	if m.mark, resumed = markOf(m.definition); !resumed {
		m.mark = mark{UID: m.definition.UID, Generation: m.definition.Generation, Version: m.result.Version}
		if err := sleep(ctx, settleTime); err != nil {
			return err
		}
		m.pageSize = 1 // only the resourceVersion is used
		var page objects
		err := m.retry(ctx, maxTransient, func() (err error) {
			page, err = m.list(ctx, kind, "")
			return err
		})
		if isServerError(err) && ctx.Err() == nil {
			page, err = m.passUnreadable(ctx, kind, "", err)
		}
		if err != nil {
			return asRestart(err)
		}
		m.mark.After = page.ResourceVersion
	}
	m.settings.logger.InfoContext(ctx, "storage migration started", "name", m.result.name, "version", m.result.Version,
		"storedVersions", m.definition.Status.StoredVersions, "resumed", resumed)
	m.logAt = time.Now().Add(logInterval)
	return m.follow(ctx)
}

// follow reads the definition, and keeps the mark in it. It returns errRestart if the mark has become invalid.
func (m *migrator) follow(ctx context.Context) error {
	for {
		if err := m.read(ctx); err != nil {
			return err
		}
		if !m.mark.isValidFor(m.definition) {
			return fmt.Errorf("%w: generation %d with storage version %s became generation %d with %s", errRestart,
				m.mark.Generation, m.mark.Version, m.definition.Generation, storageVersion(m.definition))
		}
		if other, ok := markOf(m.definition); ok {
			m.mark = other // of another call of Migrate: both are valid, and two calls must not replace each other's
		}
		m.mark.Generation = m.definition.Generation
		encoded, err := json.Marshal(m.mark)
		if err != nil {
			return err
		}
		if m.isMigrated() || m.definition.Annotations[annotationMigration] == string(encoded) {
			return nil
		}
		marked := m.definition.DeepCopy()
		metav1.SetMetaDataAnnotation(&marked.ObjectMeta, annotationMigration, string(encoded))
		if written, err := m.write(ctx, marked); written || err != nil {
			return err
		}
	}
}

// write changes the definition into the given state. It returns false if another client has changed it.
func (m *migrator) write(
	ctx context.Context, to *apiextensionsv1.CustomResourceDefinition, options ...client.WriteOption,
) (bool, error) {
	conflict := false
	err := m.retry(ctx, maxTransient, func() error {
		patched, err := client.Patch(ctx, m.client, m.definition,
			client.MergeFrom(m.definition, to).Locked(m.definition), options...)
		if conflict = errors.Is(err, client.ErrChanged) || errors.Is(err, client.ErrGone); conflict {
			return nil
		}
		if err == nil {
			m.definition = patched
		}
		return err
	})
	return !conflict && err == nil, err
}

// finish sets status.storedVersions.
func (m *migrator) finish(ctx context.Context) error {
	for {
		if err := m.follow(ctx); err != nil {
			return err
		}
		migrated := m.definition.DeepCopy()
		migrated.Status.StoredVersions = []string{m.mark.Version}
		written, err := m.write(ctx, migrated, client.Subresource("status"))
		if err != nil {
			return err
		}
		if written {
			m.settings.logger.InfoContext(ctx, "storage migration finished", "name", m.result.name, "version",
				m.result.Version,
				"rewritten", m.result.Rewritten)
			return m.removeMark(ctx)
		}
	}
}

// removeMark removes the annotation.
func (m *migrator) removeMark(ctx context.Context) error {
	for !m.client.Config().DryRun {
		if _, ok := m.definition.Annotations[annotationMigration]; !ok {
			return nil
		}
		without := m.definition.DeepCopy()
		delete(without.Annotations, annotationMigration)
		if written, err := m.write(ctx, without); written || err != nil {
			return err
		}
		if err := m.read(ctx); err != nil {
			return err
		}
		if m.result.Version = storageVersion(m.definition); !m.isMigrated() {
			return errRestart // another call has begun the next migration, and needs its mark
		}
	}
	return nil
}
