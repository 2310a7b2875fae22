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
	configurations, empty := k.server.configurations(k.config.Register, config)
	var errs []error
	for _, obj := range configurations {
		if k.config.BundleOnly {
			errs = append(errs, patchBundle(ctx, k.config.Client, obj))
		} else {
			errs = append(errs, applyConfiguration(ctx, k.config.Client, obj))
		}
	}
	if !k.config.BundleOnly && k.config.Register != "" {
		// An earlier version of the program may have registered hooks of a kind of which the server has none now: the
		// API server would call hooks that nobody serves. A replica of the earlier version registers its hooks again as
		// long as it runs.
		for _, obj := range empty {
			err := patchHooks(ctx, k.config.Client, obj, types.MergePatchType, []any{})
			errs = append(errs, client.IgnoreNotFound(err))
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
	return patchHooks(ctx, c, obj, types.MergePatchType, hooksOf(obj))
}

// patchHooks patches the hooks of a configuration.
func patchHooks(ctx context.Context, c *client.Client, obj kube.Object, kind types.PatchType, hooks any) error {
	body, err := json.Marshal(map[string]any{"webhooks": hooks})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, c, obj, client.RawPatch(kind, body))
	return err
}

// patchBundle sets the bundle of the hooks of obj in the installed configuration. A hook that is missing there is an
// error of the API server, because a bundle alone is not a hook.
func patchBundle(ctx context.Context, c *client.Client, obj kube.Object) error {
	var hooks []struct {
		Name         string `json:"name"`
		ClientConfig struct {
			CABundle []byte `json:"caBundle"`
		} `json:"clientConfig"`
	}
	if err := throughJSON(hooksOf(obj), &hooks); err != nil {
		return err
	}
	return patchHooks(ctx, c, obj, types.StrategicMergePatchType, hooks)
}

// hooksOf returns the hooks of a configuration.
func hooksOf(obj kube.Object) any {
	if mutating, ok := obj.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
		return mutating.Webhooks
	}
	//nolint:forcetypeassert // the other kind
	return obj.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
}
