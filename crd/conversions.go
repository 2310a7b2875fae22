package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Definitions are CustomResourceDefinitions, for example for evenkeel.Program.Install.
type Definitions []*apiextensionsv1.CustomResourceDefinition

// Prepare is for evenkeel.Program.Install. It sets the conversions in the definitions, and returns what installs the
// definitions, with AcceptNewer, and by their names what migrates their objects.
func (d Definitions) Prepare(
	c *client.Client, conversions []*unstructured.Unstructured,
) (install func(context.Context) error, migrations map[string]func(context.Context) error, err error) {
	if err := SetConversions(conversions, d...); err != nil {
		return nil, nil, err
	}
	d.require(c)
	install = func(ctx context.Context) error {
		_, err := Ensure(ctx, c, d, AcceptNewer())
		return err
	}
	migrations = map[string]func(context.Context) error{}
	for _, definition := range d {
		migrations[definition.Name] = func(ctx context.Context) error {
			_, err := Migrate(ctx, c, definition.Name)
			return err
		}
	}
	return install, migrations, nil
}

// require records the permissions of Ensure for definitions that exist, and those of Migrate for definitions with
// several versions.
func (d Definitions) require(c *client.Client) {
	for _, definition := range d {
		require := func(kind schema.GroupVersionKind, subresource string, names []string, verbs ...string) {
			apiobject.ObserversOf(c.Cluster()).Require(apiobject.Permission{
				Kind: kind, Subresource: subresource, Names: names, Verbs: verbs,
				Namespaces: []string{kube.AllNamespaces}, Standby: kind == crdKind(),
			})
		}
		require(crdKind(), "", []string{definition.Name}, "get", "list", "watch", "patch") // it waits by a watch
		if kinds := servedKinds(definition); len(definition.Spec.Versions) > 1 && len(kinds) > 0 {
			require(crdKind(), "status", []string{definition.Name}, "patch")
			require(kinds[0], "", nil, "list", "get", "patch") // get after a conflict
		}
	}
}

// SetConversions sets spec.conversion in the definitions with the names of the conversions, which
// webhook.Server.Conversions returns, and no other field. Other definitions stay unchanged. The definitions can be
// installed with Ensure or printed; with webhook.Config.Certificates the server sets the CA bundle of the installed
// ones.
//
// Errors: a conversion has no definition, another kind than its definition, or other versions. Then no definition is
// changed.
func SetConversions(
	conversions []*unstructured.Unstructured, definitions ...*apiextensionsv1.CustomResourceDefinition,
) error {
	var errs []error
	stanzas := map[*apiextensionsv1.CustomResourceDefinition]*apiextensionsv1.CustomResourceConversion{}
	for _, conversion := range conversions {
		part := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(conversion.Object, part); err != nil {
			errs = append(errs, err)
			continue
		}
		i := slices.IndexFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return d != nil && d.Name == part.Name
		})
		if i < 0 {
			errs = append(errs, fmt.Errorf("no definition has the name %s", part.Name))
			continue
		}
		if err := mismatches(part, definitions[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", kindName, part.Name, err))
		}
		stanzas[definitions[i]] = part.Spec.Conversion
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set the conversions of definitions: %w", err)
	}
	for definition, stanza := range stanzas {
		definition.Spec.Conversion = stanza
	}
	return nil
}

// mismatches returns the differences between the Go types of a conversion and a definition.
func mismatches(conversion, definition *apiextensionsv1.CustomResourceDefinition) error {
	if len(conversion.Spec.Versions) == 0 {
		return nil // it has no Go types
	}
	var mistakes usercode.Mistakes
	if got, want := definition.Spec.Names.Kind, conversion.Spec.Names.Kind; got != want {
		mistakes.Addf("its kind is %s, and the conversion is of %s", got, want)
	}
	var defined []string
	for _, v := range definition.Spec.Versions {
		defined = append(defined, v.Name)
		if versionOf(conversion, v.Name) == nil {
			mistakes.Addf("the conversion lacks version %s: pass a Spoke for it", v.Name)
		}
	}
	for _, v := range conversion.Spec.Versions {
		if !slices.Contains(defined, v.Name) {
			mistakes.Addf("version %s of the conversion is not defined: it has %s", v.Name,
				strings.Join(defined, ", "))
		}
	}
	return mistakes.Err()
}
