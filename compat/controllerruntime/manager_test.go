package controllerruntime_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
)

// keeper keeps a Secret with the color of each ConfigMap, and counts its runs.
type keeper struct {
	client.Client

	runs map[string]int
}

func (k *keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	k.runs[req.Name]++
	var cm corev1.ConfigMap
	if err := k.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = req.Namespace, req.Name
	_, err := controllerutil.CreateOrUpdate(ctx, k.Client, secret, func() error {
		secret.StringData = map[string]string{"color": cm.Data["color"]}
		return controllerutil.SetControllerReference(&cm, secret, k.Scheme())
	})
	return ctrl.Result{}, err
}

// A manager with builder, client and this cache works for a day of virtual time, through broken watches, and ends.
func TestManager(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		skip := true
		mgr, err := ctrl.NewManager(w.server.RESTConfig("operator"), ctrl.Options{
			NewCache: controllerruntime.NewCache,
			Logger:   logr.Discard(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
			Controller: config.Controller{SkipNameValidation: &skip},
		})
		w.must(err)
		k := &keeper{Client: mgr.GetClient(), runs: map[string]int{}}
		w.must(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(k))
		cm := configMap("shop", "a")
		w.create(cm)
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }() // waited for below
		key := client.ObjectKeyFromObject(cm)
		for hour := range 24 {
			w.paint(cm, strconv.Itoa(hour))
			w.server.CloseWatches()
			if hour%3 == 0 {
				w.server.Compact()
			}
			time.Sleep(time.Hour)
			var secret corev1.Secret
			w.must(w.user.Get(w.Context(), key, &secret))
			if got := string(secret.Data["color"]); got != strconv.Itoa(hour) {
				w.Errorf("hour %d: the Secret has %s", hour, got)
			}
			if hour%4 == 0 {
				w.must(w.user.Delete(w.Context(), &secret)) // the owner is enqueued
			}
		}
		cancel()
		w.must(<-ended)
		if k.runs["a"] > 100 {
			w.Errorf("%d runs", k.runs["a"])
		}
	})
}
