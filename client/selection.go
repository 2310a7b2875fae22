package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/kube"
)

// selectionSettings evaluates the selection and the options of a call. The error lists every mistake.
func selectionSettings[O option](selection kube.Selection, options []O, accepted string) (settings, error) {
	s, err := newSettings(options, accepted)
	return s, errors.Join(err, s.selectBy(selection))
}

// selectBy evaluates a selection.
func (s *settings) selectBy(selection kube.Selection) error {
	var errs []error
	if s.kind = selection.Kind; !s.kind.Empty() {
		if err := checkKind(s.kind); err != nil {
			errs = append(errs, fmt.Errorf("the Kind of the selection: %w", err))
		}
	}
	for _, namespace := range selection.Namespaces {
		if !slices.Contains(s.namespaces, namespace) {
			s.namespaces = append(s.namespaces, namespace)
		}
	}
	if s.allNamespaces = slices.Contains(s.namespaces, kube.AllNamespaces); s.allNamespaces {
		if len(s.namespaces) > 1 {
			errs = append(errs, errors.New("the Namespaces of the selection: AllNamespaces must be the only one"))
		}
		s.namespaces = nil
	}
	var err error
	if selection.LabelSelector != "" {
		if s.labels, err = labels.Parse(selection.LabelSelector); err != nil {
			errs = append(errs, fmt.Errorf("LabelSelector %q: %w", selection.LabelSelector, err))
		}
	}
	if selection.FieldSelector != "" {
		if s.fields, err = fields.ParseSelector(selection.FieldSelector); err != nil {
			errs = append(errs, fmt.Errorf("FieldSelector %q: %w", selection.FieldSelector, err))
		}
	}
	return errors.Join(errs...)
}

// beginSelection evaluates the selection and the options of a call. It returns a target for each namespace, or one for
// all namespaces.
func beginSelection[T kube.Object, O option](
	ctx context.Context, c *Client, action string, selection kube.Selection, options []O, accepted string,
) ([]target, error) {
	s, err := selectionSettings(selection, options, accepted)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	namespaces := s.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var targets []target
	for _, namespace := range namespaces {
		t, err := selectionIn[T](ctx, c, namespace, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", action, err)
		}
		t.action = action
		targets = append(targets, t)
	}
	return targets, nil
}

// beginRead is beginSelection for a call that only reads: Namespaces default to those of the Cluster.
func beginRead[T kube.Object, O option](
	ctx context.Context, c *Client, action string, selection kube.Selection, options []O, accepted string,
) ([]target, error) {
	targets, err := beginSelection[T](ctx, c, action, selection, options, accepted)
	if err != nil || len(targets[0].defaultNamespaces()) == 0 {
		return targets, err
	}
	selection.Namespaces = targets[0].defaultNamespaces()
	return beginSelection[T](ctx, c, action, selection, options, accepted)
}

// defaultNamespaces returns the namespaces of the Cluster if they apply to the target, and nil otherwise.
func (t target) defaultNamespaces() []string {
	if !t.resource.Namespaced || t.key.Namespace != "" || t.allNamespaces {
		return nil
	}
	return t.client.config.Cluster.Namespaces()
}

// oneList returns the target, which is for all namespaces or for one, with the default namespace of the Cluster.
func (t target) oneList() (target, error) {
	switch defaults := t.defaultNamespaces(); len(defaults) {
	case 0:
	case 1:
		t.key.Namespace = defaults[0]
	default:
		return t, fmt.Errorf("the Cluster is limited to %d namespaces, and this call is for one namespace or for all: "+
			"make a call for each, with Selection.Namespaces", len(defaults))
	}
	return t, nil
}

// beginList is beginRead for a call that makes one list or watch.
func beginList[T kube.Object, O option](
	ctx context.Context, c *Client, action string, selection kube.Selection, options []O, accepted string,
) (target, error) {
	if err := checkOneList(selection); err != nil {
		return target{}, fmt.Errorf("%s: %w", action, err)
	}
	targets, err := beginSelection[T](ctx, c, action, selection, options, accepted)
	if err != nil {
		return target{}, err
	}
	t, err := targets[0].oneList()
	if err != nil {
		err = fmt.Errorf("%s: %w", action, err)
	}
	return t, err
}

// checkOneList rejects selections that need several lists or watches.
func checkOneList(selection kube.Selection) error {
	if n := len(selection.Namespaces); n > 1 {
		return fmt.Errorf("the selection has %d Namespaces, and this call is for one namespace or for all: make a "+
			"call for each", n)
	}
	return nil
}

// selectionIn returns the target of a selection in a namespace; empty: in all.
func selectionIn[T kube.Object](ctx context.Context, c *Client, namespace string, s settings) (target, error) {
	t, err := targetFor[T](ctx, c, kube.Key{Namespace: namespace}, s)
	if err != nil || !t.resource.Namespaced {
		return t, err
	}
	switch only := c.config.Namespace; {
	case len(s.namespaces) > 0 && namespace == "":
		return t, fmt.Errorf("an empty name is among the Namespaces of the selection, and a %s lives in a namespace: "+
			"kube.AllNamespaces selects all", t.kind.Kind)
	case s.allNamespaces && only != "":
		return t, fmt.Errorf("kube.AllNamespaces: this client is for namespace %s only", only)
	}
	return t, nil
}

// checkDestructive rejects a selection to delete that may have been computed from empty values.
func (t target) checkDestructive() error {
	switch {
	case t.resource.Namespaced && t.key.Namespace == "" && !t.allNamespaces:
		return fmt.Errorf("a %s lives in a namespace: the selection needs Namespaces, or kube.AllNamespaces",
			t.kind.Kind)
	case (t.labels == nil || t.labels.Empty()) && (t.fields == nil || t.fields.Empty()):
		return errors.New("the selection has no LabelSelector and no FieldSelector, so it selects all objects: if " +
			"all are meant, set FieldSelector to \"metadata.name!=\"")
	case t.labels != nil && t.labels.Empty(), t.fields != nil && t.fields.Empty():
		return errors.New("the selection has a LabelSelector or a FieldSelector without a condition: leave it empty")
	}
	return nil
}
