package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
)

// register applies the configurations with the bundle, if it has changed or after applyInterval.
func (k *keeper) register(ctx context.Context, bundle []byte) error {
	if bytes.Equal(bundle, k.applied) && time.Since(k.appliedAt) < applyInterval {
		return nil
	}
	if err := k.checkResources(ctx); err != nil {
		return fmt.Errorf("register the webhooks: %w", err)
	}
	// One that cannot be applied must not keep others from the bundle.
	configurations, empty := k.server.configurations(k.config.Register, k.at, bundle)
	var errs []error
	for _, obj := range configurations {
		if k.config.BundleOnly {
			errs = append(errs, patchBundle(ctx, k.config.Client, obj, bundle))
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
		errs = append(errs, conversion.patch(ctx, k.config.Client, k.at, bundle, k.config.BundleOnly))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register the webhooks: %w", err)
	}
	if k.appliedAt.IsZero() {
		k.logger.InfoContext(ctx, "webhooks registered", "host", k.at.name, "port", k.at.port)
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

// applyConfiguration makes the hooks of a configuration those of obj. An apply keeps the hooks and the match conditions
// of other field owners, of which a condition could disable a hook, so they are removed afterwards.
func applyConfiguration(ctx context.Context, c *client.Client, obj *unstructured.Unstructured) error {
	hooks := obj.Object["webhooks"]
	applied, err := client.Apply(ctx, c, obj, client.Force())
	if err != nil || equality.Semantic.DeepEqual(applied.Object.Object["webhooks"], hooks) {
		return err
	}
	return patchHooks(ctx, c, obj, types.MergePatchType, hooks)
}

// patchHooks patches the hooks of a configuration.
func patchHooks(
	ctx context.Context, c *client.Client, obj *unstructured.Unstructured, kind types.PatchType, hooks any,
) error {
	body, err := json.Marshal(map[string]any{"webhooks": hooks})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, c, obj, client.RawPatch(kind, body))
	return err
}

// patchBundle sets the bundle of the hooks of obj in the installed configuration. A hook that is missing there is an
// error of the API server, because a bundle alone is not a hook.
func patchBundle(ctx context.Context, c *client.Client, obj *unstructured.Unstructured, bundle []byte) error {
	var hooks []any
	installed, _, _ := unstructured.NestedSlice(obj.Object, "webhooks")
	for _, hook := range installed {
		name := hook.(map[string]any)["name"] //nolint:forcetypeassert // of registration
		hooks = append(hooks, map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": bundle}})
	}
	return patchHooks(ctx, c, obj, types.StrategicMergePatchType, hooks)
}
