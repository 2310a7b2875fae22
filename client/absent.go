package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/kube"
)

// versionOfNoObject is a resourceVersion that no object has. An apply with it creates an object, because the API server
// compares resourceVersions only if the object exists, and then reports a conflict. It is the largest possible version,
// because some servers count the versions of each object from 1.
const versionOfNoObject = "9223372036854775807"

func (s settings) checkIfAbsent(obj kube.Object) error {
	switch {
	case s.unchanged:
		return errors.New("options IfAbsent and IfUnchanged exclude each other")
	case s.force:
		return errors.New("options IfAbsent and Force exclude each other: a new object has no fields of other managers")
	case s.subresource != "":
		return fmt.Errorf("option IfAbsent creates objects, and %s is a subresource of an existing one", s.subresource)
	case obj.GetUID() != "":
		return errors.New("option IfAbsent creates objects, and this one has a uid, so it was created already")
	}
	return nil
}

// applyAbsent creates the object if it does not exist.
func applyAbsent[T kube.Object](ctx context.Context, a application, like T) (ApplyResult[T], error) {
	if !isKubernetesGroup(a.kind.Group) {
		// An aggregated API server may ignore the resourceVersion of an apply.
		seen, err := readState(ctx, a.target, like)
		if err != nil {
			return ApplyResult[T]{}, err
		}
		if seen.exists {
			return ApplyResult[T]{}, a.exists(fmt.Errorf("its uid is %s", seen.object.GetUID()))
		}
	}
	response, err := sendApply(ctx, a, like)
	if err != nil {
		if !a.request.DryRun {
			a.client.applied.forgetWritten(a.id.object)
		}
		if isAboutExisting(a, err) {
			err = a.exists(err)
		}
		return ApplyResult[T]{}, asMistyped(err)
	}
	after, err := a.stateOf(response)
	if err != nil {
		return ApplyResult[T]{Object: response, Outcome: Created}, err
	}
	outcome := Created
	if a.request.Status == http.StatusOK {
		outcome = Updated // by an aggregated API server that ignores the resourceVersion
	}
	a.remember(after, outcome)
	return ApplyResult[T]{Object: response, Outcome: outcome}, nil
}

// exists returns the error for an existing object. apierrors.IsAlreadyExists is true for it.
func (t target) exists(why error) error {
	return fmt.Errorf("%w: %w: %s", ErrExists, apierrors.NewAlreadyExists(t.resource.GroupResource(), t.key.Name),
		why.Error())
}

// isAboutExisting reports whether the API server rejected an apply because the object exists: the resourceVersions
// differ, or another manager owns fields of it. A conflict may also be about another object, such as a quota.
func isAboutExisting(a application, err error) bool {
	if apierrors.IsAlreadyExists(err) || len(conflictsOf(err)) > 0 {
		return true
	}
	details := detailsOf(err)
	return apierrors.IsConflict(err) && details != nil && details.Group == a.resource.Group &&
		details.Kind == a.resource.Resource && details.Name == a.key.Name
}

// isKubernetesGroup reports whether kube-apiserver itself serves an API group in every cluster. Any other group
// may belong to a CustomResourceDefinition or an aggregated API server: discovery does not distinguish them,
// and most programs may not read APIServices.
func isKubernetesGroup(group string) bool {
	switch group {
	case "", "apps", "autoscaling", "batch", "policy":
		return true
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
		"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
		"storagemigration.k8s.io":
		return true
	}
	return false
}
