package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Ensured is the result of Ensure for one definition.
//
// Ensure never writes a change that it did not compare with the live state. If another client
// writes in between, Ensure reads and compares again, at most 10 times. Any number of programs may call it at
// the same time. If nothing has changed, it makes one request for each definition, and one for each group
// version that the Cluster has not discovered yet.
//
// Ensure does not read from the client's informers, because they may be stale.
//
// The caller must keep the client's FieldOwner the same across versions of the program. Short names and
// categories that another field owner has set are not removed.
//
// Each API server starts to use a changed schema shortly after the write, and does not report when. Until
// then it prunes writes by the old schema. With client.FieldValidation("Strict") it rejects such a write
// instead, and the caller can retry.
//
// With a client for dry runs Ensure waits for nothing, and a definition that is being deleted counts as
// deleted.
type Ensured struct {
	// Outcome is client.Created, client.Updated or client.Unchanged.
	Outcome client.ObjectOutcome
	// Allowed are the problems of the change that an option allowed.
	Allowed []Problem
	// Newer is true if option AcceptNewer kept the definition of a newer version of the program.
	Newer bool
	// Definition is the definition as the API server returned it. In a dry run, if a definition of this
	// name is being deleted, it is the definition that would be applied after that.
	Definition *apiextensionsv1.CustomResourceDefinition
}

// ChangeError reports that Ensure refused to change a definition.
type ChangeError struct {
	// Name is the definition's name.
	Name string
	// Problems are the problems that no option allowed, the worst first.
	Problems []Problem
}

// Error implements error.
func (e *ChangeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s was not changed, because the change may harm existing objects:", kindName, e.Name)
	for _, problem := range e.Problems {
		fmt.Fprintf(&b, "\n\t%s", problem)
	}
	for _, allowed := range []struct {
		severity       severity
		effect, option string
	}{{lossy, "the loss is", "AllowDataLoss"}, {narrowing, "the new limits are", "AllowNarrowing"}} {
		if paths := e.pathsOf(allowed.severity); len(paths) > 0 {
			fmt.Fprintf(&b, "\nIf %s acceptable, use option %s(%s).", allowed.effect, allowed.option,
				strings.Join(paths, ", "))
		}
	}
	return b.String()
}

// pathsOf returns the quoted paths of the problems of one severity, each once.
func (e *ChangeError) pathsOf(severity severity) []string {
	var paths []string
	for _, problem := range e.Problems {
		if path := strconv.Quote(problem.Path); problem.severity == severity && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Ensure creates or updates definitions, and returns when objects of their kinds can be created. The
// results are in the order of definitions, which Ensure does not change. With an error, the results
// are those of the definitions for which no write was left to make.
//
// Steps:
//
//  1. Ensure reads each definition from the API server. It does not write a definition that is equal.
//  2. It compares each change (Compare). If it refuses one change, it makes none.
//  3. It writes missing and different definitions by server-side apply as the client's field owner, and
//     forces conflicts. Labels and annotations of other owners stay. So does their conversion, if the
//     definition does not set one.
//  4. It waits until the API server has accepted the names of each definition, has established it, and
//     lists each served version among its resources.
//
// If a definition is being deleted, Ensure waits for the deletion and creates the definition again. Controllers of
// this program may have to remove finalizers before: a task of package manager lets them start after 2 s, and waits
// without the timeout. A program without a manager starts the Run of its controllers in goroutines first, and then
// calls Ensure, with a deadline after the cleanup; a controller waits for a definition that is missing.
//
// Options: AllowDataLoss, AllowNarrowing, AcceptNewer. Default: refuse harmful changes. The timeout is the deadline of
// ctx, by default 1 min.
//
// Errors of all definitions are joined: *ChangeError for refused changes; names that another definition
// uses; the timeout, with the missing condition; errors of requests, among them kube.ErrNotServed if the
// cluster does not serve apiextensions.k8s.io/v1.
func Ensure(
	ctx context.Context, c *client.Client, definitions []*apiextensionsv1.CustomResourceDefinition,
	options ...EnsureOption,
) ([]Ensured, error) {
	s, err := newSettings(ctx, c, options...)
	if err := errors.Join(err, checkDefinitions(definitions)); err != nil {
		return nil, fmt.Errorf("ensure definitions: %w", err)
	}
	ensurers := make([]*ensurer, len(definitions))
	for i, definition := range definitions {
		ensurers[i] = &ensurer{settings: s, name: definition.Name, desired: definition}
	}
	if observers.StartFrom(ctx) == nil { // in a manager, the timeout bounds each attempt: see waitGone
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	if err := forEach(ensurers, func(e *ensurer) error { return e.plan(ctx) }); err != nil {
		return nil, fmt.Errorf("ensure definitions: %w", err)
	}
	err = forEach(ensurers, func(e *ensurer) error { return e.execute(ctx) })
	var ensured []Ensured
	for _, e := range ensurers {
		if e.result.Outcome != "" {
			ensured = append(ensured, e.result)
		}
	}
	if err != nil {
		return ensured, fmt.Errorf("ensure definitions: %w", err)
	}
	return ensured, nil
}

// maxConcurrent is the number of definitions that Ensure handles at the same time.
const maxConcurrent = 8

// forEach calls f for each ensurer, at most maxConcurrent at a time, and joins the errors in order.
func forEach(ensurers []*ensurer, f func(*ensurer) error) error {
	errs := make([]error, len(ensurers))
	slots := make(chan struct{}, maxConcurrent)
	var running sync.WaitGroup
	for i, e := range ensurers {
		slots <- struct{}{}
		running.Go(func() { // waited for below
			defer func() { <-slots }()
			errs[i] = f(e)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// ensurer handles one definition: plan, then execute. One goroutine at a time uses it.
//
// Invariants: live, target and the problems in result belong to the same read. The definition that is
// written for a non-nil live carries its resourceVersion, and the one for a nil live is only created, so a
// write fails when live is stale, and plan must run again.
type ensurer struct {
	settings
	name    string                                    // of the definition
	desired *apiextensionsv1.CustomResourceDefinition // the caller's; never changed

	live   *apiextensionsv1.CustomResourceDefinition // nil: the definition does not exist
	target *apiextensionsv1.CustomResourceDefinition // the state after the write
	result Ensured

	terminating bool // only in dry runs: a definition of this name is being deleted
}

// plan reads the live definition, computes the target, and returns a ChangeError for changes that are not
// allowed. It resets the result.
func (e *ensurer) plan(ctx context.Context) error {
	e.result, e.terminating = Ensured{}, false
	live, err := e.find(ctx)
	if err != nil {
		return err
	}
	e.live, e.target = live, mergeWithLive(e.desired, live, e.client.Config().FieldOwner)
	if live == nil {
		return nil
	}
	var refused []Problem
	for _, problem := range Compare(live, e.target) {
		if e.settings.allows(problem) {
			e.result.Allowed = append(e.result.Allowed, problem)
		} else {
			refused = append(refused, problem)
		}
	}
	if e.settings.acceptNewer && isNewer(live, e.target, refused) {
		e.target, e.result.Newer, e.result.Allowed = live, true, nil
		return nil
	}
	if len(refused) > 0 {
		return &ChangeError{Name: e.desired.Name, Problems: refused}
	}
	return nil
}

// isNewer reports whether live is the definition of a newer version of the program: the change into target would
// harm, or would go back to an earlier storage version, and the change from target into live does not harm.
func isNewer(live, target *apiextensionsv1.CustomResourceDefinition, refused []Problem) bool {
	goesBack := version.CompareKubeAwareVersionStrings(storageVersion(live), storageVersion(target)) > 0
	return (len(refused) > 0 || goesBack) && len(Compare(target, live)) == 0
}

// find reads the definition. It returns nil if none exists. If the definition is being deleted, find
// waits for the deletion, except in dry runs.
func (e *ensurer) find(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, e.timeout) // ctx has no deadline in a manager
		live, err := read(limited, e.client, e.desired.Name)
		cancel()
		switch {
		case errors.Is(err, client.ErrGone):
			return nil, nil //nolint:nilnil // does not exist
		case err != nil:
			return nil, err
		case live.DeletionTimestamp == nil:
			return live, nil
		case e.client.Config().DryRun:
			e.terminating = true
			return nil, nil //nolint:nilnil // will not exist
		}
		if err := e.waitGone(ctx, live); err != nil {
			return nil, err
		}
		// Another client may have created it again.
	}
}

// execute writes the target and waits until the API server serves it. It plans again if another client has
// changed or deleted the definition.
func (e *ensurer) execute(ctx context.Context) error {
	const attempts = 10
	for attempt := 1; ; attempt++ {
		err := e.attempt(ctx)
		conflict := errors.Is(err, client.ErrChanged) || errors.Is(err, client.ErrReplaced) ||
			errors.Is(err, client.ErrGone) ||
			errors.Is(err, client.ErrExists)
		deleted := ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && e.isDeleted(ctx)
		if !conflict && !deleted || attempt == attempts {
			return err
		}
		// Another client has written: the comparison is outdated.
		if err := e.plan(ctx); err != nil {
			return err
		}
	}
}

// attempt is execute for one plan, within the timeout.
func (e *ensurer) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	if err := e.write(ctx); err != nil || e.client.Config().DryRun {
		return err
	}
	return e.waitServed(ctx)
}

// isDeleted reports whether the definition was deleted, or is being deleted.
func (e *ensurer) isDeleted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	live, err := read(ctx, e.client, e.desired.Name)
	return errors.Is(err, client.ErrGone) || err == nil && live.DeletionTimestamp != nil
}

// write applies the definition unless that would change nothing.
func (e *ensurer) write(ctx context.Context) error {
	if e.terminating {
		e.result.Outcome, e.result.Definition = client.Created, e.target
		return nil
	}
	owner := e.client.Config().FieldOwner
	if e.live != nil && (e.result.Newer || isUpToDate(e.live, e.target, owner)) {
		e.result.Outcome, e.result.Definition = client.Unchanged, e.live
		return nil
	}
	ended, err := e.endConversion(ctx)
	if err != nil || ended && e.client.Config().DryRun {
		return err
	}
	configuration, err := applyConfiguration(e.desired, e.live)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kindName, e.desired.Name, err)
	}
	applyOptions := []client.WriteOption{client.IfAbsent()}
	if e.live != nil {
		applyOptions = []client.WriteOption{client.Force(), client.IfUnchanged()}
	}
	applied, err := client.Apply(ctx, e.client, configuration, applyOptions...)
	if err != nil {
		return err
	}
	definition, err := fromUnstructured(applied.Object)
	if err != nil {
		return fmt.Errorf("%s %s: decode the response: %w", kindName, e.desired.Name, err)
	}
	e.result.Outcome, e.result.Definition = applied.Outcome, definition
	if ended {
		e.result.Outcome = client.Updated
	}
	return nil
}

// endConversion removes a webhook conversion that the target does not have. It reports whether it wrote. It
// uses a patch, because an apply removes only the caller's own fields: a CA bundle that a certificate
// manager has set would stay, and the API server rejects a bundle without a webhook. The patch also sets the
// versions: without the webhook, the API server must not serve a version that the target lacks.
func (e *ensurer) endConversion(ctx context.Context) (bool, error) {
	if e.live == nil || clientConfig(e.live) == nil || usesWebhook(e.target) {
		return false, nil
	}
	without := e.live.DeepCopy()
	target := e.target.DeepCopy()
	without.Spec.Conversion, without.Spec.Versions = target.Spec.Conversion, target.Spec.Versions
	patched, err := client.Patch(ctx, e.client, e.live, client.MergeFrom(e.live, without).Locked(e.live))
	if err != nil {
		return false, err
	}
	e.live, e.result.Outcome, e.result.Definition = patched, client.Updated, e.target
	return true, nil
}

// read gets a definition from the API server, never from an informer.
func read(ctx context.Context, c *client.Client, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, c, kube.Key{Name: name}, client.OfKind(crdKind()),
		client.FromAPI())
}
