package finalizer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

func has(obj metav1.Object, name string) bool { return slices.Contains(obj.GetFinalizers(), name) }

// Add adds the finalizer to the object and reports whether it wrote. It may be called on every run: if obj has the
// finalizer, it makes no request. The things that the finalizer cleans up may be created only after Add has returned.
//
// Unlike the functions of package client, Add changes obj, so that the handler and its middleware continue with one
// object: obj gets the current finalizers. It gets the current resourceVersion only if nothing else has changed since
// obj was read. Otherwise it keeps its own, because with a later one an update would overwrite changes of other
// clients.
//
// The patch requires the uid and the list of finalizers of obj. If they differ, Add reads the live object and patches
// again, at most 10 times. Other writes to the object do not matter.
//
// Options: DryRun, FieldOwner, FieldValidation of package client.
//
// Errors: a name without a domain (valid: "shop.example.com/cleanup"); an obj without uid; client.ErrTerminating if
// the object is being deleted, so that nothing may be created for it (it may have the finalizer from an earlier write
// that obj does not show); client.ErrGone and client.ErrReplaced; client.ErrChanged, for which apierrors.IsConflict
// is true too, after the last attempt; errors of requests.
func Add(
	ctx context.Context, c *client.Client, obj kube.Object, name string, options ...client.WriteOption,
) (changed bool, err error) {
	if err := check(c, obj, name); err != nil {
		return false, fmt.Errorf("add the finalizer %q: %w", name, err)
	}
	if has(obj, name) {
		return false, nil
	}
	changed, err = edit{name: name, add: true}.do(ctx, c, obj, obj, options)
	if err != nil {
		return false, fmt.Errorf("add the finalizer %q: %w", name, err)
	}
	return changed, nil
}

// Remove removes the finalizer, and no other, from the object and reports whether it wrote. If obj does not have it,
// Remove makes no request. An object that is gone or was replaced is not an error. Remove changes obj as Add does.
//
// The patch requires the uid and the position of the entry in obj; otherwise it is repeated as by Add.
//
// Options and errors: those of Add except client.ErrTerminating, client.ErrGone and client.ErrReplaced.
func Remove(
	ctx context.Context, c *client.Client, obj kube.Object, name string, options ...client.WriteOption,
) (changed bool, err error) {
	if err := check(c, obj, name); err != nil {
		return false, fmt.Errorf("remove the finalizer %q: %w", name, err)
	}
	changed, err = edit{name: name}.do(ctx, c, obj, obj, options)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove the finalizer %q: %w", name, err)
	}
	return changed, nil
}

func isGone(err error) bool {
	return errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced)
}

// check validates the arguments.
func check(c *client.Client, obj kube.Object, name string) error {
	var errs []error
	if c == nil {
		errs = append(errs, errors.New("the client is nil: client.New makes one"))
	}
	errs = append(errs, checkName(name))
	if usercode.IsNil(obj) {
		errs = append(errs, errors.New("the object is nil"))
	} else if obj.GetUID() == "" {
		errs = append(errs, fmt.Errorf("%s has no uid: use an object that was read from the cluster", kube.KeyOf(obj)))
	}
	return errors.Join(errs...)
}

// checkName requires a name with a domain: names without one are reserved for Kubernetes.
func checkName(name string) error {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return fmt.Errorf("the name %q is not valid: %s", name, strings.Join(problems, "; "))
	}
	if !strings.Contains(name, "/") {
		return fmt.Errorf("the name %q has no domain: use a domain of your own (\"shop.example.com/%s\")", name, name)
	}
	return nil
}
