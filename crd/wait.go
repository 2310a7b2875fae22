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
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/retry"
)

// WaitEstablished waits until objects of the kind of the definition with this name can be created: the
// definition exists, and the API server has accepted its names, has established it, and lists each
// served version among its resources. Any program may install the definition.
//
// Errors: names that another definition uses; the deadline of ctx, by default 1 min, with the missing condition; errors
// of requests.
func WaitEstablished(ctx context.Context, c *client.Client, name string) error {
	s, err := newSettings[EnsureOption](ctx, c)
	if err == nil && name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return fmt.Errorf("wait for %s %s: %w", kindName, name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e := &ensurer{settings: s, name: name}
	if err := e.waitServed(ctx); err != nil {
		return fmt.Errorf("wait for a definition: %w", err)
	}
	return nil
}

// oldRefusalTimeout is how long waitEstablished ignores a refusal of names that is older than the write. The
// condition stays in the status until the API server has checked the new names. If it refuses these too, the
// status does not change, so only time can tell the two cases apart.
const oldRefusalTimeout = 15 * time.Second

// waitServed waits until objects can be created, and stores the definition in result.
func (e *ensurer) waitServed(ctx context.Context) error {
	definition := e.result.Definition
	if definition == nil || reasonNotEstablished(definition) != "" {
		var err error
		if definition, err = e.waitEstablished(ctx); err != nil {
			return err
		}
	}
	// After a change, the Cluster's discovery cache may be stale.
	forget := e.result.Outcome != client.Unchanged
	missing := func() (string, error) {
		missing, err := reasonNotServed(ctx, e.client.Cluster(), definition, forget)
		forget = true
		return missing, err
	}
	if err := e.poll(ctx, missing); err != nil {
		return err
	}
	e.result.Definition = definition
	return nil
}

// waitEstablished waits until the API server has accepted the names and established the definition.
func (e *ensurer) waitEstablished(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	began := time.Now()
	refusedBefore := e.result.Outcome == client.Updated && e.live != nil && isRefused(e.live)
	var last *apiextensionsv1.CustomResourceDefinition // as of the last check
	missing := "the definition does not exist"
	check := func(obj kube.Object) readiness.State {
		last = obj.(*apiextensionsv1.CustomResourceDefinition)
		ignoreRefusal := refusedBefore && time.Since(began) < oldRefusalTimeout
		if isRefused(last) && isCurrent(last) && !ignoreRefusal {
			message := conditionOf(last, apiextensionsv1.NamesAccepted).Message
			return readiness.State{Status: readiness.Failed, Message: message}
		}
		if missing = reasonNotEstablished(last); missing != "" {
			return readiness.State{Status: readiness.InProgress, Message: missing}
		}
		return readiness.State{Status: readiness.Current}
	}
	var definition *apiextensionsv1.CustomResourceDefinition
	err := e.waitWithProgress(ctx, func(within client.WaitOption) (err error) {
		definition, err = client.WaitFor[*apiextensionsv1.CustomResourceDefinition](
			ctx, e.client, kube.Key{Name: e.name}, check, client.OfKind(crdKind()), within)
		return err
	}, func() string {
		if last != nil && last.DeletionTimestamp != nil {
			return e.remaining(ctx, last)
		}
		return missing
	})
	if errors.Is(err, client.ErrFailed) {
		return nil, fmt.Errorf("%s %s: names not accepted: %s", kindName, e.name,
			e.describeNameConflict(ctx, last))
	}
	return definition, err
}

// waitWithProgress calls wait repeatedly with short timeouts, and logs between the calls what is missing. It
// returns the error of wait, or ctx's.
func (e *ensurer) waitWithProgress(
	ctx context.Context, wait func(within client.WaitOption) error, missing func() string,
) error {
	progress := e.newProgress()
	for {
		err := wait(client.Timeout(logDelay))
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		progress.log(ctx, missing)
	}
}

// progress limits how often a wait is logged. The first log line comes after logDelay, because most waits are
// shorter.
type progress struct {
	*ensurer
	began time.Time
	next  time.Time
}

func (e *ensurer) newProgress() *progress {
	now := time.Now()
	return &progress{ensurer: e, began: now, next: now.Add(logDelay)}
}

// log logs what is missing, if it is time for that.
func (p *progress) log(ctx context.Context, missing func() string) {
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(logInterval)
	p.settings.logger.InfoContext(ctx, "waiting for a CustomResourceDefinition",
		"name", p.name, "missing", missing(), "since", now.Sub(p.began).Round(time.Second))
}

// reasonNotEstablished returns why the definition is not in use, or "".
func reasonNotEstablished(d *apiextensionsv1.CustomResourceDefinition) string {
	if d.DeletionTimestamp != nil {
		return "the definition is being deleted"
	}
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{
		apiextensionsv1.NamesAccepted,
		apiextensionsv1.Established,
	} {
		if c := conditionOf(d, condition); c.Status != apiextensionsv1.ConditionTrue {
			return fmt.Sprintf("condition %s is not true: %s", condition,
				cmp.Or(c.Message, "the API server gives no reason"))
		}
	}
	if !isCurrent(d) || !equality.Semantic.DeepEqual(d.Status.AcceptedNames, d.Spec.Names) {
		return "the API server has not checked the changed names yet"
	}
	return ""
}

// reasonNotServed returns which served version is missing or outdated among the cluster's resources, or "".
// forget discards the Cluster's discovery cache first.
func reasonNotServed(
	ctx context.Context, cluster *kube.Cluster, d *apiextensionsv1.CustomResourceDefinition, forget bool,
) (string, error) {
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
		case resource.Resource != d.Spec.Names.Plural ||
			resource.Namespaced != (d.Spec.Scope == apiextensionsv1.NamespaceScoped):
			return fmt.Sprintf("version %s is still served with its old names or scope", kind.Version), nil
		}
	}
	return "", nil
}

// describeNameConflict returns the API server's message, and which definition uses the names.
func (e *ensurer) describeNameConflict(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) string {
	message := cmp.Or(conditionOf(d, apiextensionsv1.NamesAccepted).Message, "the API server gives no reason")
	all := kube.Selection{Kind: crdKind()}
	for other, err := range client.List[*apiextensionsv1.CustomResourceDefinition](ctx, e.client, all,
		client.FromAPI()) {
		if err != nil {
			break // the message alone is still useful
		}
		if other.Name == d.Name || other.Spec.Group != d.Spec.Group {
			continue
		}
		var shared []string
		for _, name := range uniqueNames(d.Spec.Names) {
			if slices.Contains(uniqueNames(other.Status.AcceptedNames), name) {
				shared = append(shared, fmt.Sprintf("%q", name))
			}
		}
		if len(shared) > 0 {
			return fmt.Sprintf("%s: %s %s has %s", message, kindName, other.Name, strings.Join(shared, ", "))
		}
	}
	return message
}

// uniqueNames returns the names that must be unique within an API group.
func uniqueNames(names apiextensionsv1.CustomResourceDefinitionNames) []string {
	return slices.Compact(append([]string{names.Plural, names.Singular, names.Kind, names.ListKind},
		names.ShortNames...))
}

// waitGone waits until the object with the uid of d is gone. A new definition with the same name counts as
// gone.
func (e *ensurer) waitGone(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) error {
	err := e.waitWithProgress(ctx, func(within client.WaitOption) error {
		return client.WaitDeleted(ctx, e.client, d, within)
	}, func() string { return e.remaining(ctx, d) })
	if errors.Is(err, context.DeadlineExceeded) {
		// ctx has expired, so the request for the message needs its own time.
		describeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), describeTimeout)
		defer cancel()
		text, _ := e.describeRemaining(describeCtx, d)
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// remaining describes what blocks the deletion of a definition. If finalizers do, it lets the manager start the
// controllers that remove them. Until then the API server lists, watches and updates the objects, but creates none.
func (e *ensurer) remaining(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) string {
	text, held := e.describeRemaining(ctx, d)
	if letStart := observers.StartFrom(ctx); held && letStart != nil {
		letStart(text)
	}
	return text
}

// poll calls missing until it returns "". It retries transient errors.
func (e *ensurer) poll(ctx context.Context, missing func() (string, error)) error {
	progress := e.newProgress()
	for {
		reason, err := missing()
		switch {
		case err == nil && reason == "":
			return nil
		case err != nil && !isTransient(err):
			return fmt.Errorf("%s %s: %w", kindName, e.name, err)
		case err != nil:
			reason = err.Error()
		}
		progress.log(ctx, func() string { return reason })
		if !retryrules.Wait(ctx, pollInterval) {
			return fmt.Errorf("wait for %s %s: %w: %s", kindName, e.name, ctx.Err(), reason)
		}
	}
}

// isTransient reports whether the same request may succeed later.
func isTransient(err error) bool {
	switch retry.Classify(err) {
	case retry.Throttled, retry.Transient, retry.Timeout:
		return true
	}
	return false
}

// isServerError reports whether the API server failed temporarily, or has dropped the requested state. Unlike a missing
// response, this may be due to the object.
func isServerError(err error) bool {
	var response apierrors.APIStatus
	return retry.Classify(err) == retry.Transient && errors.As(err, &response)
}

// conditionOf returns a condition of the definition; the zero value if it has none of this type.
func conditionOf(
	d *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType,
) (c apiextensionsv1.CustomResourceDefinitionCondition) {
	for _, known := range d.Status.Conditions {
		if known.Type == kind {
			return known
		}
	}
	return c
}

// isEstablished reports whether objects of the kind can exist.
func isEstablished(d *apiextensionsv1.CustomResourceDefinition) bool {
	return conditionOf(d, apiextensionsv1.Established).Status == apiextensionsv1.ConditionTrue
}

// isRefused reports whether the API server has not accepted the names of the definition.
func isRefused(d *apiextensionsv1.CustomResourceDefinition) bool {
	return conditionOf(d, apiextensionsv1.NamesAccepted).Status == apiextensionsv1.ConditionFalse
}

// isCurrent reports whether condition NamesAccepted describes the current generation. It returns true if the
// condition has no observedGeneration: the API server sets it since 1.35, with feature gate
// CRDObservedGenerationTracking.
func isCurrent(d *apiextensionsv1.CustomResourceDefinition) bool {
	observed := conditionOf(d, apiextensionsv1.NamesAccepted).ObservedGeneration
	return observed == 0 || observed >= d.Generation
}
