package crd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// WaitEstablished waits until objects can be created of the kind that a definition defines,
// whoever installs it: until it is there, the API server has established it and accepted its
// names, and shows each version that is served among its resources.
//
// Options: Timeout, Logger.
//
// Errors: names that another definition has; the end of the time, with what is missing; what a
// request met.
func WaitEstablished(ctx context.Context, c *client.Client, name string, options ...Option) error {
	s, err := newSettings(c, options, "Timeout", "Logger")
	if err == nil && name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return fmt.Errorf("wait for %s %s: %w", kindName, name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e := &ensurer{client: s.client, settings: s, done: Ensured{Name: name}}
	if err := e.waitServed(ctx); err != nil {
		return fmt.Errorf("wait for a definition: %w", err)
	}
	return nil
}

// staleTime is how long a refusal of names is doubted that was there before the names changed: it
// stays in the status until the API server has looked at the new ones, and if it refuses these
// too, nothing changes.
const staleTime = 15 * time.Second

// waitServed waits until objects can be created, and keeps the definition in done.
func (e *ensurer) waitServed(ctx context.Context) error {
	definition := e.done.Definition
	if definition == nil || notEstablished(definition) != "" {
		var err error
		if definition, err = e.waitEstablished(ctx); err != nil {
			return err
		}
	}
	// After a change, what the Cluster remembers may be of before.
	forget := e.done.Outcome != client.Unchanged
	missing := func() (string, error) {
		missing, err := notServed(ctx, e.client.Cluster(), definition, forget)
		forget = true
		return missing, err
	}
	if err := e.poll(ctx, missing); err != nil {
		return err
	}
	e.done.Definition = definition
	return nil
}

// waitEstablished waits until the API server has taken the definition into use.
func (e *ensurer) waitEstablished(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	began := time.Now()
	doubt := e.done.Outcome == client.Updated && e.live != nil && isFalse(e.live, apiextensionsv1.NamesAccepted)
	var last *apiextensionsv1.CustomResourceDefinition // that was seen
	missing := "it is not there"
	check := func(obj kube.Object) readiness.State {
		last = obj.(*apiextensionsv1.CustomResourceDefinition)
		doubtful := doubt && time.Since(began) < staleTime
		if isFalse(last, apiextensionsv1.NamesAccepted) && isCurrent(last) && !doubtful {
			return readiness.State{Status: readiness.Failed, Message: messageOf(last, apiextensionsv1.NamesAccepted)}
		}
		if missing = notEstablished(last); missing != "" {
			return readiness.State{Status: readiness.InProgress, Message: missing}
		}
		return readiness.State{Status: readiness.Current}
	}
	var definition *apiextensionsv1.CustomResourceDefinition
	err := e.patiently(ctx, func(within client.Option) (err error) {
		definition, err = client.WaitFor[*apiextensionsv1.CustomResourceDefinition](
			ctx, e.client, kube.Key{Name: e.done.Name}, check, client.OfKind(crdKind()), within)
		return err
	}, func() string { return missing })
	if errors.Is(err, client.ErrFailed) {
		return nil, fmt.Errorf("%s %s: its names are not accepted: %s", kindName, e.done.Name, e.explainNames(ctx, last))
	}
	return definition, err
}

// patiently waits as wait does, in parts, and says between them what is missing.
func (e *ensurer) patiently(ctx context.Context, wait func(within client.Option) error, missing func() string) error {
	progress := e.newProgress()
	for {
		err := wait(client.Within(quietTime))
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		if progress.isDue() {
			progress.log(ctx, missing())
		}
	}
}

// progress says now and then what is missing. Nothing is said at first, for most waits are short.
type progress struct {
	*ensurer
	began time.Time
	next  time.Time
}

func (e *ensurer) newProgress() *progress {
	now := time.Now()
	return &progress{ensurer: e, began: now, next: now.Add(quietTime)}
}

func (p *progress) isDue() bool { return !time.Now().Before(p.next) }

func (p *progress) log(ctx context.Context, missing string) {
	now := time.Now()
	p.next = now.Add(logInterval)
	p.settings.logger.InfoContext(ctx, "waiting for a CustomResourceDefinition",
		"name", p.done.Name, "missing", missing, "since", now.Sub(p.began).Round(time.Second))
}

// notEstablished says what the API server has not done about the definition, or "".
func notEstablished(d *apiextensionsv1.CustomResourceDefinition) string {
	if d.DeletionTimestamp != nil {
		return "it is being removed"
	}
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		if !isTrue(d, condition) {
			return fmt.Sprintf("it is not %s: %s", condition, cmp.Or(messageOf(d, condition), "the API server has not said why"))
		}
	}
	if !isCurrent(d) || !equality.Semantic.DeepEqual(d.Status.AcceptedNames, d.Spec.Names) {
		return "the API server has not looked at its names since they changed"
	}
	return ""
}

// notServed says which version is not among the cluster's resources, or "".
func notServed(ctx context.Context, cluster *kube.Cluster, d *apiextensionsv1.CustomResourceDefinition, forget bool) (string, error) {
	for _, kind := range servedKinds(d) {
		if forget {
			cluster.Forget(kind.GroupVersion())
		}
		resource, err := cluster.Resource(ctx, kind)
		switch {
		case errors.Is(err, kube.ErrNotServed):
			return fmt.Sprintf("version %s is not served yet", kind.Version), nil
		case err != nil:
			return "", err
		case resource.Resource != d.Spec.Names.Plural || resource.Namespaced != (d.Spec.Scope == apiextensionsv1.NamespaceScoped):
			return fmt.Sprintf("version %s is served as it was before", kind.Version), nil
		}
	}
	return "", nil
}

// explainNames returns the API server's words, and which definition has the names.
func (e *ensurer) explainNames(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) string {
	said := cmp.Or(messageOf(d, apiextensionsv1.NamesAccepted), "it does not say why")
	for other, err := range client.List[*apiextensionsv1.CustomResourceDefinition](ctx, e.client, client.OfKind(crdKind()), client.FromAPI()) {
		if err != nil {
			break // the API server's words have to do
		}
		if other.Name == d.Name || other.Spec.Group != d.Spec.Group {
			continue
		}
		var shared []string
		for _, name := range namesOf(d.Spec.Names) {
			if slices.Contains(namesOf(other.Status.AcceptedNames), name) {
				shared = append(shared, fmt.Sprintf("%q", name))
			}
		}
		if len(shared) > 0 {
			return fmt.Sprintf("%s: %s %s has %s", said, kindName, other.Name, strings.Join(shared, ", "))
		}
	}
	return said
}

// namesOf are the names that no two definitions of a group can have.
func namesOf(names apiextensionsv1.CustomResourceDefinitionNames) []string {
	return slices.Compact(append([]string{names.Plural, names.Singular, names.Kind, names.ListKind}, names.ShortNames...))
}

// waitGone waits until that very definition is gone.
func (e *ensurer) waitGone(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) error {
	e.done.Name = d.Name
	err := e.patiently(ctx, func(within client.Option) error {
		return client.WaitDeleted(ctx, e.client, d, within)
	}, func() string { return e.whatRemains(ctx, d) })
	if errors.Is(err, context.DeadlineExceeded) {
		// The time for requests is over too; what remains is worth some more of it.
		explain, cancel := context.WithTimeout(context.WithoutCancel(ctx), quietTime)
		defer cancel()
		return fmt.Errorf("%w: %s", err, e.whatRemains(explain, d))
	}
	return err
}

// poll asks what is missing until it is nothing. The API server's troubles are waited out.
func (e *ensurer) poll(ctx context.Context, missing func() (string, error)) error {
	progress := e.newProgress()
	for {
		last, err := missing()
		switch {
		case err == nil && last == "":
			return nil
		case err != nil && !passes(err):
			return fmt.Errorf("%s %s: %w", kindName, e.done.Name, err)
		case err != nil:
			last = err.Error()
		}
		if progress.isDue() {
			progress.log(ctx, last)
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s %s: %w: %s", kindName, e.done.Name, ctx.Err(), last)
		}
	}
}

// passes reports whether the same request may succeed later.
func passes(err error) bool {
	switch client.ReasonOf(err) {
	case client.ReasonThrottled, client.ReasonTransient, client.ReasonUnreachable:
		return true
	}
	return false
}

func isTrue(d *apiextensionsv1.CustomResourceDefinition, condition apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return has(d, condition, apiextensionsv1.ConditionTrue)
}

func isFalse(d *apiextensionsv1.CustomResourceDefinition, condition apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return has(d, condition, apiextensionsv1.ConditionFalse)
}

func has(d *apiextensionsv1.CustomResourceDefinition, condition apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == condition && c.Status == status
	})
}

// isCurrent reports whether the names' condition is of the present definition, as far as the API
// server says (from 1.35 on, behind the feature gate CRDObservedGenerationTracking).
func isCurrent(d *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.ObservedGeneration > 0 && c.ObservedGeneration < d.Generation {
			return false
		}
	}
	return true
}

func messageOf(d *apiextensionsv1.CustomResourceDefinition, condition apiextensionsv1.CustomResourceDefinitionConditionType) string {
	for _, c := range d.Status.Conditions {
		if c.Type == condition {
			return c.Message
		}
	}
	return ""
}
