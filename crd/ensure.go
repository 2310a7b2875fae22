package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Ensured is what Ensure has done about one definition.
type Ensured struct {
	// Name is the definition's.
	Name string
	// Outcome is client.Created, client.Updated or client.Unchanged.
	Outcome client.Outcome
	// Allowed are the problems of the change that options have allowed.
	Allowed []Problem
	// Definition is as the API server has it. In a dry run that would wait for the end of another
	// one of the name, it is what would be applied then.
	Definition *apiextensionsv1.CustomResourceDefinition
}

// ChangeError is why a definition was not changed.
type ChangeError struct {
	// Name is the definition's.
	Name string
	// Problems are all that no option has allowed, the worst first.
	Problems []Problem
}

// Error implements error.
func (e *ChangeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s is not changed, for objects that there may be:", kindName, e.Name)
	for _, problem := range e.Problems {
		fmt.Fprintf(&b, "\n\t%s", problem)
	}
	for _, accepts := range []struct {
		severity        Severity
		becomes, option string
	}{{Lossy, "lost", "AllowDataLoss"}, {Narrowing, "refused", "AllowNarrowing"}} {
		if paths := e.pathsOf(accepts.severity); len(paths) > 0 {
			fmt.Fprintf(&b, "\nWhen nothing that is needed would be %s, say so by option %s(%s).", accepts.becomes, accepts.option, strings.Join(paths, ", "))
		}
	}
	return b.String()
}

// pathsOf returns the paths of problems of a severity, quoted.
func (e *ChangeError) pathsOf(severity Severity) []string {
	var paths []string
	for _, problem := range e.Problems {
		if path := strconv.Quote(problem.Path); problem.Severity == severity && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Ensure makes the cluster have definitions, and returns when objects of their kinds can be
// created. What it has done is returned in the order of definitions, which it does not change; with
// an error, of those with which it has come so far that nothing was left to be written.
//
// Flow:
//
//  1. Each definition is read from the API server. What is equal is not written.
//  2. What would change is compared (Compare). If one change is refused, none is made.
//  3. What is missing or differs is written, by server-side apply as the client's field owner,
//     which takes the fields that it names away from others. The labels and annotations of
//     others stay, and so does their conversion, if the definition names none.
//  4. Ensure waits until the API server has established each, has accepted its names, and
//     shows each version that is served among its resources.
//
// A definition that is being removed is waited for, and created again.
//
// Guarantees: no change is written that was not compared with what it replaces: when another
// program writes meanwhile, everything begins again. (Of a definition that was missing this ends a
// moment before the write, for there is no apply that only creates.) It may be called by any
// number of programs at once. When nothing has changed it makes one request for each definition,
// and one for each version of a group that the Cluster has not learnt yet.
//
// Informers of the client are not asked: they may be behind.
//
// Caller must: give the client a FieldOwner that stays the same over versions of the program,
// and call Ensure before controllers of these kinds start. A short name or a category that
// another field owner has set, and the definition lacks, stays.
//
// A schema that has changed comes into use a moment after the write, in each API server on its
// own, and none of them says when: what is written in that moment is still pruned by the old one.
// With client.FieldValidation("Strict") such a write is refused instead, and can be made again.
//
// With a client for dry runs, nothing is waited for; a definition that is being removed counts as
// gone.
//
// Options: AllowDataLoss, AllowNarrowing, Timeout, Logger.
//
// Errors, of all definitions at once: *ChangeError; names that another definition has; the end
// of the time, with what is missing; what a request met, of which kube.ErrNotServed says that
// the cluster has no CustomResourceDefinitions of version v1.
func Ensure(ctx context.Context, c *client.Client, definitions []*apiextensionsv1.CustomResourceDefinition, options ...Option) ([]Ensured, error) {
	s, err := newSettings(c, options, "AllowDataLoss", "AllowNarrowing", "Timeout", "Logger")
	if err == nil && c.Config().FieldOwner == "" {
		err = errors.New("the client has no FieldOwner, to which what is applied could belong")
	}
	if err := errors.Join(err, checkAll(definitions)); err != nil {
		return nil, fmt.Errorf("ensure definitions: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	ensurers := make([]*ensurer, len(definitions))
	for i, definition := range definitions {
		ensurers[i] = &ensurer{client: s.client, settings: s, desired: definition}
	}
	if err := each(ensurers, func(e *ensurer) error { return e.plan(ctx) }); err != nil {
		return nil, fmt.Errorf("ensure definitions: %w", err)
	}
	err = each(ensurers, func(e *ensurer) error { return e.carryOut(ctx) })
	var ensured []Ensured
	for _, e := range ensurers {
		if e.done.Outcome != "" {
			ensured = append(ensured, e.done)
		}
	}
	if err != nil {
		return ensured, fmt.Errorf("ensure definitions: %w", err)
	}
	return ensured, nil
}

// missingTime is how long a definition that was missing is believed to be: another one may have
// been waited for meanwhile. One that is there is changed in the state that was read, or not.
const missingTime = time.Second

// parallel is how many definitions are worked on at once.
const parallel = 8

// each calls f for all, some at a time, and joins the errors in their order.
func each(ensurers []*ensurer, f func(*ensurer) error) error {
	errs := make([]error, len(ensurers))
	places := make(chan struct{}, parallel)
	var running sync.WaitGroup
	for i, e := range ensurers {
		places <- struct{}{}
		running.Go(func() { // waited for below
			defer func() { <-places }()
			errs[i] = f(e)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// ensurer works on one definition. It is owned by one goroutine at a time.
type ensurer struct {
	client   *client.Client
	settings settings
	desired  *apiextensionsv1.CustomResourceDefinition

	live *apiextensionsv1.CustomResourceDefinition // nil: there is none
	want *apiextensionsv1.CustomResourceDefinition // what live is to become
	done Ensured

	planned  time.Time // when live was read
	removing bool      // in a dry run: there is one that is being removed
}

// plan reads the definition, and finds out what is to be done.
func (e *ensurer) plan(ctx context.Context) error {
	e.done, e.removing = Ensured{Name: e.desired.Name}, false
	live, err := e.find(ctx)
	if err != nil {
		return err
	}
	e.planned = time.Now()
	e.live, e.want = live, desiredOver(e.desired, live, e.client.Config().FieldOwner)
	if live == nil {
		return nil
	}
	var refused []Problem
	for _, problem := range Compare(live, e.want) {
		if e.settings.allows(problem) {
			e.done.Allowed = append(e.done.Allowed, problem)
		} else {
			refused = append(refused, problem)
		}
	}
	if len(refused) > 0 {
		return &ChangeError{Name: e.desired.Name, Problems: refused}
	}
	return nil
}

// find reads the definition, or returns nil when there is none. One that is being removed is waited
// for.
func (e *ensurer) find(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	for {
		live, err := read(ctx, e.client, e.desired.Name)
		switch {
		case errors.Is(err, client.ErrGone):
			return nil, nil //nolint:nilnil // there is none
		case err != nil:
			return nil, err
		case live.DeletionTimestamp == nil:
			return live, nil
		case e.client.Config().DryRun:
			e.removing = true
			return nil, nil //nolint:nilnil // there will be none
		}
		if err := e.waitGone(ctx, live); err != nil {
			return nil, err
		}
		// Somebody else may have made it again.
	}
}

// carryOut writes what was planned, and waits until it is in effect.
func (e *ensurer) carryOut(ctx context.Context) error {
	if e.live == nil && time.Since(e.planned) > missingTime {
		if err := e.plan(ctx); err != nil {
			return err
		}
	}
	const attempts = 10
	for attempt := 1; ; attempt++ {
		err := e.write(ctx)
		if err == nil {
			break
		}
		raced := errors.Is(err, client.ErrChanged) || errors.Is(err, client.ErrReplaced) || errors.Is(err, client.ErrGone)
		if !raced || attempt == attempts {
			return err
		}
		// Another program has written, so that what was compared is not what there is.
		if err := e.plan(ctx); err != nil {
			return err
		}
	}
	if e.client.Config().DryRun {
		return nil
	}
	return e.waitServed(ctx)
}

// write applies the definition, if that changes something.
func (e *ensurer) write(ctx context.Context) error {
	if e.removing {
		e.done.Outcome, e.done.Definition = client.Created, e.want
		return nil
	}
	owner := e.client.Config().FieldOwner
	if e.live != nil && isAsWanted(e.live, e.want, owner) {
		e.done.Outcome, e.done.Definition = client.Unchanged, e.live
		return nil
	}
	ended, err := e.endConversion(ctx)
	if err != nil || ended && e.client.Config().DryRun {
		return err
	}
	configuration, err := configurationOf(e.desired, e.live)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kindName, e.desired.Name, err)
	}
	applyOptions := []client.Option{client.Force()}
	if e.live != nil {
		applyOptions = append(applyOptions, client.IfUnchanged())
	}
	applied, err := client.Apply(ctx, e.client, configuration, applyOptions...)
	if err != nil {
		return err
	}
	definition, err := definitionOf(applied.Object)
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", kindName, e.desired.Name, err)
	}
	e.done.Outcome, e.done.Definition = applied.Outcome, definition
	if ended {
		e.done.Outcome = client.Updated
	}
	return nil
}

// endConversion ends a conversion by a webhook that is not wanted any longer, and returns false
// when there is none. An apply cannot: what others have put there, as certificate managers do,
// would be left of it, and be invalid.
func (e *ensurer) endConversion(ctx context.Context) (bool, error) {
	if e.live == nil || clientConfig(e.live) == nil || converts(e.want) {
		return false, nil
	}
	without := e.live.DeepCopy()
	without.Spec.Conversion = e.want.Spec.Conversion.DeepCopy()
	patched, err := client.Patch(ctx, e.client, e.live, client.MergeFrom(e.live, without).Locked(e.live))
	if err != nil {
		return false, err
	}
	e.live, e.done.Outcome, e.done.Definition = patched, client.Updated, e.want
	return true, nil
}

// read reads a definition from the API server, not from an informer.
func read(ctx context.Context, c *client.Client, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, c, kube.Key{Name: name}, client.OfKind(crdKind()), client.FromAPI())
}
