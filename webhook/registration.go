package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// register applies the configurations with the bundle, if it has changed or after applyInterval.
func (k *keeper) register(ctx context.Context, bundle []byte) error {
	if bytes.Equal(bundle, k.applied) && time.Since(k.appliedAt) < applyInterval {
		return nil
	}
	if err := k.checkRules(ctx); err != nil {
		return fmt.Errorf("register the webhooks: %w", err)
	}
	config := *k.config.ClientConfig.DeepCopy()
	config.CABundle = bundle
	// One that cannot be applied must not keep others from the bundle.
	configurations := k.server.Configurations(k.config.Register, config)
	var errs []error
	if k.config.BundleOnly {
		for _, obj := range configurations {
			errs = append(errs, patchBundle(ctx, k.config.Client, obj, bundle))
		}
	} else {
		former, err := k.formerConfigurations(ctx)
		errs = append(errs, err)
		for _, obj := range append(configurations, former...) {
			errs = append(errs, applyConfiguration(ctx, k.config.Client, obj))
		}
	}
	for _, conversion := range k.server.conversions() {
		errs = append(errs, conversion.patch(ctx, k.config.Client, config, k.config.BundleOnly))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register the webhooks: %w", err)
	}
	if k.appliedAt.IsZero() {
		k.logger.InfoContext(ctx, "webhooks registered", "host", k.names[0], "port", portOf(config))
	}
	k.applied, k.appliedAt = bundle, time.Now()
	trusted := map[string]time.Time{}
	for _, cert := range k.last.Trusted {
		since, ok := k.trustedSince[string(cert)]
		if !ok {
			since = k.appliedAt
		}
		trusted[string(cert)] = since
	}
	k.trustedSince = trusted
	return nil
}

// portOf returns the port at which the API server reaches the server.
func portOf(config admissionregistrationv1.WebhookClientConfig) string {
	if config.Service != nil {
		return fmt.Sprint(*withPath(config, "").Service.Port)
	}
	parsed, _ := url.Parse(*config.URL) // it is valid: see namesOf
	return cmp.Or(parsed.Port(), "443")
}

// applyConfiguration makes the hooks of a configuration those of obj. An apply keeps the hooks and the match conditions
// of other field owners, of which a condition could disable a hook, so they are removed afterwards.
func applyConfiguration(ctx context.Context, c *client.Client, obj kube.Object) error {
	applied, err := client.Apply(ctx, c, obj, client.Force())
	if err != nil || equality.Semantic.DeepEqual(hooksOf(applied.Object), hooksOf(obj)) {
		return err
	}
	body, err := json.Marshal(map[string]any{"webhooks": hooksOf(obj)})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, c, applied.Object, client.RawPatch(types.MergePatchType, body))
	return err
}

// patchBundle sets the bundle of the hooks of obj in the installed configuration. A hook that is missing there is an
// error of the API server, because a bundle alone is not a hook.
func patchBundle(ctx context.Context, c *client.Client, obj kube.Object, bundle []byte) error {
	var hooks []any
	add := func(name string) {
		hooks = append(hooks, map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": bundle}})
	}
	switch configuration := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for _, hook := range configuration.Webhooks {
			add(hook.Name)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for _, hook := range configuration.Webhooks {
			add(hook.Name)
		}
	}
	body, err := json.Marshal(map[string]any{"webhooks": hooks})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, c, obj, client.RawPatch(types.StrategicMergePatchType, body))
	return err
}

// hooksOf returns the hooks of a configuration.
func hooksOf(obj kube.Object) any {
	if mutating, ok := obj.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
		return mutating.Webhooks
	}
	//nolint:forcetypeassert // the other kind
	return obj.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
}

// formerConfigurations returns empty configurations for those that an earlier version of the program has registered,
// and for which the server has no hooks now: the API server would call hooks that nobody serves. A replica of the
// earlier version registers its hooks again as long as it runs.
func (k *keeper) formerConfigurations(ctx context.Context) ([]kube.Object, error) {
	if k.config.Register == "" {
		return nil, nil
	}
	mutating, validating := emptyConfigurations(k.config.Register)
	for _, hook := range k.server.hooks {
		switch a, ok := hook.protocol.(admission); {
		case ok && a.mutating:
			mutating = nil
		case ok:
			validating = nil
		}
	}
	var former []kube.Object
	if mutating != nil {
		registered, err := client.Get[*admissionregistrationv1.MutatingWebhookConfiguration](ctx, k.config.Client,
			kube.KeyOf(mutating), client.FromAPI())
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && len(registered.Webhooks) > 0 {
			former = append(former, mutating)
		}
	}
	if validating != nil {
		registered, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](ctx, k.config.Client,
			kube.KeyOf(validating), client.FromAPI())
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && len(registered.Webhooks) > 0 {
			former = append(former, validating)
		}
	}
	return former, nil
}
